"""Elements picked by data: embedding, index_select, gather, index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.frontends.torch.lowering.node import Node, broadcast_at, converted
from treadle.frontends.torch.lowering.ops.views import along
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Tensor, as_index
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType


def looked_up(k: LoopWriter, index: Tensor, at: Index, size: Expr, wrap: bool) -> Expr:
    """An element of an index tensor as a checked index."""
    return as_index(k, converted(index.load(k, at), DType.I64), size, wrap)


@lowers("aten.embedding.default")
def embedding(
    c: Node,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table."""
    rank = len(indices.sizes)

    def inner(k: LoopWriter, at: Index) -> Value:
        row = looked_up(k, indices, at[:rank], weight.sizes[0], wrap=False)
        return weight.load(k, (row, *at[rank:]))

    return c.lazy(c.sizes, c.dtype, inner, [weight, indices])


@lowers("aten.index_select.default")
def index_select(c: Node, self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Places along a dimension in the order of an index."""
    if not self.sizes:
        return c.lazy(c.sizes, c.dtype, lambda k, at: self.load(k, ()), [self])
    d = along(self, dim)

    def inner(k: LoopWriter, at: Index) -> Value:
        where = (at[d],) if index.sizes else ()
        row = looked_up(k, index, where, self.sizes[d], wrap=False)
        return self.load(k, (*at[:d], row, *at[d + 1 :]))

    return c.lazy(c.sizes, c.dtype, inner, [self, index])


@lowers("aten.gather.default")
def gather(c: Node, self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """At each point the place along a dimension that the index says."""
    if not self.sizes:
        return c.lazy(c.sizes, c.dtype, lambda k, at: self.load(k, ()), [self])
    d = along(self, dim)
    scalar = not index.sizes

    def inner(k: LoopWriter, at: Index) -> Value:
        row = looked_up(k, index, at, self.sizes[d], wrap=False)
        place = (as_expr(0),) * len(self.sizes) if scalar else at
        return self.load(k, (*place[:d], row, *place[d + 1 :]))

    return c.lazy(c.sizes, c.dtype, inner, [self, index])


class Indexing:
    """How index tensors pick elements: which dimensions, and where theirs stand in the result."""

    def __init__(self, x: Tensor, indices: Sequence[Tensor | None], out: Index) -> None:
        self.x, self.out = x, out
        self.picks = {d: i for d, i in enumerate(indices) if i is not None}
        if any(not i.dtype.is_int for i in self.picks.values()):
            raise NotLowered("a mask decides how many elements there are")
        self.rank = max(len(i.sizes) for i in self.picks.values())
        dims = sorted(self.picks)
        is_run = dims == list(range(dims[0], dims[-1] + 1))
        self.first = dims[0] if is_run else 0
        self.rest = [d for d in range(len(x.sizes)) if d not in self.picks]

    def place(self, k: LoopWriter, at: Index) -> Index:
        """Where in the indexed tensor the element of a point of the result comes from."""
        shape = self.out[self.first : self.first + self.rank]
        inner = at[self.first : self.first + self.rank]
        others = (*at[: self.first], *at[self.first + self.rank :])
        found = [as_expr(0)] * len(self.x.sizes)
        for d, e in zip(self.rest, others, strict=True):
            found[d] = e
        for d, index in self.picks.items():
            where = broadcast_at(tuple(index.sizes), inner, tuple(shape))
            found[d] = looked_up(k, index, where, self.x.sizes[d], wrap=True)
        return tuple(found)


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(c: Node, self: Tensor, indices: Sequence[Any]) -> Tensor:
    """Elements picked by index tensors, as in NumPy."""
    if all(i is None for i in indices):
        return self
    how = Indexing(self, indices, c.sizes)
    given = [i for i in indices if i is not None]
    return c.lazy(c.sizes, c.dtype, lambda k, at: self.load(k, how.place(k, at)), [self, *given])
