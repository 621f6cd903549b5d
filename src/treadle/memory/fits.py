"""Placing items one after the other in a given order, each into a free range of the line.

What is occupied is kept in a tree over the sections. A node knows the addresses occupied
throughout its part of time (cover) and those occupied anywhere in it (touch), both as few merged
ranges, so asking what is in the way of an item costs about the logarithm of the number of
sections, however many items are alive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from time import monotonic

from treadle.memory.line import HUGE, Item, Line, Region
from treadle.memory.problem import Ranges


class Occupied:
    """The occupied addresses at each section, as sets of merged ranges in a tree."""

    def __init__(self, sections: int) -> None:
        self._leaves = 1
        while self._leaves < sections:
            self._leaves *= 2
        self._touch: dict[int, list[int]] = {}
        self._cover: dict[int, list[int]] = {}

    def add(self, spans: Ranges, start: int, end: int) -> None:
        """Occupy addresses [start, end) during the spans."""
        for first, last in spans:
            left, right = first + self._leaves, last + self._leaves
            for node in _covering(left, right):
                _merge(self._cover.setdefault(node, []), start, end)
                _merge(self._touch.setdefault(node, []), start, end)
            # The paths to the root from both ends hold every node that is only partly covered.
            for node in {*_above(left), *_above(right - 1)}:
                _merge(self._touch.setdefault(node, []), start, end)

    def during(self, spans: Ranges) -> list[tuple[int, int]]:
        """Ranges that together are all addresses occupied at some section of the spans."""
        found: list[tuple[int, int]] = []
        for first, last in spans:
            left, right = first + self._leaves, last + self._leaves
            sets = [self._touch.get(node) for node in _covering(left, right)]
            sets += [self._cover.get(node) for node in {*_above(left), *_above(right - 1)}]
            for edges in sets:
                if edges:
                    found += zip(edges[::2], edges[1::2], strict=True)
        found.sort()
        return found


def fit(
    line: Line, order: Sequence[int], *, best: bool, seconds: float | None = None
) -> list[int] | None:
    """Addresses for all items, placed in this order; None if one has nowhere to go.

    None also if it takes longer than so many seconds.

    best: into the smallest free range that has room, the lowest of equal ones; otherwise into
    the lowest. What hosts leave free counts like any hole; the top of the arena comes last.
    """
    occupied = Occupied(len(line.times))
    offsets = [0] * len(line.items)
    deadline = None if seconds is None else monotonic() + seconds
    for number in order:
        if deadline is not None and monotonic() > deadline:
            return None
        item = line.items[number]
        address = _choose(item, occupied.during(item.spans), line.regions, best)
        if address == HUGE:
            return None
        offsets[number] = address
        occupied.add(item.spans, address, address + item.size)
    return offsets


def _choose(item: Item, taken: list[tuple[int, int]], regions: Sequence[Region], best: bool) -> int:
    if item.fixed is not None:
        low, high = item.fixed, item.fixed + item.size
        clash = not item.regions or any(a < high and low < b for a, b in taken)
        return HUGE if clash else low
    chosen, room = HUGE, 0
    free_from = 0
    for start, end in (*taken, (HUGE, HUGE)):
        if start - free_from >= item.size:
            for number in item.regions:
                region = regions[number]
                low, high = max(free_from, region.base), min(start, region.end)
                at = low + -low % item.alignment
                if at + item.size <= high and (chosen == HUGE or (best and high - low < room)):
                    chosen, room = at, high - low
            if chosen != HUGE and not best:
                return chosen
        free_from = max(free_from, end)
    return chosen


def _covering(left: int, right: int) -> list[int]:
    """The fewest nodes whose leaves are exactly those from left up to right."""
    nodes = []
    while left < right:
        if left & 1:
            nodes.append(left)
            left += 1
        if right & 1:
            right -= 1
            nodes.append(right)
        left //= 2
        right //= 2
    return nodes


def _above(leaf: int) -> list[int]:
    nodes = []
    while leaf := leaf // 2:
        nodes.append(leaf)
    return nodes


def _merge(edges: list[int], start: int, end: int) -> None:
    """Add [start, end) to disjoint ranges kept as their edges in ascending order."""
    i, j = bisect_left(edges, start), bisect_right(edges, end)
    edges[i:j] = [start][: 1 - i % 2] + [end][: 1 - j % 2]
