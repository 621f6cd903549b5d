"""recompute: compute a short value again where it is read, if that takes no longer.

before   z = fill(0) ; a = copy(z) ; b = copy(z) + x
after    a = fill(0) ; b = 0 + x                       z is read by nobody and goes
before   t = x - m (64 x 4096) ; picked[i] = t[i, k[i]]
after    picked[i] = x[i, k[i]] - m[i]                 t need not be in memory for 64 elements
before   z = x * s ; a = sum of rows(z) ; b = sum of columns(z)
after    a = sum of rows(x * s) ; b = sum of columns(x * s)      z is never written
before   e = w[k] (512 x 64) ; n = sum of rows(e) ; picked[i] = e[i, c[i]] / n[i]
after    picked[i] = w[k[i], c[i]] / n[i]              e is made where its rows are summed up
needs    what the producer reads is unchanged since; it is short; no peak rises: a reader loads less
         than half of what the result has, or all readers are loops that can say it and what they
         load instead is no larger than the result, which lives no longer
gains    predicted time (`repeat_times`): of producer and readers as fusion would leave them, and of
         the readers alone. Where both are the same, what reads at most half of what it makes is
         repeated: its readers need not run in one place then, nor its result live
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from treadle.analysis.access import accesses
from treadle.analysis.deps import Dependences, DepKind, dependences
from treadle.analysis.duplicates import changed_later
from treadle.analysis.inplace import boundary
from treadle.core.context import Ctx
from treadle.core.costs import CostModel
from treadle.core.verdict import YES, Verdict, no, yes
from treadle.index import substitute
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.pattern import pattern_of, place_of
from treadle.ir.products import product_of
from treadle.ir.program import Group, Loop, Operation, Program
from treadle.schedule.policy import Policy, policy_of
from treadle.schedule.repeat_times import RepeatClock, RepeatTimes
from treadle.schedule.repeating import Repeater

ROUNDS = 3
"""How often what was repeated may be repeated with its reader."""
ROOM = 8
"""What readers hold instead of a result may be larger than it by this part of it."""


def recompute(program: Program, ctx: Ctx) -> Program:
    """Repeat cheap producers in the loops that read them."""
    policy = policy_of(ctx)
    if not policy.recompute:
        return program
    longest, near = policy.recompute_statements, None
    for _ in range(ROUNDS):
        cheap = {
            op.name: op
            for op in program.leaves
            if isinstance(op, Loop)
            and _may_be_cheap(op, longest)
            and (near is None or op.name in near or effects(op).writes[0] in near)
        }
        new = _repeated(program, cheap, ctx, policy)
        if not new:
            break
        program = program.with_ops(tuple([_replaced(op, new) for op in program.ops]))
        # What was decided stands, except for loops that changed and for what they read.
        near = {*new, *[name for op in new.values() for name in effects(op).reads]}
    return program


def _repeated(
    program: Program, cheap: dict[str, Loop], ctx: Ctx, policy: Policy
) -> dict[str, Loop]:
    """One round: the readers that compute some of the cheap loops' results, by name."""
    if not cheap:
        return {}
    round_ = _Round(program, cheap, policy, ctx.cost)
    new: dict[str, Loop] = {}
    for position, op in enumerate(program.leaves):
        if not isinstance(op, Loop):
            continue
        found = op
        for source in round_.sources(op, position):
            verdict = round_.is_worth_it(source, op)
            ctx.journal.verdict("recompute", (source.loop.name, op.name), verdict)
            if verdict:
                found = round_.repeater.repeated(found, source.loop) or found
        if found is not op:
            new[op.name] = found
            ctx.journal.emit("step", action="recompute", args=[op.name])
    return new


def _may_be_cheap(op: Loop, longest: int) -> bool:
    """Whether a loop is short and makes one thing: others are left alone."""
    is_short = _length(op) <= longest + 2 and not len(op.body.reduce)
    return is_short and len(effects(op).writes) == 1


def _length(loop: Loop) -> int:
    """How many statements a loop has, not counting those that only change a type."""
    return pattern_of(loop).pattern.derive(_statements)


