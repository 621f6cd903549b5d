"""How far code may be from the interpreter, derived from the program, its data and its numerics.

    bounds = derive_bounds(program, {"x": x})
    bounds.error("y")                    largest |y' - y| of any code that keeps the numerics
    assert_within(program, {"x": x}, {"y": y})

The program is run by the interpreter, and every value carries a bound of its own on the data at
hand: roundings, sums by the sizes of their elements, functions by their ulps, all passed on through
what follows (running error analysis). Nothing is a guess: where code may decide otherwise (a
comparison of two values that are too close to call, an index made of such) the bound is infinite.
Such elements are counted; a test that has too many of them says nothing, and fails.

With exact numerics most bounds are 0: code must give the same bits. What remains is the order in
which f64 sums are added, and the last places of f64 functions, where they reach a rounding border.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.index import Symbol
from treadle.ir.interp.bindings import as_arrays, bind_sizes, check_shape
from treadle.ir.interp.calls import CallContext, ExternFn
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.machine import RUNNERS
from treadle.ir.interp.memory import Memory
from treadle.ir.numerics import Numerics
from treadle.ir.program import Call, Loop, MultiOutput, Nop, Operation, Program
from treadle.testing.bounding.calls import CallAtWork, CallBound, bound_call
from treadle.testing.bounding.memory import Errors
from treadle.testing.bounding.statements import BoundRun

__all__ = [
    "Bounds",
    "CallAtWork",
    "CallBound",
    "OutOfBoundsError",
    "assert_within",
    "derive_bounds",
    "outside",
]

MOST_UNDECIDABLE = 0.01
"""The share of elements without a bound above which a comparison says too little."""


class OutOfBoundsError(AssertionError):
    """Code gave something its program does not allow."""


@dataclass(frozen=True)
class Bounds:
    """What a program gives on some data, and how far from it code may be."""

    program: Program
    numerics: Numerics
    memory: Memory
    errors: Errors

    def value(self, name: str) -> Array:
        """A buffer after the run, as the interpreter has it."""
        return self.memory.tensor(name).copy()

    def error(self, name: str) -> Array:
        """For each element of a buffer after the run how far code may be from it."""
        return self.errors.tensor(name)

    @property
    def sizes(self) -> Mapping[Symbol, int]:
        """The run-time sizes of the run."""
        return self.memory.sizes


def derive_bounds(
    program: Program,
    inputs: Mapping[str, Array],
    numerics: Numerics | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    externs: Mapping[str, ExternFn] | None = None,
    call_bounds: Mapping[str, CallBound] | None = None,
    input_errors: Mapping[str, Array] | None = None,
    poisoned: bool = False,
) -> Bounds:
    """Run a program and bound the error of everything it computes.

    The numerics are the program's own unless others are given. Derive from the program that is
    rendered: what is one body there may be contracted, and rounded late, as one. `input_errors`
    says how far inputs may be off already, `call_bounds` bounds library calls by target, and
    `poisoned` that memory nobody writes holds what the interpreter fills it with.
    """
    numerics = program.numerics if numerics is None else numerics
    arrays = as_arrays(program, inputs)
    memory = Memory(program, bind_sizes(program, arrays, sizes or {}), poisoned=True)
    errors = Errors(memory, poisoned)
    with np.errstate(all="ignore"):
        for name in program.inputs:
            memory.define(name)
        for name, array in arrays.items():
            check_shape(program.by_name[name], memory.layout(name).sizes, array)
            memory.tensor(name)[...] = array
            errors.fill(name, np.asarray((input_errors or {}).get(name, 0.0)))
        for op in program.leaves:
            _run(op, errors, numerics, externs or {}, call_bounds or {})
        for name in program.outputs:
            memory.require(name, "the end of the program")
    return Bounds(program, numerics, memory, errors)


def _run(
    op: Operation,
    errors: Errors,
    numerics: Numerics,
    externs: Mapping[str, ExternFn],
    bounds: Mapping[str, CallBound],
) -> None:
    memory = errors.memory
    if isinstance(op, Loop):
        BoundRun(op, errors, numerics).run()
        return
    if isinstance(op, Call):
        context = CallContext(op, memory)
        before = context.args
        RUNNERS[type(op)](op, memory, externs)
        bound_call(op, context, before, errors, externs, bounds)
        return
    RUNNERS[type(op)](op, memory, externs)
    if isinstance(op, MultiOutput):
        errors.fill(op.target, errors.tuples[op.source][op.position])
    elif isinstance(op, Nop):
        for name in op.writes:
            errors.fill(name, np.asarray(errors.unwritten))


# --------------------------------------------------------------------------------- comparing


def outside(
    bounds: Bounds,
    got: Mapping[str, Array],
    slack: float = 1.0,
    undecidable: float = MOST_UNDECIDABLE,
) -> list[str]:
    """What of the results is further off than allowed, or cannot be told: one line for each."""
    lines = []
    open_elements = elements = 0
    for name, array in got.items():
        value, error = bounds.value(name), bounds.error(name)
        found = np.asarray(array)
        if found.shape != value.shape or found.dtype != value.dtype:
            lines.append(f"{name}: {value.dtype}{value.shape} became {found.dtype}{found.shape}")
            continue
        open_elements += int(np.isinf(error).sum())
        elements += error.size
        line = _worst(name, value, found, error, slack)
        if line:
            lines.append(line)
    if open_elements > undecidable * max(elements, 1):
        share = f"{open_elements} of {elements} elements"
        lines.append(
            f"{share} have no bound, more than {undecidable:.1%}: this compares too little"
        )
    return lines


def _worst(name: str, value: Array, found: Array, error: Array, slack: float) -> str:
    with np.errstate(all="ignore"):
        wide, other = value.astype(np.float64), found.astype(np.float64)
        # Whole numbers may not fit f64, and are equal or not.
        same = (value == found) | (np.isnan(wide) & np.isnan(other))
        apart = np.where(same, 0.0, np.abs(other - wide))
        apart = np.where(np.isnan(apart) | (~same & (apart == 0)), np.inf, apart)
        allowed = slack * error
        wrong = (apart > allowed) & ~np.isinf(error)
        if not wrong.any():
            return ""
        over = np.where(wrong, apart / np.maximum(allowed, np.finfo(np.float64).tiny), 0.0)
    at = np.unravel_index(int(np.argmax(over)), over.shape)
    where = [int(k) for k in at]
    return (
        f"{name}: {int(wrong.sum())} of {wrong.size} elements out of bounds, worst at {where}:"
        f" {found[at]} where {value[at]} is exact, off by {apart[at]:.3g}"
        f" with at most {allowed[at]:.3g} allowed"
    )


def assert_within(
    program: Program,
    inputs: Mapping[str, Array],
    got: Mapping[str, Array],
    numerics: Numerics | None = None,
    slack: float = 1.0,
    undecidable: float = MOST_UNDECIDABLE,
    **rest: Any,
) -> Bounds:
    """Demand that results are within the bound; the message names output, element and figures.

    `got` has results by the name of their buffer; `rest` is what `derive_bounds` takes besides.
    """
    bounds = derive_bounds(program, inputs, numerics, **rest)
    lines = outside(bounds, got, slack, undecidable)
    if lines:
        raise OutOfBoundsError("\n".join([f"numerics {bounds.numerics}", *lines]))
    return bounds
