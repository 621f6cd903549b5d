"""Places in sorted sequences, and the element of a given rank: searchsorted, median, kthvalue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number, operand_value
from treadle.frontends.torch.lowering.ops.reduce import placed
from treadle.frontends.torch.lowering.ops.sort import places_are_unseen
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.reshaping import reshape
from treadle.frontends.torch.lowering.values import (
    Index,
    Lazy,
    LoopWriter,
    NotLowered,
    Realised,
    Tensor,
    as_index,
)
from treadle.index import Expr, as_expr, product_of
from treadle.ir.build_body import Value
from treadle.ir.types import Buffer, DType

Rank = Callable[[LoopWriter, Index], Expr]

# ------------------------------------------------------------------------- sorted sequences


def _whole(c: Node, x: Tensor) -> Buffer:
    """The elements as a buffer of their own: what a search looks at is not a view."""
    where = c.realise(x)
    if where.layout == where.buffer.layout:
        return where.buffer
    copy = Lazy(where.sizes, where.dtype, where.load, where.reads)
    return c.realise(copy).buffer


def _searched(c: Node, sequence: Tensor, values: Any, right: bool) -> Tensor:
    """The position of every value in a sorted sequence."""
    if len(sequence.sizes) != 1:
        raise NotLowered("a sorted sequence for every row")
    if sequence.dtype is DType.BOOL or sequence.sizes[0].value == 0:
        raise NotLowered("a sequence of truth values, or an empty one")
    boundaries, to = _whole(c, sequence), c.dtype
    compute = boundaries.dtype

    def inner(k: LoopWriter, at: Index) -> Value:
        value = operand_value(k, values, at, c.sizes, compute)
        return converted(k.bucketize(value, boundaries, right=right), to)

    return c.lazy(c.sizes, to, inner, [in_memory(boundaries), values])


@lowers("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    c: Node, self: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket between boundaries each value falls into."""
    if isinstance(self, Lazy | Realised) and self.dtype is not boundaries.dtype:
        raise NotLowered("values and boundaries of different types")
    return _searched(c, boundaries, self, right)


