"""The peer's way to fuse, for comparison: rounds over pairs sorted by score, with its thresholds.

    a round    every kernel with the next 64 that use one of its buffers, best score first
    score      bytes of accesses that both make in the same way
    vertical   what the second reads of the first is read where it was stored
    horizontal at least 10 bytes in common, at most 64 operations apart
    at most ten rounds, until one fuses nothing; then one round in which loops may be reordered

On a CPU at most 16 independent ones are joined. Loops are reordered only among equally many.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cmp_to_key
from typing import NamedTuple

from treadle.core.context import Ctx
from treadle.core.garbage import paused_collection
from treadle.core.verdict import Verdict, check_rules, no, yes
from treadle.ir.program import Program
from treadle.schedule.choose import Grouping, Search
from treadle.schedule.kernels import KernelDraft, same_point, storages_shared
from treadle.schedule.policy import Policy
from treadle.schedule.rules.chain import rules_for
from treadle.schedule.rules.pair import Pair

ROUNDS = 10
NEAREST = 64
LEAST_BYTES = 10
FARTHEST = 64
MUCH_MORE = 16
CPU_WIDEST = 16


class Scored(NamedTuple):
    """A pair with what the peer sorts by."""

    same_kind: bool
    bytes: int
    distance: int
    first: int
    second: int


class Rounds(Search):
    """The search of the peer on the same board."""

    def run(self) -> Grouping:
        """Fuse in rounds."""
        with paused_collection():
            for _ in range(ROUNDS):
                if not self.round(may_reorder=False):
                    break
            self.round(may_reorder=True)
            order = self.board.final_order()
        return Grouping(order, self.ops, self.board.peak_before, self.board.peak)

    def round(self, *, may_reorder: bool) -> int:
        """Try every candidate pair once, best first; gives how many were fused."""
        count = 0
        for pair in sorted(self.scored(), key=cmp_to_key(_better_first)):
            a, b = self.board.group_of(pair.first), self.board.group_of(pair.second)
            if a == b:
                continue
            verdict = self.decide(min(a, b), max(a, b), may_reorder)
            if self.ctx.journal.enabled:
                names = (self.deps.names[pair.first], self.deps.names[pair.second])
                self.ctx.journal.verdict("fuse", names, verdict)
            count += bool(verdict)
        return count

    def scored(self) -> Iterator[Scored]:
        """Pairs that use a common buffer and are near to each other in the list of its users."""
        users: dict[str, list[int]] = {}
        seen: set[tuple[int, int]] = set()
        for op in range(len(self.kernels)):
            if self.board.group_of(op) == op and not self.kernels[op].fixed:
                for storage in self.kernels[op].touches:
                    users.setdefault(storage, []).append(op)
        for row in users.values():
            row.sort(key=lambda op: self.kernels[op].members[0])
            for k, a in enumerate(row):
                for b in row[k + 1 : k + 1 + NEAREST]:
                    if (a, b) not in seen:
                        seen.add((a, b))
                        yield self.scored_pair(a, b)

    def scored_pair(self, a: int, b: int) -> Scored:
        """What the pair is sorted by."""
        one, other = self.kernels[a], self.kernels[b]
        same = one.space.is_pointwise == other.space.is_pointwise
        return Scored(same, common_bytes(one, other), _distance(one, other), a, b)

    def decide(self, a: int, b: int, may_reorder: bool) -> Verdict:
        """Whether the peer would fuse the two; if so they are one afterwards."""
        first, second = (a, b) if self.board.before(a, b) else (b, a)
        one, other = self.kernels[first], self.kernels[second]
        pair = self.pair(one, other)
        verdict = check_rules(rules_for(pair), pair)
        changed = None
        if verdict.code == "FUS008" and may_reorder and not one.device.startswith("cpu"):
            changed = self.align(pair) if _equally_many_loops(pair) else None
            if changed is not None:
                pair, verdict = changed.pair, yes()
        if verdict:
            verdict = self.board.acyclic(a, b) and self._near_or_needed(first, second, pair)
        if verdict:
            verdict = self.board.place(first, second)
        if not verdict:
            return verdict
        if changed is not None:
            for position, op in changed.ops:
                self.ops[position] = op
            self.kernels[first], self.kernels[second] = pair.first, pair.second
        self.merge(first, second, pair)
        return yes("FUS000", bytes=common_bytes(one, other))

    def _near_or_needed(self, first: int, second: int, pair: Pair) -> Verdict:
        """PEER001, PEER002: the peer's rules for independent kernels; dependent ones are needed."""
        one, other = pair.first, pair.second
        on_cpu = one.device.startswith("cpu")
        if self.board.order.reaches(first, second):
            return yes()
        score, distance = common_bytes(one, other), _distance(one, other)
        if score < LEAST_BYTES:
            return no("PEER001", bytes=score, least=LEAST_BYTES)
        if distance > FARTHEST:
            return no("PEER002", distance=distance, farthest=FARTHEST)
        if on_cpu and one.leaves + other.leaves > CPU_WIDEST:
            return no("FUS003", members=one.leaves + other.leaves, limit=CPU_WIDEST)
        return yes()


def common_bytes(one: KernelDraft, other: KernelDraft) -> int:
    """Bytes of accesses that both kernels make in the same way, reads and writes alike."""
    total = 0
    for storage in storages_shared(one, other):
        for t in one.touches[storage]:
            for u in other.touches[storage]:
                alike = t.computed is not None and t.computed == u.computed
                if alike or (t.level is u.level and same_point(t, u)):
                    total += min(t.bytes, u.bytes)
                    break
    return total


def _equally_many_loops(pair: Pair) -> bool:
    """Whether all accesses of the pair's common storages are made in as many loops."""
    counts = {
        len(t.access.map.domain)
        for kernel in (pair.first, pair.second)
        for storage in pair.shared
        for t in kernel.touches[storage]
        if t.access.map is not None
    }
    return len(counts) == 1


def _distance(one: KernelDraft, other: KernelDraft) -> int:
    return max(abs(one.members[0] - other.members[-1]), abs(other.members[0] - one.members[-1]))


def _better_first(a: Scored, b: Scored) -> int:
    """The peer's order: far more bytes win; otherwise the same kind, then bytes, then nearness."""
    low, high = sorted((a.bytes, b.bytes))
    if high > MUCH_MORE * low:
        return -1 if a.bytes > b.bytes else 1
    mine = (a.same_kind, a.bytes, -a.distance, -a.first, -a.second)
    theirs = (b.same_kind, b.bytes, -b.distance, -b.first, -b.second)
    return -1 if mine > theirs else 1 if mine < theirs else 0


def choose_in_rounds(program: Program, ctx: Ctx, policy: Policy) -> Grouping:
    """The kernels that the peer's rules make."""
    return Rounds(program, ctx, policy).run()
