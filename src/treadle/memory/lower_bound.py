"""How low no plan can get: bounds that need no search.

1. At every moment the live bytes need room. What hosts can take of them is subtracted.
2. Where every offset is a multiple of `a`, each slot but the topmost is rounded up to `a`.
3. Fixed slots cut the space below them into pieces; what does not fit there goes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import gcd
from typing import NamedTuple

from treadle.memory.line import Item, Line, line_of
from treadle.memory.problem import Problem


class LowerBound(NamedTuple):
    """A height that no plan can be below, and the time at which that is so."""

    height: int
    at: int


def lower_bound(problem: Problem) -> int:
    """The height of the arena that every plan needs at least."""
    return bound_of(line_of(problem)).height


def bound_of(line: Line) -> LowerBound:
    """The best of all bounds for a line, with the first time it is reached."""
    best = LowerBound(0, line.times[0] if line.times else 0)
    for heights in (live_heights(line), _rounded_heights(line), _fixed_heights(line)):
        for section, height in enumerate(heights):
            if height > best.height:
                best = LowerBound(height, line.times[section])
    return best


def live_heights(line: Line) -> list[int]:
    """For each section, the live bytes less what the hosts open to them can take."""
    everything = _sums(line, line.items, [item.size for item in line.items])
    for number, region in enumerate(line.regions[:-1]):
        guests = [item for item in line.items if number in item.regions]
        if not guests:
            continue
        room = region.end - region.base
        taken = _sums(line, guests, [item.size for item in guests])
        everything = [a - min(b, room) for a, b in zip(everything, taken, strict=True)]
    return everything


def _sums(line: Line, items: Sequence[Item], weights: Sequence[int]) -> list[int]:
    """The total weight in each section."""
    steps = [0] * (len(line.times) + 1)
    for item, weight in zip(items, weights, strict=True):
        for start, end in item.spans:
            steps[start] += weight
            steps[end] -= weight
    return list(accumulate(steps))[:-1]


def _rounded_heights(line: Line) -> list[int]:
    """Sums of rounded sizes less the rounding of one, where all live items are in the arena."""
    arena = len(line.regions) - 1
    step = gcd(*(item.alignment for item in line.items))
    fixed = [item.fixed - line.arena.base for item in line.items if item.fixed is not None]
    if step <= 1 or any(offset % step for offset in fixed):
        return []
    waste = [-item.size % step for item in line.items]
    if not any(waste):
        return []
    rounded = [item.size + extra for item, extra in zip(line.items, waste, strict=True)]
    outside = [int(item.regions != (arena,)) for item in line.items]
    sums, guests = _sums(line, line.items, rounded), _sums(line, line.items, outside)
    largest = _largest(line, waste)
    return [
        0 if guest else total - extra
        for total, guest, extra in zip(sums, guests, largest, strict=True)
    ]


def _largest(line: Line, weights: Sequence[int]) -> list[int]:
    """The largest weight in each section."""
    spans = sorted(
        (start, end, weight)
        for item, weight in zip(line.items, weights, strict=True)
        for start, end in item.spans
    )
    heap: list[tuple[int, int]] = []
    result, at = [], 0
    for section in range(len(line.times)):
        while at < len(spans) and spans[at][0] <= section:
            _, end, weight = spans[at]
            heappush(heap, (-weight, end))
            at += 1
        while heap and heap[0][1] <= section:
            heappop(heap)
        result.append(-heap[0][0] if heap else 0)
    return result


def _fixed_heights(line: Line) -> list[int]:
    """Where slots of the arena are fixed: their top, and what has no room below it."""
    arena = len(line.regions) - 1
    walls = [item for item in line.items if item.fixed is not None and item.regions == (arena,)]
    if not walls:
        return []
    loose = [item for item in line.items if item.fixed is None and item.regions == (arena,)]
    moving = _sums(line, loose, [item.size for item in loose])
    smallest = _smallest(line, loose)
    here: list[list[tuple[int, int]]] = [[] for _ in line.times]
    for item in walls:
        assert item.fixed is not None, "a wall is an item whose place is fixed"
        start = item.fixed - line.arena.base
        for first, last in item.spans:
            for section in range(first, last):
                here[section].append((start, start + item.size))
    heights = []
    for section, fixed in enumerate(here):
        top = room = 0
        for start, end in sorted(fixed):
            if start - top >= smallest[section]:
                room += start - top
            top = max(top, end)
        heights.append(top + max(0, moving[section] - room) if fixed else 0)
    return heights


def _smallest(line: Line, items: Sequence[Item]) -> list[int]:
    """The smallest size among `items` in each section, 0 where there is none."""
    part = Line(tuple(items), line.regions, line.times, ())
    return [-n for n in _largest(part, [-item.size for item in items])]
