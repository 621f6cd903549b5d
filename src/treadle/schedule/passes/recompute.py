"""recompute: compute a cheap value again where it is read, if that moves fewer bytes.

before   z = fill(0) ; a = copy(z) ; b = copy(z) + x
after    a = fill(0) ; b = 0 + x                       z is read by nobody and goes
needs    what the producer reads is unchanged since; it is short and reads less than its result

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
from treadle.ir.effects import effects
from treadle.ir.inline import inlined
from treadle.ir.ops import OPS
from treadle.ir.program import Group, Loop, Operation, Program
from treadle.ir.spec import violations
from treadle.schedule.policy import policy_named

LONGEST = 6
"""Statements of a producer that are still cheap to repeat."""
ROUNDS = 3
"""How often what was repeated may be repeated with its reader."""
CHEAPEST = 2.0
"""Work of a statement (see `ops`) that is repeated where as much is read as was written."""


def recompute(program: Program, ctx: Ctx) -> Program:
    """Repeat cheap producers in the loops that read them."""
    if not policy_named(ctx.options.policy).recompute:
        return program
    for _ in range(ROUNDS):
        found = _repeated(program, ctx)
        if found is program:
            break
        program = found
    return program


def _repeated(program: Program, ctx: Ctx) -> Program:
    """One round: producers as they stand in the program that is given."""
    cheap = {
        op.name for op in program.leaves if isinstance(op, Loop) and _may_be_cheap(op, program)
    }
    if not cheap:
        return program
    deps = dependences(program)
    changed = changed_later(program, deps)
    stays = {name for name in cheap if not _may_go(name, program, changed)}
    new: dict[str, Loop] = {}
    for position, op in enumerate(program.leaves):
        if not isinstance(op, Loop):
            continue
        found = op
        for source in _sources(op, position, program, deps, cheap):
            verdict = _is_cheaper(source, op, program, changed)
            if verdict and source.name in stays:
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


def _may_be_cheap(op: Loop, program: Program) -> bool:
    """Whether a loop is short and reads less than it makes: most are not, and are left alone."""
    if len(op.body.stmts) > LONGEST + 2 or len(op.body.reduce):
        return False
    of = effects(op)
    if len(of.writes) != 1:
        return False
    target = program.by_name[of.writes[0]]
    return _bytes_read(op, program) < target.tensor_bytes or _reads_one_as_large(op, program)


def _bytes_read(op: Loop, program: Program) -> int:
    return sum(program.by_name[n].tensor_bytes for n in effects(op).reads)


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


def _may_go(name: str, program: Program, changed: set[str]) -> bool:
    """Whether a result can go altogether, where as much must be read to make it again."""
    source = program.op_by_name[name]
    assert isinstance(source, Loop), "only loops are cheap"
    target = program.by_name[effects(source).writes[0]]
    if _bytes_read(source, program) * 2 <= target.tensor_bytes:
        return True
    if target.name in program.outputs or target.view_of is not None:
        return False
    if any(b.view_of == target.name for b in program.buffers):
        return False
    readers = [op for op in program.leaves if target.name in effects(op).reads]
    return len(readers) > 1 and all(
        isinstance(op, Loop)
        and _is_cheaper(source, op, program, changed)
        and _with(op, source, program) is not op
        for op in readers
    )


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
        if alone and isinstance(source, Loop) and is_version:
            found[source.name] = source
    return list(found.values())


def _is_cheaper(source: Loop, op: Loop, program: Program, changed: set[str]) -> Verdict:
    """RCP001 to RCP003: short, reads less than its result, everything unchanged since."""
    of = effects(source)
    if len(source.body.stmts) > LONGEST or len(source.body.reduce) or len(of.writes) != 1:
        return no("RCP001", statements=len(source.body.stmts), limit=LONGEST)
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
    read = _bytes_read(source, program)
    is_less = read * 2 <= target.tensor_bytes or _reads_one_as_large(source, program)
    if not is_less or any(
        at.stmt.op in ("indirect", "rand", "randn", "randint") for at in source.body.walk()
    ):
        return _reads_too_much(source, program)
    return YES


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
    alone = replace(program, name="one", ops=(new,), outputs=(), donated=())
    wrong = [v for v in violations(alone) if v.where == op.name and v.code != "IR015"]
    return op if wrong else new


def _replaced(op: Operation, new: dict[str, Loop]) -> Operation:
    if isinstance(op, Group):
        members = tuple([_replaced(m, new) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else replace(op, members=members)
    return new.get(op.name, op)
