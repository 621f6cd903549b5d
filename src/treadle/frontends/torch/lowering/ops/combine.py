"""Elements combined where data says: scatter_reduce and index_reduce.

What was there is combined with, or first replaced by what changes nothing (0 for a sum). A mean is
a sum and a count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number
from treadle.frontends.torch.lowering.ops.scatter import Put, putting, putting_rows, scattered
from treadle.frontends.torch.lowering.realise import write_loop
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType


@dataclass(frozen=True)
class How:
    """A way to combine: the mode of the store, and what changes nothing."""

    mode: str
    nothing: float


WAYS = {
    "sum": How("atomic_add", 0.0),
    "mean": How("atomic_add", 0.0),
    "prod": How("atomic_mul", 1.0),
    "amax": How("atomic_max", -math.inf),
    "amin": How("atomic_min", math.inf),
}


def _nothing(k: LoopWriter, how: How, dtype: DType) -> Value:
    """What a combination does not notice, in a type."""
    if dtype.is_float or math.isfinite(how.nothing):
        return number(k, how.nothing, dtype)
    is_signed = dtype.cls == "int"
    high = 2 ** (dtype.bits - is_signed) - 1
    low = -(2 ** (dtype.bits - 1)) if is_signed else 0
    return number(k, high if how.nothing > 0 else low, dtype)


def combined(
    c: Node, x: Tensor, extents: Sequence[Expr], put: Put, reduce: str, include_self: bool
) -> Tensor:
    """`x` into which every point combines a value at a place."""
    if reduce not in WAYS or c.dtype is DType.BOOL:
        raise NotLowered(f"combining truth values, or by {reduce}")
    if reduce == "mean" and c.dtype.is_low_precision:
        raise NotLowered("means of narrow floats are rounded in a way of their own")
    how = WAYS[reduce]

    def clear(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        return put(k, at)[0], _nothing(k, how, c.dtype)

    start = x if include_self else scattered(c, x, extents, clear)
    total = scattered(c, start, extents, put, how.mode)
    if reduce != "mean":
        return total
    counts = _counts(c, extents, put, include_self)

    def inner(k: LoopWriter, at: Index) -> Value:
        one = number(k, 1, DType.I64)
        count = converted(k.maximum(counts.load(k, at), one), c.dtype)
        value = total.load(k, at)
        return value / count if c.dtype.is_float else value // count

    return c.lazy(c.sizes, c.dtype, inner, [total, counts])


def _counts(c: Node, extents: Sequence[Expr], put: Put, include_self: bool) -> Realised:
    """How many values were combined at every place."""
    graph, first = c.graph, int(include_self)
    target = graph.builder.buffer(graph.fresh(c.name), DType.I64, tuple(c.sizes))
    start = c.lazy(c.sizes, DType.I64, lambda k, at: number(k, first, DType.I64))
    name = graph.fresh_op(c.name)
    write_loop(graph.builder, name, start, target, target.layout, graph.origins)
    if all(n.value != 0 for n in (*extents, *c.sizes)):
        with c.loop(extents) as k:
            place = put(k, k.at)[0]
            k.store(target, place, number(k, 1, DType.I64), "atomic_add")
    return in_memory(target)


@lowers("aten.scatter_reduce.two")
def scatter_reduce(
    c: Node,
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Elements combined along a dimension."""
    put = putting(c, self, dim, index, src)
    return combined(c, self, tuple(index.sizes), put, reduce, include_self)


@lowers("aten.index_reduce.default")
def index_reduce(
    c: Node,
    self: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Slices combined at the places of an index along a dimension."""
    put = putting_rows(c, self, dim, index, source)
    return combined(c, self, tuple(source.sizes), put, reduce, include_self)
