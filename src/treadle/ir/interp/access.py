"""Loads and stores at many points at once: bounds, masks, repeated indices.

A plain store that hits an element several times leaves the value of the last point in loop order.
The other modes combine all of them with what is there; float sums and products are held in f64
and rounded once, so the order of the points does not show (see `reductions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.dtypes import Array, convert
from treadle.ir.types import DType

Complain: TypeAlias = Callable[[tuple[int, ...], int], None]
"""Called with the first offending point (positions in the loops) and its index; raises."""

COMBINE: Mapping[str, np.ufunc] = {
    "atomic_add": np.add,
    "atomic_mul": np.multiply,
    "atomic_min": np.minimum,
    "atomic_max": np.maximum,
    "atomic_and": np.bitwise_and,
    "atomic_or": np.bitwise_or,
    "atomic_xor": np.bitwise_xor,
}
BITWISE = frozenset({"atomic_and", "atomic_or", "atomic_xor"})


def check_range(index: Array, size: int | Array, mask: Array | None, complain: Complain) -> None:
    """Complain about the first point, of those the mask allows, that is not in 0..size."""
    outside = (index < 0) | (index >= size)
    if mask is not None:
        outside = outside & mask
    if outside.any():
        point = tuple(int(k) for k in np.argwhere(outside)[0])
        complain(point, int(np.broadcast_to(index, outside.shape)[point]))


def gather(row: Array, index: Array, mask: Array | None, complain: Complain) -> Array:
    """The elements of `row` at `index`; 0 where the mask does not allow to look."""
    check_range(index, row.size, mask, complain)
    if mask is None:
        return row[index]
    if row.size == 0:
        return np.zeros(np.broadcast_shapes(index.shape, mask.shape), row.dtype)
    found = row[np.where(mask, index, 0)]
    return np.where(mask, found, np.zeros((), row.dtype))


def scatter(row: Array, index: Array, value: Array, mode: str, dtype: DType) -> None:
    """Write `value` (already of the type of `row`) at `index`; both have the same shape."""
    at, new = index.reshape(-1), value.reshape(-1)
    if mode == "plain":
        latest = np.zeros(row.size, np.int64)
        np.maximum.at(latest, at, np.arange(at.size))
        row[at] = new[latest[at]]
        return
    wide = np.dtype(np.float64) if dtype.is_float else row.dtype
    total = row.astype(wide)
    COMBINE[mode].at(total, at, new.astype(wide))
    row[at] = convert(total[at], dtype)
