"""Pooling over small windows in two or three dimensions: written out, one loop over the result.

A window of `count` places starts at `step * i - pad`, or, where windows adapt to the size of the
result, at `i * size // out`. Places outside are left out by masks, which are written only where a
place can be outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, TypeAlias

from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number
from treadle.frontends.torch.lowering.ops.reduce import wide_type
from treadle.frontends.torch.lowering.ops.scatter import scattered
from treadle.frontends.torch.lowering.ops.shape import inside
from treadle.frontends.torch.lowering.registry import Lowering
from treadle.frontends.torch.lowering.values import (
    Index,
    Lazy,
    LoopWriter,
    NotLowered,
    Realised,
    Tensor,
    as_index,
)
from treadle.index import Expr, Facts, as_expr, product_of
from treadle.ir.build_body import Value
from treadle.ir.types import DType

IN_WINDOW = "treadle_in_window"
"""Marks places in a plane that were made from places in windows, kept as bytes."""
AS_BYTES = "treadle_as_bytes"
"""Marks places in windows that were made from places in a plane, as bytes, to be kept."""
BYTES = "treadle_bytes"
"""Under which name a pool has the places in windows that it wrote, if somebody wants them."""
LARGEST = 64
"""Places of the largest window that is written out."""
MOST_STEPS = 40
"""Nodes that are looked at behind a pool."""

Tests = list[tuple[Expr, str, Expr]]
ZERO = as_expr(0)


@dataclass(frozen=True)
class Window:
    """Where the places of a window along one dimension lie."""

    size: Expr
    out: Expr
    count: int
    step: int
    pad: int = 0
    spread: int = 1

    def place(self, i: Expr, n: int) -> tuple[Expr, Tests]:
        """The n-th place of the i-th window, and what must hold for it to be inside."""
        at = i * self.step + (n * self.spread - self.pad)
        tests: Tests = [(at, "ge", ZERO)] if n * self.spread < self.pad else []
        last = (self.out - 1) * self.step + n * self.spread - self.pad
        is_inside = Facts().less(last, self.size)
        return at, tests if is_inside else [*tests, (at, "lt", self.size)]

    @property
    def overlaps(self) -> int:
        """How many windows can hold one place."""
        return -(-self.count // self.step)

    def covering(self, at: Expr, n: int) -> tuple[Expr, Tests]:
        """The n-th window that may hold a place of the tensor, and what must hold if it does."""
        i = (at + self.pad) // self.step - n
        reach = at + self.pad - i * self.step
        tests: Tests = [(i, "ge", ZERO)] if n else []
        last = (self.size - 1 + self.pad) // self.step - n
        if not Facts().less(last, self.out):
            tests.append((i, "lt", self.out))
        # The place is n whole steps and less than one more behind the window's first.
        if (n + 1) * self.step > self.count:
            tests.append((reach, "lt", as_expr(self.count)))
        return i, tests

    def common_width(self, with_pad: bool) -> int | None:
        """How many places the average counts, if it is as many in all windows."""
        end = (self.out - 1) * self.step - self.pad + self.count
        limit = self.size + self.pad if with_pad else self.size
        is_whole = (with_pad or not self.pad) and Facts().less(end - 1, limit)
        return self.count if is_whole else None

    def width(self, k: LoopWriter, i: Expr, with_pad: bool) -> Value:
        """How many places the average counts, as an i64."""
        start = k.index(i * self.step - self.pad)
        end = k.minimum(start + self.count, k.index(self.size + self.pad))
        if with_pad:
            return end - start
        top = k.minimum(end, k.index(self.size))
        return top - k.maximum(start, k.index(ZERO))


@dataclass(frozen=True)
class Adaptive:
    """Windows that share a dimension out evenly, so that they differ by a place and may overlap."""

    size: int
    out: int

    @property
    def count(self) -> int:
        """The places of the widest window."""
        return max([self._end(i) - i * self.size // self.out for i in range(self.out)])

    @property
    def overlaps(self) -> int:
        """How many windows can hold one place."""
        last = [-(-(at + 1) * self.out // self.size) for at in range(self.size)]
        return max([end - at * self.out // self.size for at, end in enumerate(last)])

    def _end(self, i: int) -> int:
        return -(-(i + 1) * self.size // self.out)

    def _ends(self, i: Expr) -> Expr:
        return ((i + 1) * self.size + (self.out - 1)) // self.out

    def place(self, i: Expr, n: int) -> tuple[Expr, Tests]:
        """The n-th place of the i-th window, and what must hold for it to be inside."""
        at = i * self.size // self.out + n
        least = min([self._end(j) - j * self.size // self.out for j in range(self.out)])
        return at, [(at, "lt", self._ends(i))] if n >= least else []

    def covering(self, at: Expr, n: int) -> tuple[Expr, Tests]:
        """The n-th window that may hold a place of the tensor, and what must hold if it does."""
        i = at * self.out // self.size + n
        return i, [(i, "lt", as_expr(self.out)), (i * self.size // self.out, "le", at)]

    def common_width(self, with_pad: bool) -> int | None:
        """How many places the average counts, if it is as many in all windows."""
        return None if self.size % self.out else self.size // self.out

    def width(self, k: LoopWriter, i: Expr, with_pad: bool) -> Value:
        """How many places the average counts, as an i64."""
        return k.index(self._ends(i) - i * self.size // self.out)


Windows: TypeAlias = Sequence[Window | Adaptive]
"""One for each dimension that windows move over: the last two, or the last three."""


def _each(given: Any, rank: int, default: Sequence[int] = ()) -> list[int]:
    numbers = list(given) if isinstance(given, list | tuple) else [given]
    if not numbers:
        return list(default)
    if not all(isinstance(n, int) for n in numbers):
        raise NotLowered("a window known at run time only")
    return numbers * rank if len(numbers) == 1 else numbers


def _sizes(sizes: Index, rank: int) -> Index:
    """The sizes that windows move over."""
    if any(n.value == 0 for n in sizes):
        raise NotLowered("no elements")
    return sizes[-rank:]


def windows(
    rank: int, x: Index, out: Index, kernel: Any, stride: Any, pad: Any, spread: Any = 1
) -> Windows:
    """The windows of the last dimensions; NotLowered if they are too large to write out."""
    count = _each(kernel, rank)
    steps, pads, spreads = _each(stride, rank, count), _each(pad, rank), _each(spread, rank)
    sizes = zip(_sizes(x, rank), _sizes(out, rank), count, steps, pads, spreads, strict=True)
    return _small([Window(*six) for six in sizes])


def adaptive_windows(rank: int, x: Index, out: Index) -> Windows:
    """The windows that divide the last dimensions into as many parts as the result has places."""
    found = zip(_sizes(x, rank), _sizes(out, rank), strict=True)
    pairs = [(size.value, parts.value) for size, parts in found]
    known = [(size, parts) for size, parts in pairs if size is not None and parts is not None]
    if len(known) < rank:
        raise NotLowered("parts of sizes known at run time only")
    if any(size % parts for size, parts in known):
        return _small([Adaptive(*pair) for pair in known])
    each = [(size, parts, size // parts) for size, parts in known]
    return _small([Window(as_expr(n), as_expr(parts), per, per) for n, parts, per in each])


def _small(found: Windows) -> Windows:
    if max(math.prod([w.count for w in found]), math.prod([w.overlaps for w in found])) > LARGEST:
        raise NotLowered("a window too large to write out")
    return found


def _places(k: LoopWriter, all_of: Windows) -> Iterator[tuple[Index, Value | None]]:
    """The places of the window at the loop's place, and whether each is inside (None: it is)."""
    for position in product(*[range(w.count) for w in all_of]):
        found = [w.place(i, n) for w, i, n in zip(all_of, _last(k, all_of), position, strict=True)]
        yield tuple([at for at, _ in found]), inside(k, [t for _, tests in found for t in tests])


