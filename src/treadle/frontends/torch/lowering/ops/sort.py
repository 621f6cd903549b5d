"""Rows put in order: sort, topk, and the running maximum and minimum with their positions."""

from __future__ import annotations

import operator
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, in_memory
from treadle.frontends.torch.lowering.ops.reduce import placed, scanned
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import Lazy, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType, Layout

FEW, SEVERAL = 256, 2048
"""Elements of a row that are in order as quickly as the first of them are found; of one of which a
large part is asked for."""
PART = 64
"""The library is quick where no more than such a part of a row is asked for."""


def _in_order(c: Node, x: Tensor, dim: int, descending: bool) -> tuple[Realised, Realised]:
    """All values along a dimension in order, and where each came from."""
    rank = len(x.sizes)
    if any(n.value == 0 for n in x.sizes):
        raise NotLowered("no elements")
    d = dim % rank if rank else 0
    kept = [e for e in range(rank) if e != d]
    sizes = tuple(x.sizes)
    exact = sizes == tuple(c.sizes)
    values = c.buffer(0) if exact else c.buffer(0, sizes=sizes)
    places = c.buffer(1) if exact else c.buffer(1, sizes=sizes)
    with c.loop([x.sizes[e] for e in kept], [x.sizes[d] if rank else as_expr(1)]) as k:
        at = placed(k, rank, kept, d)
        key = x.load(k, at)
        ordered, where = k.sort(key, k.index(k.along[0]), descending=descending, stable=True)
        k.store(values, at, converted(ordered, values.dtype))
        k.store(places, at, where)
    return in_memory(values), in_memory(places)


@lowers("aten.sort.default", "aten.sort.stable")
def sort(
    c: Node, self: Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> tuple[Tensor, ...]:
    """Values in order along a dimension, equal ones as they stood, and where each came from."""
    if not stable:
        places_are_unseen(c)
    return _in_order(c, self, dim, descending)


def places_are_unseen(c: Node) -> None:
    """NotLowered if somebody looks where elements came from: of equal ones, eager decides."""
    for user in c.node.users:
        if user.target is not operator.getitem or (user.args[1] == 1 and user.users):
            raise NotLowered("the order of equal elements is up to eager, and somebody looks at it")


@lowers("aten.topk.default")
def topk(
    c: Node, self: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, ...]:
    """The first k of the values in order: a view of them."""
    if any(n.value == 0 for n in c.sizes):
        raise NotLowered("no elements")
    places_are_unseen(c)
    is_line = c.graph.device == "cpu" and len(self.sizes) > 0
    if is_line and not _is_short(self.sizes[dim], as_expr(k)):
        raise NotLowered("a long row is not put in order for the first few of it")
    found = _in_order(c, self, dim, largest)
    return tuple([_first(c, one) for one in found])


def _is_short(row: Expr, wanted: Expr) -> bool:
    """Whether a whole row is in order before the library has found as much of it as is wanted."""
    n, k = row.value, wanted.value
    return n is not None and (n <= FEW or (k is not None and k * PART > n and n <= SEVERAL))


def _first(c: Node, x: Realised) -> Tensor:
    """As much of a tensor as the result has, in memory of its own."""
    part = Realised(x.buffer, Layout(c.sizes, x.layout.strides, x.layout.offset))
    return Lazy(part.sizes, part.dtype, part.load, part.reads)


def _running(c: Node, x: Tensor, dim: int, combine: str) -> tuple[Tensor, ...]:
    if any(n.value == 0 for n in x.sizes):
        raise NotLowered("no elements")
    if x.dtype is DType.BOOL:
        raise NotLowered("running combinations of truth values")

    def scan(k: LoopWriter, v: Value) -> list[Value]:
        return list(k.scan(combine, v, k.index(k.along[0])))

    return scanned(c, x, dim, scan)


@lowers("aten.cummax.default")
def cummax(c: Node, self: Tensor, dim: int) -> tuple[Tensor, ...]:
    """The running maximum and the position of its last occurrence."""
    return _running(c, self, dim, "argmax")


@lowers("aten.cummin.default")
def cummin(c: Node, self: Tensor, dim: int) -> tuple[Tensor, ...]:
    """The running minimum and the position of its last occurrence."""
    return _running(c, self, dim, "argmin")
