"""Views: new strides or index maps, never copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.frontends.torch.lowering.node import Node, broadcast_at, is_repeated
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.reshaping import reshape
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr, Facts, as_expr, maximum, product_of
from treadle.ir.build_body import Value
from treadle.ir.types import DType, Layout

ZERO = as_expr(0)


@lowers(
    "aten.detach.default",
    "aten.alias.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
)
def same(c: Node, self: Tensor) -> Tensor:
    """The tensor itself."""
    return self


@lowers(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten._reshape_alias.default",
    "aten.view_copy.default",
    "aten._reshape_copy.default",
)
def view(c: Node, self: Tensor, *sizes: object) -> Tensor:
    """The same elements in row-major order with other sizes."""
    return reshape(self, c.sizes)


@lowers("aten.view.dtype", "aten.view_copy.dtype")
def view_as_type(c: Node, self: Tensor, dtype: object) -> Tensor:
    """The bits of every element read as another type of the same width."""
    to = c.dtype
    if to is self.dtype:
        return self
    if to.bits != self.dtype.bits or DType.BOOL in (to, self.dtype):
        raise NotLowered("the bits are read as another width")
    if c.graph.is_seen_twice(c.val):
        raise NotLowered("it is returned beside a tensor of another type in the same memory")
    inner = _bits(self, to)
    return c.lazy(self.sizes, to, inner, [self])


def _bits(x: Tensor, to: DType) -> Any:
    def inner(k: LoopWriter, at: Index) -> Value:
        return k.bitcast(x.load(k, at), to)

    return inner


def view_of(x: Realised, sizes: Sequence[Expr], strides: Sequence[Expr], offset: Expr) -> Realised:
    """Another view of the same memory."""
    return Realised(x.buffer, Layout(tuple(sizes), tuple(strides), offset))


@lowers("aten.permute.default", "aten.permute_copy.default")
def permute(c: Node, self: Tensor, dims: Sequence[int]) -> Tensor:
    """Dimensions in another order."""
    order = [d % len(self.sizes) for d in dims]
    sizes = [self.sizes[d] for d in order]
    if isinstance(self, Realised):
        return view_of(self, sizes, [self.layout.strides[d] for d in order], self.layout.offset)

    def place(at: Index) -> Index:
        found = [ZERO] * len(order)
        for new, old in enumerate(order):
            found[old] = at[new]
        return tuple(found)

    return c.mapped(self, sizes, place)


@lowers("aten.transpose.int", "aten.transpose_copy.int")
def transpose(c: Node, self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    order = list(range(len(self.sizes)))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(c, self, order)


@lowers("aten.t.default", "aten.t_copy.default")
def t(c: Node, self: Tensor) -> Tensor:
    """A matrix transposed; less than two dimensions stay as they are."""
    return self if len(self.sizes) < 2 else permute(c, self, [1, 0])


@lowers("aten.expand.default", "aten.expand_copy.default")
def expand(c: Node, self: Tensor, size: object, *, implicit: bool = False) -> Tensor:
    """Dimensions of one element repeated without copying."""
    return broadcast_to(c, self, c.sizes)


def broadcast_to(c: Node, x: Tensor, sizes: Index) -> Tensor:
    """`x` repeated to larger sizes."""
    if tuple(x.sizes) == tuple(sizes):
        return x
    if isinstance(x, Realised):
        skip = len(sizes) - len(x.sizes)
        kept = [
            ZERO if is_repeated(n, sizes[skip + d]) else x.layout.strides[d]
            for d, n in enumerate(x.sizes)
        ]
        return view_of(x, sizes, [ZERO] * skip + kept, x.layout.offset)
    return c.mapped(x, sizes, lambda at: broadcast_at(x.sizes, at, sizes))


def start_of(start: Any, size: Expr) -> Expr:
    """Where a slice begins: negative numbers count from the end."""
    begin = as_expr(0 if start is None else start)
    if begin.value is not None and begin.value < 0:
        from_end = begin + size
        if from_end.value is not None:
            return as_expr(max(from_end.value, 0))
        return from_end if Facts().nonnegative(from_end) else maximum(from_end, 0)
    if begin.value is None and not Facts().nonnegative(begin):
        raise NotLowered(f"{begin} may be negative")
    if begin.value is not None and size.value is not None:
        return as_expr(min(begin.value, size.value))
    return begin


def along(x: Tensor, dim: int) -> int:
    """A dimension counted from the front."""
    return dim % len(x.sizes)


@lowers("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    c: Node, self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Tensor:
    """Every step-th element of a range along one dimension."""
    d = along(self, dim)
    begin, pace = start_of(start, self.sizes[d]), as_expr(step)
    return strided(c, self, c.sizes, d, begin, pace)


def strided(c: Node, x: Tensor, sizes: Index, d: int, begin: Expr, pace: Expr) -> Tensor:
    """Elements begin, begin + pace, ... along dimension d."""
    if isinstance(x, Realised):
        strides = list(x.layout.strides)
        offset = x.layout.offset + begin * strides[d]
        if any(n.value == 0 for n in sizes):
            offset = x.layout.offset  # nothing is looked at; stay inside
        strides[d] = strides[d] * pace
        return view_of(x, sizes, strides, offset)

    def place(at: Index) -> Index:
        return (*at[:d], begin + at[d] * pace, *at[d + 1 :])

    return c.mapped(x, sizes, place)


@lowers("aten.select.int", "aten.select_copy.int")
def select(c: Node, self: Tensor, dim: int, index: Any) -> Tensor:
    """One place along a dimension, which goes."""
    d = along(self, dim)
    return picked(c, self, d, start_of(index, self.sizes[d]))


def picked(c: Node, x: Tensor, d: int, index: Expr) -> Tensor:
    """Place `index` along dimension d, which goes."""
    sizes = (*x.sizes[:d], *x.sizes[d + 1 :])
    if isinstance(x, Realised):
        strides = (*x.layout.strides[:d], *x.layout.strides[d + 1 :])
        return view_of(x, sizes, strides, x.layout.offset + index * x.layout.strides[d])
    return c.mapped(x, sizes, lambda at: (*at[:d], index, *at[d:]))


@lowers("aten.unbind.int", "aten.unbind_copy.int")
def unbind(c: Node, self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Every place along a dimension."""
    d = along(self, dim)
    return tuple([picked(c, self, d, as_expr(i)) for i in range(len(c.val))])


