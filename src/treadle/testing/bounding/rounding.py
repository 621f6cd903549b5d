"""Rounding and what it does to errors: units in the last place, growth along sums, intervals.

Rounding is monotone: if the unrounded value lies within `error` of `wide`, the rounded one lies
between the rounded ends. So an error too small to reach the next rounding border does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from treadle.ir.interp.dtypes import Array, convert
from treadle.ir.numerics import Numerics
from treadle.ir.roundings import BITS
from treadle.ir.types import DType

LOWEST_EXPONENT: Mapping[DType, int] = {
    DType.F64: -1022,
    DType.F32: -126,
    DType.F16: -14,
    DType.BF16: -126,
    DType.F8E4M3: -6,
    DType.F8E5M2: -14,
}
UNIT_F32, UNIT_F64 = 2.0**-24, 2.0**-53
LARGEST_F32 = float(np.finfo(np.float32).max)
MORE_THAN_A_BLOCK = 4
"""Additions that joining the lanes of a partial sum may take beyond its block."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far code can be from a value: rounded, and unrounded on its way into an addition."""

    error: Array
    unrounded: Array

    def __iter__(self) -> Iterator[Array]:
        return iter((self.error, self.unrounded))

    @classmethod
    def of(cls, error: Array) -> Deviation:
        """A value that is rounded before anybody uses it."""
        return cls(error, error)

    def changed(self, change: Callable[[Array], Array]) -> Deviation:
        """Both parts changed alike."""
        error = change(self.error)
        return Deviation(error, error if self.unrounded is self.error else change(self.unrounded))

    def like(self, value: Array) -> Deviation:
        """The same in the shape of its value."""
        if self.error.shape == value.shape == self.unrounded.shape:
            return self
        return self.changed(lambda part: np.broadcast_to(part, value.shape))


def is_exact(error: Array) -> bool:
    """Whether an error is 0 everywhere."""
    if error.size and not any(error.strides):  # one number in any shape
        return not error[(0,) * error.ndim]
    return not error.any()


def no_error(value: Array) -> Deviation:
    """A value that every code computes alike."""
    return Deviation.of(np.broadcast_to(np.zeros(()), value.shape))


def undecided(where: Array) -> Array:
    """An error without limit where a decision can fall either way."""
    return np.where(where, np.inf, 0.0)


def ulp(x: Array, dtype: DType) -> Array:
    """The distance to the next larger number of a type; 0 at infinity and NaN."""
    size = np.abs(x)
    _, exponent = np.frexp(np.where(np.isfinite(size), size, 0.0))
    lowest = LOWEST_EXPONENT[dtype] + 1
    exponent = np.maximum(np.where(size == 0, lowest, exponent), lowest)
    return np.where(np.isfinite(size), np.ldexp(1.0, exponent - BITS[dtype]), 0.0)


def growth(count: float, unit: float) -> float:
    """The relative error that `count` roundings in a row can make."""
    return count * unit / (1 - count * unit) if count * unit < 1 else np.inf


def sum_growth(count: int, to: DType, numerics: Numerics) -> float:
    """The error of a sum of `count` elements, relative to the sum of their sizes."""
    additions = max(count - 1, 0)
    wide = growth(additions, UNIT_F64)
    if to is DType.F64 or numerics.accumulation == "exact":
        return wide
    if numerics.accumulation == "blocked":
        additions = min(additions, numerics.block + MORE_THAN_A_BLOCK)
    return growth(additions, UNIT_F32) + wide


def sums_in_f32(to: DType, numerics: Numerics) -> bool:
    """Whether partial sums may be held in f32, which overflows earlier than f64."""
    return to is not DType.F64 and numerics.accumulation != "exact"


def ends(x: Array, error: Array) -> tuple[Array, Array]:
    """The least and the largest that a value can be."""
    low = np.where(error > 0, np.nextafter(x - error, -np.inf), x)
    return low, np.where(error > 0, np.nextafter(x + error, np.inf), x)


def farthest(middle: Array, *others: Array) -> Array:
    """The largest distance of any other value from the middle; infinite if one alone is NaN."""
    found = np.zeros(np.broadcast_shapes(middle.shape, *[o.shape for o in others]))
    for other in others:
        same = (other == middle) | (np.isnan(other) & np.isnan(middle))
        apart = np.abs(other - middle)
        found = np.maximum(found, np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)))
    return found


def rounded(wide: Array, error: Array, value: Array, dtype: DType) -> Array:
    """How far the rounded value can be from `value`, if the unrounded is within error of `wide`."""
    if is_exact(error):
        return np.broadcast_to(0.0, value.shape)
    error = np.where(np.isnan(error), np.inf, error)
    # f64 arithmetic on the interval itself must not make it too small.
    padded = error * (1 + 2.0**-40) + 2 * ulp(np.abs(wide) + error, DType.F64)
    low, high = (convert(x, dtype) for x in (wide - padded, wide + padded))
    if not dtype.is_float:
        certain = _is_one_whole(wide - padded, wide + padded, dtype) & np.isfinite(error)
        return np.broadcast_to(undecided((error > 0) & ~certain), value.shape)
    low, high = low.astype(np.float64), high.astype(np.float64)
    found = farthest(value.astype(np.float64), low, high)
    found = np.where(error > 0, found, 0.0)
    return np.broadcast_to(np.where(np.isinf(error), np.inf, found), value.shape)


def converted(value: Array, error: Array, to: DType) -> tuple[Array, Array]:
    """A value in another type, and how far code can be from it then."""
    new = convert(value, to)
    if is_exact(error):
        return new, error
    if to is DType.BOOL:
        return new, undecided((np.abs(value.astype(np.float64)) <= error) & (error > 0))
    wide = value.astype(np.float64)
    if to.is_float:
        return new, rounded(wide, error, new, to)
    low, high = ends(wide, error)
    return new, undecided((error > 0) & (np.isinf(error) | ~_is_one_whole(low, high, to)))


def _is_one_whole(low: Array, high: Array, to: DType) -> Array:
    """Whether all between two numbers becomes one whole number.

    That both ends do says nothing: what lies between may wrap, or not fit at the ends alone.
    """
    if to is DType.BOOL:
        return np.asarray((low > 0) | (high < 0) | (low == high))
    limit = 2.0**64 if to is DType.U64 else 2.0**63
    same = np.trunc(low) == np.trunc(high)
    return np.asarray(same | (low >= limit) | (high < -(2.0**63)))
