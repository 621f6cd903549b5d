"""How far a compiled graph of torch's may be from exact results, by the derived bound.

The graph's kernels are run by the interpreter with their errors, library calls by torch itself:
those that are linear in each argument in double, with the usual bound on sums of products, others
as they are, exact as long as all they read is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from treadle.frontends.torch.capture.compile import Built
from treadle.frontends.torch.lowering.graph import Lowered
from treadle.frontends.torch.lowering.values import Realised
from treadle.index import Expr, evaluate
from treadle.ir.interp import CallContext
from treadle.ir.interp.dtypes import NUMPY_TYPES
from treadle.ir.interp.externs import base_name
from treadle.ir.interp.memory import Memory
from treadle.ir.program import Call, Program, Ref
from treadle.ir.types import DType, Layout
from treadle.runtime.library_calls import Hole, LibraryCall, ViewHole
from treadle.testing.bounding.rounding import UNIT_F32, UNIT_F64, growth
from treadle.testing.error_bound import Bounds, CallAtWork, derive_bounds

LINEAR = ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv", "convolution")
"""Operators that are linear in each argument: absolute arguments give the sum of sizes."""
MORE_ROUNDINGS = 4
PLAIN_ARGUMENTS = (
    Hole, ViewHole, bool, int, float, str, type(None),
    torch.dtype, torch.layout, torch.device, torch.memory_format,
)  # fmt: skip
RANDOM = torch.Tag.nondeterministic_seeded


class NoBoundError(Exception):
    """The graph does something that cannot be run beside it."""


class BoundedTensor(NamedTuple):
    """An output: what is exact, and how far each element may be from it."""

    value: Any
    error: Any


def bound_for_graph(built: Built, given: Sequence[Any]) -> list[BoundedTensor | None]:
    """What a graph gives and its bound, one for each result; None where it is no tensor."""
    lowered, program = built.lowered, built.scheduled.kernels
    arrays = {name: as_array(given[position]) for position, name in lowered.tensors}
    arrays |= {name: as_array(tensor) for name, tensor in lowered.constants.items()}
    numbers = {name: int(given[position]) for position, name in lowered.numbers}
    calls = _Calls(lowered, program)
    bounds = derive_bounds(
        program, arrays, sizes=numbers, externs=calls.externs, call_bounds=calls.bounds
    )
    return [_window(bounds, value) for value in lowered.outputs]


def _window(bounds: Bounds, value: Any) -> BoundedTensor | None:
    if not isinstance(value, Realised):
        return None
    at = _numbers(value.layout, bounds.memory)
    row = bounds.memory.elements(value.buffer.name)
    error = torch.from_numpy(bounds.errors.elements(value.buffer.name).error)
    return BoundedTensor(as_tensor(row, value.dtype).as_strided(*at), error.as_strided(*at))


def _numbers(layout: Layout, memory: Memory) -> tuple[list[int], list[int], int]:
    def known(e: Expr) -> int:
        return int(evaluate(e, memory.sizes))

    sizes, strides = ([known(n) for n in part] for part in (layout.sizes, layout.strides))
    return sizes, strides, known(layout.offset)


class _Calls:
    """The library calls of a graph, for the interpreter and for the bound."""

    def __init__(self, lowered: Lowered, program: Program) -> None:
        self.calls = lowered.calls
        ops = [op for op in program.leaves if isinstance(op, Call)]
        for op in ops:
            if op.mutates or not _is_plain(self.calls[op.name]):
                raise NoBoundError(op.target)
        self.externs = {op.target: self.run for op in ops}
        linear = [op.target for op in ops if base_name(op.target) in LINEAR]
        self.bounds = dict.fromkeys(linear, self.bound)

    def run(self, context: CallContext, op: Call) -> None:
        memory, call = context._memory, self.calls[op.name]
        is_linear = base_name(op.target) in LINEAR

        def tensor(name: str, layout: Layout) -> Any:
            row, kind = memory.elements(name), memory.buffer(name).dtype
            made = torch.from_numpy(row.astype(np.float64)) if is_linear else as_tensor(row, kind)
            return made.as_strided(*_numbers(layout, memory))

        found = self.invoke(call, op, tensor, memory)
        several = (found,) if call.is_single else found
        for (position, _, _), name in zip(call.results, op.writes, strict=True):
            made = several[position]
            if made is None or tuple(made.shape) != context.shape_of(name):
                raise NoBoundError(op.target)
            context.write(name, as_array(made))

    def bound(self, work: CallAtWork) -> tuple[Any, Any] | None:
        call, errors, memory = self.calls[work.op.name], work.memory, work.memory.memory
        if not call.is_single:
            return None

        def of(kind: str) -> Callable[[str, Layout], Any]:
            def tensor(name: str, layout: Layout) -> Any:
                row = memory.elements(name).astype(np.float64)
                if kind == "ones":
                    row = np.ones_like(row)
                elif kind != "values":
                    row = np.abs(row) + (errors.elements(name).error if kind == "upper" else 0.0)
                return torch.from_numpy(row).as_strided(*_numbers(layout, memory))

            return tensor

        made = {kind: self.invoke(call, work.op, of(kind), memory, kind != "values").numpy()
                for kind in ("values", "sizes", "upper", "ones")}  # fmt: skip
        names = [a.buffer for a in work.op.args if isinstance(a, Ref)]
        doubles = all(memory.buffer(n).dtype is DType.F64 for n in names)
        terms = float(np.max(made["ones"], initial=0.0)) + MORE_ROUNDINGS
        own = growth(terms, UNIT_F64 if doubles else UNIT_F32) * made["upper"]
        return made["values"], made["upper"] - made["sizes"] + own

    def invoke(
        self,
        call: LibraryCall,
        op: Call,
        tensor: Callable[[str, Layout], Any],
        memory: Memory,
        positive: bool = False,
    ) -> Any:
        def fill(arg: Any) -> Any:
            if isinstance(arg, Hole | ViewHole):
                given = op.args[arg.position]
                if isinstance(given, Expr):
                    return int(evaluate(given, memory.sizes))
                assert isinstance(given, Ref)
                layout = (
                    arg.layout if isinstance(arg, ViewHole) else memory.buffer(given.buffer).layout
                )
                return tensor(given.buffer, layout)
            if isinstance(arg, list | tuple):
                return type(arg)([fill(a) for a in arg])
            return arg

        named = {key: fill(a) for key, a in call.kwargs.items()}
        if positive:
            named |= {k: abs(v) for k, v in named.items() if k in ("alpha", "beta")}
        return call.function(*[fill(a) for a in call.args], **named)


def _is_plain(call: LibraryCall) -> bool:
    """Whether a call is a function of tensors and numbers that gives tensors."""
    if RANDOM in getattr(call.function, "tags", ()):
        return False
    if any(is_object for _, _, is_object in call.results):
        return False
    return _has_no_objects([*call.args, *call.kwargs.values()])


def _has_no_objects(arg: Any) -> bool:
    if isinstance(arg, list | tuple):
        return all(map(_has_no_objects, arg))
    return isinstance(arg, PLAIN_ARGUMENTS)


def as_array(tensor: Any) -> Any:
    """A torch tensor's elements as numpy has them."""
    plain = tensor.detach().clone().contiguous()
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(NUMPY_TYPES[DType.BF16])
    return plain.numpy()


def as_tensor(row: Any, dtype: DType) -> Any:
    """The elements of a storage of the interpreter as a torch tensor."""
    if dtype is DType.BF16:
        return torch.from_numpy(row.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(row.copy())


def further_off(ours: Any, other: Any, times: float = 1.0) -> str | None:
    """What of a result is further from what is exact than `times` its bound; None if nothing is.

    `other` is a BoundedTensor. NaN equals NaN; elements without a bound are passed over.
    """
    value, found = other.value.double(), ours.detach().double()
    apart = (found - value).abs()
    same = (found == value) | (found.isnan() & value.isnan())
    wrong = ~same & other.error.isfinite() & ~(apart <= times * other.error)
    if not bool(wrong.any()):
        return None
    over = torch.where(wrong, apart.nan_to_num(nan=1e300) / (times * other.error + 1e-300), 0.0)
    at = int(over.reshape(-1).argmax())
    figures = [float(x.reshape(-1)[at]) for x in (found, value, other.error)]
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements out of bounds, worst {figures[0]:.9g}"
        f" where {figures[1]:.9g} is exact and {times * figures[2]:.3g} is allowed"
    )