@lowers("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    c: Node,
    sorted_sequence: Tensor,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Tensor:
    """Where each value would have to be put to keep a sequence sorted."""
    if sorter is not None:
        raise NotLowered("a sequence sorted by another tensor")
    if isinstance(self, Lazy | Realised) and self.dtype is not sorted_sequence.dtype:
        raise NotLowered("values and sequence of different types")
    return _searched(c, sorted_sequence, self, right or side == "right")


# --------------------------------------------------------------------- the element of a rank


class Ordered:
    """A tensor with one dimension in order, and where each element was before."""

    def __init__(self, c: Node, x: Tensor, dim: int) -> None:
        rank = len(x.sizes)
        if not rank or any(n.value == 0 for n in x.sizes):
            raise NotLowered("no dimensions or no elements")
        self.c, self.x, self.d = c, x, dim % rank
        kept = [e for e in range(rank) if e != self.d]
        make, fresh = c.graph.builder.buffer, c.graph.fresh
        self.values = make(fresh(c.name), x.dtype, tuple(x.sizes))
        self.places = make(fresh(c.name), DType.I64, tuple(x.sizes))
        with c.loop([x.sizes[e] for e in kept], [x.sizes[self.d]]) as k:
            at = placed(k, rank, kept, self.d)
            ordered, where = k.sort(x.load(k, at), k.index(k.along[0]), stable=True)
            k.store(self.values, at, ordered)
            k.store(self.places, at, where)

    def picked(self, rank: Rank, keepdim: bool) -> tuple[Tensor, ...]:
        """The element of a rank in every row, and where it was."""
        return tuple([self._pick(in_memory(b), rank, keepdim) for b in (self.values, self.places)])

    def _pick(self, ordered: Realised, rank: Rank, keepdim: bool) -> Tensor:
        d = self.d

        def inner(k: LoopWriter, at: Index) -> Value:
            rest = (*at[:d], *at[d + 1 :]) if keepdim else at
            return ordered.load(k, (*rest[:d], rank(k, rest), *rest[d:]))

        return self.c.lazy(self.c.sizes, ordered.dtype, inner, [ordered, self.x])

    def is_number(self, k: LoopWriter, rest: Index, at: Expr) -> Value:
        """Whether the element of rank `at` is no NaN."""
        return k.logical_not(k.isnan(in_memory(self.values).load(k, _put(rest, self.d, at))))


def _put(rest: Index, d: int, at: Expr) -> Index:
    return (*rest[:d], at, *rest[d:])


@lowers("aten.kthvalue.default")
def kthvalue(
    c: Node, self: Tensor, k: Any, dim: int = -1, keepdim: bool = False
) -> tuple[Tensor, ...]:
    """The k-th smallest along a dimension, and where it was."""
    places_are_unseen(c)
    chosen = as_expr(k) - 1
    return Ordered(c, self, dim).picked(lambda writer, rest: chosen, keepdim)


def ties_are_rare(c: Node, x: Tensor) -> None:
    """NotLowered if which of equal elements is the middle one matters, and some are likely."""
    if x.dtype not in (DType.F32, DType.F64):
        places_are_unseen(c)


@lowers("aten.median.dim")
def median_dim(c: Node, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The lower middle element along a dimension, the first NaN if there is one."""
    ties_are_rare(c, self)
    rows = Ordered(c, self, dim)
    first_nan = _first_nan(c, self, rows.d)
    size = self.sizes[rows.d]

    def rank(k: LoopWriter, rest: Index) -> Expr:
        middle, last = k.index((size - 1) // 2), k.index(size - 1)
        chosen = k.where(rows.is_number(k, rest, size - 1), middle, last)
        return as_index(k, chosen, size, wrap=False)

    values, places = rows.picked(rank, keepdim)

    def place(k: LoopWriter, at: Index) -> Value:
        rest = (*at[: rows.d], *at[rows.d + 1 :]) if keepdim else at
        is_number = rows.is_number(k, rest, size - 1)
        return k.where(is_number, places.load(k, at), first_nan.load(k, rest))

    return values, c.lazy(c.sizes, DType.I64, place, [places, first_nan])


def _first_nan(c: Node, x: Tensor, d: int) -> Realised:
    """Where the first NaN of every row is; the largest element where there is none."""
    kept = [e for e in range(len(x.sizes)) if e != d]
    sizes = tuple([x.sizes[e] for e in kept])
    target = c.graph.builder.buffer(c.graph.fresh(c.name), DType.I64, sizes)
    with c.loop(sizes, [x.sizes[d]]) as k:
        k.store(target, k.at, k.argmax(x.load(k, placed(k, len(x.sizes), kept, d))))
    return in_memory(target)


@lowers("aten.median.default")
def median(c: Node, self: Tensor) -> Tensor:
    """The lower middle element of all, NaN if there is one."""
    count = product_of(self.sizes)
    rows = Ordered(c, reshape(self, [count]), 0)
    ordered = in_memory(rows.values)

    def inner(k: LoopWriter, at: Index) -> Value:
        last = ordered.load(k, (count - 1,))
        return k.where(k.isnan(last), last, ordered.load(k, ((count - 1) // 2,)))

    return c.lazy(c.sizes, c.dtype, inner, [ordered])


def _middle_of_numbers(rows: Ordered, size: Expr) -> Rank:
    """The rank of the middle of the elements that are no NaN."""
    c, d, x = rows.c, rows.d, rows.x
    kept = [e for e in range(len(x.sizes)) if e != d]
    sizes = tuple([x.sizes[e] for e in kept])
    counts = c.graph.builder.buffer(c.graph.fresh(c.name), DType.I64, sizes)
    with c.loop(sizes, [size]) as k:
        is_number = k.logical_not(k.isnan(x.load(k, placed(k, len(x.sizes), kept, d))))
        k.store(counts, k.at, k.sum(converted(is_number, DType.I64)))

    def rank(k: LoopWriter, rest: Index) -> Expr:
        zero, one = number(k, 0, DType.I64), number(k, 1, DType.I64)
        before = k.maximum(in_memory(counts).load(k, rest) - one, zero)
        return as_index(k, before // number(k, 2, DType.I64), size, wrap=False)

    return rank


@lowers("aten.nanmedian.dim")
def nanmedian_dim(c: Node, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The lower middle element along a dimension, NaN left out."""
    ties_are_rare(c, self)
    rows = Ordered(c, self, dim)
    return rows.picked(_middle_of_numbers(rows, self.sizes[rows.d]), keepdim)


@lowers("aten.nanmedian.default")
def nanmedian(c: Node, self: Tensor) -> Tensor:
    """The lower middle element of all, NaN left out."""
    count = product_of(self.sizes)
    rows = Ordered(c, reshape(self, [count]), 0)
    rank, ordered = _middle_of_numbers(rows, count), in_memory(rows.values)
    return c.lazy(c.sizes, c.dtype, lambda k, at: ordered.load(k, (rank(k, ()),)), [ordered, self])
