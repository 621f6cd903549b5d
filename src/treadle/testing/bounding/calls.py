"""Errors of library calls: products by the usual bound, copies as they are, the rest unknown.

A library adds products in an order and width of its own, in f32 at worst, whatever the program's
numerics are: they speak of generated code. A call that somebody else implements is the same
function for every code, so it is exact as long as all it reads is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from treadle.ir.interp.calls import CallContext, ExternFn
from treadle.ir.interp.dtypes import Array, dtype_of
from treadle.ir.interp.externs import COLLECTIVES, EXTERNS, base_name
from treadle.ir.program import Call, Collective, Ref
from treadle.ir.types import BufferKind, DType
from treadle.testing.bounding.memory import Errors
from treadle.testing.bounding.rounding import UNIT_F32, UNIT_F64, growth, rounded, undecided

Unrounded: TypeAlias = "tuple[Array, Array] | None"
CallBound: TypeAlias = "Callable[[CallAtWork], Unrounded]"
"""From a call the unrounded result and its error; None if it cannot be told."""
MORE_ROUNDINGS = 3
"""Of a product, of its factor and of the sum with the bias."""


@dataclass(frozen=True)
class CallAtWork:
    """A call, its arguments as they were before it ran, and how far each could be off."""

    op: Call
    args: Sequence[Any]
    errors: Sequence[Any]
    attrs: Mapping[str, Any]
    memory: Errors


def _unit(x: Array) -> float:
    return UNIT_F64 if dtype_of(x) is DType.F64 else UNIT_F32


def _product(args: Sequence[Any], errors: Sequence[Any]) -> tuple[Array, Array]:
    (a, b), (of_a, of_b) = ([x.astype(np.float64) for x in pair] for pair in (args, errors))
    sizes = np.abs(a) + of_a, np.abs(b) + of_b
    moved = np.matmul(of_a, sizes[1]) + np.matmul(np.abs(a), of_b)
    grown = growth(a.shape[-1] + MORE_ROUNDINGS, _unit(args[0]))
    return np.matmul(a, b), moved + grown * np.matmul(*sizes)


def _mm(call: CallAtWork) -> Unrounded:
    return _product(call.args[:2], call.errors[:2])


def _addmm(call: CallAtWork) -> Unrounded:
    args, errors = call.args, call.errors
    given = dict(zip(("beta", "alpha"), args[3:], strict=False))
    named = {"beta": 1, "alpha": 1, **given, **call.attrs}
    beta, alpha = float(named["beta"]), float(named["alpha"])
    wide, error = _product(args[1:3], errors[1:3])
    if beta == 0:
        return alpha * wide, abs(alpha) * error
    bias, of_bias = args[0].astype(np.float64), errors[0]
    unit = growth(MORE_ROUNDINGS, _unit(args[1]))
    own = unit * (np.abs(beta * bias) + np.abs(alpha * wide))
    return beta * bias + alpha * wide, abs(beta) * of_bias + abs(alpha) * error + own


CALL_BOUNDS: Mapping[str, CallBound] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), _mm),
    **dict.fromkeys(("addmm", "bias_addmm", "baddbmm"), _addmm),
}
COPIES = frozenset({"copy", "copy_", "clone", *COLLECTIVES})
"""Calls that give back what they got: errors go the same way as values."""


def bound_call(
    op: Call, context: CallContext, before: Sequence[Any], errors: Errors,
    given: Mapping[str, ExternFn], bounds: Mapping[str, CallBound],
) -> None:  # fmt: skip
    """Set the errors of everything a call has written; `before` are the arguments it got."""
    name = base_name(op.target, any_library=isinstance(op, Collective))
    targets = [n for n in (*op.writes, *op.mutates) if context.kind_of(n) is BufferKind.TENSOR]
    own = next((table[k] for table in (bounds,) for k in (op.target, name) if k in table), None)
    is_given = op.target in given or name in given
    rule = own or (None if is_given else CALL_BOUNDS.get(name))
    args = [_errors_of(a, errors) for a in op.args]
    if not is_given and rule is None and name in COPIES and name not in bounds:
        _copied(op, context, errors)
        return
    if rule is not None and len(targets) == 1:
        found = context.read(targets[0])
        made = rule(CallAtWork(op, before, args, context.attrs, errors))
        kind = context.dtype_of(targets[0])
        if made is not None and kind.is_float:
            wide, error = made
            bound = rounded(np.broadcast_to(wide, found.shape), error, found, kind)
            errors.fill(targets[0], bound)
            return
    # What it changes it may read as well, though it is not among the arguments.
    changed = [errors.tensor(n) for n in op.mutates if n in targets]
    more = [_errors_of(a, errors) for _, a in op.attrs]
    lost = undecided(np.asarray(_is_open([*args, *more, *changed])))
    for target in targets:
        errors.fill(target, lost)
    for target in op.writes:
        if context.kind_of(target) is BufferKind.TUPLE:
            items = context.read(target)
            errors.tuples[target] = tuple(np.broadcast_to(lost, x.shape) for x in items)


def _copied(op: Call, context: CallContext, errors: Errors) -> None:
    sources = [a for a in _flat(op.args) if isinstance(a, Ref)]
    arrays = [errors.tensor(a.buffer) for a in sources if a.buffer not in op.writes]
    targets = [n for n in op.writes if context.kind_of(n) is not BufferKind.TOKEN]
    if len(targets) == 1 and context.kind_of(targets[0]) is BufferKind.TUPLE:
        errors.tuples[targets[0]] = tuple(arrays)
        return
    if base_name(op.target) in EXTERNS:
        targets, arrays = [(op.writes or op.mutates)[0]], arrays[-1:]
    for target, array in zip(targets, arrays, strict=False):
        shape = context.shape_of(target)
        fits = array.size == np.prod(shape, dtype=int)
        errors.fill(target, array.reshape(shape) if fits else np.broadcast_to(array, shape))


def _errors_of(arg: Any, errors: Errors) -> Any:
    if isinstance(arg, Ref):
        if errors.memory.buffer(arg.buffer).kind is BufferKind.TENSOR:
            return errors.tensor(arg.buffer)
        return tuple(errors.tuples.get(arg.buffer, ()))
    if isinstance(arg, tuple):
        return tuple(_errors_of(a, errors) for a in arg)
    return np.zeros(())


def _is_open(found: Any) -> bool:
    if isinstance(found, np.ndarray):
        return bool(found.any())
    return any(_is_open(x) for x in found)


def _flat(args: Sequence[Any]) -> list[Any]:
    return [x for a in args for x in (_flat(a) if isinstance(a, tuple) else [a])]