def _last(k: LoopWriter, all_of: Windows) -> Index:
    return k.at[-len(all_of) :]


# ------------------------------------------------------------------------------ the largest


def _largest(c: Node, x: Tensor, all_of: Windows) -> tuple[Tensor, ...]:
    """The largest of every window (NaN wins) and its place in the plane or the volume."""
    x, values, places = c.realise(x), c.buffer(0), c.buffer(1)
    with c.loop(c.sizes) as k:
        best: Candidate | None = None
        found = list(_places(k, all_of))
        flat = [_flat(place, all_of) for place, _ in found]
        # How far a place is from the first is a number, half as wide and the same at all points.
        apart = [(e - flat[0]).value for e in flat]
        for (place, mask), e, n in zip(found, flat, apart, strict=True):
            value = _loaded(k, x, (*k.at[: -len(all_of)], *place), mask)
            there = k.index(e) if None in apart else number(k, n, DType.I32)
            one = (value, there, mask)
            best = one if best is None else _better(k, best, one)
        assert best is not None, "a window has at least one place"
        k.store(values, k.at, best[0])
        at = best[1] if None in apart else k.index(flat[0]) + converted(best[1], DType.I64)
        k.store(places, k.at, at)
    return in_memory(values), in_memory(places)


def _largest_and_bytes(c: Node, x: Tensor, all_of: Sequence[Window]) -> tuple[Tensor, ...]:
    """The largest of every window, and its place in the plane as what its place in the window says.

    Which of the window's places it is goes along as a float, as wide as what is compared.
    """
    x, values = c.realise(x), c.buffer(0)
    numbers = c.buffer(1, dtype=DType.I8)
    with c.loop(c.sizes) as k:
        best: Candidate | None = None
        for n, (place, mask) in enumerate(_places(k, all_of)):
            value = _loaded(k, x, (*k.at[: -len(all_of)], *place), mask)
            one = (value, number(k, float(n), DType.F32), mask)
            best = one if best is None else _better(k, best, one)
        assert best is not None, "a window has at least one place"
        k.store(values, k.at, best[0])
        k.store(numbers, k.at, converted(best[1], DType.I8))
    kept = c.node.meta[BYTES] = in_memory(numbers)

    def inner(k: LoopWriter, at: Index) -> Value:
        left = converted(kept.load(k, at), DType.I64)
        flat = k.index(ZERO)
        for d, (i, w) in enumerate(zip(at[-len(all_of) :], all_of, strict=True)):
            inside = number(k, math.prod([v.count for v in all_of[d + 1 :]]), DType.I64)
            n = k.floordiv(left, inside)
            left = left - n * inside
            flat = flat * k.index(w.size) + (k.index(i * w.step - w.pad) + n * w.spread)
        return flat

    return in_memory(values), c.lazy(c.sizes, DType.I64, inner, [kept])


