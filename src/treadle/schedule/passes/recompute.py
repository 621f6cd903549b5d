"""recompute: compute a cheap value again where it is read, if that moves fewer bytes.

before   z = fill(0) ; a = copy(z) ; b = copy(z) + x
after    a = fill(0) ; b = 0 + x                       z is read by nobody and goes
before   t = x - m (64 x 4096) ; picked[i] = t[i, k[i]]
after    picked[i] = x[i, k[i]] - m[i]                 t need not be in memory for 64 elements
needs    what the producer reads is unchanged since; it is short, and to repeat it takes fewer
         bytes than its result has: because it reads little, or is asked for few elements; on a CPU
         no costly function is computed several times for the same element

before   z = x * s ; a = sum of rows(z) ; b = z - a    s is small
after    a = sum of rows(x * s) ; b = x * s - a        z is never written, x is read instead of it
needs    besides: all readers of the result are loops that can say it, and they are several (what
         has one reader is fused with it); one large buffer is read, and it is as large as the
         result: it lives as long as the result would have, so that no peak rises
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.analysis.access import accesses
from treadle.analysis.deps import Dependences, DepKind, dependences
from treadle.analysis.duplicates import changed_later
from treadle.analysis.inplace import boundary
from treadle.core.context import Ctx
from treadle.core.verdict import YES, Verdict, no
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.ops import OPS
from treadle.ir.pattern import pattern_of
from treadle.ir.products import product_of
from treadle.ir.program import Group, Loop, Operation, Program
from treadle.schedule.policy import policy_of
from treadle.schedule.repeating import Repeater

ROUNDS = 3
"""How often what was repeated may be repeated with its reader."""
CHEAPEST = 2.0
"""Work of a statement (see `ops`) that is repeated where as much is read as was written."""
COSTLY = 12.0
"""Work of an element above which a CPU had better load it than compute it again and again."""
OFTEN, COSTLY_OFTEN = 64, 4.0
"""So many times, and the work above which it had better load what is asked for that often."""


def recompute(program: Program, ctx: Ctx) -> Program:
    """Repeat cheap producers in the loops that read them."""
    policy = policy_of(ctx)
    if not policy.recompute:
        return program
    for _ in range(ROUNDS):
        found = _repeated(program, ctx, policy.recompute_statements)
        if found is program:
            break
        program = found
    return program


def _repeated(program: Program, ctx: Ctx, longest: int) -> Program:
    """One round: producers as they stand in the program that is given."""
    cheap = {
        op.name: op for op in program.leaves if isinstance(op, Loop) and _may_be_cheap(op, longest)
    }
    if not cheap:
        return program
    round_ = _Round(program, cheap, longest)
    new: dict[str, Loop] = {}
    for position, op in enumerate(program.leaves):
        if not isinstance(op, Loop):
            continue
        found = op
        for source in round_.sources(op, position):
            verdict = round_.is_cheaper(source, op)
            if verdict and not (round_.is_little(source, op) or round_.goes(source)):
                verdict = source.reads_too_much()
            ctx.journal.verdict("recompute", (source.loop.name, op.name), verdict)
            if verdict:
                found = round_.repeater.repeated(found, source.loop) or found
        if found is not op:
            new[op.name] = found
            ctx.journal.emit("step", action="recompute", args=[op.name])
    if not new:
        return program
    return program.with_ops(tuple([_replaced(op, new) for op in program.ops]))


def _may_be_cheap(op: Loop, longest: int) -> bool:
    """Whether a loop is short and makes one thing: others are left alone."""
    is_short = len(op.body.stmts) <= longest + 2 and not len(op.body.reduce)
    return is_short and len(effects(op).writes) == 1


class _Work(NamedTuple):
    """What the statements of a pattern cost, and how often they run."""

    of_point: float
    of_dearest: float
    points: int
    has_choices: bool
    """Whether data or chance say what is read."""


def _work(body: Body) -> _Work:
    kinds = [at.stmt.op for at in body.walk()]
    return _Work(
        sum(OPS[kind].work for kind in kinds if kind != "index"),
        max(OPS[kind].work for kind in kinds),
        body.space.numel_hint,
        not {"indirect", "rand", "randn", "randint"}.isdisjoint(kinds),
    )


class _Source(NamedTuple):
    """A loop that may be repeated, and what was found out about it alone."""

    loop: Loop
    target: str
    made_bytes: int
    read_bytes: int
    element_bytes: int
    """Bytes that one of its points reads at most."""
    work: _Work
    is_one_as_large: bool
    """Whether it makes of one buffer, and little else, another one that is as large."""
    alone: Verdict
    """RCP001 and RCP002 as far as no reader is needed to tell."""

    def reads_too_much(self) -> Verdict:
        """RCP003."""
        return no("RCP003", reads=self.read_bytes, result=self.made_bytes)


class _Round:
    """One look at a program: sources with their facts, each found out once."""

    def __init__(self, program: Program, cheap: dict[str, Loop], longest: int) -> None:
        self.program, self.longest = program, longest
        self.repeater = Repeater(program)
        self._cheap = cheap
        self._deps: Dependences = dependences(program)
        self._changed = changed_later(program, self._deps)
        self._sources: dict[str, _Source] = {}
        self._goes: dict[str, bool] = {}
        self._readers: dict[str, list[Operation]] = {}
        for op in program.leaves:
            for name in effects(op).reads:
                self._readers.setdefault(name, []).append(op)
        self._kept = {*program.outputs, *[b.view_of for b in program.buffers]}

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
            if self._bytes_to_repeat(source, op) < source.made_bytes or source.is_one_as_large:
                found[loop.name] = source
        return list(found.values())

    def _source(self, loop: Loop) -> _Source:
        known = self._sources.get(loop.name)
        if known is None:
            known = self._sources[loop.name] = self._look_at(loop)
        return known

    def _look_at(self, loop: Loop) -> _Source:
        of, by_name = effects(loop), self.program.by_name
        target, read = by_name[of.writes[0]], [by_name[n] for n in of.reads]
        work = pattern_of(loop).pattern.derive(_work)
        sizes = sorted([b.tensor_bytes for b in read], reverse=True)
        made = target.tensor_bytes
        # Asked on CPUs, where a write costs the cache that rows stay in between kernels.
        is_one_as_large = (
            _is_on_cpu(loop)
            and bool(sizes)
            and sizes[0] <= made
            and sum(sizes[1:]) * 8 <= made
            and work.of_dearest <= CHEAPEST
        )
        element = sum([b.dtype.itemsize for b in read])
        alone = self._alone(loop)
        return _Source(
            loop, target.name, made, sum(sizes), element, work, is_one_as_large, alone
        )  # fmt: skip

    def _alone(self, loop: Loop) -> Verdict:
        """RCP001, RCP002: short, writes a whole buffer of its own, from what stays as it is."""
        of, program = effects(loop), self.program
        if len(loop.body.stmts) > self.longest or len(loop.body.reduce) or len(of.writes) != 1:
            return no("RCP001", statements=len(loop.body.stmts), limit=self.longest)
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
        return YES

    # -- whether ----------------------------------------------------------------------------

    def is_cheaper(self, source: _Source, op: Loop) -> Verdict:
        """RCP001 to RCP005: short, reads less than its result, all unchanged since, little work."""
        if not source.alone:
            return source.alone
        of = effects(op)
        if source.target in of.writes or source.target in of.mutates:
            return no("RCP002", buffer=source.target)
        is_less = source.is_one_as_large or self.is_little(source, op)
        if not is_less or source.work.has_choices:
            return source.reads_too_much()
        product = product_of(op.body)
        if product is not None and source.target in (f.stmt.buffer for f in product.factors):
            return no("RCP005", buffer=source.target)
        return _little_work(source, op)

    def is_little(self, source: _Source, op: Loop) -> bool:
        """Whether a reader that computes a result itself loads less than half of it."""
        return self._bytes_to_repeat(source, op) * 2 <= source.made_bytes

    def _bytes_to_repeat(self, source: _Source, op: Loop) -> int:
        """The bytes that a reader loads if it computes the source's result itself."""
        points = pattern_of(op).pattern.derive(_points)
        return min(source.read_bytes, source.element_bytes * points)

    def goes(self, source: _Source) -> bool:
        """Whether everyone who reads a loop's result can make it himself, so that it goes.

        Asked where as much must be read to make it as was written.
        """
        name = source.loop.name
        if name not in self._goes:
            self._goes[name] = self._all_can_repeat(source)
        return self._goes[name]

    def _all_can_repeat(self, source: _Source) -> bool:
        if source.target in self._kept or self.program.by_name[source.target].view_of is not None:
            return False
        readers = self._readers.get(source.target, [])
        if len(readers) < 2:
            return False
        loops = [op for op in readers if isinstance(op, Loop) and self.is_cheaper(source, op)]
        return len(loops) == len(readers) and all(
            self.repeater.repeated(op, source.loop) is not None for op in loops
        )


def _points(body: Body) -> int:
    return body.space.numel_hint


def _is_on_cpu(op: Operation) -> bool:
    return op.device.partition(":")[0] == "cpu"


def _little_work(source: _Source, op: Loop) -> Verdict:
    """Refuses a costly value whose elements a reader asks for several times.

    GPUs have arithmetic to spare between their loads, and a launch more costs them most.
    """
    made, asked = source.work.points, pattern_of(op).pattern.derive(_points)
    if not _is_on_cpu(source.loop) or not asked >= 2 * made > 0:
        return YES
    work, limit = source.work.of_point, COSTLY_OFTEN if asked >= OFTEN * made else COSTLY
    return no("RCP004", work=work, limit=limit, times=asked // made) if work > limit else YES


def _replaced(op: Operation, new: dict[str, Loop]) -> Operation:
    if isinstance(op, Group):
        members = tuple([_replaced(m, new) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else op.with_members(members)
    return new.get(op.name, op)
