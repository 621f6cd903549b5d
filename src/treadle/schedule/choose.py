"""The fusion search: the pair that saves most goes first, to a fixpoint.

A queue holds the pairs that share data. The best one is asked: legal (rules), acyclic, a place in
the order, a peak within the budget, a gain. If all agree the two become one kernel, and only pairs
with the absorbed kernel are scored again. A refused pair comes back if one of the two changes.
Nothing is built while asking; the timeline undoes what was only tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from treadle.analysis.inplace import boundary
from treadle.core.context import Ctx
from treadle.core.garbage import paused_collection
from treadle.core.verdict import YES, Verdict, check_rules, no, yes
from treadle.ir.program import Fused, Group, Loop, Operation, Program
from treadle.ir.spec_body import bounds
from treadle.kernel.space import joined
from treadle.schedule.board import Board
from treadle.schedule.candidates import candidate_pairs
from treadle.schedule.kernels import KernelDraft, kernels_of, rebuilt, storages_shared
from treadle.schedule.late import run_late
from treadle.schedule.policy import Policy
from treadle.schedule.profit import is_faster, worth_in_memory
from treadle.schedule.reindex import aligned, can_align
from treadle.schedule.rules.chain import RULES, rules_for
from treadle.schedule.rules.pair import Pair
from treadle.schedule.savings import Surroundings, saved_bytes
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
        self.board = Board(program, ctx, policy)
        self.deps = self.board.deps
        self.ops: list[Operation] = list(program.leaves)
        self.kernels: list[KernelDraft] = kernels_of(program)
        self.around = Surroundings.of(self.deps, program.derive(boundary), policy.nests)
        self.neighbours: list[set[int]] = [set() for _ in self.kernels]
        self.version = [0] * len(self.kernels)
        self.refused: dict[tuple[int, int], tuple[int, int]] = {}
        self.forbidden: dict[tuple[int, int], str] = {}
        self.queue: list[tuple[int, int, int, int]] = []
        self.board.enter_groups(self._grouped)
        for op in program.ops:
            if isinstance(op, Group) and not isinstance(op, Fused) and op.leaves:
                first = self.deps.position[op.leaves[0].name]
                self.kernels[self.board.group_of(first)].fixed = True

    def _grouped(self, kept: int, gone: int) -> None:
        """Two members of a group of the program; only fused loops may take in more."""
        mine, theirs = self.kernels[kept], self.kernels[gone]
        space = joined(mine.space, theirs.space)
        mine.fixed = mine.fixed or theirs.fixed or space is None
        mine.absorb(theirs, space or mine.space)

    # -- the loop --------------------------------------------------------------------------
    def run(self) -> Grouping:
        """Fuse until nothing more is worth it."""
        with paused_collection():
            group = self.board.group_of
            for source, target in candidate_pairs(self.kernels, self.deps):
                a, b = group(source), group(target)
                if a == b or self.kernels[a].fixed or self.kernels[b].fixed:
                    continue
                a, b = (a, b) if a < b else (b, a)
                if b in self.neighbours[a]:
                    continue
                self.neighbours[a].add(b)
                self.neighbours[b].add(a)
                self.queue.append((-self.score(a, b), a, b, 0))
            heapify(self.queue)
            if self.policy.late:
                run_late(self.board.timeline, self.board.order)
                self.board.peak = self.board.timeline.peak().bytes
            self.run_queue()
            order = self.board.final_order()
        return Grouping(order, self.ops, self.board.peak_before, self.board.peak)

    def run_queue(self) -> None:
        """Work the queue off; what the peak forbade is asked again if there may be room since.

        First without spending memory; then what is still forbidden may pay for it.
        """
        while True:
            start, free = self.board.peak, self.board.paid_up_to
            while self.queue:
                self.step(*heappop(self.queue))
            again = [pair for pair, code in self.forbidden.items() if code in MEMORY_CODES]
            has_room = self.board.peak < start or self.board.paid_up_to > free
            if not again or (self.board.pays and not has_room):
                return
            self.board.pays = self.board.pays or not has_room
            self.forbidden.clear()
            for a, b in again:
                self.refused.pop((a, b), None)
                if self.board.group_of(a) == a and self.board.group_of(b) == b:
                    self.push(a, b)

    def push(self, a: int, b: int) -> None:
        """Queue a pair, a < b, by what it would save now."""
        heappush(self.queue, (-self.score(a, b), a, b, self.version[a] + self.version[b]))

    def step(self, claimed: int, a: int, b: int, version: int) -> None:
        """Look at one pair; merge it if everything agrees."""
        group = self.board.group_of
        x, y = group(a), group(b)
        if x == y:
            return
        x, y = (x, y) if x < y else (y, x)
        versions = (self.version[x], self.version[y])
        if self.refused.get((x, y)) == versions:
            return
        score = -claimed
        if x != a or y != b or version != versions[0] + versions[1]:
            # The two have grown since the pair was queued.
            score = self.score(x, y)
            if score < -claimed and self.queue and score < -self.queue[0][0]:
                heappush(self.queue, (-score, x, y, versions[0] + versions[1]))
                return
        a, b = x, y
        verdict = self.consider(a, b, score)
        if self.ctx.journal.enabled:
            names = self.deps.names
            self.ctx.journal.verdict("fuse", (names[a], names[b]), verdict)
        if not verdict:
            self.refused[a, b] = versions
            self.forbidden[a, b] = verdict.code

    def score(self, a: int, b: int) -> int:
        """Bytes that fusing the two would save."""
        one, other = self.kernels[a], self.kernels[b]
        if self.board.before(b, a):
            one, other = other, one
        return saved_bytes(one, other, storages_shared(one, other), self.around)

    # -- one pair --------------------------------------------------------------------------
    def consider(self, a: int, b: int, score: int) -> Verdict:
        """Ask everything about a pair; on agreement the two are one afterwards."""
        first, second = (a, b) if self.board.before(a, b) else (b, a)
        one, other = self.kernels[first], self.kernels[second]
        pair = self.pair(one, other)
        verdict = check_rules(rules_for(pair), pair)
        changed: Alignment | None = None
        if verdict.code == "FUS008" and self.policy.reindex:
            changed = self.align(pair)
            if changed is not None:
                pair, verdict = changed.pair, YES
        if not verdict:
            return no(verdict.code, **verdict.facts, bytes=score)
        if score <= 0:
            return no("FUS012", bytes=score)
        faster = is_faster(pair, score)
        if not faster:
            return no(faster.code, **faster.facts, bytes=score)
        worth = worth_in_memory(score, self.ctx.cost.machine(one.device))
        verdict = self.board.acyclic(a, b) and self.board.place(first, second, worth=worth)
        if not verdict:
            return no(verdict.code, **verdict.facts, bytes=score, **faster.facts)
        verdict = yes(verdict.code, **verdict.facts, bytes=score, **faster.facts)
        if verdict:
            if changed is not None:
                for position, op in changed.ops:
                    self.ops[position] = op
                self.kernels[first], self.kernels[second] = pair.first, pair.second
            self.merge(first, second, pair)
        return verdict

    def pair(self, one: KernelDraft, other: KernelDraft) -> Pair:
        """Two kernels as the rules see them."""
        shared = tuple(storages_shared(one, other))
        return Pair.of(self.program, self.policy, self.ctx.cost, one, other, shared)

    def align(self, pair: Pair) -> Alignment | None:
        """Try to make the two meet by walking a pointwise one in the other's order."""
        for mover, other in ((pair.first, pair.second), (pair.second, pair.first)):
            if pair.space is None or not mover.space.is_pointwise or mover.call is not None:
                continue
            if mover.space.total is not pair.space.total:
                continue
            ops = [op for m in mover.members if isinstance(op := self.ops[m], Loop)]
            for path, goal in self._misaligned(pair, mover, other):
                moved = aligned(ops, path, goal)
                if moved is None:
                    continue
                fresh = rebuilt(mover, moved, self.program)
                both = (fresh, other) if mover is pair.first else (other, fresh)
                new = Pair.of(self.program, self.policy, self.ctx.cost, *both, pair.shared)
                # What cannot be proven to stay inside its buffers would be no program any more.
                if check_rules(RULES, new) and not any(
                    problem for op in moved for problem in bounds(op.body, self.program)
                ):
                    return Alignment(new, list(zip(mover.members, moved, strict=True)))
        return None

    def _misaligned(
        self, pair: Pair, mover: KernelDraft, other: KernelDraft
    ) -> Iterator[tuple[Touch, Touch]]:
        for storage in pair.shared:
            for path in mover.touches[storage]:
                for goal in other.touches[storage]:
                    if (path.is_write or goal.is_write) and can_align(path, goal):
                        yield path, goal

    def merge(self, first: int, second: int, pair: Pair) -> None:
        """Make one kernel of two that the timeline already holds as one."""
        assert pair.space is not None, "kernels are merged after a common space was found"
        kept, gone = self.board.join(first, second)
        self.kernels[kept].absorb(self.kernels[gone], pair.space)
        self.version[kept] += 1
        mine, theirs = self.neighbours[kept], self.neighbours[gone]
        mine.discard(gone)
        theirs.discard(kept)
        for other in theirs:
            links = self.neighbours[other]
            links.discard(gone)
            links.add(kept)
            mine.add(other)
            self.push(*((kept, other) if kept < other else (other, kept)))
        self.neighbours[gone] = set()


MEMORY_CODES = frozenset({"FUS011", "FUS013"})


def choose_groups(program: Program, ctx: Ctx, policy: Policy) -> Grouping:
    """The kernels of a program under a policy."""
    return Search(program, ctx, policy).run()
