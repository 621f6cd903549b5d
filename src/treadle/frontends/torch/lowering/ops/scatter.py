"""Elements put where data says: index_put, the scatter family, index_add, embedding's gradient.

Two loops write the result: one copies what was there, one visits the elements that are put. Among
elements put at one place without combining any may stay, as torch documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any

from treadle.frontends.torch.lowering.gathered_sums import Sources, sources_of
from treadle.frontends.torch.lowering.node import (
    Node,
    broadcast_at,
    converted,
    in_memory,
    number,
    operand_value,
    sizes_of,
)
from treadle.frontends.torch.lowering.ops.index import Indexing, looked_up
from treadle.frontends.torch.lowering.ops.reduce import wide_type
from treadle.frontends.torch.lowering.ops.views import along
from treadle.frontends.torch.lowering.realise import write_loop
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.row_sums import Added, summed_rows
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Tensor
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType

PLAIN = "plain"
FEW_SOURCES = 16
"""Elements at one place that a lane of a GPU adds up without a loop."""
Put = Callable[[LoopWriter, Index], tuple[Index, Value]]


def scattered(c: Node, x: Tensor, extents: Sequence[Expr], put: Put, mode: str = PLAIN) -> Tensor:
    """A copy of `x` into which `put(k, at)` stores a value at a place for every point."""
    if mode != PLAIN and c.dtype is DType.BOOL:
        raise NotLowered("combining truth values")
    # In C sums of narrow floats are f32 beside them (codegen/c/scatter.py); on a GPU they lie so.
    is_sum = c.is_for_lanes and mode == "atomic_add" and c.dtype.is_low_precision
    kind = DType.F32 if is_sum else c.dtype
    if is_sum:
        narrow = x
        x = c.lazy(x.sizes, kind, lambda k, at: converted(narrow.load(k, at), kind), [narrow])
    target = c.buffer(dtype=kind)
    builder = c.graph.builder
    name = c.graph.fresh_op(c.name)
    write_loop(builder, name, x, target, target.layout, c.graph.origins)
    if all(n.value != 0 for n in (*extents, *target.layout.sizes)):
        with c.loop(extents) as k:
            place, value = put(k, k.at)
            k.store(target, place, converted(value, target.dtype), mode)
    if is_sum:
        whole = in_memory(target)
        return c.lazy(
            c.sizes, c.dtype, lambda k, at: converted(whole.load(k, at), c.dtype), [whole]
        )
    return in_memory(target)


# ------------------------------------------------------------------------------- index_put


def _broadcast(shapes: Sequence[Index]) -> Index:
    """The sizes that index tensors have together."""
    rank = max(len(s) for s in shapes)
    found: list[Expr] = [as_expr(1)] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            if found[d].value == 1:
                found[d] = n
            elif n.value != 1 and n is not found[d]:
                raise NotLowered("index tensors whose sizes are not known to agree")
    return tuple(found)


@lowers("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    c: Node, self: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Values put, or added, where index tensors say."""
    given = [i for i in indices if i is not None]
    if not given:
        raise NotLowered("no index")
    if len(given) == 1 and given[0].dtype is DType.BOOL:
        return _where_mask(c, self, indices, values, accumulate)
    how = Indexing(self, indices, ())
    shape = _broadcast([tuple(i.sizes) for i in given])
    others = [self.sizes[d] for d in how.rest]
    out = (*others[: how.first], *shape, *others[how.first :])
    how.out = out
    if len(values.sizes) > len(out):
        raise NotLowered("values with more dimensions than the places they are put at")

    def put(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        return how.place(k, at), values.load(k, broadcast_at(values.sizes, at, out))

    if accumulate and c.dtype.is_float and all(n.value != 0 for n in (*out, *self.sizes)):
        scratch = LoopWriter(c.graph.builder.buffers, out)
        places = how.place(scratch, scratch.at)
        may_ask = c.is_for_lanes
        found = sources_of(places, scratch.domain.vars, out, self.sizes, may_ask)
        if found is not None:
            return _gathered(c, self, values, out, found)
    return scattered(c, self, out, put, "atomic_add" if accumulate else PLAIN)


def _gathered(c: Node, x: Tensor, values: Tensor, out: Index, found: Sequence[Sources]) -> Tensor:
    """At each place the elements that are put there, added up.

    On a GPU by itself, for lanes are points; else in a loop.
    """
    target, wide = c.buffer(), wide_type(c.dtype)
    several = [one.many for one in found if one.many > 1]
    is_loop = bool(several) and not (c.is_for_lanes and prod(several) <= FEW_SOURCES)
    with c.loop(x.sizes, [as_expr(n) for n in several] if is_loop else ()) as k:

        def term(steps: Index) -> Value:
            return _source(k, values, out, found, steps, wide)

        if is_loop:
            total = k.sum(term(k.along))
        else:
            terms = [term(sizes_of(steps)) for steps in product(*map(range, several))]
            total = reduce(lambda a, b: a + b, terms)
        k.store(target, k.at, converted(converted(x.load(k, k.at), wide) + total, target.dtype))
    return in_memory(target)


def _source(
    k: LoopWriter, values: Tensor, out: Index, found: Sequence[Sources], steps: Index, wide: DType
) -> Value:
    """One of the elements that are put at a place; zero if it is put somewhere else."""
    left, at = iter(steps), [as_expr(0)] * len(out)
    asked: list[Value] = []
    for place, one in zip(k.at, found, strict=True):
        step = next(left) if one.many > 1 else as_expr(0)
        at[one.loop] = k.simplify(one.point(place, step))
        belongs = one.belongs(k, place, step)
        asked += [] if belongs is None else [belongs]

    def read() -> Value:
        return converted(values.load(k, broadcast_at(values.sizes, tuple(at), out)), wide)

    return k.masked(reduce(k.logical_and, asked), 0.0, read) if asked else read()


def _where_mask(
    c: Node, x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool
) -> Tensor:
    """A mask picks the places, and every place gets the same values."""
    first = next(d for d, i in enumerate(indices) if i is not None)
    mask: Tensor = indices[first]
    end = first + len(mask.sizes)
    after = len(x.sizes) - end
    if first or len(values.sizes) > after + 1:
        raise NotLowered("a mask behind other dimensions")
    if len(values.sizes) == after + 1 and values.sizes[0].value != 1:
        raise NotLowered("a mask decides which value goes where")

    def inner(k: LoopWriter, at: Index) -> Value:
        where = (as_expr(0), *at[end:])[1 + after - len(values.sizes) :]
        rest = broadcast_at(values.sizes, where, _row(values, x.sizes[end:]))
        old = x.load(k, at)
        new = converted(values.load(k, rest), x.dtype)
        if accumulate:
            wide = wide_type(x.dtype)
            new = converted(converted(old, wide) + converted(new, wide), x.dtype)
        return k.where(mask.load(k, at[:end]), new, old)

    if accumulate and x.dtype is DType.BOOL:
        raise NotLowered("combining truth values")
    return c.lazy(c.sizes, c.dtype, inner, [x, mask, values])


def _row(values: Tensor, rest: Index) -> Index:
    """What the values are broadcast to for one place of a mask."""
    return (as_expr(1), *rest)[1 + len(rest) - len(values.sizes) :]


# --------------------------------------------------------------------------------- scatter


def putting(c: Node, x: Tensor, dim: int, index: Tensor, source: Any) -> Put:
    """A tensor or number at the places of an index along a dimension, point by point."""
    rank = len(x.sizes)

    def put(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        if isinstance(source, int | float | Expr):
            value = operand_value(k, source, (), (), c.dtype)
        else:
            value = source.load(k, _fitted(at, len(source.sizes)))
        if not rank:
            return (), value
        place, d = _fitted(at, rank), along(x, dim)
        row = looked_up(k, index, at, x.sizes[d], wrap=False)
        return (*place[:d], row, *place[d + 1 :]), value

    return put


def _scatter(c: Node, x: Tensor, dim: int, index: Tensor, source: Any, mode: str = PLAIN) -> Tensor:
    """A tensor or number, put along a dimension at the places of an index."""
    if mode == PLAIN and _puts_one(x, dim, index):
        return _one_of_each(c, x, along(x, dim), index, source)
    return scattered(c, x, index.sizes, putting(c, x, dim, index, source), mode)


def _puts_one(x: Tensor, dim: int, index: Tensor) -> bool:
    """Whether each row along the dimension gets one new element."""
    if not x.sizes or len(index.sizes) != len(x.sizes):
        return False
    d = along(x, dim)
    others = [k for k in range(len(x.sizes)) if k != d]
    return index.sizes[d].value == 1 and all(index.sizes[k] is x.sizes[k] for k in others)


def _one_of_each(c: Node, x: Tensor, d: int, index: Tensor, source: Any) -> Tensor:
    """The same without a scatter: at each element the new one, if the index of its row says so.

    Nothing has to be filled first, and what follows can be computed in the same loops.
    """
    extent = x.sizes[d].value
    kind = DType.I32 if extent is not None and extent < 2**31 else DType.I64

    def inner(k: LoopWriter, at: Index) -> Value:
        row = (*at[:d], as_expr(0), *at[d + 1 :])
        chosen = looked_up(k, index, row, x.sizes[d], wrap=False)
        if isinstance(source, int | float | Expr):
            new = operand_value(k, source, (), (), c.dtype)
        else:
            new = converted(source.load(k, row), c.dtype)
        is_here = k.index(at[d], kind) == k.index(chosen, kind)
        return k.where(is_here, new, x.load(k, at))

    sources = [x, index, *([] if isinstance(source, int | float | Expr) else [source])]
    return c.lazy(c.sizes, c.dtype, inner, sources)


def _fitted(at: Index, rank: int) -> Index:
    """Coordinates where torch takes a tensor without dimensions for one of a single element."""
    return at if len(at) == rank else (as_expr(0),) * rank


@lowers("aten.scatter.src")
def scatter_src(c: Node, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Elements put along a dimension."""
    return _scatter(c, self, dim, index, src)


@lowers("aten.scatter.value")
def scatter_value(c: Node, self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """One number put along a dimension."""
    return _scatter(c, self, dim, index, value)


@lowers("aten.scatter_add.default")
def scatter_add(c: Node, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Elements added along a dimension."""
    return _scatter(c, self, dim, index, src, "atomic_add")


# ------------------------------------------------------------------------------------ rows


@lowers("aten.index_add.default")
def index_add(
    c: Node, self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """Slices added at the places of an index along a dimension."""
    put = putting_rows(c, self, dim, index, source, alpha)
    return scattered(c, self, source.sizes, put, "atomic_add")


def putting_rows(
    c: Node, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any = 1
) -> Put:
    """Slices at the places of an index along a dimension, point by point."""
    rank, wide = len(x.sizes), wide_type(c.dtype)

    def put(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        value = source.load(k, at)
        if alpha != 1:
            value = converted(converted(value, wide) * number(k, alpha, wide), c.dtype)
        if not rank:
            return (), value
        place, d = _fitted(at, rank), along(x, dim)
        where = (place[d],) if index.sizes else ()
        row = looked_up(k, index, where, x.sizes[d], wrap=False)
        return (*place[:d], row, *place[d + 1 :]), value

    return put


@lowers("aten.embedding_dense_backward.default")
def embedding_backward(
    c: Node,
    grad_output: Tensor,
    indices: Tensor,
    num_weights: Any,
    padding_idx: Any,
    scale_grad_by_freq: bool,
) -> Tensor:
    """The gradient of a table of rows: each row the sum of what was read from it."""
    if scale_grad_by_freq or not isinstance(padding_idx, int):
        raise NotLowered("gradients scaled by how often a row is read")
    rank, dtype = len(indices.sizes), c.dtype
    nothing = c.lazy(c.sizes, dtype, lambda k, at: number(k, 0, dtype))

    def row(k: LoopWriter, at: Index) -> Expr:
        return looked_up(k, indices, at[:rank], c.sizes[0], wrap=False)

    def value(k: LoopWriter, at: Index) -> Value:
        found = grad_output.load(k, at)
        if padding_idx < 0:
            return found
        picked = converted(indices.load(k, at[:rank]), DType.I64)
        padding = number(k, padding_idx, DType.I64)
        return k.where(picked == padding, number(k, 0, found.dtype), found)

    def put(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        return (row(k, at), *at[rank:]), value(k, at)

    if c.is_for_lanes:
        made = summed_rows(c, Added(grad_output.sizes[:rank], row, value))
        if made is not None:
            return made
    return scattered(c, nothing, grad_output.sizes, put, "atomic_add")
