"""Operations for random small programs: every row of MOVES appends one, legal or not.

`small_programs` keeps an operation only if the program so far passes the verifier and reads
nothing that was never written, so the moves here may guess boldly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from treadle.index import Expr, Symbol, as_expr, maximum, minimum
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.types import Buffer, BufferKind, DType

WALKS = ((2, 2, 2), (4, 2), (2, 4), (1, 4), (4, 1), (2, 1, 2), (3, 4), (1, 1), (2, 0))
STRIDES = (1, 1, 1, 2, 3, 4, -1, -2)
REDUCTIONS = ("sum", "max", "min", "prod", "argmax", "argmin", "any")
ATOMICS = ("atomic_add", "atomic_max", "atomic_min", "atomic_mul")
INDEX_RANGE = 4
"""Inputs of whole numbers hold 0..3, so an indirect value of this range is always legal."""


class Draft:
    """A program under construction and the choices that shape it."""

    def __init__(self, draw: st.DrawFn, builder: ProgramBuilder) -> None:
        self.draw, self.builder = draw, builder
        self.floats: list[Buffer] = []
        self.whole: list[Buffer] = []
        self.filled: list[Buffer] = []
        self.under_way: list[Buffer] = []
        self.extents: list[Expr] = [as_expr(n) for n in (4, 3, 2, 5, 1, 8, 0)]
        self.count = 0

    def one_of(self, options: Sequence[Buffer]) -> Buffer:
        return self.draw(st.sampled_from(options))

    def source(self) -> Buffer:
        """A buffer to read: mostly one whose storage is full of values."""
        return self.one_of(self.floats if self.number(0, 5) == 0 else self.filled)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def maybe(self) -> bool:
        return self.draw(st.booleans())

    def word(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def rest(self) -> dict[str, object]:
        """What any operation may have: now and then an operation to follow."""
        names = [op.name for op in self.builder._ops]
        if names and self.number(0, 9) == 0:
            return {"after": [self.draw(st.sampled_from(names))]}
        return {}

    def loops(self, low: int = 1, high: int = 2) -> list[Expr]:
        count = self.number(low, high)
        return [self.draw(st.sampled_from(self.extents)) for _ in range(count)]

    def limit(self, b: Buffer) -> Expr:
        """Elements in the storage behind `b`, counted as `b` counts."""
        root = b
        while root.view_of is not None:
            root = self.builder.buffers[root.view_of]
        return (root.storage_numel * root.dtype.itemsize) // b.dtype.itemsize

    # -- indices ---------------------------------------------------------------------------
    def index(self, b: Buffer, loops: Sequence[tuple[Symbol, Expr]], every: bool = False) -> Expr:
        """A storage index of `b` over some loops (over `every` loop, for stores)."""
        limit = self.limit(b)
        used = [(v, n) for v, n in loops if every or self.number(0, 4)]
        if limit.value is None or any(n.value is None for _, n in used):
            return self._index_of_unknown_size(b, limit, used)
        low, high, total = 0, 0, as_expr(0)
        for v, n in reversed(used):
            # Most of the time a stride that steps over what the inner loops walk through.
            dense = self.number(0, 2) > 0
            step = high - low + 1 if dense else self.draw(st.sampled_from(STRIDES))
            step = -step if dense and self.number(0, 5) == 0 else step
            reach = step * max((n.value or 0) - 1, 0)
            low, high = low + min(reach, 0), high + max(reach, 0)
            total = total + v * step
        room = limit.value - 1 - (high - low)
        return total - low + (self.number(0, room) if room > 0 else 0)

    def _index_of_unknown_size(
        self, b: Buffer, limit: Expr, used: Sequence[tuple[Symbol, Expr]]
    ) -> Expr:
        step: Expr = as_expr(1)
        total: Expr = as_expr(0)
        for v, n in reversed(used):
            total, step = total + v * step, step * n
        if used and self.number(0, 3) == 0:
            total = limit - 1 - total
        return total

    def bent(self, e: Expr, b: Buffer) -> Expr:
        """Now and then an index that is no longer affine, for loads."""
        limit = self.limit(b)
        how = self.number(0, 9)
        if how == 0:
            return e // self.number(2, 3)
        if how == 1:
            return e % limit
        if how == 2:
            return maximum(minimum(e + self.number(-2, 2), limit - 1), 0)
        return e

    # -- values ----------------------------------------------------------------------------
    def load(self, k: BodyBuilder, loops: Sequence[tuple[Symbol, Expr]]) -> Value:
        """A float from somewhere: affine, bent, gathered, under a mask, or of the loops alone."""
        how = self.number(0, 11)
        b = self.source()
        if how == 0 and loops:
            value = k.index(loops[0][0] + self.number(0, 3), "f32")
        elif how == 1 and self.whole:
            value = k.load_at(b, self.gathered(k, b, loops))
        elif how == 2 and loops:
            value = self.masked_load(k, b, loops)
        elif how == 3 and loops:
            seed, offset = k.constant(7, "i64"), k.index(self.index(b, loops))
            value = k.random("rand", seed, offset)
        else:
            value = k.load_at(b, self.bent(self.index(b, loops), b))
        return value.to("f32")

    def gathered(self, k: BodyBuilder, b: Buffer, loops: Sequence[tuple[Symbol, Expr]]) -> Expr:
        """An index that comes from data, scaled and shifted now and then."""
        source = self.one_of(self.whole)
        at = k.load_at(source, self.index(source, loops))
        known = self.limit(b).value
        step = self.number(1, 3)
        last = step * (INDEX_RANGE - 1)
        room = 0 if known is None else max(known - 1 - last, 0)
        return k.indirect(at, INDEX_RANGE) * step + self.number(0, room)

    def masked_load(self, k: BodyBuilder, b: Buffer, loops: Sequence[tuple[Symbol, Expr]]) -> Value:
        shifted = self.index(b, loops) + self.number(-3, 3)
        place = k.index(shifted)
        inside = k.logical_and(place >= 0, place < k.index(self.limit(b)))
        return k.masked(inside, self.number(-1, 1) * 1.0, lambda: k.load_at(b, shifted))

    def mixed(self, k: BodyBuilder, loops: Sequence[tuple[Symbol, Expr]]) -> Value:
        """One or two loads and a number of this operation's own."""
        value = self.load(k, loops)
        if self.maybe():
            value = value + self.load(k, loops)
        return value * 0.5 + float(self.count)


