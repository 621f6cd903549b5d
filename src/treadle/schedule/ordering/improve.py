"""Local search: what is alive at the peak without being needed there is moved to one side of it.

For a storage that is alive at the peak but not touched by the step there, either its maker runs
after the peak instead (with everything that needs it and stands before), or its users run before
(with everything they need and that stands behind). Of all such changes the one with the lowest peak
is kept; equal peaks are told apart by how many steps reach it. A clock or a number of tries ends
it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from treadle.schedule.ordering.measure import curve_of
from treadle.schedule.ordering.steps import Held, Steps

WIDEST = 400
"""Cones of more steps than this are not moved."""


@dataclass
class Budget:
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


def improved(steps: Steps, order: list[int], budget: Budget, bound: int) -> list[int]:
    """An order whose peak is at most that of `order`."""
    best, score = order, _score(steps, order)
    while score[0] > bound:
        found = _best_change(steps, best, score, budget)
        if found is None:
            return best
        best, score = found
    return best


def _score(steps: Steps, order: list[int]) -> tuple[int, int, int]:
    """The peak, how many steps reach it, and the area close below it."""
    curve = curve_of(steps, order)
    peak = max(curve, default=0)
    near = peak - peak // 16
    return peak, sum(c == peak for c in curve), sum(c for c in curve if c >= near)


def _best_change(
    steps: Steps, order: list[int], score: tuple[int, int, int], budget: Budget
) -> tuple[list[int], tuple[int, int, int]] | None:
    curve = curve_of(steps, order)
    at = max(range(len(order)), key=curve.__getitem__)
    place = [0] * len(order)
    for k, step in enumerate(order):
        place[step] = k
    best: tuple[list[int], tuple[int, int, int]] | None = None
    for h in _idle_at(steps, order[at], at, place):
        for new in (_sunk(steps, order, place, at, h), _hoisted(steps, order, place, at, h)):
            if new is None:
                continue
            if not budget.spend():
                return best
            value = _score(steps, new)
            if value < score and (best is None or value < best[1]):
                best = new, value
    return best


def _idle_at(steps: Steps, step: int, at: int, place: list[int]) -> list[Held]:
    """Storages alive at the peak that the step there does not touch, largest first."""
    found = []
    for h in steps.held:
        if not h.bytes or h.producer is None or step in h.touched_by or place[h.producer] > at:
            continue
        if not h.ends or (h.users and max(place[u] for u in h.users) > at):
            found.append(h)
    return sorted(found, key=lambda h: (-h.bytes, h.name))[:64]


def _sunk(steps: Steps, order: list[int], place: list[int], at: int, h: Held) -> list[int] | None:
    """The maker, and all before the peak that follow from it, right behind the peak."""
    assert h.producer is not None
    cone = _cone(h.producer, steps.after, lambda s: place[s] <= at)
    if cone is None or order[at] in cone:
        return None
    moved = [s for s in order[: at + 1] if s in cone]
    kept = [s for s in order[: at + 1] if s not in cone]
    return [*kept, *moved, *order[at + 1 :]]


def _hoisted(
    steps: Steps, order: list[int], place: list[int], at: int, h: Held
) -> list[int] | None:
    """All later users, and all behind the peak that they need, right before the peak."""
    if not h.ends:
        return None
    cone: set[int] = set()
    for u in h.users:
        if place[u] > at:
            more = _cone(u, steps.before, lambda s: place[s] >= at)
            if more is None or order[at] in more:
                return None
            cone |= more
    moved = [s for s in order[at:] if s in cone]
    kept = [s for s in order[at:] if s not in cone]
    return [*order[:at], *moved, *kept]


def _cone(start: int, step, inside) -> set[int] | None:  # type: ignore[no-untyped-def]
    seen = {start}
    queue = [start]
    for at in queue:
        for other in step[at]:
            if other not in seen and inside(other):
                seen.add(other)
                queue.append(other)
                if len(queue) > WIDEST:
                    return None
    return seen
