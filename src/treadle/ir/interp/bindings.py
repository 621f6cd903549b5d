"""What a run is given, checked before anything is computed: run-time sizes and input arrays.

A size is either given by name or deduced from an input one of whose dimensions is just that size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from treadle.core import suggestion_notes
from treadle.index import Expr, Symbol, evaluate
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array, dtype_of
from treadle.ir.interp.errors import RunError
from treadle.ir.program import Program
from treadle.ir.types import Buffer, BufferKind


def as_arrays(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The input arrays by name; every input is there, has its element type, and no more."""
    wanted = [n for n in program.inputs if program.by_name[n].kind is BufferKind.TENSOR]
    for name in inputs:
        if name not in program.inputs:
            notes = suggestion_notes(name, wanted, "inputs")
            raise RunError(f"'{name}' is not an input of the program", code="RUN001", notes=notes)
    missing = [n for n in wanted if n not in inputs]
    if missing:
        raise RunError(f"no array is given for input '{missing[0]}'", code="RUN001")
    arrays = {name: np.asarray(inputs[name]) for name in wanted}
    for name, array in arrays.items():
        _check_element_type(program.by_name[name], array)
    return arrays


def _check_element_type(buffer: Buffer, array: Array) -> None:
    if dtype_of(array) is buffer.dtype:
        return
    wanted = f"{buffer.dtype} (numpy: {NUMPY_TYPES[buffer.dtype]})"
    message = f"input '{buffer.name}' has elements of type {wanted}, not {array.dtype}"
    raise RunError(message, code="RUN001", notes=["inputs are never converted silently"])


def bind_sizes(
    program: Program, arrays: Mapping[str, Array], given: Mapping[str, int]
) -> dict[Symbol, int]:
    """The value of every run-time size of the program."""
    known = {s.name: s for s in program.sizes}
    for name in given:
        if name not in known:
            notes = suggestion_notes(name, list(known), "sizes")
            raise RunError(f"'{name}' is not a size of the program", code="RUN002", notes=notes)
    values: dict[Symbol, int] = {known[name]: int(value) for name, value in given.items()}
    source = dict.fromkeys(values, "it is given")
    for symbol, extent, where in _deducible(program, arrays):
        if values.setdefault(symbol, extent) != extent:
            both = (f"{source[symbol]} as {values[symbol]}", f"{where} has {extent}")
            raise RunError(f"size {symbol.name} has two values", code="RUN002", notes=both)
        source.setdefault(symbol, where)
    for symbol in program.sizes:
        if symbol not in values:
            way_out = ("no input has it as a dimension; pass sizes={...}",)
            raise RunError(f"size {symbol.name} has no value", code="RUN002", notes=way_out)
        _check_facts(symbol, values[symbol])
    return values


def _deducible(program: Program, arrays: Mapping[str, Array]) -> Iterator[tuple[Symbol, int, str]]:
    """Each (size, extent, where) that an input's shape shows outright."""
    for name, array in arrays.items():
        sizes = program.by_name[name].layout.sizes
        if len(sizes) != array.ndim:
            continue
        for k, size in enumerate(sizes):
            if isinstance(size, Symbol) and size in program.sizes:
                yield size, array.shape[k], f"dimension {k} of input '{name}'"


def _check_facts(symbol: Symbol, value: int) -> None:
    above = symbol.lo is None or value >= symbol.lo
    below = symbol.hi is None or value <= symbol.hi
    if above and below and value % symbol.divisor == 0:
        return
    low = "" if symbol.lo is None else symbol.lo
    high = "" if symbol.hi is None else symbol.hi
    promise = f"{symbol.name} in {low}..{high}"
    if symbol.divisor != 1:
        promise += f" divisor {symbol.divisor}"
    notes = [f"the program promises: size {promise}"]
    raise RunError(f"size {symbol.name} cannot be {value}", code="RUN002", notes=notes)


def number(e: Expr, values: Mapping[Symbol, int], where: str) -> int:
    """The integer a size expression stands for."""
    if e.value is not None:  # most are, and runs are short
        return e.value
    unbound = [s.name for s in e.free if s not in values]
    if unbound:
        message = f"{where} needs size {min(unbound)}, which the program does not declare"
        raise RunError(message, code="RUN002")
    try:
        return int(evaluate(e, values))
    except ZeroDivisionError:
        raise RunError(f"{where} divides by zero in {e}", code="RUN002") from None


def check_shape(buffer: Buffer, shape: tuple[int, ...], array: Array) -> None:
    """Refuse an input array whose shape is not the one of its buffer."""
    if array.shape == shape:
        return
    sizes = ", ".join(map(str, buffer.layout.sizes))
    message = f"input '{buffer.name}' has shape {list(shape)}, not {list(array.shape)}"
    raise RunError(message, code="RUN001", notes=[f"it is declared as {buffer.dtype}[{sizes}]"])
