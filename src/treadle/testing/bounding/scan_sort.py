"""Errors of scans and sorts along the last axis.

Each prefix of a scan is what a reduction of it would be. The k-th of sorted values lies between
the k-th of the low ends and the k-th of the high ends; what moves along with the keys is certain
only where no neighbour can change places with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.dtypes import Array
from treadle.ir.types import DType
from treadle.testing.bounding.functions import CLOSE_ULPS
from treadle.testing.bounding.reductions import REDUCTION_SPREADS, Rows, other_may_win
from treadle.testing.bounding.rounding import (
    UNIT_F32,
    Deviation,
    ends,
    farthest,
    growth,
    rounded,
    undecided,
)

Scan: TypeAlias = "Callable[[Rows], tuple[Deviation, ...]]"


def _prefixes(kind: str) -> Scan:
    """A running combination as a reduction of every prefix."""

    def rule(of: Rows) -> tuple[Deviation, ...]:
        found = of.found[0] if isinstance(of.found, tuple) else of.found
        columns = []
        for k in range(of.length):
            part = replace(
                of,
                values=[of.values[0][..., : k + 1]],
                spreads=[_cut(of.spreads[0], k + 1)],
                found=found[..., k],
            )
            one = REDUCTION_SPREADS[kind](part)
            assert isinstance(one, Deviation)
            columns.append(one.error)
        return (Deviation.of(_stacked(columns, found)),)

    return rule


def _cut(spread: Deviation, length: int) -> Deviation:
    return Deviation(spread.error[..., :length], spread.unrounded[..., :length])


def _stacked(columns: Sequence[Array], like: Array) -> Array:
    return np.stack(columns, axis=-1) if columns else np.zeros(like.shape)


def _log_of_sum(of: Rows) -> tuple[Deviation, ...]:
    """A mean of the elements' errors at most, and at every step a few functions' errors."""
    found = of.found[0] if isinstance(of.found, tuple) else of.found
    x, error = of.operand(0)
    wide = np.logaddexp.accumulate(x, axis=-1)
    ulps = max(of.numerics.function_ulps, 1.0) if of.unit == UNIT_F32 else CLOSE_ULPS
    steps = np.arange(1, of.length + 1)
    largest = np.maximum.accumulate(np.where(np.isfinite(wide), np.abs(wide), 0.0), axis=-1)
    own = growth(2 * ulps + 4, of.unit) * steps * (largest + 1)
    apart = np.maximum.accumulate(error, axis=-1) + np.where(np.isfinite(wide), own, 0.0)
    return (Deviation.of(rounded(wide, apart, found, of.to)),)


def _running_position(sign: int) -> Scan:
    """Largest so far and where: certain if no element of the prefix can be it instead."""

    def rule(of: Rows) -> tuple[Deviation, ...]:
        assert isinstance(of.found, tuple)
        x = sign * of.values[0].astype(np.float64)
        error = np.broadcast_to(of.spreads[0].error, x.shape)
        low, high = ends(x, error)
        chosen = sign * of.found[0].astype(np.float64)
        upper, lower = (np.maximum.accumulate(side, axis=-1) for side in (high, low))
        value = farthest(chosen, upper, lower)
        open_ = [other_may_win(x[..., : k + 1], error[..., : k + 1]) for k in range(of.length)]
        position = np.maximum(undecided(_stacked(open_, x).astype(bool)), of.spreads[1].error)
        whole = value if of.to.is_float else undecided(value > 0)
        return Deviation.of(whole), Deviation.of(position)

    return rule


SCAN_SPREADS: Mapping[str, Scan] = {
    "add": _prefixes("sum"),
    "mul": _prefixes("prod"),
    "max": _prefixes("max"),
    "min": _prefixes("min"),
    "logaddexp": _log_of_sum,
    "argmax": _running_position(1),
    "argmin": _running_position(-1),
}
"""Every combine with a name; regions are followed step by step, in order."""


def sort_spreads(
    values: Sequence[Array], spreads: Sequence[Deviation], types: Sequence[DType], descending: bool
) -> tuple[Deviation, ...]:
    """How far sorted keys, and what moved along with them, can be off."""
    keys = values[0].astype(np.float64)
    turn = -1 if descending else 1
    # Turning the row round before and after keeps equal elements in their order.
    order = np.argsort(keys[..., ::turn], axis=-1, kind="stable")[..., ::turn]
    order = keys.shape[-1] - 1 - order if descending else order
    low, high = (np.sort(side, axis=-1)[..., ::turn] for side in ends(keys, spreads[0].error))
    sorted_keys = np.take_along_axis(keys, order, axis=-1)
    apart = farthest(sorted_keys, low, high)
    if not types[0].is_float:
        apart = undecided(apart > 0)
    lost = np.isinf(spreads[0].error).any(axis=-1, keepdims=True)
    found = [Deviation.of(np.where(lost, np.inf, apart))]
    error = np.take_along_axis(np.broadcast_to(spreads[0].error, keys.shape), order, axis=-1)
    open_ = undecided(_may_change_places(turn * sorted_keys, error) | lost)
    for spread, value in zip(spreads[1:], values[1:], strict=True):
        moved = np.take_along_axis(np.broadcast_to(spread.error, value.shape), order, axis=-1)
        found.append(Deviation.of(np.maximum(moved, open_)))
    return tuple(found)


def _may_change_places(keys: Array, error: Array) -> Array:
    """For each of sorted keys whether one of its neighbours could stand in its place."""
    if keys.shape[-1] == 0:
        return np.zeros(keys.shape, bool)
    low, high = ends(keys, error)
    before, behind = _reach(high, -np.inf), _reach(-low[..., ::-1], -np.inf)[..., ::-1]
    inexact = [np.where(error > 0, high, -np.inf), np.where(error > 0, -low, -np.inf)]
    before_inexact = _reach(inexact[0], -np.inf)
    behind_inexact = _reach(inexact[1][..., ::-1], -np.inf)[..., ::-1]
    # A border between two neighbours that nothing crosses; exact ties keep their order.
    left, right = before[..., :-1], -behind[..., 1:]
    firm = (left <= right) & (before_inexact[..., :-1] < right)
    firm &= left < -behind_inexact[..., 1:]
    soft = ~firm
    found = np.zeros(keys.shape, bool)
    found[..., :-1] |= soft
    found[..., 1:] |= soft
    return found & error.any(axis=-1, keepdims=True)


def _reach(values: Array, start: float) -> Array:
    return np.maximum.accumulate(np.where(np.isnan(values), start, values), axis=-1)