def kept_as_bytes(node: Any) -> Realised | None:
    """What a pool wrote where a marked node would make it anew; None if that is not what it is."""
    if not node.meta.get(AS_BYTES):
        return None
    while node.args and hasattr(node.args[0], "meta"):
        node = node.args[0]
        if BYTES in node.meta:
            found: Realised = node.meta[BYTES]
            return found
    return None


def _are_wanted_as_bytes(node: Any) -> bool:
    """Whether places in windows are made of what a pool gives."""
    pending, seen = [node], {node}
    while pending and len(seen) < MOST_STEPS:
        for user in pending.pop().users:
            if user.meta.get(AS_BYTES):
                return True
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def _flat(place: Index, all_of: Windows) -> Expr:
    """A place in the plane or the volume as one number."""
    flat = ZERO
    for at, w in zip(place, all_of, strict=True):
        flat = flat * w.size + at
    return flat


Candidate = tuple[Value, Value, "Value | None"]
"""A value, its place, and whether it is inside (None: it always is)."""


def _loaded(k: LoopWriter, x: Tensor, at: Index, mask: Value | None) -> Value:
    if mask is None:
        return x.load(k, at)
    nothing = 0.0 if x.dtype.is_float else 0
    return k.masked(mask, nothing, lambda: x.load(k, at))


def _better(k: LoopWriter, old: Candidate, new: Candidate) -> Candidate:
    (best, place, found), (value, there, is_inside) = old, new
    wins = value > best
    if value.dtype.is_float:
        wins = k.logical_or(wins, k.isnan(value))
    if found is not None:
        wins = k.logical_or(wins, k.logical_not(found))
    if is_inside is not None:
        wins = k.logical_and(wins, is_inside)
    seen: Value | None = None
    if found is not None and is_inside is not None:
        seen = k.logical_or(found, is_inside)
    return k.where(wins, value, best), k.where(wins, there, place), seen


def max_pool(
    rank: int,
    c: Node,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, ...]:
    """The largest of every window and its place."""
    found = windows(rank, self.sizes, c.sizes, kernel_size, stride, padding, dilation)
    plain = [w for w in found if isinstance(w, Window)]
    if c.graph.device == "cpu" and _are_wanted_as_bytes(c.node):
        return _largest_and_bytes(c, self, plain)
    return _largest(c, self, found)


