"""The fusion search: the pair that saves most goes first, to a fixpoint.

A queue holds the pairs that share data. The best one is asked: legal (rules), acyclic, a place in
the order, a peak within the budget, a gain. If all agree the two become one kernel, and only pairs
with the absorbed kernel are scored again. A refused pair comes back if one of the two changes.
Nothing is built while asking; the timeline undoes what was only tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import boundary
from treadle.analysis.liveness import Liveness
from treadle.analysis.order import MergeOrder
from treadle.core.context import Ctx
from treadle.core.garbage import paused_collection
from treadle.core.verdict import YES, Verdict, check_rules, no, yes
from treadle.ir.program import Fused, Group, Loop, Operation, Program
from treadle.schedule.candidates import candidate_pairs
from treadle.schedule.kernels import Kernel, kernels_of, rebuilt, storages_shared
from treadle.schedule.placing import Placer
from treadle.schedule.policy import Policy
from treadle.schedule.reindex import aligned, can_align
from treadle.schedule.rules.data import DATA_RULES
from treadle.schedule.rules.form import FORM_RULES
from treadle.schedule.rules.pair import Pair
from treadle.schedule.savings import Surroundings, saved_bytes
from treadle.schedule.shapes import ONE, joined
from treadle.schedule.touches import Touch


class Grouping(NamedTuple):
    """What the search found: positions of leaves, one tuple per kernel, in an order that works."""

    kernels: list[tuple[int, ...]]
    ops: list[Operation]
    """The leaves, some with their loops in another order."""
    peak_before: int
    peak_after: int


class Alignment(NamedTuple):
    """A pair that meets after some loops run in another order."""

    pair: Pair
    ops: list[tuple[int, Loop]]


class Search:
    """The state of one search."""

    def __init__(self, program: Program, ctx: Ctx, policy: Policy) -> None:
        self.program, self.ctx, self.policy = program, ctx, policy
        deps = dependences(program)
        self.deps = deps
        self.live = Liveness(program, ACCOUNTINGS[ctx.options.accounting].policy)
        self.timeline = self.live.timeline
        self.order = MergeOrder(len(program.leaves), deps.edges)
        self.ops: list[Operation] = list(program.leaves)
        self.kernels: list[Kernel] = kernels_of(program)
        self.around = Surroundings.of(deps, program.derive(boundary))
        self.placer = Placer(self.order, self.timeline, policy.max_moves)
        self.peak = self.timeline.peak().bytes
        self.peak_before = max(self.peak, ctx.peak_bytes or 0)
        self.neighbours: list[set[int]] = [set() for _ in self.kernels]
        self.version = [0] * len(self.kernels)
        self.refused: dict[tuple[int, int], tuple[int, int]] = {}
        self.queue: list[tuple[int, int, int]] = []
        self._enter_groups()

    def _enter_groups(self) -> None:
        """Kernels that are groups already stay together; only fused loops may take in more."""
        for op in self.program.ops:
            if not isinstance(op, Group):
                continue
            first, *others = (self.deps.position[leaf.name] for leaf in op.leaves)
            for other in others:
                if self.timeline.before(first, other) or self.timeline.before(other, first):
                    self.timeline.merge(first, other, first, drop_internal=False)
                old = self.order.group_of(first), self.order.group_of(other)
                kept = self.order.merge(*old)
                gone = old[1] if kept == old[0] else old[0]
                mine, theirs = self.kernels[kept], self.kernels[gone]
                shape = joined(mine.shape, theirs.shape)
                mine.fixed = mine.fixed or theirs.fixed or shape is None
                mine.absorb(theirs, shape or mine.shape)
            kernel = self.kernels[self.order.group_of(first)]
            kernel.fixed = kernel.fixed or not isinstance(op, Fused)

    # -- the loop --------------------------------------------------------------------------
    def run(self) -> Grouping:
        """Fuse until nothing more is worth it."""
        with paused_collection():
            group = self.order.group_of
            for source, target in candidate_pairs(self.kernels, self.deps):
                a, b = group(source), group(target)
                if a == b or self.kernels[a].fixed or self.kernels[b].fixed:
                    continue
                a, b = (a, b) if a < b else (b, a)
                if b in self.neighbours[a]:
                    continue
                self.neighbours[a].add(b)
                self.neighbours[b].add(a)
                self.queue.append((-self.score(a, b), a, b))
            heapify(self.queue)
            while self.queue:
                self.step(*heappop(self.queue))
            self.timeline.commit()
            order = [tuple(sorted(step)) for step in self.timeline.order()]
        return Grouping(order, self.ops, self.peak_before, self.timeline.peak().bytes)

    def step(self, claimed: int, a: int, b: int) -> None:
        """Look at one pair; merge it if everything agrees."""
        group = self.order.group_of
        a, b = group(a), group(b)
        if a == b:
            return
        a, b = (a, b) if a < b else (b, a)
        versions = (self.version[a], self.version[b])
        if self.refused.get((a, b)) == versions:
            return
        score = self.score(a, b)
        if score < -claimed and self.queue and score < -self.queue[0][0]:
            heappush(self.queue, (-score, a, b))
            return
        verdict = self.consider(a, b, score)
        if self.ctx.journal.enabled:
            names = self.deps.names
            self.ctx.journal.verdict("fuse", (names[a], names[b]), verdict)
        if not verdict:
            self.refused[a, b] = versions

    def score(self, a: int, b: int) -> int:
        """Bytes that fusing the two would save."""
        one, other = self.kernels[a], self.kernels[b]
        if self.timeline.before(b, a):
            one, other = other, one
        return saved_bytes(one, other, storages_shared(one, other), self.around)

    # -- one pair --------------------------------------------------------------------------
    def consider(self, a: int, b: int, score: int) -> Verdict:
        """Ask everything about a pair; on agreement the two are one afterwards."""
        first, second = (a, b) if self.timeline.before(a, b) else (b, a)
        one, other = self.kernels[first], self.kernels[second]
        pair = Pair.of(self.program, self.policy, one, other, tuple(storages_shared(one, other)))
        verdict = check_rules(RULES, pair)
        changed: Alignment | None = None
        if verdict.code == "FUS008" and self.policy.reindex:
            changed = self.align(pair)
            if changed is not None:
                pair, verdict = changed.pair, YES
        if not verdict:
            return no(verdict.code, **verdict.facts, bytes=score)
        if score <= 0:
            return no("FUS012", bytes=score)
        if self.order.would_cycle(a, b):
            path = self.order.witness(a, b) or []
            through = [self.deps.names[k] for k in path[1:-1][:4]]
            return no("FUS010", through=through, bytes=score)
        verdict = self.placed(first, second, score)
        if verdict:
            if changed is not None:
                for position, op in changed.ops:
                    self.ops[position] = op
                self.kernels[first], self.kernels[second] = pair.first, pair.second
            self.merge(first, second, pair)
        return verdict

    def align(self, pair: Pair) -> Alignment | None:
        """Try to make the two meet by walking a pointwise one in the other's order."""
        for mover, other in ((pair.first, pair.second), (pair.second, pair.first)):
            if mover.shape.r is not ONE or pair.shape is None:
                continue
            if mover.shape.x is not pair.shape.total:
                continue
            ops = [op for m in mover.members if isinstance(op := self.ops[m], Loop)]
            for path, goal in self._misaligned(pair, mover, other):
                moved = aligned(ops, path, goal)
                if moved is None:
                    continue
                fresh = rebuilt(mover, moved, self.program)
                both = (fresh, other) if mover is pair.first else (other, fresh)
                new = Pair.of(self.program, self.policy, *both, pair.shared)
                if check_rules(RULES, new):
                    return Alignment(new, list(zip(mover.members, moved, strict=True)))
        return None

    def _misaligned(
        self, pair: Pair, mover: Kernel, other: Kernel
    ) -> Iterator[tuple[Touch, Touch]]:
        for storage in pair.shared:
            for path in mover.touches[storage]:
                for goal in other.touches[storage]:
                    if (path.is_write or goal.is_write) and can_align(path, goal):
                        yield path, goal

    def placed(self, first: int, second: int, score: int) -> Verdict:
        """Put the two on one place of the timeline within the peak budget, or refuse."""
        places = self.placer.places(first, second)
        if not places:
            return no("FUS013", limit=self.policy.max_moves, bytes=score)
        limit = self.limit()
        lowest: int | None = None
        for place in places:
            mark = self.placer.try_at(first, second, place)
            if mark is None:
                continue
            peak = self.timeline.peak().bytes
            if limit is None or peak <= limit:
                self.peak = peak
                return yes("FUS000", bytes=score, peak=peak, moved=len(place.moved))
            lowest = peak if lowest is None else min(lowest, peak)
            self.timeline.rollback(mark)
        return no("FUS011", peak=lowest, limit=limit, bytes=score)

    def limit(self) -> int | None:
        """The highest peak that the policy allows now."""
        if self.policy.never_raise:
            return self.peak
        if self.policy.peak_factor is None:
            return None
        return int(self.peak_before * self.policy.peak_factor)

    def merge(self, first: int, second: int, pair: Pair) -> None:
        """Make one kernel of two that the timeline already holds as one."""
        assert pair.shape is not None
        kept = self.order.merge(first, second)
        gone = second if kept == first else first
        self.kernels[kept].absorb(self.kernels[gone], pair.shape)
        self.version[kept] += 1
        mine, theirs = self.neighbours[kept], self.neighbours[gone]
        mine.discard(gone)
        theirs.discard(kept)
        for other in theirs:
            links = self.neighbours[other]
            links.discard(gone)
            links.add(kept)
            mine.add(other)
            low, high = min(kept, other), max(kept, other)
            heappush(self.queue, (-self.score(kept, other), low, high))
        self.neighbours[gone] = set()


RULES: tuple[Callable[[Pair], Verdict], ...] = (*FORM_RULES, *DATA_RULES)


def choose_groups(program: Program, ctx: Ctx, policy: Policy) -> Grouping:
    """The kernels of a program under a policy."""
    return Search(program, ctx, policy).run()
