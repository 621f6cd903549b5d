"""Local search: what is alive at the peak without being needed there is moved to one side of it.

For a storage that is alive at the peak but not touched by the step there, either its maker runs
after the peak instead (with everything that needs it and stands before), or its users run before
(with everything they need and that stands behind). Of all such changes the one with the lowest peak
is kept; equal peaks are told apart by how many steps reach it. Only the steps between the maker and
the peak, or the peak and the users, are counted again. A clock or a number of tries ends it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from treadle.schedule.ordering.measure import MeasuredOrder, measured, recounted
from treadle.schedule.ordering.steps import Steps, StepStorage

Score: TypeAlias = tuple[int, int, int]
"""The peak, how many steps reach it, and the area close below it."""

WIDEST = 400
"""Cones of more steps than this are not moved."""


@dataclass
class OrderingBudget:
    """Seconds and tries that may still be spent; None means no limit."""

    seconds: float | None = 2.0
    tries: int | None = None

    def __post_init__(self) -> None:
        self.start = time.perf_counter()
        self.used = 0

    def spend(self) -> bool:
        """Count one try; False if there is none left."""
        self.used += 1
        if self.tries is not None and self.used > self.tries:
            return False
        return self.seconds is None or time.perf_counter() - self.start < self.seconds


class Change(NamedTuple):
    """Steps `part` in the place of as many steps from `low` on, and the bytes during them."""

    low: int
    part: list[int]
    curve: list[int]
    score: Score


def improved(steps: Steps, order: list[int], budget: OrderingBudget, bound: int) -> list[int]:
    """An order whose peak is at most that of `order`."""
    now = measured(steps, order)
    score = score_of(now.curve)
    while score[0] > bound:
        found = _best_change(steps, now, score, budget)
        if found is None:
            break
        low, high = found.low, found.low + len(found.part)
        now = measured(steps, [*now.order[:low], *found.part, *now.order[high:]])
        score = found.score
    return now.order


def score_of(curve: Sequence[int]) -> Score:
    """What orders are compared by."""
    peak = max(curve, default=0)
    near = peak - peak // 16
    high = [c for c in curve if c >= near]
    return peak, high.count(peak), sum(high)


def _best_change(
    steps: Steps, now: MeasuredOrder, score: Score, budget: OrderingBudget
) -> Change | None:
    at = now.curve.index(score[0])
    best: Change | None = None
    for h in _idle_at(steps, now, at):
        for moved in (_sunk(steps, now, at, h), _hoisted(steps, now, at, h)):
            if moved is None:
                continue
            if not budget.spend():
                return best
            limit = score if best is None else best.score
            low, part = moved
            curve = recounted(steps, now, low, part, limit[0])
            if curve is None:
                continue
            rest = now.curve[:low], now.curve[low + len(part) :]
            value = score_of([*rest[0], *curve, *rest[1]])
            if value < limit:
                best = Change(low, part, curve, value)
    return best


def _idle_at(steps: Steps, now: MeasuredOrder, at: int) -> list[StepStorage]:
    """Storages alive at the peak that the step there does not touch, largest first."""
    here, place = set(steps.touches[now.order[at]]), now.place
    found = []
    for k, h in enumerate(steps.held):
        if now.last[k] <= at or not h.bytes or h.producer is None or k in here:
            continue
        if place[h.producer] <= at:
            found.append(h)
    return sorted(found, key=lambda h: (-h.bytes, h.name))[:64]


def _sunk(
    steps: Steps, now: MeasuredOrder, at: int, h: StepStorage
) -> tuple[int, list[int]] | None:
    """The maker, and all before the peak that follow from it, right behind the peak."""
    assert h.producer is not None, "only what is made by a step is moved"
    low = now.place[h.producer]
    cone = _cone([h.producer], steps.after, now.place, low, at)
    if cone is None or now.order[at] in cone:
        return None
    stretch = now.order[low : at + 1]
    return low, [*[s for s in stretch if s not in cone], *[s for s in stretch if s in cone]]


def _hoisted(
    steps: Steps, now: MeasuredOrder, at: int, h: StepStorage
) -> tuple[int, list[int]] | None:
    """All later users, and all behind the peak that they need, right before the peak."""
    if not h.ends:
        return None
    later = [u for u in h.users if now.place[u] > at]
    high = max([now.place[u] for u in later], default=at)
    cone = _cone(later, steps.before, now.place, at, high)
    if cone is None or now.order[at] in cone:
        return None
    stretch = now.order[at : high + 1]
    return at, [*[s for s in stretch if s in cone], *[s for s in stretch if s not in cone]]


def _cone(
    start: Sequence[int],
    step: Sequence[Sequence[int]],
    place: Sequence[int],
    low: int,
    high: int,
) -> set[int] | None:
    """All that is reached from `start` without leaving the places low..high; None if too much."""
    seen = set(start)
    queue = list(seen)
    for at in queue:
        for other in step[at]:
            if other not in seen and low <= place[other] <= high:
                seen.add(other)
                queue.append(other)
        if len(queue) > WIDEST:
            return None
    return seen