def _statements(body: Body) -> int:
    return sum([stmt.op != "cast" for stmt in body.stmts])


class _Source(NamedTuple):
    """A loop that may be repeated, and what was found out about it alone."""

    loop: Loop
    target: str
    made_bytes: int
    read_bytes: int
    held_bytes: int
    """Bytes that it reads and that need not live as long as its caller's buffers do."""
    element_bytes: int
    """Bytes that one of its points reads at most."""

    @property
    def holds_no_more(self) -> bool:
        """Whether all that it reads may live on in place of what it makes, and no peak rises."""
        return self.held_bytes <= self.made_bytes + self.made_bytes // ROOM

    def holds_too_much(self) -> Verdict:
        """RCP003."""
        return no("RCP003", reads=self.read_bytes, result=self.made_bytes)


class _Plan(NamedTuple):
    """Which readers compute a value that is then not in memory, and what that takes."""

    times: RepeatTimes | None
    """None where the value has to be in memory whatever readers do."""
    repeating: frozenset[str] = frozenset()
    others: RepeatTimes | None = None
    """What is compared for a reader that does not: all others as said, and this one, too."""


class _Round:
    """One look at a program: sources with their facts, each found out once."""

    def __init__(
        self, program: Program, cheap: dict[str, Loop], policy: Policy, cost: CostModel
    ) -> None:
        self.program, self.longest = program, policy.recompute_statements
        self.repeater = Repeater(program)
        self._clock = RepeatClock(program, policy, cost, self.repeater)
        self._cheap = cheap
        self._deps: Dependences = dependences(program)
        self._changed = changed_later(program, self._deps)
        self._sources: dict[str, _Source] = {}
        self._allowed: dict[str, Verdict] = {}
        self._plans: dict[str, _Plan] = {}
        # None where all who read a result do so through views.
        self._readers: dict[str, list[Operation]] = {b.name: [] for b in program.buffers}
        for op in program.leaves:
            for name in {*effects(op).reads, *effects(op).mutates}:
                self._readers[name].append(op)
        views = [b.view_of for b in program.buffers]
        self._kept = {*program.inputs, *program.outputs, *views}

    # -- who --------------------------------------------------------------------------------

    def sources(self, op: Loop, position: int) -> list[_Source]:
        """The cheap loops whose results `op` reads and might make itself."""
        deps = self._deps
        writers: dict[str, list[int]] = {}
        for d in deps.into[position]:
            if d.kind is DepKind.RAW:
                writers.setdefault(d.storage, []).append(d.source)
        found: dict[str, _Source] = {}
        for storage, positions in writers.items():
            loop = self._cheap.get(deps.names[positions[0]])
            # What is read must come from this one loop as a whole.
            if len(positions) > 1 or loop is None:
                continue
            version = deps.writes_version.get((positions[0], storage))
            if deps.reads_version.get((position, storage)) != version:
                continue
            source = self._source(loop)
            if source.target not in effects(op).reads:
                continue  # it reads through views, of which loads stay loads
            if self._bytes_to_repeat(source, op) < source.made_bytes or (
                self._is_left_by_fusion(source, op) and source.holds_no_more and self._alone(loop)
            ):
                found[loop.name] = source
        return list(found.values())

    def _is_left_by_fusion(self, source: _Source, op: Loop) -> bool:
        """Whether fusion alone may not keep a value out of memory.

        What has one reader that reads it where it is made, fusion sees to.
        """
        if len(self._readers[source.target]) > 1:
            return True
        return _reads_shifted(source, op)

    def _source(self, loop: Loop) -> _Source:
        known = self._sources.get(loop.name)
        if known is None:
            known = self._sources[loop.name] = self._look_at(loop)
        return known

    def _look_at(self, loop: Loop) -> _Source:
        of, by_name = effects(loop), self.program.by_name
        target, read = by_name[of.writes[0]], [by_name[n] for n in of.reads]
        edge = self.program.derive(boundary)
        total = sum([b.tensor_bytes for b in read])
        held = [b.tensor_bytes for b in read if edge.lets_die(self.program.storage_of(b.name))]
        element = sum([b.dtype.itemsize for b in read])
        made = target.tensor_bytes
        return _Source(loop, target.name, made, total, sum(held), element)

    def _alone(self, loop: Loop) -> Verdict:
        """What no reader is needed to tell, once for each loop."""
        known = self._allowed.get(loop.name)
        if known is None:
            known = self._allowed[loop.name] = self._is_allowed(loop)
        return known

    def _is_allowed(self, loop: Loop) -> Verdict:
        """RCP001 to RCP003: short, writes a buffer of its own, from what stays as it is."""
        of, program = effects(loop), self.program
        if _length(loop) > self.longest or len(loop.body.reduce) or len(of.writes) != 1:
            return no("RCP001", statements=_length(loop), limit=self.longest)
        target = program.by_name[of.writes[0]]
        if of.mutates or target.view_of is not None:
            return no("RCP002", buffer=target.name)
        # What the caller put into an input shows wherever the producer did not write.
        if target.name in program.derive(boundary).inputs:
            writes = [a for a in program.derive(accesses)[loop.name] if a.is_write]
            if not all(a.covers_storage for a in writes):
                return no("RCP002", buffer=target.name)
        for name in of.reads:
            if program.storage_of(name) in self._changed:
                return no("RCP002", buffer=name)
        if pattern_of(loop).pattern.derive(_has_chance):
            return no("RCP003", reads="what chance decides")
        return YES

    # -- whether ----------------------------------------------------------------------------

    def is_worth_it(self, source: _Source, op: Loop) -> Verdict:
        """RCP001 to RCP005: allowed, no peak rises, and no time is lost."""
        verdict = self._may_repeat(source, op)
        if not verdict:
            return verdict
        plan = self._plan(source)
        if op.name in plan.repeating and plan.times is not None:
            return yes("RCP000", **plan.times._asdict())
        if _chooses(source.loop):
            return no("RCP003", reads="what data choose")
        if not self._is_little(source, op):
            if plan.others is None:
                return source.holds_too_much()
            return no("RCP004", **plan.others._asdict())
        times = self._clock.of_one(source.loop, op)
        if times.again_ns <= times.kept_ns:
            return yes("RCP000", **times._asdict())
        return no("RCP004", **times._asdict())

    def _may_repeat(self, source: _Source, op: Loop) -> Verdict:
        """RCP001 to RCP003 of the source alone; RCP002, RCP005: the reader can take it in."""
        alone = self._alone(source.loop)
        if not alone:
            return alone
        of = effects(op)
        if source.target in of.writes or source.target in of.mutates:
            return no("RCP002", buffer=source.target)
        product = product_of(op.body)
        if product is not None and source.target in (f.stmt.buffer for f in product.factors):
            return no("RCP005", buffer=source.target)
        return YES

    def _is_little(self, source: _Source, op: Loop) -> bool:
        """Whether a reader that computes a result itself loads at most half of it."""
        return self._bytes_to_repeat(source, op) * 2 <= source.made_bytes

    def _is_free(self, source: _Source, readers: list[Loop]) -> bool:
        """Whether readers that make a value hold at most half of its bytes for that.

        Fusion takes readers in one by one, and where rows are reduced on the way it may find no
        room for a value that lives until the last one is in. Points it always has room for.
        """
        if source.held_bytes * 2 <= source.made_bytes and any(
            len(op.body.reduce) for op in readers
        ):
            return True
        return all(self._is_little(source, op) for op in readers)

    def _bytes_to_repeat(self, source: _Source, op: Loop) -> int:
        """The bytes that a reader loads if it computes the source's result itself.

        A window loads several elements at each point.
        """
        pattern, buffers = pattern_of(op)
        counts, of = pattern.derive(_elements_loaded), self.program.storage_of
        loads = [counts.get(k, 0) for k, b in enumerate(buffers) if of(b) == of(source.target)]
        return min(source.read_bytes, source.element_bytes * sum(loads))

    def _plan(self, source: _Source) -> _Plan:
        name = source.loop.name
        if name not in self._plans:
            plan = self._planned(source)
            loops = [op for op in self._readers[source.target] if op.name in plan.repeating]
            if any(
                self.repeater.repeated(op, source.loop) is None
                for op in loops
                if isinstance(op, Loop)
            ):
                plan = _Plan(None)
            self._plans[name] = plan
        return self._plans[name]

    def _planned(self, source: _Source) -> _Plan:
        """Who computes a value that nobody needs in memory then: all readers, or those apart."""
        loops = [op for op in self._readers[source.target] if isinstance(op, Loop)]
        is_needed = source.target in self._kept or len(loops) < len(self._readers[source.target])
        if is_needed or self.program.by_name[source.target].view_of is not None:
            return _Plan(None)
        able = {op.name for op in loops if self._may_hold(source, op)}
        joined, apart = self._clock.split(source.loop, loops)
        if not able.issuperset([op.name for op in apart]):
            return _Plan(None)
        if _chooses(source.loop):
            return self._planned_beside(source, joined, apart)
        everyone = self._clock.again(source.loop, joined, apart)
        # Where times are equal, memory decides.
        is_free = len(able) == len(loops) and self._is_free(source, loops)
        if is_free and everyone.again_ns <= everyone.kept_ns:
            return _Plan(everyone, frozenset(able))
        times = self._clock.beside(source.loop, joined, apart) if apart and joined else everyone
        if apart and times.again_ns < times.kept_ns + self._is_free(source, apart):
            others = RepeatTimes(times.again_ns, everyone.again_ns)
            return _Plan(times, frozenset([op.name for op in apart]), others)
        return _Plan(times, others=times)

    def _planned_beside(self, source: _Source, joined: list[Loop], apart: list[Loop]) -> _Plan:
        """The same where data choose what is read: somebody stays who looks at every index.

        A reader of some elements would not find out that the place of another one is not there.
        """
        if not joined or not apart:
            return _Plan(None)
        times = self._clock.beside(source.loop, joined, apart)
        is_shorter = times.again_ns < times.kept_ns + self._is_free(source, apart)
        return _Plan(times, frozenset([op.name for op in apart] if is_shorter else ()))

    def _may_hold(self, source: _Source, op: Loop) -> bool:
        """Whether a reader may make a value, and what it holds for that is no more than it."""
        fits = source.holds_no_more or self._is_little(source, op)
        return fits and bool(self._may_repeat(source, op))