def adaptive_max_pool(rank: int, c: Node, self: Tensor, output_size: Any) -> tuple[Tensor, ...]:
    """The largest of the parts that give a tensor of the wanted size, and its place."""
    return _largest(c, self, adaptive_windows(rank, self.sizes, c.sizes))


def max_pool_backward(
    rank: int, c: Node, grad_output: Tensor, self: Tensor, *settings: Any, **others: Any
) -> Tensor:
    """Each gradient added at the place its value came from."""
    indices: Tensor = others["indices"] if "indices" in others else settings[-1]
    sizes = _sizes(c.sizes, rank)
    all_of = _known_windows(rank, c, grad_output, settings)
    if all_of is not None:
        inside_windows = _in_windows(c)
        if inside_windows is not None:
            return _given_back(c, grad_output, inside_windows, all_of, _place_in_window)
        return _given_back(c, grad_output, indices, all_of, _place_in_plane)
    dtype = c.dtype
    nothing = c.lazy(c.sizes, dtype, lambda k, at: number(k, 0, dtype))

    def put(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        where = as_index(k, indices.load(k, at), product_of(sizes), wrap=False)
        place: list[Expr] = []
        for n in reversed(sizes[1:]):
            where, place = where // n, [where % n, *place]
        return (*at[:-rank], where, *place), grad_output.load(k, at)

    return scattered(c, nothing, grad_output.sizes, put, "atomic_add")


def _known_windows(rank: int, c: Node, grad: Tensor, settings: Sequence[Any]) -> Windows | None:
    """The windows that places lie in; None if nobody knows that they do.

    In a backward graph they are those of the forward; elsewhere a caller can give any others.
    """
    if len(settings) != 6 or c.graph.out.kind is not GraphKind.BACKWARD:
        return None
    count, step, pad, spread = settings[:4]
    if any(n != 1 for n in _each(spread, rank)):
        return None
    return windows(rank, c.sizes, grad.sizes, count, step, pad)


def _in_windows(c: Node) -> Tensor | None:
    """The bytes that places were made from, if they were (see `capture/pool_places`)."""
    pending = [c.node.args[7]]
    if not pending[0].meta.get(IN_WINDOW):
        return None
    while pending:
        node = pending.pop()
        value = c.graph.env.get(node)
        if isinstance(value, Lazy | Realised) and value.dtype is DType.I8:
            return value
        pending += node.all_input_nodes
    return None


def _place_in_plane(here: Index, window: Index, all_of: Windows) -> Expr:
    """How a place is called in the whole plane or volume."""
    return _flat(here, all_of)


def _place_in_window(here: Index, window: Index, all_of: Windows) -> Expr:
    """How a place is called in a window that holds it."""
    flat = ZERO
    for at, i, w in zip(here, window, all_of, strict=True):
        assert isinstance(w, Window), "places in windows are those of fixed windows"
        flat = flat * w.count + (at + w.pad - i * w.step)
    return flat


def _given_back(
    c: Node,
    grad: Tensor,
    places: Tensor,
    all_of: Windows,
    called: Callable[[Index, Index, Windows], Expr],
) -> Tensor:
    """For every place the gradients of the windows whose largest it was."""
    grad, target, wide = c.realise(grad), c.buffer(), wide_type(c.dtype)
    with c.loop(c.sizes) as k:
        total: Value = number(k, 0, wide)
        here = _last(k, all_of)
        for position in product(*[range(w.overlaps) for w in all_of]):
            found = [w.covering(at, n) for w, at, n in zip(all_of, here, position, strict=True)]
            window = tuple([i for i, _ in found])
            mask = inside(k, [t for _, tests in found for t in tests])

            def one(window: Index = window) -> Value:
                at = (*k.at[: -len(all_of)], *window)
                wanted = k.simplify(called(here, window, all_of))
                is_here = converted(places.load(k, at), DType.I64) == k.index(wanted)
                return k.where(is_here, converted(grad.load(k, at), wide), number(k, 0, wide))

            total = total + (one() if mask is None else k.masked(mask, 0.0, one))
        k.store(target, k.at, converted(total, target.dtype))
    return in_memory(target)


# ------------------------------------------------------------------------------ the average


def _average(c: Node, x: Tensor, all_of: Windows, divisor: Callable[..., Value]) -> Tensor:
    x, target, wide = c.realise(x), c.buffer(), wide_type(c.dtype)
    with c.loop(c.sizes) as k:
        total: Value | None = None
        for place, mask in _places(k, all_of):
            one = converted(_loaded(k, x, (*k.at[: -len(all_of)], *place), mask), wide)
            total = one if total is None else total + one
        assert total is not None, "a window has at least one place"
        count = divisor(k, _last(k, all_of)).to(wide)
        k.store(target, k.at, converted(total / count, target.dtype))
    return in_memory(target)


def _spread(c: Node, grad: Tensor, all_of: Windows, divisor: Callable[..., Value]) -> Tensor:
    """The gradient of an average: what every window that holds a place gives to it."""
    grad, target, wide = c.realise(grad), c.buffer(), wide_type(c.dtype)
    with c.loop(c.sizes) as k:
        total: Value = number(k, 0, wide)
        here = _last(k, all_of)
        for position in product(*[range(w.overlaps) for w in all_of]):
            found = [w.covering(at, n) for w, at, n in zip(all_of, here, position, strict=True)]
            window = tuple([i for i, _ in found])
            mask = inside(k, [t for _, tests in found for t in tests])
            one = converted(_loaded(k, grad, (*k.at[: -len(all_of)], *window), mask), wide)
            total = total + one / divisor(k, window).to(wide)
        k.store(target, k.at, converted(total, target.dtype))
    return in_memory(target)


def _divisor(all_of: Windows, with_pad: bool, override: Any) -> Callable[..., Value]:
    def divisor(k: LoopWriter, window: Index) -> Value:
        if override is not None:
            return number(k, override, DType.I64)
        common = [w.common_width(with_pad) for w in all_of]
        count = number(k, prod([n for n in common if n is not None]), DType.I64)
        if None not in common:
            return count
        for w, i, n in zip(all_of, window, common, strict=True):
            count = count * w.width(k, i, with_pad) if n is None else count
        return k.maximum(count, number(k, 1, DType.I64))

    if override is not None and not isinstance(override, int):
        raise NotLowered("a divisor known at run time only")
    return divisor


def avg_pool(
    rank: int,
    c: Node,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Tensor:
    """The average of every window."""
    all_of = windows(rank, self.sizes, c.sizes, kernel_size, stride, padding)
    return _average(c, self, all_of, _divisor(all_of, count_include_pad, divisor_override))


def avg_pool_backward(
    rank: int,
    c: Node,
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Any,
) -> Tensor:
    """The gradient of the average of every window."""
    all_of = windows(rank, c.sizes, grad_output.sizes, kernel_size, stride, padding)
    return _spread(c, grad_output, all_of, _divisor(all_of, count_include_pad, divisor_override))


def adaptive_avg_pool(rank: int, c: Node, self: Tensor, output_size: Any) -> Tensor:
    """The averages of the parts that give a tensor of the wanted size."""
    all_of = adaptive_windows(rank, self.sizes, c.sizes)
    return _average(c, self, all_of, _divisor(all_of, True, None))


def adaptive_avg_pool_backward(rank: int, c: Node, grad_output: Tensor, self: Tensor) -> Tensor:
    """The gradient of the averages of parts."""
    if c.graph.device == "cpu" and any(
        not isinstance(n.value, int) or not isinstance(m.value, int) or n.value % m.value
        for n, m in zip(c.sizes[-rank:], grad_output.sizes[-rank:], strict=True)
    ):
        raise NotLowered("places would ask which uneven parts they lie in: the library is faster")
    all_of = adaptive_windows(rank, c.sizes, grad_output.sizes)
    return _spread(c, grad_output, all_of, _divisor(all_of, True, None))


POOLS: Mapping[str, Lowering] = {
    "max_pool{}d_with_indices": max_pool,
    "max_pool{}d_with_indices_backward": max_pool_backward,
    "adaptive_max_pool{}d": adaptive_max_pool,
    "adaptive_max_pool{}d_backward": max_pool_backward,
    "avg_pool{}d": avg_pool,
    "avg_pool{}d_backward": avg_pool_backward,
    "_adaptive_avg_pool{}d": adaptive_avg_pool,
    "_adaptive_avg_pool{}d_backward": adaptive_avg_pool_backward,
}
ROWS: Mapping[str, Lowering] = {
    f"aten.{name.format(rank)}.default": partial(lowering, rank)
    for name, lowering in POOLS.items()
    for rank in (2, 3)
}
