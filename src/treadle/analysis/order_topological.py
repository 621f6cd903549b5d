"""A stable topological order of numbered operations, or the cycle that makes one impossible."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

_LONGEST_LISTING = 24


class CycleError(ValueError):
    """Operations that would each have to run before the next, and the last before the first.

    `cycle` lists them in that order; the one that closes the cycle (the first) is not repeated.
    """

    def __init__(self, cycle: Sequence[int], reason: str = "these operations form a cycle") -> None:
        super().__init__(cycle, reason)
        self.cycle = list(cycle)
        self.reason = reason

    def __str__(self) -> str:
        shown = [str(op) for op in self.cycle]
        if len(shown) > _LONGEST_LISTING:
            half = _LONGEST_LISTING // 2
            shown[half:-half] = [f"({len(shown) - 2 * half} more)"]
        return f"{self.reason}: {' -> '.join(shown)}"


def topological_order(
    count: int, edges: Iterable[tuple[int, int]], priority: Sequence[Any] | None = None
) -> list[int]:
    """The operations 0..count-1 so that every edge (u, v) has u before v.

    Of the operations that could come next, the one with the smallest priority does, ties broken by
    the smallest id. Without `priority` the id is the priority, so ids that are already in order
    come back as they are. Raises CycleError when no order exists; an edge (u, u) is a cycle of one.
    """
    edges = list(edges)
    already_in_order = _check(count, edges)
    if priority is None:
        if already_in_order:
            return list(range(count))
        rank: Sequence[int] = range(count)
    else:
        # Ranks instead of priorities: the heap then compares small integers, whatever was given.
        rank = [0] * count
        for place, op in enumerate(sorted(range(count), key=priority.__getitem__)):
            rank[op] = place
    return _smallest_rank_first(count, edges, rank)


def _check(count: int, edges: list[tuple[int, int]]) -> bool:
    """Whether all edges go from smaller to larger ids; ValueError if an end is no operation."""
    in_order = True
    for u, v in edges:
        if not 0 <= u < v < count:
            if not (0 <= u < count and 0 <= v < count):
                raise ValueError(f"edge ({u}, {v}): the operations are 0..{count - 1}")
            in_order = False
    return in_order


def _smallest_rank_first(
    count: int, edges: list[tuple[int, int]], rank: Sequence[int]
) -> list[int]:
    users: list[list[int]] = [[] for _ in range(count)]
    waiting_for = [0] * count
    for u, v in edges:
        users[u].append(v)
        waiting_for[v] += 1
    ready = [(rank[op], op) for op in range(count) if not waiting_for[op]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        for user in users[op]:
            waiting_for[user] -= 1
            if not waiting_for[user]:
                heapq.heappush(ready, (rank[user], user))
    if len(order) < count:
        raise CycleError(_a_cycle_among({op for op in range(count) if waiting_for[op]}, edges))
    return order


def _a_cycle_among(stuck: set[int], edges: list[tuple[int, int]]) -> list[int]:
    """A cycle of the stuck operations, each of which waits for another; smallest id first."""
    waits_for: dict[int, int] = {}
    for u, v in edges:
        if u in stuck and v in stuck:
            waits_for.setdefault(v, u)
    seen: dict[int, None] = {}
    op = min(stuck)
    while op not in seen:
        seen[op] = None
        op = waits_for[op]
    backwards = list(seen)
    cycle = backwards[backwards.index(op) :][::-1]
    start = cycle.index(min(cycle))
    return cycle[start:] + cycle[:start]
