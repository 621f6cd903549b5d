"""Plans without looking back: sort the items, place each where it fits, keep the best of several.

ORDERS names the ways to sort. XLA's own rule is the better of `spatial` and `temporal` with best
fit; both are here, so the best of the family is never above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from treadle.memory.engine import Engine
from treadle.memory.line import Line, top_of
from treadle.memory.lower_bound import live_heights


class Attempt(NamedTuple):
    """One greedy plan: how it was made, its addresses and its height."""

    method: str
    offsets: list[int]
    height: int


Order = Callable[[Line], Sequence[object]]


def _spatial(line: Line) -> Sequence[object]:
    return [(-item.size, -item.duration) for item in line.items]


def _temporal(line: Line) -> Sequence[object]:
    return [(-item.duration, -item.size) for item in line.items]


def _area(line: Line) -> Sequence[object]:
    return [(-item.duration * item.size, -item.size) for item in line.items]


def _start(line: Line) -> Sequence[object]:
    return [(item.spans[0][0], -item.duration, -item.size) for item in line.items]


def _end(line: Line) -> Sequence[object]:
    return [(-item.spans[-1][1], -item.duration, -item.size) for item in line.items]


def _contention(line: Line) -> Sequence[object]:
    """Items that live through the fullest moments first, the larger of them before the smaller."""
    peaks = contention(line)
    return [(-peak, -item.size) for peak, item in zip(peaks, line.items, strict=True)]


def _crowd(line: Line) -> Sequence[object]:
    """As by contention, but long-lived ones first."""
    peaks = contention(line)
    return [(-peak, -item.duration) for peak, item in zip(peaks, line.items, strict=True)]


ORDERS: Mapping[str, Order] = {
    "spatial": _spatial,
    "temporal": _temporal,
    "area": _area,
    "contention": _contention,
    "crowd": _crowd,
    "start": _start,
    "end": _end,
}
XLA_RULES = ("spatial", "temporal")
FITS = ("best", "first")


def order_of(line: Line, name: str) -> list[int]:
    """Item numbers sorted by one of the ORDERS, fixed items before all, ties by number."""
    keys = ORDERS[name](line)
    loose = [item.fixed is None for item in line.items]
    return sorted(range(len(keys)), key=lambda i: (loose[i], keys[i], i))


def attempts(
    line: Line,
    engine: Engine,
    orders: Iterable[str] = ORDERS,
    fits: Iterable[str] = FITS,
    deadline: float | None = None,
) -> Iterator[Attempt]:
    """Yield the plan of each order and fit that manages to place everything.

    After the deadline none is begun but the first, which is always finished.
    """
    has_plan = False
    for name in orders:
        order = order_of(line, name)
        for fit in fits:
            seconds = None
            if deadline is not None and has_plan:
                seconds = deadline - monotonic()
                if seconds <= 0:
                    return
            offsets = engine.fit(order, best=fit == "best", seconds=seconds)
            if offsets is not None:
                has_plan = True
                yield Attempt(f"{name}/{fit}-fit", offsets, top_of(line, offsets))


def contention(line: Line) -> list[int]:
    """For each item, the most bytes that are live at any of its sections."""
    rows = [live_heights(line)]
    while (step := 1 << (len(rows) - 1)) * 2 <= len(rows[0]):
        last = rows[-1]
        rows.append([max(a, b) for a, b in zip(last, last[step:], strict=False)])
    peaks = []
    for item in line.items:
        peak = 0
        for start, end in item.spans:
            level = (end - start).bit_length() - 1
            row = rows[level]
            peak = max(peak, row[start], row[end - (1 << level)])
        peaks.append(peak)
    return peaks