def _elements_loaded(body: Body) -> dict[int, int]:
    """For each buffer that a body loads, how many elements that is, each address counted once."""
    addresses = {(place_of(name), index) for name, index, _ in body.loads()}
    counted = Counter([place for place, _ in addresses])
    return {place: count * body.space.numel_hint for place, count in counted.items()}


def _reads_shifted(source: _Source, op: Loop) -> bool:
    """Whether a reader with the points of a source reads it at several, each so far from its own.

    Who walks another way (windows of a turned copy) may be better off with what is in memory.
    """
    loops, own = source.loop.body.domain, op.body.domain
    if loops.extents != own.extents:
        return False
    made = [index for _, index, _, _ in source.loop.body.stores()]
    here = substitute(made[0], dict(zip(loops.vars, own.vars, strict=True)))
    places = {index for name, index, _ in op.body.loads() if name == source.target}
    return len(places) > 1 and all((index - here).value is not None for index in places)


def _has_chance(body: Body) -> bool:
    """Whether chance decides what is made."""
    return any(at.stmt.op in ("rand", "randn", "randint") for at in body.walk())


def _chooses(loop: Loop) -> bool:
    """Whether data say what a loop reads."""
    return pattern_of(loop).pattern.derive(_has_choices)


def _has_choices(body: Body) -> bool:
    return any(at.stmt.op == "indirect" for at in body.walk())


def _replaced(op: Operation, new: dict[str, Loop]) -> Operation:
    if isinstance(op, Group):
        members = tuple([_replaced(m, new) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else op.with_members(members)
    return new.get(op.name, op)
