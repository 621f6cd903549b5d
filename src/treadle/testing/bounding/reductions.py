"""Errors of reductions along the last axis, one table row for each kind.

A sum is off by the errors of its elements and by what adding them makes, which the sum of their
sizes bounds: any order of additions is within it. Largest and smallest elements are looked at in
the ends of their intervals; a position is certain only if no other element can be the one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.reductions import MOST_AT_ONCE
from treadle.ir.numerics import Numerics
from treadle.ir.types import DType
from treadle.testing.bounding.functions import CLOSE_ULPS
from treadle.testing.bounding.rounding import (
    LARGEST_F32,
    UNIT_F32,
    UNIT_F64,
    Deviation,
    converted,
    ends,
    farthest,
    growth,
    is_exact,
    rounded,
    sum_growth,
    sums_in_f32,
    undecided,
)

MORE_STEPS = 8
"""Roundings per element of Welford's recurrence and of the two-pass formula, generously."""


@dataclass(frozen=True)
class Rows:
    """One reduction at work: operands with the reduced loops last, and what came out."""

    values: Sequence[Array]
    spreads: Sequence[Deviation]
    to: DType
    found: Array | tuple[Array, ...]
    numerics: Numerics

    @property
    def length(self) -> int:
        """How many elements become one."""
        return int(self.values[0].shape[-1])

    @property
    def result(self) -> Array:
        """The only result."""
        assert not isinstance(self.found, tuple), "it has one result"
        return self.found

    @property
    def unit(self) -> float:
        """The relative error of one step."""
        return UNIT_F32 if sums_in_f32(self.to, self.numerics) else UNIT_F64

    @property
    def depth(self) -> int:
        """How many steps of that error follow each other."""
        if self.numerics.accumulation == "blocked" and self.unit == UNIT_F32:
            return min(self.length, self.numerics.block) + 1
        return self.length + 1

    def part(self, k: int) -> Rows:
        """Row k of the first dimension alone."""
        values = [value[k] for value in self.values]
        spreads = [spread.changed(lambda error: error[k]) for spread in self.spreads]
        return replace(self, values=values, spreads=spreads, found=self.result[k])

    def operand(self, k: int, unrounded: bool = False) -> tuple[Array, Array]:
        """Operand k in the type of the result, as f64, and its error."""
        given = self.spreads[k]
        error = given.unrounded if unrounded and self.numerics.contraction else given.error
        value, error = converted(self.values[k], error, self.to)
        return value.astype(np.float64), np.broadcast_to(error, value.shape)


Reduction: TypeAlias = Callable[[Rows], "Deviation | tuple[Deviation, ...]"]


def _any_open(of: Rows) -> Array:
    """No bound where any operand has one above zero: for what is whole."""
    found = np.zeros(of.values[0].shape[:-1])
    for spread in of.spreads:
        found = np.maximum(found, np.max(spread.error, axis=-1, initial=0.0))
    return undecided(found > 0)


def _total(
    of: Rows, x: Array, error: Array, own: float, found: Array, to: DType | None = None
) -> Array:
    """How far a rounded sum can be off; `own` is what the elements add, relative to their size."""
    to = of.to if to is None else to
    wide, sizes = np.add.reduce(x, axis=-1), np.abs(x) + error
    size = np.add.reduce(sizes, axis=-1)
    grown = sum_growth(of.length, to, of.numerics) + own
    apart = np.add.reduce(error, axis=-1) + np.where(np.isfinite(size), grown * size, 0.0)
    if sums_in_f32(to, of.numerics):
        apart = np.where(_may_overflow(sizes, size), np.inf, apart)
    return rounded(wide, np.where(np.isinf(error).any(axis=-1), np.inf, apart), found, to)


def _may_overflow(sizes: Array, size: Array) -> Array:
    """Where adding in f32 may overflow on the way; `size` is the sum of `sizes`.

    So it may beside infinite elements, and then meet the other infinity. NaN stays what it is.
    """
    large = size >= LARGEST_F32
    if np.isfinite(size).all():
        return np.asarray(large)
    finite = np.add.reduce(np.where(np.isfinite(sizes), sizes, 0.0), axis=-1)
    return np.asarray(large & (finite >= LARGEST_F32))


def _sum(of: Rows) -> Deviation:
    if not of.to.is_float:
        return Deviation.of(_any_open(of))
    return Deviation.of(_total(of, *of.operand(0, unrounded=True), 0.0, of.result))


