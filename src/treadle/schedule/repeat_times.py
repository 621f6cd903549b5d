"""What a value costs if it is kept, and if its readers compute it again: predicted times.

    kept    the producer, in one kernel with the readers that fusion can join it with; the others
            load the value, which then has to be stored
    beside  the others compute the value from what the producer reads, and it is not stored
    again   all of them do so, and there is no producer

All are told after fusion, because fusion comes later and makes the difference: a value that all of
its readers could take over in one kernel is not stored anyway, and to compute it again gains
nothing. Bytes that stay in the cache cost a part of those that do not, as in `profit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.analysis.access import loop_accesses
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import boundary
from treadle.analysis.kernel_time import kernel_ns, work_at_a_point
from treadle.core.costs import CostModel, Machine
from treadle.core.verdict import check_rules
from treadle.index import Kind, hint
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.pattern import pattern_of, place_of
from treadle.ir.program import Call, Loop, Program
from treadle.kernel.stages import COSTLY
from treadle.schedule.between import Between, stays_alone
from treadle.schedule.kernels import KernelDraft, is_shared_out, storages_shared
from treadle.schedule.open_calls import opens
from treadle.schedule.policy import Policy
from treadle.schedule.profit import CACHE_SHARE, CACHE_SPEED
from treadle.schedule.reindex import can_align
from treadle.schedule.repeating import Repeater
from treadle.schedule.rules.chain import RULES
from treadle.schedule.rules.pair import Pair

SINGLE = 2.0
"""What statements count against a peak that is one of multiply-adds, each counted as two."""


class RepeatTimes(NamedTuple):
    """Predicted nanoseconds of a value that is kept, and of one that is computed again."""

    kept_ns: int
    again_ns: int


class _Meeting(NamedTuple):
    """Whether fusion can join a producer with a reader: as they stand, or in another order."""

    at_once: bool
    in_another_order: bool


class RepeatClock:
    """Predicts for one program what keeping and computing again cost, each pair of forms once."""

    def __init__(
        self, program: Program, policy: Policy, cost: CostModel, repeater: Repeater
    ) -> None:
        self._program, self._policy, self._cost = program, policy, cost
        self._repeater, self._deps = repeater, dependences(program)
        self._between = Between(program, self._deps, policy.max_moves)
        self._meetings: dict[object, _Meeting] = {}

    def split(self, source: Loop, readers: Sequence[Loop]) -> tuple[list[Loop], list[Loop]]:
        """The readers that fusion can take into one kernel with the producer, and the others.

        Readers come in the order of the program. What has points only runs in any order, also in
        that of a reader which reduces columns.
        """
        meetings = [self._meeting(source, op) for op in readers]
        joined = {k for k, m in enumerate(meetings) if m.at_once}
        if not any(len(readers[k].body.reduce) for k in joined):
            joined |= {k for k, m in enumerate(meetings) if m.in_another_order}
        if len(readers) > 1:
            position, kernel = self._deps.position, {self._deps.position[source.name]}
            for k in sorted(joined):
                if self._between.can_join(kernel, position[readers[k].name]):
                    kernel.add(position[readers[k].name])
                else:
                    joined.remove(k)
        chosen = [op for k, op in enumerate(readers) if k in joined]
        return chosen, [op for k, op in enumerate(readers) if k not in joined]

    def beside(self, source: Loop, joined: Sequence[Loop], apart: Sequence[Loop]) -> RepeatTimes:
        """Those apart compute the value, which nobody else needs; the producer stays, or goes."""
        again = self._stored_ns(source) + sum([self._ns([op], source) for op in apart])
        if joined:
            again += self._ns([source, *joined], inside=effects(source).writes[0])
        return RepeatTimes(self._kept(source, joined, apart), round(again))

    def again(self, source: Loop, joined: Sequence[Loop], apart: Sequence[Loop]) -> RepeatTimes:
        """All readers compute the value, and the producer goes."""
        again = self._stored_ns(source) + sum([self._ns([op], source) for op in apart])
        if not joined:
            return RepeatTimes(self._kept(source, joined, apart), round(again))
        more, target = _dear_work(source) * (len(joined) - 1), effects(source).writes[0]
        together = self._ns([source, *joined], inside=target, more=more)
        is_kept_so = not apart and not more
        kept = round(together) if is_kept_so else self._kept(source, joined, apart)
        return RepeatTimes(kept, round(again + together))

    def of_one(self, source: Loop, reader: Loop) -> RepeatTimes:
        """One reader computes the value, which is stored for others in any case."""
        if self.split(source, [reader])[0]:
            kept = self._ns([source, reader])
            again = self._ns([source, reader], more=_dear_work(source))
        else:
            kept, again = self._ns([reader]), self._ns([reader], source)
        return RepeatTimes(round(kept), round(again))

    def _stored_ns(self, source: Loop) -> float:
        """Time to store what a product or a template hands to the producer alone, in its kernel."""
        machine, edge = self._cost.machine(source.device), self._program.derive(boundary)
        total = 0.0
        for name in effects(source).reads:
            users = self._deps.users.get(self._program.storage_of(name), ())
            if len(users) != 2 or not edge.lets_die(self._program.storage_of(name)):
                continue
            maker = self._program.leaves[users[0]]
            if opens(maker, self._program) if isinstance(maker, Call) else stays_alone(maker):
                total += self._bytes(name, _sizes_of(source).steps, machine.cache_bytes)
        return total / machine.gigabytes_per_second

    def _kept(self, source: Loop, joined: Sequence[Loop], apart: Sequence[Loop]) -> int:
        inside = "" if apart else effects(source).writes[0]
        kept = self._ns([source, *joined], inside=inside)
        return round(kept + sum([self._ns([op]) for op in apart]))

    # -- one kernel -------------------------------------------------------------------------
    def _ns(
        self,
        members: Sequence[Loop],
        source: Loop | None = None,
        inside: str = "",
        more: float = 0.0,
    ) -> float:
        """A kernel of some loops, which compute `source` themselves if one is given.

        What a member stores the next ones have at hand; `inside` is not even stored.
        """
        machine = self._cost.machine(members[0].device)
        work, points = more, self._points(members[0], machine)
        loaded: dict[str, float] = {}
        stored: dict[str, float] = {}
        for op in members:
            size, of = _sizes_of(op), effects(op)
            work += size.work
            points, steps = min(points, self._points(op, machine)), size.steps
            reads = of.reads
            if source is not None:
                making = effects(source)
                work += self._work_inside(op, source)
                reads = (*[n for n in reads if n != making.writes[0]], *making.reads)
            for name in (*reads, *of.mutates):
                if name not in stored:
                    moved = self._bytes(name, steps, machine.cache_bytes)
                    loaded[name] = max(loaded.get(name, 0.0), moved)
            for name in (*of.writes, *of.mutates):
                stored[name] = (
                    0.0 if name == inside else self._bytes(name, steps, machine.cache_bytes)
                )
        moved = sum(loaded.values()) + sum(stored.values())
        in_turn = members[0].device.partition(":")[0] == "cpu"
        return kernel_ns(machine, moved, work * SINGLE, points, in_turn=in_turn)

    def _points(self, op: Loop, machine: Machine) -> int:
        """Points that cores can share out: all that they want, if they share steps."""
        points = _sizes_of(op).points
        shares = points < machine.cores and len(op.body.reduce) > 0
        return machine.cores if shares and is_shared_out(op, self._program) else points

    def _bytes(self, name: str, steps: int, cache: int) -> float:
        """Bytes of a buffer that some steps move, as bytes of memory: in the cache they are few."""
        buffer = self._program.by_name[name]
        whole = buffer.tensor_bytes
        moved = min(whole, steps * buffer.dtype.itemsize)
        return moved / CACHE_SPEED if whole < cache / CACHE_SHARE else float(moved)

    def _work_inside(self, reader: Loop, source: Loop) -> float:
        """Arithmetic that a reader does to make the value at each of its loads."""
        pattern, buffers = pattern_of(reader)
        times = pattern.derive(_turns).get(buffers.index(effects(source).writes[0]), 0)
        return pattern_of(source).pattern.derive(work_at_a_point) * times

    # -- what fusion can do -----------------------------------------------------------------
    def _meeting(self, source: Loop, reader: Loop) -> _Meeting:
        key = self._repeater.form(reader, source)
        known = self._meetings.get(key)
        if known is None:
            known = self._meetings[key] = self._asked(source, reader)
        return known

    def _asked(self, source: Loop, reader: Loop) -> _Meeting:
        """What the rules of fusion say of the two, and whether one kernel is not slower."""
        program = self._program
        first, second = [
            KernelDraft(k, op, program, loop_accesses(op, program))
            for k, op in enumerate((source, reader))
        ]
        shared = tuple(storages_shared(first, second))
        pair = Pair.of(program, self._policy, self._cost, first, second, shared)
        verdict = check_rules(RULES, pair)
        if not verdict and (verdict.code != "FUS008" or not self._policy.reindex):
            return _Meeting(False, False)
        target = effects(source).writes[0]
        one = self._ns([source, reader], inside=target)
        if one > self._ns([source]) + self._ns([reader]):
            return _Meeting(False, False)
        if verdict:
            return _Meeting(True, False)
        ways = [(a, b) for s in shared for a in first.touches[s] for b in second.touches[s]]
        return _Meeting(False, any(a.is_write and can_align(a, b) for a, b in ways))


def _dear_work(source: Loop) -> float:
    """What a kernel that computes a value for two of its members does more than for one.

    Cheap statements it computes anew wherever it needs them, however often they are written.
    """
    return _sizes_of(source).dear_work


class _Sizes(NamedTuple):
    """How much a loop does."""

    points: int
    steps: int
    work: float
    dear_work: float


def _sizes_of(op: Loop) -> _Sizes:
    return pattern_of(op).pattern.derive(_sizes)


def _sizes(body: Body) -> _Sizes:
    steps = body.space.numel_hint
    works = [at.stmt.definition.work for at in body.walk()]
    dear = sum([work for work in works if work >= COSTLY])
    return _Sizes(body.domain.numel_hint, steps, sum(works) * steps, dear * steps)


def _turns(body: Body) -> dict[int, int]:
    """For each buffer that a body loads, how often what is loaded has to be made.

    Once for all loops inside of those that the address depends on: they find it made.
    """
    loops = list(body.space.items())
    found: dict[int, int] = {}
    for name, index, _ in body.loads():
        deepest = len(loops)
        if all(s.kind is not Kind.INDIRECT for s in index.free):
            while deepest and loops[deepest - 1][0] not in index.free:
                deepest -= 1
        turns = 1
        for _, extent in loops[:deepest]:
            turns *= hint(extent)
        found[place_of(name)] = found.get(place_of(name), 0) + turns
    return found
