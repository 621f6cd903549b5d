"""Resizing: linear and cubic interpolation, and the gradients of all ways to resize.

Along one dimension an output place reads a few input places ("taps"), each with a weight. Over
several dimensions the taps are multiplied out; the gradient adds at the places that were read.
Where no formula says the places (`index_tables.py`), a CPU finds places and weights once for each
dimension and keeps them in memory, instead of once for every element.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number
from treadle.frontends.torch.lowering.ops.reduce import wide_type
from treadle.frontends.torch.lowering.realise import write_loop
from treadle.frontends.torch.lowering.registry import Lowering, lowers
from treadle.frontends.torch.lowering.run_numbers import ANY
from treadle.frontends.torch.lowering.values import (
    Index,
    LoopWriter,
    NotLowered,
    Number,
    Tensor,
    as_index,
)
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType

STEEPNESS = -0.75
"""The slope of the cubic that torch uses."""

Tap = tuple[Value, "Value | None"]
"""A place, between 0 and the last one, and its weight."""


@dataclass(frozen=True)
class ResizedAxis:
    """One resized dimension: its sizes, and how many input places one output place is wide."""

    size: Expr
    scale: float | Number
    aligned: bool
    wide: DType

    def real(self, k: LoopWriter, i: Expr) -> Value:
        """The input coordinate of an output place, as a number between places."""
        at = converted(k.index(i), self.wide)
        scale = self.step(k)
        return at * scale if self.aligned else (at + 0.5) * scale - 0.5

    def step(self, k: LoopWriter) -> Value:
        """How many input places one output place is wide."""
        return number(k, self.scale, self.wide)

    def inside(self, k: LoopWriter, value: Value) -> Value:
        """A whole number, or the nearest one that is a place."""
        low, high = number(k, 0, DType.I64), number(k, self.size - 1, DType.I64)
        return k.minimum(k.maximum(value, low), high)

    def index(self, k: LoopWriter, place: Value) -> Expr:
        """A place as an index."""
        return as_index(k, place, self.size, wrap=False)


Taps = Callable[[LoopWriter, ResizedAxis, Expr], list[Tap]]


def linear(k: LoopWriter, axis: ResizedAxis, i: Expr) -> list[Tap]:
    """The two neighbours, weighted by how near they are."""
    real = k.maximum(axis.real(k, i), k.constant(0.0, axis.wide))
    low = k.minimum(k.to_int("floor", real), number(k, axis.size - 1, DType.I64))
    part = real - converted(low, axis.wide)
    part = k.minimum(k.maximum(part, k.constant(0.0, axis.wide)), k.constant(1.0, axis.wide))
    return [
        (axis.inside(k, low), 1.0 - part),
        (axis.inside(k, low + number(k, 1, DType.I64)), part),
    ]


def cubic(k: LoopWriter, axis: ResizedAxis, i: Expr) -> list[Tap]:
    """Four neighbours, weighted by a cubic."""
    real, a = axis.real(k, i), STEEPNESS
    low = k.to_int("floor", real)
    t = real - converted(low, axis.wide)

    def near(x: Value) -> Value:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0

    def far(x: Value) -> Value:
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

    weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
    places = [axis.inside(k, low + number(k, n, DType.I64)) for n in (-1, 0, 1, 2)]
    return list(zip(places, weights, strict=True))


def nearest(k: LoopWriter, axis: ResizedAxis, i: Expr) -> list[Tap]:
    """The place below."""
    at = converted(k.index(i), axis.wide) * axis.step(k)
    return [(axis.inside(k, k.to_int("floor", at)), None)]


def nearest_exact(k: LoopWriter, axis: ResizedAxis, i: Expr) -> list[Tap]:
    """The nearest place."""
    at = (converted(k.index(i), axis.wide) + 0.5) * axis.step(k)
    return [(axis.inside(k, k.to_int("floor", at)), None)]


def axes(
    x: Index, out: Index, scales: Sequence[Any], aligned: bool, wide: DType
) -> list[ResizedAxis]:
    """The resized dimensions: all but the first two."""
    if any(n.value == 0 for n in (*x, *out)):
        raise NotLowered("no elements")
    pairs = list(zip(x[2:], out[2:], strict=True))
    given = list(scales) + [None] * len(pairs)
    return [
        ResizedAxis(size, _scale(size, n, scale, aligned, wide), aligned, wide)
        for (size, n), scale in zip(pairs, given, strict=False)
    ]


def _scale(size: Expr, n: Expr, scale: Any, aligned: bool, wide: DType) -> float | Number:
    """How many of the `size` input places one of the `n` output places is wide."""
    if not aligned and isinstance(scale, int | float) and scale > 0:
        return _rounded(1.0 / float(scale), wide)
    if scale is not None and not isinstance(scale, int | float):
        raise NotLowered("a scale known at run time only")
    if aligned:
        size, n = size - 1, n - 1
    if size.value is not None and n.value is not None:
        return _rounded(size.value / n.value if n.value else 0.0, wide)

    def write(k: LoopWriter) -> Value:
        some = k.maximum(number(k, n, DType.F64), k.constant(1.0, DType.F64))
        return number(k, size, DType.F64) / some

    return Number(None, write, ANY)


def _rounded(value: float, dtype: DType) -> float:
    """A number as the type that torch keeps it in has it."""
    return float(struct.unpack("f", struct.pack("f", value))[0]) if dtype is DType.F32 else value


def _weighted(k: LoopWriter, value: Value, weights: Sequence[Value | None]) -> Value:
    for w in weights:
        value = value if w is None else value * w
    return value


def resized(c: Node, x: Tensor, dims: Sequence[ResizedAxis], taps: Taps) -> Tensor:
    """Every output place as the weighted sum of the input places it reads."""
    wide = wide_type(x.dtype)
    known = [_known_taps(c, axis, n, taps) for axis, n in zip(dims, c.sizes[2:], strict=True)]

    def inner(k: LoopWriter, at: Index) -> Value:
        total: Value | None = None
        found = [
            [(axis.index(k, place), weight) for place, weight in one(k, axis, i)]
            for one, axis, i in zip(known, dims, at[2:], strict=True)
        ]
        for chosen in product(*found):
            read = converted(x.load(k, (*at[:2], *[p for p, _ in chosen])), wide)
            one = _weighted(k, read, [w for _, w in chosen])
            total = one if total is None else total + one
        assert total is not None, "at least one place is read"
        return converted(total, x.dtype)

    c.realise(x)
    return c.lazy(c.sizes, c.dtype, inner, [x])


def has_formula(axis: ResizedAxis, n: Expr, taps: Taps) -> bool:
    """Whether formulas say the places that `n` results along one dimension read."""
    k = LoopWriter({}, (n,))
    found = taps(k, axis, k.at[0])
    return all(k.formula_of(place.number, axis.size) is not None for place, _ in found)


def _known_taps(c: Node, axis: ResizedAxis, n: Expr, taps: Taps) -> Taps:
    """The taps of one dimension with `n` results: from memory, on a CPU, if no formula has them."""
    if c.graph.device != "cpu" or has_formula(axis, n, taps):
        return taps
    tried = taps(LoopWriter({}, (n,)), axis, as_expr(0))

    def one(way: int, part: int) -> Callable[[LoopWriter, Index], Value]:
        def inner(k: LoopWriter, at: Index) -> Value:
            value = taps(k, axis, at[0])[way][part]
            assert value is not None, "asked for where there is one"
            return value

        return inner

    places = [c.realise(c.lazy((n,), DType.I64, one(way, 0))) for way in range(len(tried))]
    weights = [
        None if weight is None else c.realise(c.lazy((n,), axis.wide, one(way, 1)))
        for way, (_, weight) in enumerate(tried)
    ]

    def read(k: LoopWriter, axis: ResizedAxis, i: Expr) -> list[Tap]:
        return [
            (axis.inside(k, place.load(k, (i,))), None if w is None else w.load(k, (i,)))
            for place, w in zip(places, weights, strict=True)
        ]

    return read


def spread(c: Node, grad: Tensor, dims: Sequence[ResizedAxis], taps: Taps) -> Tensor:
    """Every gradient added at the input places that were read."""
    if grad.dtype.is_low_precision:
        raise NotLowered("sums of narrow floats are kept in f32 by eager")
    target, dtype = c.buffer(), c.dtype
    nothing = c.lazy(c.sizes, dtype, lambda k, at: number(k, 0, dtype))
    name = c.graph.fresh_op(c.name)
    write_loop(c.graph.builder, name, nothing, target, target.layout, c.graph.origins)
    ways = len(taps(LoopWriter({}, grad.sizes), dims[0], as_expr(0)))
    for number_of_tap in product(range(ways), repeat=len(dims)):
        with c.loop(grad.sizes) as k:
            found = [taps(k, axis, i) for axis, i in zip(dims, k.at[2:], strict=True)]
            chosen = [one[n] for one, n in zip(found, number_of_tap, strict=True)]
            value = _weighted(k, grad.load(k, k.at), [w for _, w in chosen])
            read = zip(dims, chosen, strict=True)
            place = (*k.at[:2], *[axis.index(k, p) for axis, (p, _) in read])
            k.store(target, place, converted(value, dtype), "atomic_add")
    return in_memory(target)


def _wide(x: Tensor) -> DType:
    return DType.F64 if x.dtype is DType.F64 else DType.F32


def has_channels_last(x: Any) -> bool:
    """Whether the channels of pictures lie side by side."""
    if x.dim() != 4 or not all(isinstance(n, int) for n in (*x.shape, *x.stride())):
        return False
    channels = x.shape[1]
    return bool(channels > 1 and x.stride(1) == 1 and x.stride(3) == channels)


def _forward(taps: Taps, has_aligned: bool) -> Lowering:
    def lower(c: Node, self: Tensor, size: Any, *rest: Any) -> Tensor:
        if not self.dtype.is_float:
            raise NotLowered("whole numbers are rounded in a way of their own")
        if not has_aligned and self.dtype is DType.F64:
            raise NotLowered("kernels of the library find places of doubles in different ways")
        aligned = bool(rest[0]) if has_aligned and rest else False
        scales = rest[1:] if has_aligned else rest
        return resized(c, self, axes(self.sizes, c.sizes, scales, aligned, _wide(self)), taps)

    return lower


def _backward(taps: Taps, has_aligned: bool) -> Lowering:
    def lower(c: Node, grad: Tensor, out: Any, size: Any, *rest: Any) -> Tensor:
        aligned = bool(rest[0]) if has_aligned else False
        scales = rest[1:] if has_aligned else rest
        dims = axes(c.sizes, grad.sizes, scales, aligned, _wide(grad))
        sides = zip(dims, grad.sizes[2:], strict=True)
        if c.graph.device == "cpu" and not all(has_formula(a, n, taps) for a, n in sides):
            raise NotLowered("each addition would ask floats for its place: the library is faster")
        if c.graph.device == "cpu" and has_channels_last(c.val):
            raise NotLowered("additions would go across memory: the library is faster")
        return spread(c, c.realise(grad), dims, taps)

    return lower


ROWS = {
    "aten.upsample_linear1d.default": _forward(linear, True),
    "aten.upsample_bilinear2d.default": _forward(linear, True),
    "aten.upsample_bicubic2d.default": _forward(cubic, True),
    "aten.upsample_trilinear3d.default": _forward(linear, True),
    "aten.upsample_linear1d_backward.default": _backward(linear, True),
    "aten.upsample_bilinear2d_backward.default": _backward(linear, True),
    "aten.upsample_trilinear3d_backward.default": _backward(linear, True),
    "aten.upsample_bicubic2d_backward.default": _backward(cubic, True),
    **{f"aten.upsample_nearest{n}d.default": _forward(nearest, False) for n in (1, 2, 3)},
    **{
        f"aten._upsample_nearest_exact{n}d.default": _forward(nearest_exact, False)
        for n in (1, 2, 3)
    },
    **{f"aten.upsample_nearest{n}d_backward.default": _backward(nearest, False) for n in (1, 2, 3)},
    **{
        f"aten._upsample_nearest_exact{n}d_backward.default": _backward(nearest_exact, False)
        for n in (1, 2, 3)
    },
}


# ---------------------------------------------------------------------------- edges repeated


@lowers(
    "aten.replication_pad1d_backward.default",
    "aten.replication_pad2d_backward.default",
    "aten.replication_pad3d_backward.default",
)
def replication_pad_backward(c: Node, grad: Tensor, self: Tensor, padding: Sequence[Any]) -> Tensor:
    """Every gradient added at the place whose element was repeated."""
    if grad.dtype.is_low_precision or not all(isinstance(p, int) for p in padding):
        raise NotLowered("narrow floats, or amounts known at run time only")
    rank, dtype = len(self.sizes), c.dtype
    if any(n.value == 0 for n in self.sizes):
        raise NotLowered("no elements")
    target = c.buffer()
    nothing = c.lazy(c.sizes, dtype, lambda k, at: number(k, 0, dtype))
    name = c.graph.fresh_op(c.name)
    write_loop(c.graph.builder, name, nothing, target, target.layout, c.graph.origins)
    with c.loop(grad.sizes) as k:
        place = list(k.at)
        for n in range(len(padding) // 2):
            d = rank - 1 - n
            axis = ResizedAxis(self.sizes[d], 1.0, False, DType.F32)
            place[d] = axis.index(k, axis.inside(k, k.index(k.at[d] - padding[2 * n])))
        k.store(target, tuple(place), grad.load(k, k.at), "atomic_add")
    return in_memory(target)
