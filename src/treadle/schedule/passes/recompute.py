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

from dataclasses import replace

from treadle.analysis.access import accesses
from treadle.analysis.deps import Dependences, DepKind, dependences
from treadle.analysis.duplicates import changed_later
from treadle.core.context import Ctx
from treadle.core.verdict import YES, Verdict, no
from treadle.index import hint
from treadle.ir.effects import effects
from treadle.ir.inline import inlined
from treadle.ir.ops import OPS
from treadle.ir.products import product_of
from treadle.ir.program import Group, Loop, Operation, Program
from treadle.ir.spec import violations
from treadle.schedule.policy import policy_of

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
    loops = [op for op in program.leaves if isinstance(op, Loop)]
    cheap = {op.name for op in loops if _may_be_cheap(op, longest)}
    if not cheap:
        return program
    deps = dependences(program)
    changed = changed_later(program, deps)
    goes = _Going(program, changed, longest)
    new: dict[str, Loop] = {}
    for position, op in enumerate(program.leaves):
        if not isinstance(op, Loop):
            continue
        found = op
        for source in _sources(op, position, program, deps, cheap):
            verdict = _is_cheaper(source, op, program, changed, longest)
            if verdict and not (_is_little(source, op, program) or goes.altogether(source)):
                verdict = _reads_too_much(source, program)
            ctx.journal.verdict("recompute", (source.name, op.name), verdict)
            if verdict:
                found = _with(found, source, program)
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


def _bytes_read(op: Loop, program: Program) -> int:
    return sum(program.by_name[n].tensor_bytes for n in effects(op).reads)


def _bytes_to_repeat(source: Loop, op: Loop, program: Program) -> int:
    """The bytes that a reader loads if it computes the source's result itself."""
    read = [program.by_name[n] for n in effects(source).reads]
    few = sum(b.dtype.itemsize for b in read) * hint(op.body.space.numel)
    return min(_bytes_read(source, program), few)


def _reads_one_as_large(op: Loop, program: Program) -> bool:
    """Whether a loop makes of one buffer, and little else, another one that is as large.

    Asked on CPUs, where a write costs the cache that rows stay in between kernels.
    """
    if op.device.partition(":")[0] != "cpu":
        return False
    of = effects(op)
    made = program.by_name[of.writes[0]].tensor_bytes
    sizes = sorted([program.by_name[n].tensor_bytes for n in of.reads], reverse=True)
    works = [OPS[at.stmt.op].work for at in op.body.walk()]
    return (
        bool(sizes) and sizes[0] <= made and sum(sizes[1:]) * 8 <= made and max(works) <= CHEAPEST
    )


class _Going:
    """Which results can go altogether, where as much must be read to make them again."""

    def __init__(self, program: Program, changed: set[str], longest: int) -> None:
        self.program, self.changed, self.longest = program, changed, longest
        self.readers: dict[str, list[Operation]] = {}
        for op in program.leaves:
            for name in effects(op).reads:
                self.readers.setdefault(name, []).append(op)
        self.views = {b.view_of for b in program.buffers}
        self._known: dict[str, bool] = {}

    def altogether(self, source: Loop) -> bool:
        """Whether everyone who reads a loop's result can make it himself."""
        if source.name not in self._known:
            self._known[source.name] = self._goes(source)
        return self._known[source.name]

    def _goes(self, source: Loop) -> bool:
        program = self.program
        target = program.by_name[effects(source).writes[0]]
        if target.name in program.outputs or target.view_of is not None:
            return False
        readers = self.readers.get(target.name, [])
        if target.name in self.views or len(readers) < 2:
            return False
        return all(
            isinstance(op, Loop)
            and _is_cheaper(source, op, program, self.changed, self.longest)
            and _with(op, source, program) is not op
            for op in readers
        )


def _is_little(source: Loop, op: Loop, program: Program) -> bool:
    """Whether a reader that computes a result itself loads less than half of it."""
    target = program.by_name[effects(source).writes[0]]
    return _bytes_to_repeat(source, op, program) * 2 <= target.tensor_bytes