@lowers(
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.split_copy.Tensor",
    "aten.split_with_sizes_copy.default",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
)
def split(c: Node, self: Tensor, lengths: object, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces along a dimension."""
    d, begin, pieces = along(self, dim), ZERO, []
    for position in range(len(c.val)):
        sizes = c.sizes_of(position)
        pieces.append(strided(c, self, sizes, d, begin, as_expr(1)))
        begin = begin + sizes[d]
    return tuple(pieces)


@lowers("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(c: Node, self: Tensor, dim: int) -> Tensor:
    """A new dimension of one element."""
    d = dim % (len(self.sizes) + 1)
    sizes = (*self.sizes[:d], as_expr(1), *self.sizes[d:])
    if isinstance(self, Realised):
        at = self.layout
        step = at.strides[d] * at.sizes[d] if d < len(at.sizes) else as_expr(1)
        return view_of(self, sizes, (*at.strides[:d], step, *at.strides[d:]), at.offset)
    return c.mapped(self, sizes, lambda at: (*at[:d], *at[d + 1 :]))


@lowers(
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
)
def squeeze(c: Node, self: Tensor, dim: Any = None) -> Tensor:
    """Dimensions of one element removed."""
    rank = len(self.sizes)
    asked = range(rank) if dim is None else dim if isinstance(dim, list) else [dim]
    gone = {d % rank for d in asked if rank and self.sizes[d % rank].value == 1}
    kept = [d for d in range(rank) if d not in gone]
    sizes = [self.sizes[d] for d in kept]
    if isinstance(self, Realised):
        return view_of(self, sizes, [self.layout.strides[d] for d in kept], self.layout.offset)

    def place(at: Index) -> Index:
        found = [ZERO] * rank
        for new, old in enumerate(kept):
            found[old] = at[new]
        return tuple(found)

    return c.mapped(self, sizes, place)


@lowers("aten.flip.default")
def flip(c: Node, self: Tensor, dims: Sequence[int]) -> Tensor:
    """Dimensions walked backwards; eager copies here, so the result is a computation."""
    gone = {along(self, d) for d in dims} if self.sizes else set()

    def place(at: Index) -> Index:
        return tuple(
            [
                n - 1 - i if d in gone else i
                for d, (n, i) in enumerate(zip(self.sizes, at, strict=True))
            ]
        )

    return c.mapped(self, self.sizes, place)


@lowers("aten.unfold.default", "aten.unfold_copy.default")
def unfold(c: Node, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Overlapping parts along a dimension, in a new last dimension."""
    if not self.sizes:
        return c.mapped(self, c.sizes, lambda at: ())
    d = along(self, dimension)
    if isinstance(self, Realised):
        strides = list(self.layout.strides)
        inner = strides[d]
        strides[d] = inner * step
        return view_of(self, c.sizes, [*strides, inner], self.layout.offset)

    def place(at: Index) -> Index:
        return (*at[:d], at[d] * step + at[-1], *at[d + 1 : -1])

    return c.mapped(self, c.sizes, place)


@lowers("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(c: Node, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, in a new last dimension."""
    first, second = along(self, dim1), along(self, dim2)
    down, right = max(-offset, 0), max(offset, 0)
    others = [d for d in range(len(self.sizes)) if d not in (first, second)]
    if isinstance(self, Realised):
        at = self.layout
        strides = [*[at.strides[d] for d in others], at.strides[first] + at.strides[second]]
        begin = at.offset + at.strides[first] * down + at.strides[second] * right
        is_empty = any(n.value == 0 for n in c.sizes)  # then nothing is looked at: stay inside
        return view_of(self, c.sizes, strides, at.offset if is_empty else begin)

    def place(at: Index) -> Index:
        found = [ZERO] * len(self.sizes)
        for new, old in enumerate(others):
            found[old] = at[new]
        found[first], found[second] = at[-1] + down, at[-1] + right
        return tuple(found)

    return c.mapped(self, c.sizes, place)


@lowers("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    c: Node, self: Tensor, size: object, stride: Sequence[Any], storage_offset: Any = None
) -> Tensor:
    """Any view of the memory of a tensor that lies as torch thinks it does."""
    node = c.node.args[0]
    strides = tuple([as_expr(s) for s in stride])
    begin = c.graph.sizes.expr(node.meta["val"].storage_offset())
    asked = begin if storage_offset is None else as_expr(storage_offset)
    return _strided_view(c, self, node, strides, asked)


def _strided_view(c: Node, x: Tensor, node: Any, strides: Index, asked: Expr) -> Realised:
    """Memory of the value of a node, seen from `asked` elements after the start of its storage."""
    val, where = node.meta["val"], c.realise(x)
    steps = zip(where.sizes, where.layout.strides, c.graph.sizes.exprs(val.stride()), strict=True)
    if not all(a is b or n.value in (0, 1) for n, a, b in steps):
        raise NotLowered("the tensor does not lie in memory as it would in eager mode")
    begin = c.graph.sizes.expr(val.storage_offset())
    seen = Layout(c.sizes, strides, asked - begin + where.layout.offset)
    whole = where.buffer.layout.span
    if not (Facts().nonnegative(seen.lowest) and Facts().at_most(seen.span, whole)):
        raise NotLowered("the view may reach beyond the tensor")
    return Realised(where.buffer, seen)


@lowers("aten.repeat.default")
def repeat(c: Node, self: Tensor, repeats: object) -> Tensor:
    """The tensor laid side by side with itself."""
    skip = len(c.sizes) - len(self.sizes)

    def place(at: Index) -> Index:
        pairs = zip(at[skip:], self.sizes, strict=True)
        return tuple([ZERO if n.value == 1 else i % n for i, n in pairs])

    if any(n.value == 0 for n in self.sizes):
        return c.mapped(self, c.sizes, lambda at: tuple([ZERO] * len(self.sizes)))
    return c.mapped(self, c.sizes, place)


@lowers("aten.roll.default")
def roll(c: Node, self: Tensor, shifts: Any, dims: Sequence[int] = ()) -> Tensor:
    """Elements moved around in a circle."""
    if any(n.value == 0 for n in self.sizes):
        return c.mapped(self, self.sizes, lambda at: at)
    moves = shifts if isinstance(shifts, list) else [shifts]
    if not dims:
        flat = reshape(self, [product_of(self.sizes)])
        return reshape(_rolled(c, flat, moves, [0]), self.sizes)
    return _rolled(c, self, moves, dims)


def _rolled(c: Node, x: Tensor, shifts: Sequence[Any], dims: Sequence[int]) -> Tensor:
    amounts: dict[int, Expr] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        d = along(x, dim)
        amounts[d] = amounts.get(d, ZERO) + as_expr(shift)

    def place(at: Index) -> Index:
        pairs = enumerate(zip(at, x.sizes, strict=True))
        return tuple([(i - amounts[d]) % n if d in amounts else i for d, (i, n) in pairs])

    return c.mapped(x, x.sizes, place)
