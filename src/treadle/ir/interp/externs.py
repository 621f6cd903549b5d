"""Library calls the reference knows: matrix products, copies, collectives of a single rank.

A call is found by the base name of its target, whatever library or overload it names:
`aten.mm`, `aten.mm.default`, `extern_kernels.mm` and `torch.ops.aten.mm.default` are all `mm`.
Products of narrow floats and of f32 are summed in f64 and rounded once. Collectives run with a
world of one rank: reducing, gathering and scattering all give back what was put in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from treadle.core import nearest
from treadle.ir.interp.calls import CallContext, ExternFn, from_arrays
from treadle.ir.interp.dtypes import Array, convert, dtype_of
from treadle.ir.interp.errors import RunError
from treadle.ir.program import Call, Collective
from treadle.ir.types import BufferKind

LIBRARIES = frozenset(
    {"torch", "ops", "aten", "at", "extern_kernels", "_c10d_functional", "c10d_functional"}
)
OVERLOADS = frozenset({"default", "out", "Tensor", "Tensor_out"})


def _product(a: Array, b: Array) -> Array:
    """The matrix product, whole numbers wrapping, floats in f64."""
    wide = np.dtype(np.float64) if _is_float(a) or _is_float(b) else np.result_type(a, b)
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide)))


def _is_float(x: Array) -> bool:
    found = dtype_of(x)
    return found is None or found.is_float


def _of_type(value: Array, like: Array) -> Array:
    found = dtype_of(like)
    return value if found is None else convert(value, found)


def _mm(a: Array, b: Array, *unused: Any, **attrs: Any) -> Array:
    return _of_type(_product(a, b), a)


def _addmm(
    bias: Array, a: Array, b: Array, beta: float = 1, alpha: float = 1, **attrs: Any
) -> Array:
    product = _product(a, b)
    if not _is_float(a):
        return _of_type(np.asarray(int(beta) * bias + int(alpha) * product), a)
    # beta = 0 means the bias is not even looked at, so a NaN there does not spread.
    added = 0.0 if beta == 0 else beta * bias.astype(np.float64)
    return _of_type(np.asarray(added + alpha * product), a)


def _copy(ctx: CallContext, op: Call) -> None:
    """copy(source) and copy(target, source) alike."""
    target = (op.writes or op.mutates)[0]
    source = [a for a in ctx.args if isinstance(a, np.ndarray)][-1]
    ctx.write(target, np.broadcast_to(source, ctx.shape_of(target)))


def _pass_through(ctx: CallContext, op: Call) -> None:
    """With one rank a collective gives back what it got; one that works in place does nothing."""
    arrays = [a for a in _flat(ctx.args) if isinstance(a, np.ndarray)]
    targets = [n for n in op.writes if ctx.kind_of(n) is not BufferKind.TOKEN]
    if len(targets) == 1 and ctx.kind_of(targets[0]) is BufferKind.TUPLE:
        ctx.write(targets[0], arrays)
        return
    for name, array in zip(targets, arrays, strict=False):
        ctx.write(name, array.reshape(ctx.shape_of(name)))


def _flat(values: Any) -> list[Any]:
    if isinstance(values, tuple):
        return [x for v in values for x in _flat(v)]
    return [values]


EXTERNS: Mapping[str, ExternFn] = {
    "mm": from_arrays(_mm),
    "bmm": from_arrays(_mm),
    "matmul": from_arrays(_mm),
    "mv": from_arrays(_mm),
    "dot": from_arrays(_mm),
    "addmm": from_arrays(_addmm),
    "bias_addmm": from_arrays(_addmm),
    "baddbmm": from_arrays(_addmm),
    "copy": _copy,
    "copy_": _copy,
    "clone": _copy,
}
COLLECTIVES: Mapping[str, ExternFn] = dict.fromkeys(
    (
        "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_into_tensor_out",
        "all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_",
        "all_to_all_single", "broadcast", "broadcast_", "reduce_scatter", "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced", "wait_tensor",
    ),
    _pass_through,
)  # fmt: skip


def find_extern(op: Call, given: Mapping[str, ExternFn]) -> ExternFn:
    """The implementation of a call: what the caller gave comes first, then the tables here."""
    name = base_name(op.target, any_library=isinstance(op, Collective))
    for table, key in ((given, op.target), (given, name), (EXTERNS, name), (COLLECTIVES, name)):
        if key in table:
            return table[key]
    notes = [f"supply one: run(program, inputs, externs={{{op.target!r}: function(ctx, op)}})"]
    if close := nearest(name, {*given, *EXTERNS, *COLLECTIVES}):
        notes.append(f"did you mean: {', '.join(close)}")
    message = f"operation '{op.name}' calls '{op.target}', which the reference does not know"
    raise RunError(message, code="RUN006", notes=notes, operations=[op.name])


def base_name(target: str, any_library: bool = False) -> str:
    """`mm` of `aten.mm.default`; a target of an unknown library keeps its whole name."""
    parts = [p for p in re.split(r"[.:]+", target) if p]
    if len(parts) > 1 and parts[-1] in OVERLOADS:
        parts.pop()
    if not parts or not (any_library or LIBRARIES.issuperset(parts[:-1])):
        return target
    return parts[-1]