def pairs(k: BodyBuilder) -> list[tuple[Symbol, Expr]]:
    """All loops of a body with their extents."""
    return [*k.domain.items(), *k.reduce.items()]


# ----------------------------------------------------------------------------------- moves


def pointwise(d: Draft) -> None:
    """One or two stores of what some loads give, at any injective or overlapping index."""
    with d.builder.loop(d.fresh("point"), d.loops(0, 2), **d.rest()) as k:
        value = d.mixed(k, pairs(k))
        for _ in range(d.number(1, 2)):
            target = d.one_of(d.floats)
            k.store_at(target, d.index(target, pairs(k), every=True), value.to(target.dtype))
            value = value + 1.0


def walk(d: Draft) -> None:
    """Straight through storages with two or three loops, some of them reducing: loops to merge."""
    extents = [as_expr(n) for n in d.draw(st.sampled_from(WALKS))]
    cut = d.number(0, len(extents))
    combines = cut < len(extents)
    name = d.fresh("walk")
    with d.builder.loop(name, extents[:cut], reduce=extents[cut:], **d.rest()) as k:
        straight = row_major(pairs(k))
        source, target = d.source(), d.one_of(d.floats)
        value = k.load_at(source, straight + d.number(0, 1)).to("f32")
        if d.maybe():
            value = value + k.index(straight * d.number(0, 2), "f32")
        if combines and d.maybe():
            total = k.reduce_by(d.word(REDUCTIONS), value).to(target.dtype)
            k.store_at(target, row_major(list(k.domain.items())), total)
        else:
            value = k.scan("add", value) if combines else value
            k.store_at(target, straight, value.to(target.dtype))


