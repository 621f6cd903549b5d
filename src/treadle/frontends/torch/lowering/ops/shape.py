"""Tensors put together: concatenation, padding, writing a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number, sizes_of
from treadle.frontends.torch.lowering.ops.views import along, start_of, strided
from treadle.frontends.torch.lowering.readers import is_read_at_its_points
from treadle.frontends.torch.lowering.realise import write_loop
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.reshaping import reshape
from treadle.frontends.torch.lowering.values import (
    Index,
    Lazy,
    LoopWriter,
    NotLowered,
    Realised,
    Tensor,
)
from treadle.index import Expr, as_expr, floordiv, hint, mod
from treadle.ir.build_body import Value
from treadle.ir.types import Layout, row_major_strides

ZERO, ONE = as_expr(0), as_expr(1)


MOST_CHOICES = 4
"""Tensors among which a reader of their concatenation chooses; more are written down first."""


@lowers("aten.cat.default")
def cat(c: Node, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one behind the other: each is written into its part of the result.

    What is read once, point by point, is not written: the reader chooses among the tensors.
    """
    if is_read_at_its_points(c.node) and _can_be_chosen(tensors, dim):
        return _chosen(c, tensors, dim)
    return _beside(c, tensors, dim)


def _beside(c: Node, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors written one behind the other, by a loop for each."""
    target = c.buffer()
    whole = in_memory(target)
    pieces = [x for x in tensors if not _is_nothing(x, whole)]
    d, begin = dim % max(len(whole.sizes), 1), ZERO
    for x in pieces:
        part = strided(c, whole, tuple(x.sizes), d, begin, ONE)
        assert isinstance(part, Realised)
        begin = begin + x.sizes[d]
        if any(n.value == 0 for n in x.sizes):
            continue
        same = _as_type(x, target.dtype)
        name = c.graph.fresh_op(c.name)
        write_loop(c.graph.builder, name, same, target, part.layout, c.graph.origins)
    if any(n.value == 0 for n in whole.sizes):
        c.graph.builder.nop(target, name=c.graph.fresh_op(c.name))
    return whole


def _can_be_chosen(tensors: Sequence[Tensor], dim: int) -> bool:
    """Whether where each tensor begins is known, so that loops can be cut there."""
    rank = len(tensors[0].sizes)
    if not 2 <= len(tensors) <= MOST_CHOICES or not rank:
        return False
    if any(len(x.sizes) != rank or n.value == 0 for x in tensors for n in x.sizes):
        return False
    return all(x.sizes[dim % rank].value is not None for x in tensors)


def _chosen(c: Node, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """The tensor that a point lies in, at the point's place there."""
    d, dtype = dim % len(c.sizes), c.dtype
    ends = [ZERO]
    for x in tensors:
        ends.append(ends[-1] + x.sizes[d])

    def part(k: LoopWriter, at: Index, n: int) -> Value:
        place = (*at[:d], at[d] - ends[n], *at[d + 1 :])
        tests = [(at[d], "ge", ends[n])] if n else []
        tests += [(at[d], "lt", ends[n + 1])] if n + 1 < len(tensors) else []
        mask = inside(k, tests)
        assert mask is not None, "one of several tensors has a neighbour"
        zero = _literal(0, dtype)
        return k.masked(mask, zero, lambda: converted(tensors[n].load(k, place), dtype))

    def inner(k: LoopWriter, at: Index) -> Value:
        value = part(k, at, len(tensors) - 1)
        for n in reversed(range(len(tensors) - 1)):
            is_before = k.op("lt", k.index(at[d]), k.index(ends[n + 1]))
            value = k.where(is_before, part(k, at, n), value)
        return value

    return c.lazy(c.sizes, dtype, inner, tensors)


def _is_nothing(x: Tensor, whole: Realised) -> bool:
    """Whether a tensor is the empty one-dimensional kind that fits everything."""
    return len(x.sizes) == 1 and x.sizes[0].value == 0 and len(whole.sizes) != 1


def _as_type(x: Tensor, dtype: Any) -> Tensor:
    if x.dtype is dtype:
        return x
    return Lazy(tuple(x.sizes), dtype, lambda k, at: converted(x.load(k, at), dtype), x.reads)


@lowers("aten.stack.default")
def stack(c: Node, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors beside each other in a new dimension."""
    target = c.buffer()
    d = dim % len(c.sizes)
    layout = target.layout
    if any(n.value == 0 for n in layout.sizes):
        c.graph.builder.nop(target, name=c.graph.fresh_op(c.name))
        return in_memory(target)
    strides = (*layout.strides[:d], *layout.strides[d + 1 :])
    for position, x in enumerate(tensors):
        offset = layout.strides[d] * position
        part = Layout(tuple(x.sizes), strides, offset)
        name = c.graph.fresh_op(c.name)
        same = _as_type(x, target.dtype)
        write_loop(c.graph.builder, name, same, target, part, c.graph.origins)
    return in_memory(target)


def inside(k: LoopWriter, conditions: Sequence[tuple[Expr, str, Expr]]) -> Value | None:
    """Whether all comparisons of index expressions hold; None if there are none to make."""
    result: Value | None = None
    for left, op, right in conditions:
        one = k.op(op, k.index(left), k.index(right))
        result = one if result is None else k.logical_and(result, one)
    return result


@lowers("aten.constant_pad_nd.default")
def pad(c: Node, self: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """A constant around the tensor; negative amounts cut off."""
    rank = len(self.sizes)
    before = [ZERO] * rank
    after = [ZERO] * rank
    for position in range(len(pad) // 2):
        d = rank - 1 - position
        before[d], after[d] = as_expr(pad[2 * position]), as_expr(pad[2 * position + 1])
    if any(e.value is None for e in (*before, *after)):
        raise NotLowered("amounts known at run time only")
    dtype = c.dtype

    def inner(k: LoopWriter, at: Index) -> Value:
        place = tuple([i - b for i, b in zip(at, before, strict=True)])
        tests: list[tuple[Expr, str, Expr]] = []
        for d in range(rank):
            tests += [(place[d], "ge", ZERO)] if (before[d].value or 0) > 0 else []
            tests += [(place[d], "lt", self.sizes[d])] if (after[d].value or 0) > 0 else []
        mask = inside(k, tests)
        if mask is None:
            return self.load(k, place)
        if any(n.value == 0 for n in self.sizes):
            return number(k, value, dtype)
        return k.masked(mask, _literal(value, dtype), lambda: self.load(k, place))

    return c.lazy(c.sizes, dtype, inner, [self])


def _literal(value: Any, dtype: Any) -> Any:
    if not isinstance(value, bool | int | float):
        raise NotLowered("a value known at run time only")
    if dtype.is_float:
        return float(value)
    return bool(value) if dtype.text == "bool" else int(value)


def _checks_places(c: Node, x: Tensor) -> bool:
    """Whether computing a value on a CPU checks places that data decide.

    Such a place is checked once for a row where the whole row is computed, but at every element,
    which stops vectors, where only some are. The gradient of a language model's scores, whose
    last step has no label, is put into zeros in this way.
    """
    if c.graph.device != "cpu" or not isinstance(x, Lazy) or x.home is not None:
        return False
    scratch = LoopWriter(c.graph.builder.buffers, x.sizes)
    x.load(scratch, scratch.at)
    return any(s.stmt.op == "indirect" and s.stmt.attr("check") for s in scratch.build().walk())


def replaced(
    c: Node,
    x: Tensor,
    source: Tensor,
    tests: Callable[[Index], Sequence[tuple[Expr, str, Expr]]],
    place: Callable[[Index], Index],
) -> Tensor:
    """`x`, but where all tests hold the element of `source` at `place`."""

    def inner(k: LoopWriter, at: Index) -> Value:
        mask = inside(k, tests(at))
        if mask is None:
            return converted(source.load(k, place(at)), x.dtype)
        there = k.masked(
            mask, _literal(0, x.dtype), lambda: converted(source.load(k, place(at)), x.dtype)
        )
        return k.where(mask, there, x.load(k, at))

    return c.lazy(x.sizes, x.dtype, inner, [x, source])


def check_fits(source: Tensor, view: Any, x: Tensor, *args: Any) -> None:
    """NotLowered if `source` is not as large as what it replaces: the operator says so, in a call.

    Asked of the sizes the graph was captured with; for others of a dynamic graph nobody asks.
    """
    likely = [hint(a) if isinstance(a, Expr) else a for a in args]
    shown = view(torch.empty([hint(n) for n in x.sizes], device="meta"), *likely).shape
    if list(shown) != [hint(n) for n in source.sizes]:
        raise NotLowered("what is put in does not fit")


@lowers("aten.slice_scatter.default")
def slice_scatter(
    c: Node,
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Tensor:
    """self with a range along one dimension replaced by src."""
    d = along(self, dim)
    check_fits(src, torch.ops.aten.slice.Tensor, self, d, start, end, step)
    if any(n.value == 0 for n in src.sizes):
        return self
    begin = start_of(start, self.sizes[d])
    stop = begin + (src.sizes[d] - 1) * step + 1
    if step == 1 and _checks_places(c, src):
        return _beside(c, _with_neighbours(c, self, src, d, begin, stop), d)

    def tests(at: Index) -> list[tuple[Expr, str, Expr]]:
        found = [] if begin.value == 0 else [(at[d], "ge", begin)]
        found += [] if stop is self.sizes[d] else [(at[d], "lt", stop)]
        return found + ([(mod(at[d] - begin, step), "eq", ZERO)] if step != 1 else [])

    def place(at: Index) -> Index:
        return (*at[:d], floordiv(at[d] - begin, step), *at[d + 1 :])

    return replaced(c, self, src, tests, place)


def _with_neighbours(
    c: Node, x: Tensor, part: Tensor, d: int, begin: Expr, stop: Expr
) -> list[Tensor]:
    """What lies before a part of a tensor, the part, and what lies behind it: each has its loop."""

    def rest(start: Expr, end: Expr) -> Tensor:
        sizes = (*x.sizes[:d], end - start, *x.sizes[d + 1 :])
        shifted = lambda k, at: x.load(k, (*at[:d], at[d] + start, *at[d + 1 :]))  # noqa: E731
        return c.lazy(sizes, x.dtype, shifted, [x])

    return [rest(ZERO, begin), part, rest(stop, x.sizes[d])]


@lowers("aten.select_scatter.default")
def select_scatter(c: Node, self: Tensor, src: Tensor, dim: int, index: Any) -> Tensor:
    """self with one place along a dimension replaced by src."""
    d = along(self, dim)
    check_fits(src, torch.select, self, d, index)
    chosen = start_of(index, self.sizes[d])

    def tests(at: Index) -> list[tuple[Expr, str, Expr]]:
        return [(at[d], "eq", chosen)]

    return replaced(c, self, src, tests, lambda at: (*at[:d], *at[d + 1 :]))


@lowers("aten.diagonal_scatter.default")
def diagonal_scatter(
    c: Node, self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """self with a diagonal replaced by src."""
    first, second = along(self, dim1), along(self, dim2)
    others = [d for d in range(len(self.sizes)) if d not in (first, second)]
    check_fits(src, torch.diagonal, self, offset, dim1, dim2)
    down, right = max(-offset, 0), max(offset, 0)
    if any(n.value == 0 for n in src.sizes):
        return self

    def tests(at: Index) -> list[tuple[Expr, str, Expr]]:
        count = at[first] - down
        return [
            (count, "eq", at[second] - right),
            (count, "ge", ZERO),
            (count, "lt", src.sizes[-1]),
        ]

    def place(at: Index) -> Index:
        return (*[at[d] for d in others], at[first] - down)

    return replaced(c, self, src, tests, place)


@lowers("aten.as_strided_scatter.default")
def as_strided_scatter(
    c: Node, self: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """self with a view of its memory replaced by src, if both lie row by row."""
    val = c.node.args[0].meta["val"]
    sizes = c.graph.sizes
    mine = Layout(self.sizes, sizes.exprs(val.stride()), sizes.expr(val.storage_offset()))
    begin = mine.offset if storage_offset is None else as_expr(storage_offset)
    view = Layout(sizes_of(size), sizes_of(stride), begin)
    if not (_is_row_major(mine) and _is_row_major(view) and view.sizes == tuple(src.sizes)):
        raise NotLowered("memory that does not lie row by row")
    first, count = begin - mine.offset, view.numel
    if first.value == 0 and count is mine.numel:
        return _as_type(reshape(src, self.sizes), self.dtype)
    flat = reshape(src, [count])

    def tests(at: Index) -> list[tuple[Expr, str, Expr]]:
        place = mine.index(at) - mine.offset
        found = [] if first.value == 0 else [(place, "ge", first)]
        return found + ([] if first + count is mine.numel else [(place, "lt", first + count)])

    return replaced(c, self, flat, tests, lambda at: (mine.index(at) - begin,))


def _is_row_major(layout: Layout) -> bool:
    """Whether elements, of which there are some, lie row by row."""
    steps = zip(layout.sizes, layout.strides, row_major_strides(layout.sizes), strict=True)
    return all(n.value != 0 for n in layout.sizes) and all(
        a is b or n.value == 1 for n, a, b in steps
    )