def _sources(
    op: Loop, position: int, program: Program, deps: Dependences, cheap: set[str]
) -> list[Loop]:
    """The loops among `cheap` whose results `op` reads."""
    writers: dict[str, list[int]] = {}
    for d in deps.into[position]:
        if d.kind is DepKind.RAW:
            writers.setdefault(d.storage, []).append(d.source)
    found: dict[str, Loop] = {}
    for storage, sources in writers.items():
        source = program.leaves[sources[0]]
        # What is read must come from this one loop as a whole.
        is_version = deps.reads_version.get((position, storage)) == deps.writes_version.get(
            (sources[0], storage)
        )
        alone = len(sources) == 1 and source.name in cheap
        if not alone or not isinstance(source, Loop) or not is_version:
            continue
        size = program.by_name[effects(source).writes[0]].tensor_bytes
        is_less = _bytes_to_repeat(source, op, program) < size
        if is_less or _reads_one_as_large(source, program):
            found[source.name] = source
    return list(found.values())


def _is_cheaper(
    source: Loop, op: Loop, program: Program, changed: set[str], longest: int
) -> Verdict:
    """RCP001 to RCP005: short, reads less than its result, all unchanged since, little work."""
    of = effects(source)
    if len(source.body.stmts) > longest or len(source.body.reduce) or len(of.writes) != 1:
        return no("RCP001", statements=len(source.body.stmts), limit=longest)
    target = program.by_name[of.writes[0]]
    if of.mutates or target.view_of is not None:
        return no("RCP002", buffer=target.name)
    # What the caller put into an input shows wherever the producer did not write.
    if target.name in {program.storage_of(n) for n in program.inputs}:
        writes = [a for a in program.derive(accesses)[source.name] if a.is_write]
        if not all(a.covers_storage for a in writes):
            return no("RCP002", buffer=target.name)
    for name in of.reads:
        if program.storage_of(name) in changed:
            return no("RCP002", buffer=name)
    if target.name in (*effects(op).writes, *effects(op).mutates):
        return no("RCP002", buffer=target.name)
    is_less = _is_little(source, op, program) or _reads_one_as_large(source, program)
    if not is_less or any(
        at.stmt.op in ("indirect", "rand", "randn", "randint") for at in source.body.walk()
    ):
        return _reads_too_much(source, program)
    product = product_of(op.body)
    if product is not None and target.name in (f.stmt.buffer for f in product.factors):
        return no("RCP005", buffer=target.name)
    return _little_work(source, op)


def _little_work(source: Loop, op: Loop) -> Verdict:
    """Refuses a costly value whose elements a reader asks for several times.

    GPUs have arithmetic to spare between their loads, and a launch more costs them most.
    """
    work = sum(OPS[at.stmt.op].work for at in source.body.walk() if at.stmt.op != "index")
    made, asked = hint(source.body.space.numel), hint(op.body.space.numel)
    if source.device.partition(":")[0] != "cpu" or not asked >= 2 * made > 0:
        return YES
    limit = COSTLY_OFTEN if asked >= OFTEN * made else COSTLY
    return no("RCP004", work=work, limit=limit, times=asked // made) if work > limit else YES


def _reads_too_much(source: Loop, program: Program) -> Verdict:
    result = program.by_name[effects(source).writes[0]].tensor_bytes
    return no("RCP003", reads=_bytes_read(source, program), result=result)


def _with(op: Loop, source: Loop, program: Program) -> Loop:
    """`op` with the source's computation in place of loads of its result, if it can be said."""
    target = program.by_name[effects(source).writes[0]]
    body = inlined(op.body, target, source.body, program.by_name)
    if body is None:
        return op
    new = replace(op, body=body)
    alone = _alone(new, program)
    wrong = [v for v in violations(alone) if v.where == op.name and v.code != "IR015"]
    return op if wrong else new


def _alone(op: Loop, program: Program) -> Program:
    """A program of one loop and the buffers it names: rules need not look at all the others."""
    names: dict[str, None] = {}
    for name in effects(op).touched:
        seen: str | None = name
        while seen is not None:
            names[seen] = None
            seen = program.by_name[seen].view_of
    buffers = tuple([program.by_name[n] for n in names])
    inputs = tuple([n for n in program.inputs if n in names])
    return replace(
        program, name="one", buffers=buffers, ops=(op,), inputs=inputs, outputs=(), donated=()
    )


def _replaced(op: Operation, new: dict[str, Loop]) -> Operation:
    if isinstance(op, Group):
        members = tuple([_replaced(m, new) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else op.with_members(members)
    return new.get(op.name, op)
