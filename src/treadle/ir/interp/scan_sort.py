"""Scans and sorts along the last axis.

Running sums and products hold f64 (whole numbers: their own type, wrapping) and round every
result from there, so each prefix is what `reduce` would give for it. A running maximum stays NaN
after the first NaN; argmax and argmin then give the position of the latest NaN. Sorting is always
stable, and NaN counts as greater than every number, as in torch: last ascending, first descending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.dtypes import Array, convert, widened
from treadle.ir.interp.reductions import accumulator
from treadle.ir.types import DType

Scan: TypeAlias = Callable[[Sequence[Array], Sequence[DType]], tuple[Array, ...]]


def _running(ufunc: np.ufunc) -> Scan:
    def scan(operands: Sequence[Array], types: Sequence[DType]) -> tuple[Array, ...]:
        wide = accumulator(operands[0], types[0])
        return (convert(ufunc.accumulate(wide, axis=-1, dtype=wide.dtype), types[0]),)

    return scan


def _logaddexp(operands: Sequence[Array], types: Sequence[DType]) -> tuple[Array, ...]:
    wide = operands[0].astype(np.float64)
    return (convert(np.logaddexp.accumulate(wide, axis=-1), types[0]),)


def _running_position(ufunc: np.ufunc) -> Scan:
    def scan(operands: Sequence[Array], types: Sequence[DType]) -> tuple[Array, ...]:
        value, position = operands
        wide = widened(value, types[0])
        best = ufunc.accumulate(wide, axis=-1)
        is_best = (wide == best) | (wide != wide)
        steps = np.arange(value.shape[-1])
        latest = np.maximum.accumulate(np.where(is_best, steps, 0), axis=-1)
        found = np.take_along_axis(value, latest, axis=-1)
        return found, np.take_along_axis(position, latest, axis=-1)

    return scan


SCANNERS: Mapping[str, Scan] = {
    "add": _running(np.add),
    "mul": _running(np.multiply),
    "max": _running(np.maximum),
    "min": _running(np.minimum),
    "logaddexp": _logaddexp,
    "argmax": _running_position(np.maximum),
    "argmin": _running_position(np.minimum),
}
"""Every combine of `ops.SCAN_COMBINES` that has a name; `region` is folded by the body."""


def sort(operands: Sequence[Array], types: Sequence[DType], descending: bool) -> tuple[Array, ...]:
    """All operands rearranged so that the first one is sorted."""
    keys = widened(operands[0], types[0])
    if descending:
        # Turning the row round before and after keeps equal elements in their order.
        last = keys.shape[-1] - 1
        order = last - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(keys, axis=-1, kind="stable")
    return tuple(np.take_along_axis(x, order, axis=-1) for x in operands)
