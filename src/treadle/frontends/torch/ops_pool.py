"""Pooling over small windows in two dimensions: the window written out, one loop over the result.

A window of `count` places starts at `step * i - pad`; places outside the tensor are left out by
masks, which are written only where a place can be outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.frontends.torch.node import Node, converted, in_memory, number
from treadle.frontends.torch.ops_reduce import wide_type
from treadle.frontends.torch.ops_scatter import scattered
from treadle.frontends.torch.ops_shape import inside
from treadle.frontends.torch.registry import lowers
from treadle.frontends.torch.values import Index, LoopWriter, NotLowered, Tensor, as_index
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType

LARGEST = 64
"""Places of the largest window that is written out."""

Tests = list[tuple[Expr, str, Expr]]
ZERO = as_expr(0)


@dataclass(frozen=True)
class Window:
    """Where the places of a window along one dimension lie."""

    size: int
    out: int
    count: int
    step: int
    pad: int = 0
    spread: int = 1

    def place(self, i: Expr, n: int) -> tuple[Expr, Tests]:
        """The n-th place of the i-th window, and what must hold for it to be inside."""
        at = i * self.step + (n * self.spread - self.pad)
        tests: Tests = [(at, "ge", ZERO)] if n * self.spread < self.pad else []
        last = (self.out - 1) * self.step + n * self.spread - self.pad
        return at, tests + ([(at, "lt", as_expr(self.size))] if last >= self.size else [])

    def covering(self, at: Expr, n: int) -> tuple[Expr, Tests]:
        """The n-th window that may hold a place of the tensor, and what must hold if it does."""
        i = (at + self.pad) // self.step - n
        reach = at + self.pad - i * self.step
        tests: Tests = [(i, "ge", ZERO), (i, "lt", as_expr(self.out))]
        return i, [*tests, (reach, "lt", as_expr(self.count))]

    def width(self, k: LoopWriter, i: Expr, with_pad: bool) -> Value:
        """How many places the average counts, as an i64."""
        start = k.index(i * self.step - self.pad)
        end = k.minimum(start + self.count, k.index(as_expr(self.size + self.pad)))
        if with_pad:
            return end - start
        top = k.minimum(end, k.index(as_expr(self.size)))
        return top - k.maximum(start, k.index(ZERO))


def _pair(given: Any, default: Sequence[int]) -> list[int]:
    numbers = list(given) if isinstance(given, list | tuple) else [given]
    if not numbers:
        return list(default)
    if not all(isinstance(n, int) for n in numbers):
        raise NotLowered("a window known at run time only")
    return numbers * 2 if len(numbers) == 1 else numbers


def _sizes(sizes: Index) -> tuple[int, int]:
    """The two sizes that windows move over."""
    height, width = [n.value for n in sizes[-2:]]
    if height is None or width is None or any(n.value == 0 for n in sizes):
        raise NotLowered("sizes known at run time only, or no elements")
    return height, width


def windows(x: Index, out: Index, kernel: Any, stride: Any, pad: Any, spread: Any) -> list[Window]:
    """The windows of the last two dimensions; NotLowered if they are too large to write out."""
    count = _pair(kernel, ())
    steps, pads, spreads = _pair(stride, count), _pair(pad, ()), _pair(spread, ())
    if count[0] * count[1] > LARGEST:
        raise NotLowered("a window too large to write out")
    return [
        Window(*six)
        for six in zip(_sizes(x), _sizes(out), count, steps, pads, spreads, strict=True)
    ]


def _even(x: Index, out: Index) -> list[Window]:
    """The windows of adaptive pooling where they do not overlap."""
    (h, w), (oh, ow) = _sizes(x), _sizes(out)
    if h % oh or w % ow:
        raise NotLowered("adaptive windows of different sizes")
    kernel = [h // oh, w // ow]
    return windows(x, out, kernel, kernel, 0, 1)


# ------------------------------------------------------------------------------ the largest


@lowers("aten.max_pool2d_with_indices.default")
def max_pool(
    c: Node,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, ...]:
    """The largest of every window (NaN wins) and its place in the plane."""
    down, right = windows(self.sizes, c.sizes, kernel_size, stride, padding, dilation)
    x = c.realise(self)
    values, places = c.buffer(0), c.buffer(1)
    with c.loop(c.sizes) as k:
        best: Candidate | None = None
        for a in range(down.count):
            for b in range(right.count):
                where = (down.place(k.at[-2], a), right.place(k.at[-1], b))
                one = _candidate(k, x, where, right.size)
                best = one if best is None else _better(k, best, one)
        assert best is not None
        k.store(values, k.at, best[0])
        k.store(places, k.at, best[1])
    return in_memory(values), in_memory(places)


Candidate = tuple[Value, Value, "Value | None"]


def _candidate(
    k: LoopWriter, x: Tensor, at: tuple[tuple[Expr, Tests], tuple[Expr, Tests]], width: int
) -> Candidate:
    """A value, its place, and whether it is inside (None: it always is)."""
    (row, above), (column, beside) = at
    mask = inside(k, [*above, *beside])
    value = _loaded(k, x, (*k.at[:-2], row, column), mask)
    return value, k.index(row * width + column), mask


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


@lowers("aten.max_pool2d_with_indices_backward.default")
def max_pool_backward(
    c: Node, grad_output: Tensor, self: Tensor, *settings: Any, **others: Any
) -> Tensor:
    """Each gradient added at the place its value came from."""
    indices: Tensor = others["indices"] if "indices" in others else settings[-1]
    height, width = _sizes(c.sizes)
    dtype = c.dtype
    nothing = c.lazy(c.sizes, dtype, lambda k, at: number(k, 0, dtype))

    def put(k: LoopWriter, at: Index) -> tuple[Index, Value]:
        where = as_index(k, indices.load(k, at), as_expr(height * width), wrap=False)
        return (*at[:-2], where // width, where % width), grad_output.load(k, at)

    return scattered(c, nothing, grad_output.sizes, put, "atomic_add")


# ------------------------------------------------------------------------------ the average


def _average(c: Node, x: Tensor, both: list[Window], divisor: Callable[..., Value]) -> Tensor:
    down, right = both
    x, target, wide = c.realise(x), c.buffer(), wide_type(c.dtype)
    with c.loop(c.sizes) as k:
        total: Value | None = None
        for a in range(down.count):
            for b in range(right.count):
                (row, above) = down.place(k.at[-2], a)
                (column, beside) = right.place(k.at[-1], b)
                mask = inside(k, [*above, *beside])
                one = converted(_loaded(k, x, (*k.at[:-2], row, column), mask), wide)
                total = one if total is None else total + one
        assert total is not None
        k.store(target, k.at, converted(total / divisor(k, *k.at[-2:]).to(wide), target.dtype))
    return in_memory(target)


def _spread(c: Node, grad: Tensor, both: list[Window], divisor: Callable[..., Value]) -> Tensor:
    """The gradient of an average: what every window that holds a place gives to it."""
    down, right = both
    grad, target, wide = c.realise(grad), c.buffer(), wide_type(c.dtype)
    rows, columns = [-(-one.count // one.step) for one in both]
    with c.loop(c.sizes) as k:
        total: Value = number(k, 0, wide)
        for a in range(rows):
            for b in range(columns):
                (i, above), (j, beside) = down.covering(k.at[-2], a), right.covering(k.at[-1], b)
                mask = inside(k, [*above, *beside])
                one = converted(_loaded(k, grad, (*k.at[:-2], i, j), mask), wide)
                total = total + one / divisor(k, i, j).to(wide)
        k.store(target, k.at, converted(total, target.dtype))
    return in_memory(target)


def _divisor(both: list[Window], with_pad: bool, override: Any) -> Callable[..., Value]:
    def divisor(k: LoopWriter, i: Expr, j: Expr) -> Value:
        if override is not None:
            return number(k, override, DType.I64)
        count = both[0].width(k, i, with_pad) * both[1].width(k, j, with_pad)
        return k.maximum(count, number(k, 1, DType.I64))

    if override is not None and not isinstance(override, int):
        raise NotLowered("a divisor known at run time only")
    return divisor


@lowers("aten.avg_pool2d.default")
def avg_pool(
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
    both = windows(self.sizes, c.sizes, kernel_size, stride, padding, 1)
    return _average(c, self, both, _divisor(both, count_include_pad, divisor_override))


@lowers("aten.avg_pool2d_backward.default")
def avg_pool_backward(
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
    both = windows(c.sizes, grad_output.sizes, kernel_size, stride, padding, 1)
    return _spread(c, grad_output, both, _divisor(both, count_include_pad, divisor_override))


@lowers("aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool(c: Node, self: Tensor, output_size: Any) -> Tensor:
    """Averages that give a tensor of the wanted size, where it divides the given one."""
    both = _even(self.sizes, c.sizes)
    return _average(c, self, both, _divisor(both, True, None))


@lowers("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(c: Node, grad_output: Tensor, self: Tensor) -> Tensor:
    """The gradient of averages that do not overlap."""
    both = _even(c.sizes, grad_output.sizes)
    return _spread(c, grad_output, both, _divisor(both, True, None))
