"""Where two kernels would stand as one, and what must move out of the way: the order stays valid.

Between the two stand others. Those that need a result of the first must come behind the merged
kernel, those that the second needs must come before it; no operation can be both, or merging would
close a cycle. So the merged kernel can stand where the second stood, after moving the former back,
or where the first stood, after moving the latter forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from treadle.analysis.order import MergeOrder
from treadle.analysis.timeline import LifeError, Mark, Timeline


@dataclass(frozen=True, slots=True)
class Placing:
    """Stand where `at` stands, after moving `moved` (in order) behind or before it."""

    at: int
    moved: tuple[int, ...]
    behind: bool


class Placer:
    """Finds and tries places; the timeline holds the order that counts."""

    __slots__ = ("limit", "order", "timeline")

    def __init__(self, order: MergeOrder, timeline: Timeline, limit: int) -> None:
        self.order, self.timeline, self.limit = order, timeline, limit

    def places(self, first: int, second: int) -> list[Placing]:
        """The possible places, the one with fewer moves first; none if too much stands between."""
        if self.timeline.follows(first, second):
            nothing: tuple[int, ...] = ()
            both = (Placing(second, nothing, behind=True), Placing(first, nothing, behind=False))
            # The larger kernel should stay where it is: the other's members are what moves.
            return list(both if self.order.size(second) >= self.order.size(first) else both[::-1])
        found = []
        later = self._between(first, second, self.order.successors, forward=True)
        if later is not None:
            found.append(Placing(second, tuple(later), behind=True))
        earlier = self._between(second, first, self.order.predecessors, forward=False)
        if earlier is not None:
            found.append(Placing(first, tuple(earlier), behind=False))
        # The larger kernel should stay where it is: the other's members are what moves.
        size = self.order.size
        found.sort(key=lambda p: (len(p.moved), -size(p.at)))
        # Moving others out of the way raises the peak more often than it lowers it.
        return [p for p in found if not p.moved] or found

    def _between(
        self, start: int, goal: int, step: Callable[[int], Iterable[int]], *, forward: bool
    ) -> list[int] | None:
        """What `start` leads to on its side of `goal`, in the present order; None if too many."""
        before = self.timeline.before
        seen = {start}
        queue = [start]
        for at in queue:
            for other in step(at):
                if other in seen or other == goal:
                    continue
                if before(other, goal) if forward else before(goal, other):
                    seen.add(other)
                    queue.append(other)
                    if len(queue) > self.limit + 1:
                        return None
        queue.remove(start)
        return self._sorted(queue)

    def _sorted(self, steps: list[int]) -> list[int]:
        if len(steps) < 2:
            return steps
        return sorted(steps, key=self.timeline.order_key)

    def try_at(
        self, first: int, second: int, place: Placing, drop_internal: bool = True
    ) -> Mark | None:
        """Move and merge on the timeline; the mark undoes it. None if a life would run back."""
        timeline = self.timeline
        mark = timeline.checkpoint()
        try:
            # Users move back before what they use does, makers forward before their users.
            for step in reversed(place.moved) if place.behind else ():
                timeline.move_after(step, place.at)
            for step in () if place.behind else place.moved:
                timeline.move_before(step, place.at)
            timeline.merge(first, second, place.at, drop_internal=drop_internal)
        except LifeError:
            timeline.rollback(mark)
            return None
        return mark