def row_major(loops: Sequence[tuple[Symbol, Expr]]) -> Expr:
    """The position of a point in loop order."""
    total: Expr = as_expr(0)
    for v, n in loops:
        total = total * n + v
    return total


def relay(d: Draft) -> None:
    """A new buffer computed from the newest one, mostly index by index: a block to take over."""
    roots = [b for b in d.filled if b.view_of is None]
    source = roots[-1] if d.number(0, 3) else d.one_of(roots)
    element = source.dtype if d.number(0, 5) else DType.F16
    sizes = source.layout.sizes if d.number(0, 3) else [d.limit(source)]
    target = d.builder.buffer(d.fresh("y"), element, sizes)
    whole = d.number(0, 3) > 0
    with d.builder.loop(d.fresh("relay"), sizes if whole else d.loops(), **d.rest()) as k:
        loops = pairs(k)
        index = target.layout.index(k.vars) if whole else d.index(target, loops, every=True)
        value = k.load_at(source, index).to("f32")
        if d.number(0, 2) == 0:
            value = value + k.load_at(source, index if d.maybe() else d.index(source, loops))
        if d.number(0, 3) == 0:
            value = value + d.load(k, loops)
        k.store_at(target, index, (value * 0.5 + float(d.count)).to(element))
    d.floats.append(target)


def fill(d: Draft) -> None:
    """Every element of a buffer, whatever its layout."""
    target = d.one_of(d.floats)
    with d.builder.loop(d.fresh("fill"), target.layout.sizes, **d.rest()) as k:
        k.store(target, k.vars, d.mixed(k, pairs(k)).to(target.dtype))


def update(d: Draft) -> None:
    """A buffer changed in place, whole or in part."""
    target = d.source()
    with d.builder.loop(d.fresh("update"), d.loops(), **d.rest()) as k:
        index = d.index(target, pairs(k), every=True)
        old = k.load_at(target, index).to("f32")
        k.store_at(target, index, (old * 0.5 + d.load(k, pairs(k))).to(target.dtype))


def accumulate(d: Draft) -> None:
    """An atomic store, at repeated indices now and then."""
    target = d.source()
    with d.builder.loop(d.fresh("atomic"), d.loops(), **d.rest()) as k:
        index = d.bent(d.index(target, pairs(k)), target)
        if d.whole and d.maybe():
            index = d.gathered(k, target, pairs(k))
        value = d.mixed(k, pairs(k)).to(target.dtype)
        k.store_at(target, index, value, mode=d.word(ATOMICS))


def scatter(d: Draft) -> None:
    """A plain store at indices that come from data."""
    target = d.one_of(d.floats)
    with d.builder.loop(d.fresh("scatter"), d.loops(), **d.rest()) as k:
        value = d.mixed(k, pairs(k)).to(target.dtype)
        k.store_at(target, d.gathered(k, target, pairs(k)), value)


def reduction(d: Draft) -> None:
    """A combination over one or two loops, its result spread over them now and then."""
    extents = [n for n in d.loops(1, 2) if n.value != 0]
    with d.builder.loop(d.fresh("reduce"), d.loops(0, 1), reduce=extents, **d.rest()) as k:
        value = d.mixed(k, pairs(k))
        total = k.reduce_by(d.word(REDUCTIONS), value).to("f32")
        target = d.one_of(d.floats)
        index = d.index(target, list(k.domain.items()), every=True)
        k.store_at(target, index, total.to(target.dtype))
        if d.maybe():
            target = d.one_of(d.floats)
            index = d.index(target, pairs(k), every=True)
            k.store_at(target, index, (value - total).to(target.dtype))


