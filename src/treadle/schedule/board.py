"""The board on which kernels are moved and merged: order, memory and places, always consistent.

A search asks the board whether two kernels may become one (no cycle), where they could stand, and
what that does to the peak; it merges what it likes. Groups of the program are one kernel from the
beginning.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import dependences
from treadle.analysis.liveness import Liveness, remember_peak
from treadle.analysis.merge_floor import merge_floor
from treadle.analysis.order import MergeOrder
from treadle.core.context import Ctx
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.program import Group, Program
from treadle.schedule.given_peak import given_peak
from treadle.schedule.placing import Placer, Placing
from treadle.schedule.policy import Policy


class Board:
    """Order and timeline of one program; kernels are named by the position of a leaf."""

    def __init__(self, program: Program, ctx: Ctx, policy: Policy) -> None:
        self.program, self.policy = program, policy
        self.deps = dependences(program)
        self.live = Liveness(program, ACCOUNTINGS[ctx.options.accounting].policy)
        remember_peak(self.live)
        self.timeline = self.live.timeline
        self.order = MergeOrder(len(program.leaves), self.deps.edges)
        self.placer = Placer(self.order, self.timeline, policy.max_moves)
        self.peak = self.timeline.peak().bytes
        self.peak_before = self.peak
        self.paid_up_to = self.peak
        """The highest peak that costs nothing more: the lowest found, and what was paid since."""
        self.given_peak = max(self.peak, given_peak(ctx))
        self.memory_limit = ctx.options.memory_limit
        """What the user allows, in place of what the policy derives from the given peak."""
        self.pays = False
        """Whether memory may be spent now, if what it saves is worth it."""
        self.group_of = self.order.group_of
        self.before = self.timeline.before
        self._tried = self._refused = 0

    def enter_groups(self, merged: Callable[[int, int], None]) -> None:
        """Make one kernel of each group of the program; `merged(kept, gone)` hears of each step."""
        for op in self.program.ops:
            if not isinstance(op, Group) or not op.leaves:
                continue
            first, *others = (self.deps.position[leaf.name] for leaf in op.leaves)
            for other in others:
                if self.before(first, other) or self.before(other, first):
                    self.timeline.merge(first, other, first, drop_internal=False)
                merged(*self.join(first, other))

    def join(self, a: int, b: int) -> tuple[int, int]:
        """Make one of two in the order; gives the name that stays and the one that goes."""
        old = self.group_of(a), self.group_of(b)
        kept = self.order.merge(*old)
        return kept, old[1] if kept == old[0] else old[0]

    def acyclic(self, a: int, b: int) -> Verdict:
        """FUS010: nothing else must run between the two."""
        if not self.order.would_cycle(a, b):
            return yes()
        path = self.order.witness(a, b) or []
        return no("FUS010", through=[self.deps.names[k] for k in path[1:-1][:4]])

    def place(
        self, first: int, second: int, *, worth: float = 0.0, drop_internal: bool = True
    ) -> Verdict:
        """Put the two on one place of the timeline within the peak budget, or refuse.

        `worth` are the bytes of traffic that it saves: what may be paid with memory.
        """
        places = self.placer.places(first, second)
        if not places:
            return no("FUS013", limit=self.policy.max_moves)
        free, limit = self.limit(), self.limit(worth)
        lowest: int | None = None
        best: Placing | None = None
        for place in places:
            # A look before the trial pays off only where trials fail now and then.
            if limit is not None and 8 * self._refused > self._tried:
                both = (self.timeline, first, second, place.at, place.moved)
                floor = merge_floor(*both, drops=drop_internal)
                if floor > limit:
                    lowest = floor if lowest is None else min(lowest, floor)
                    self._refused += 1
                    continue
            self._tried += 1
            mark = self.placer.try_at(first, second, place, drop_internal)
            if mark is None:
                continue
            peak = self.timeline.peak().bytes
            if free is None or peak <= free:
                self.peak = peak
                return yes("FUS000", peak=peak, moved=len(place.moved))
            if lowest is None or peak < lowest:
                lowest, best = peak, place
            self.timeline.rollback(mark)
            self._refused += 1
        if best is None or lowest is None or limit is None or free is None or lowest > limit:
            return no("FUS011", peak=lowest, limit=limit)
        self.placer.try_at(first, second, best, drop_internal)
        self.peak = self.paid_up_to = self.timeline.peak().bytes
        return yes("FUS000", peak=self.peak, moved=len(best.moved), paid=self.peak - free)

    def limit(self, worth: float = 0.0) -> int | None:
        """The highest peak that the policy allows now, for what saves `worth` bytes of traffic.

        What is free is the lowest peak found, not the given one: memory is there to be saved, and
        is spent only for what is worth it, up to the user's `memory_limit`, or without one up to
        the given peak and the policy's factor. A limit below what was found lets nothing be spent.
        """
        policy = self.policy
        if policy.never_raise:
            return self.peak
        if policy.peak_factor is None:
            return None
        most = self.memory_limit
        if most is None:
            most = int(self.given_peak * policy.peak_factor)
        most = max(self.paid_up_to, most)
        if policy.peak_price == 0:
            return most
        spend = int(worth / policy.peak_price) if self.pays else 0
        return min(most, self.paid_up_to + spend)

    def final_order(self) -> list[tuple[int, ...]]:
        """The kernels as sorted positions of leaves, in order; nothing can be undone after it."""
        self.timeline.commit()
        return [tuple(sorted(step)) for step in self.timeline.order()]