def _dot(of: Rows) -> Deviation:
    if not of.to.is_float:
        return Deviation.of(_any_open(of))
    if of.values[0].size > MOST_AT_ONCE and of.values[0].ndim > 1:
        parts = [_dot(of.part(k)).error for k in range(of.values[0].shape[0])]
        return Deviation.of(np.stack(parts))
    (a, of_a), (b, of_b) = of.operand(0), of.operand(1)
    product = a * b
    if is_exact(of_a) and is_exact(of_b):
        error = np.broadcast_to(0.0, product.shape)
    else:
        error = np.where(of_a > 0, of_a * np.abs(b), 0) + np.where(of_b > 0, of_b * np.abs(a), 0)
        error = np.where(of_a + of_b > 0, error + of_a * of_b, 0.0)
    if of.unit == UNIT_F32:
        error = error + np.where(product != 0, 2.0**-150, 0.0)
    return Deviation.of(_total(of, product, error, of.unit, of.result))


def _prod(of: Rows) -> Deviation:
    """Sizes with their errors, multiplied: the exact product is not further off than the rest."""
    if not of.to.is_float:
        return Deviation.of(_any_open(of))
    x, error = of.operand(0)
    wide = np.multiply.reduce(x, axis=-1)
    size = np.abs(x)
    upper = np.multiply.reduce(size + error, axis=-1)
    exact = ~error.any(axis=-1)
    apart = np.where(exact, 0.0, upper - np.abs(wide))
    apart = apart + (growth(of.length, of.unit) + growth(2 * of.length, UNIT_F64)) * upper
    apart = np.where(np.isfinite(wide), apart, np.where(exact, 0.0, np.inf))
    if of.unit == UNIT_F32:
        # On the way, in some order, only the large or only the small factors were multiplied:
        # what becomes 0 or infinite there may meet infinity or 0.
        factors = np.where(np.isfinite(size), size + error, 1.0)
        large = np.multiply.reduce(np.maximum(factors, 1.0), axis=-1)
        small = np.multiply.reduce(np.where(size > 0, np.minimum(size, 1.0), 1.0), axis=-1)
        lost = (large >= LARGEST_F32) | (small < 2.0**-126)
        apart = np.where(lost & ~np.isnan(x).any(axis=-1), np.inf, apart)
    return Deviation.of(rounded(wide, apart, of.result, of.to))


def _extreme(reduce: Callable[..., Array], start: float) -> Reduction:
    def rule(of: Rows) -> Deviation:
        if not of.to.is_float:
            return Deviation.of(_any_open(of))
        x, error = of.operand(0)
        sides = [reduce(side, axis=-1, initial=start) for side in ends(x, error)]
        wide = reduce(x, axis=-1, initial=start)
        apart = np.where(np.isinf(error).any(axis=-1), np.inf, farthest(wide, *sides))
        return Deviation.of(rounded(wide, apart, of.result, of.to))

    return rule


def other_may_win(x: Array, error: Array) -> Array:
    """Whether it is open which element is the largest; exact ties are decided by their place."""
    low, high = ends(x, error)
    may_win = high >= np.max(low, axis=-1, keepdims=True)
    open_ = (may_win & (error > 0)).any(axis=-1) & (may_win.sum(axis=-1) > 1)
    return np.asarray(open_ | np.isinf(error).any(axis=-1))


def _position(sign: int) -> Reduction:
    def rule(of: Rows) -> Deviation:
        x = sign * of.values[0].astype(np.float64)
        return Deviation.of(
            undecided(other_may_win(x, np.broadcast_to(of.spreads[0].error, x.shape)))
        )

    return rule


def _exists(decides: bool) -> Reduction:
    """any, all: one element that surely decides is enough."""

    def rule(of: Rows) -> Deviation:
        x, error = of.values[0].astype(np.float64), of.spreads[0].error
        open_ = (error > 0) & ~(np.abs(x) > error)
        certain = (((x != 0) == decides) & ~open_).any(axis=-1)
        return Deviation.of(undecided(open_.any(axis=-1) & ~certain))

    return rule


# --------------------------------------------------------------------------- several results


def _welford(of: Rows) -> tuple[Deviation, ...]:
    x, error = of.operand(0)
    zero = np.zeros(x.shape)
    return _combined(of, (x, error), (zero, zero), (np.ones(x.shape), zero))


def _welford_combine(of: Rows) -> tuple[Deviation, ...]:
    return _combined(of, *[of.operand(k) for k in range(3)])