def running(d: Draft) -> None:
    """A scan or a sort along one loop."""
    with d.builder.loop(d.fresh("scan"), d.loops(0, 1), reduce=d.loops(1, 2), **d.rest()) as k:
        value = d.mixed(k, pairs(k))
        value = k.scan("add", value) if d.maybe() else k.sort(value, descending=d.maybe())
        target = d.one_of(d.floats)
        index = d.index(target, pairs(k), every=True)
        k.store_at(target, index, value.to(target.dtype))


def bucket(d: Draft) -> None:
    """A search among the elements of a buffer of one dimension."""
    rows = [b for b in d.filled if len(b.layout.sizes) == 1]
    target = d.one_of(d.floats)
    with d.builder.loop(d.fresh("bucket"), d.loops(), **d.rest()) as k:
        found = k.bucketize(d.load(k, pairs(k)), d.one_of(rows or d.filled))
        k.store_at(target, d.index(target, pairs(k), every=True), found.to(target.dtype))


def call(d: Draft) -> None:
    """A library call that reads, fills and changes whole buffers.

    What a call writes it does not read: a target among its arguments only says where to.
    """
    args = [d.source() for _ in range(d.number(0, 2))]
    writes = [d.one_of(d.floats)] if d.maybe() else []
    args = [b for b in args if b not in writes]
    mutates = [d.source()] if not writes or d.number(0, 3) == 0 else []
    effect = d.number(0, 7) == 0
    d.builder.extern(
        "mix",
        [*args, float(d.count)],
        writes,
        mutates=[b for b in mutates if b not in writes],
        name=d.fresh("call"),
        has_side_effects=effect,
        **d.rest(),
    )


def allocate(d: Draft) -> None:
    """A buffer made anew, uninitialised."""
    d.builder.nop(d.one_of(d.floats), name=d.fresh("alloc"), **d.rest())


def tuple_call(d: Draft) -> None:
    """A call that makes a tuple, and one or two tensors taken out of it."""
    roots = [b for b in d.floats if b.view_of is None]
    pair = d.builder.token(d.fresh("pair"), BufferKind.TUPLE)
    takes = [d.one_of(roots) for _ in range(d.number(1, 2))]
    shapes = [b.name for b in takes]
    args = [d.source(), float(d.count), shapes]
    d.builder.extern("split", args, [pair], name=d.fresh("split"))
    for position, target in enumerate(takes):
        d.builder.take(target, pair, position, name=d.fresh("take"))


def communicate(d: Draft) -> None:
    """A collective that fills or changes a buffer, and the wait for it, at once or later."""
    roots = [b for b in d.floats if b.view_of is None]
    target, source = d.one_of(roots), d.source()
    in_place = source.name == target.name
    d.builder.collective(
        "mix",
        [source, float(d.count)],
        writes=[] if in_place else [target],
        mutates=[target] if in_place else [],
        name=d.fresh("start"),
        group="world",
    )
    if d.maybe():
        d.builder.wait(target, name=d.fresh("wait"))
    else:
        d.under_way.append(target)


def finish(d: Draft) -> None:
    """The wait for a collective that was started some time ago."""
    d.builder.wait(d.under_way.pop(0), name=d.fresh("wait"), **d.rest())


MOVES: Mapping[str, Callable[[Draft], None]] = {
    "pointwise": pointwise,
    "fill": fill,
    "walk": walk,
    "relay": relay,
    "update": update,
    "accumulate": accumulate,
    "scatter": scatter,
    "reduction": reduction,
    "running": running,
    "bucket": bucket,
    "call": call,
    "allocate": allocate,
    "tuple_call": tuple_call,
    "communicate": communicate,
    "finish": finish,
}
LOOP_MOVES = (
    "pointwise", "walk", "relay", "fill", "update", "accumulate", "scatter", "reduction", "running",
    "bucket", "allocate",
)  # fmt: skip
