"""recompute: compute a cheap value again where it is read, if that moves fewer bytes.

before   z = fill(0) ; a = copy(z) ; b = copy(z) + x
after    a = fill(0) ; b = 0 + x                       z is read by nobody and goes
before   t = x - m (64 x 4096) ; picked[i] = t[i, k[i]]
after    picked[i] = x[i, k[i]] - m[i]                 t need not be in memory for 64 elements
needs    what the producer reads is unchanged since; it is short, and to repeat it takes fewer
         bytes than its result has: because it reads little, or is asked for few elements
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
from treadle.ir.program import Group, Loop, Operation, Program
from treadle.ir.spec import violations
from treadle.schedule.policy import policy_of


def recompute(program: Program, ctx: Ctx) -> Program:
    """Repeat cheap producers in the loops that read them."""
    policy = policy_of(ctx)
    if not policy.recompute:
        return program
    longest = policy.recompute_statements
    loops = [op for op in program.leaves if isinstance(op, Loop)]
    cheap = {op.name for op in loops if _may_be_cheap(op, longest)}
    if not cheap:
        return program
    deps = dependences(program)
    changed = changed_later(program, deps)
    new: dict[str, Loop] = {}
    for position, op in enumerate(program.leaves):
        if not isinstance(op, Loop):
            continue
        found = op
        for source in _sources(op, position, program, deps, cheap):
            verdict = _is_cheaper(source, op, program, changed, longest)
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
    return len(op.body.stmts) <= longest + 2 and not len(op.body.reduce)


def _bytes_to_repeat(source: Loop, op: Loop, program: Program) -> int:
    """The bytes that a reader loads if it computes the source's result itself."""
    read = [program.by_name[n] for n in effects(source).reads]
    whole = sum(b.tensor_bytes for b in read)
    return min(whole, sum(b.dtype.itemsize for b in read) * hint(op.body.space.numel))


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
        made = effects(source).writes
        size = program.by_name[made[0]].tensor_bytes if len(made) == 1 else 0
        if _bytes_to_repeat(source, op, program) < size:
            found[source.name] = source
    return list(found.values())


def _is_cheaper(
    source: Loop, op: Loop, program: Program, changed: set[str], longest: int
) -> Verdict:
    """RCP001 to RCP003: short, reads less than its result, everything unchanged since."""
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
    read = _bytes_to_repeat(source, op, program)
    if read * 2 > target.tensor_bytes or any(
        at.stmt.op in ("indirect", "rand", "randn", "randint") for at in source.body.walk()
    ):
        return no("RCP003", reads=read, result=target.tensor_bytes)
    return YES


def _with(op: Loop, source: Loop, program: Program) -> Loop:
    """`op` with the source's computation in place of loads of its result, if it can be said."""
    target = program.by_name[effects(source).writes[0]]
    body = inlined(op.body, target, source.body, program.by_name)
    if body is None:
        return op
    new = replace(op, body=body)
    alone = replace(program, name="one", ops=(new,), outputs=(), donated=())
    wrong = [v for v in violations(alone) if v.where == op.name and v.code != "IR015"]
    return op if wrong else new


def _replaced(op: Operation, new: dict[str, Loop]) -> Operation:
    if isinstance(op, Group):
        members = tuple([_replaced(m, new) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else op.with_members(members)
    return new.get(op.name, op)