def _combined(
    of: Rows,
    means: tuple[Array, Array],
    spreads: tuple[Array, Array],
    weights: tuple[Array, Array],
) -> tuple[Deviation, ...]:
    """Partial means, their squared deviations and weights: x, m and w with errors."""
    (x, of_x), (m, of_m), (w, of_w) = means, spreads, weights
    found = of.found
    assert isinstance(found, tuple)
    grown = growth(MORE_STEPS * of.depth, of.unit)
    total, total_error = np.add.reduce(w, axis=-1), np.add.reduce(of_w, axis=-1)
    safe = np.where(total == 0, 1.0, total)
    mean = np.add.reduce(x * w, axis=-1) / safe
    largest = np.max(np.abs(x) + of_x, axis=-1, initial=0.0)
    moved = np.add.reduce(np.abs(w) * of_x, axis=-1) / np.abs(safe)
    shifted = np.where(total_error > 0, 2 * largest * total_error / np.abs(safe), 0.0)
    mean_error = moved + shifted + grown * largest
    apart = x - mean[..., None]
    of_apart = of_x + mean_error[..., None]
    about = np.abs(w) * apart * apart
    sizes = np.sqrt(np.add.reduce(np.abs(w) * x * x, axis=-1))
    spread = np.add.reduce(m + w * apart * apart, axis=-1)
    sum_of_sizes = np.add.reduce(np.abs(m) + about, axis=-1)
    moves = of_m + np.abs(w) * (2 * np.abs(apart) + of_apart) * of_x + of_w * apart * apart
    # A mean that is off shifts all deviations alike: only the square of that is seen.
    moves = moves + np.abs(w) * mean_error[..., None] ** 2
    own = grown * (sum_of_sizes + np.sqrt(sum_of_sizes) * sizes) + (grown * sizes) ** 2
    spread_error = np.add.reduce(moves, axis=-1) + own
    weight_error = total_error + growth(of.length, of.unit) * np.where(
        (np.abs(total) < 2.0**24) & (w == np.trunc(w)).all(axis=-1), 0.0, np.abs(total)
    )
    rows = ((mean, mean_error), (spread, spread_error), (total, weight_error))
    is_finite = np.isfinite(x).all(axis=-1) & np.isfinite(m).all(axis=-1)
    lost = np.isinf(of_x + of_m + of_w).any(axis=-1)
    if of.unit == UNIT_F32:
        # A sum of elements, or the distance of two, is infinite before the mean is.
        lost |= np.add.reduce(np.abs(x * w) + of_x, axis=-1) >= LARGEST_F32 / 2
    # With infinity or NaN among the elements each formula has its own way to NaN.
    other = 0.0 if of.numerics.accumulation == "exact" else np.inf
    return tuple(
        Deviation.of(rounded(a, np.where(is_finite, b, other) + undecided(lost), value, of.to))
        for (a, b), value in zip(rows, found, strict=True)
    )


def _online_softmax(of: Rows) -> tuple[Deviation, ...]:
    """Each weight is rescaled at most once a step, by an exponential with an error of its own."""
    x, error = of.operand(0)
    assert isinstance(of.found, tuple)
    top = np.maximum.reduce(x, axis=-1, initial=-np.inf)
    sides = [np.maximum.reduce(s, axis=-1, initial=-np.inf) for s in ends(x, error)]
    moved = farthest(top, *sides)
    weights = np.where(np.isneginf(x), 0.0, np.exp(x - top[..., None]))
    total = np.add.reduce(weights, axis=-1)
    of_weight = np.where(weights > 0, weights * np.expm1(error + moved[..., None]), 0.0)
    low = np.min(np.where(np.isneginf(x), np.inf, x), axis=-1, initial=np.inf)
    reach = np.where(np.isfinite(low) & np.isfinite(top), top - low, 0.0)
    ulps = max(of.numerics.function_ulps, 1.0) if of.unit == UNIT_F32 else CLOSE_ULPS
    own = growth((2 * ulps + 2) * of.depth, of.unit) + of.unit * reach
    apart = np.add.reduce(of_weight, axis=-1) + own * total
    apart = np.where(np.isfinite(total), apart, 0.0)
    lost = np.isinf(error).any(axis=-1)
    return (
        Deviation.of(rounded(top, np.where(lost, np.inf, moved), of.found[0], of.to)),
        Deviation.of(rounded(total, np.where(lost, np.inf, apart), of.found[1], of.to)),
    )


REDUCTION_SPREADS: Mapping[str, Reduction] = {
    "sum": _sum,
    "prod": _prod,
    "max": _extreme(np.maximum.reduce, -np.inf),
    "min": _extreme(np.minimum.reduce, np.inf),
    "argmax": _position(1),
    "argmin": _position(-1),
    "any": _exists(True),
    "all": _exists(False),
    "xor_sum": lambda of: Deviation.of(_any_open(of)),
    "dot": _dot,
    "welford": _welford,
    "welford_combine": _welford_combine,
    "online_softmax": _online_softmax,
}
