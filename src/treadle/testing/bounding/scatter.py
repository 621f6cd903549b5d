"""Errors of stores, of those that combine with what is there too.

Sums and products that are made in memory are rounded at every step there, whatever the numerics:
only narrow floats are held wider for the time of the loops, in f32 where sums may be made in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from treadle.ir.interp.dtypes import Array
from treadle.ir.numerics import Numerics
from treadle.ir.types import DType
from treadle.testing.bounding.rounding import (
    LARGEST_F32,
    UNIT_F32,
    UNIT_F64,
    Deviation,
    ends,
    farthest,
    growth,
    rounded,
    sum_growth,
    sums_in_f32,
    undecided,
)


def combined_errors(
    mode: str,
    before: Array,
    old: Deviation,
    at: Array,
    value: Array,
    new: Deviation,
    dtype: DType,
    after: Array,
    numerics: Numerics,
    may_stay_wide: bool = False,
) -> Deviation:
    """The errors of a whole row after a store of `value` at the places `at`.

    With `may_stay_wide` another store combines there next, and code may round after both.
    """
    if mode == "plain":
        return _replaced(old, at, new)
    if not dtype.is_float or mode not in COMBINED:
        lost = old.error.copy()
        np.maximum.at(lost, at, undecided(new.error > 0))
        return Deviation.of(undecided(lost > 0))
    error = new.unrounded if numerics.contraction and mode == "atomic_add" else new.error
    x, y = before.astype(np.float64), value.astype(np.float64)
    found = COMBINED[mode](x, old.error, at, y, error, dtype, numerics)
    bound = rounded(found[0], found[1], after, dtype)
    if may_stay_wide and dtype.is_low_precision:
        bound = np.maximum(bound, found[1] + farthest(after.astype(np.float64), found[0]))
    return Deviation.of(bound)


def _replaced(old: Deviation, at: Array, new: Deviation) -> Deviation:
    """Of several stores to one place the last one in loop order stays."""
    latest = np.zeros(old.error.size, np.int64)
    np.maximum.at(latest, at, np.arange(at.size))
    parts = []
    for row, part in zip(old, new, strict=True):
        found = row.copy()
        found[at] = part[latest[at]]
        parts.append(found)
    return Deviation(*parts)


def _added(
    x: Array, old: Array, at: Array, y: Array, error: Array, dtype: DType, numerics: Numerics
) -> tuple[Array, Array]:
    total, size, apart = x.copy(), np.abs(x) + old, old.copy()
    count = np.zeros(x.size, np.int64)
    for row, part in ((total, y), (size, np.abs(y) + error), (apart, error), (count, 1)):
        np.add.at(row, at, part)
    counts = np.unique(count)
    steps = np.array([_growth(int(n), dtype, numerics) for n in counts])
    grown = steps[np.searchsorted(counts, count)]
    apart = apart + np.where(np.isfinite(size), grown * size, 0.0)
    if dtype is DType.F32 or sums_in_f32(dtype, numerics):
        finite = size
        if not np.isfinite(size).all():  # beside infinite ones the others may overflow, too
            finite = np.where(np.isfinite(x), np.abs(x) + old, 0.0)
            np.add.at(finite, at, np.where(np.isfinite(y), np.abs(y) + error, 0.0))
        apart = np.where(~np.isnan(size) & (finite >= LARGEST_F32), np.inf, apart)
    return total, apart


def _growth(count: int, dtype: DType, numerics: Numerics) -> float:
    """The relative error of so many additions to one place."""
    if dtype is DType.F32 or sums_in_f32(dtype, numerics):
        return growth(count, UNIT_F32)
    return sum_growth(count + 1, dtype, numerics)


def _multiplied(
    x: Array, old: Array, at: Array, y: Array, error: Array, dtype: DType, numerics: Numerics
) -> tuple[Array, Array]:
    total, upper = x.copy(), np.abs(x) + old
    large, small = (
        np.maximum(_or_one(upper), 1.0),
        np.where(x != 0, np.minimum(np.abs(x), 1.0), 1.0),
    )
    inexact, count = old > 0, np.zeros(x.size, np.int64)
    size = np.abs(y) + error
    np.multiply.at(total, at, y)
    np.multiply.at(upper, at, size)
    np.multiply.at(large, at, np.maximum(_or_one(size), 1.0))
    np.multiply.at(small, at, np.where(y != 0, np.minimum(np.abs(y), 1.0), 1.0))
    np.logical_or.at(inexact, at, error > 0)
    np.add.at(count, at, 1)
    narrow = dtype is DType.F32 or sums_in_f32(dtype, numerics)
    unit = UNIT_F32 if narrow else UNIT_F64
    grown = growth(int(count.max(initial=0)) + 1, unit) + growth(
        2 * int(count.max(initial=0)), UNIT_F64
    )
    apart = np.where(inexact, upper - np.abs(total), 0.0) + grown * upper
    apart = np.where(np.isfinite(total), apart, undecided(inexact))
    if narrow:
        # What becomes 0 or infinite on the way may meet infinity or 0; NaN stays what it is.
        is_nan = np.isnan(x)
        np.logical_or.at(is_nan, at, np.isnan(y))
        apart = np.where(((large >= LARGEST_F32) | (small < 2.0**-126)) & ~is_nan, np.inf, apart)
    return total, apart


def _or_one(factors: Array) -> Array:
    """Factors, but 1 for those that are infinite or NaN."""
    return np.where(np.isfinite(factors), factors, 1.0)


def _extreme(ufunc: np.ufunc) -> Callable[..., tuple[Array, Array]]:
    def rule(
        x: Array, old: Array, at: Array, y: Array, error: Array, dtype: DType, numerics: Numerics
    ) -> tuple[Array, Array]:
        sides = []
        for mine, given in zip((x, *ends(x, old)), (y, *ends(y, error)), strict=True):
            row = mine.copy()
            ufunc.at(row, at, given)
            sides.append(row)
        lost = np.isinf(old)
        np.logical_or.at(lost, at, np.isinf(error))
        return sides[0], np.where(lost, np.inf, farthest(*sides))

    return rule


COMBINED: Mapping[str, Callable[..., tuple[Array, Array]]] = {
    "atomic_add": _added,
    "atomic_mul": _multiplied,
    "atomic_min": _extreme(np.minimum),
    "atomic_max": _extreme(np.maximum),
}
"""Modes that combine floats; the bitwise ones keep bits, which are certain or not."""
