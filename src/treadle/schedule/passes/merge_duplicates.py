"""merge-duplicates: compute once what several loops compute alike, and let all readers share it.

before   a = fill(0) ; b = fill(0) ; f(a) ; g(b)
after    a = fill(0) ; f(a) ; g(a)
keeps    results that are changed later (unless every other use comes before), and outputs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.analysis.deps import Dependences, dependences
from treadle.analysis.duplicates import changed_later, equal_loops
from treadle.core.context import Ctx
from treadle.core.verdict import no
from treadle.index import Expr
from treadle.ir.body import Literal, Stmt
from treadle.ir.effects import effects
from treadle.ir.program import (
    Arg,
    Call,
    Group,
    Loop,
    MultiOutput,
    Operation,
    Program,
    Ref,
    Wait,
)
from treadle.ir.rewrite import map_stmts
from treadle.schedule.policy import policy_of


def merge_duplicates(program: Program, ctx: Ctx) -> Program:
    """Let readers of a repeated result read the first one."""
    policy = policy_of(ctx)
    if not policy.merge_duplicates:
        return program
    instead = _replacements(program, ctx)
    if not instead:
        return program
    for op, other in instead.items():
        ctx.journal.emit("step", action="merge-duplicate", args=[op, other])
    return _applied(program, instead)


def _replacements(program: Program, ctx: Ctx) -> dict[str, str]:
    """For each loop that can go, the loop whose result takes its place."""
    deps = dependences(program)
    changed = changed_later(program, deps)
    seen = {program.storage_of(n) for n in (*program.outputs, *program.inputs)}
    found: dict[str, str] = {}
    for alike in equal_loops(program):
        keeper: Loop | None = None
        for op in alike:
            target = effects(op).writes[0]
            if target in changed:
                continue
            if keeper is None:
                keeper = op
            elif target not in seen:
                found[op.name] = keeper.name
        if keeper is not None and effects(keeper).writes[0] not in seen:
            gone = [op for op in alike if found.get(op.name) == keeper.name]
            host = _changed_after_all(alike, [keeper, *gone], changed, program, deps)
            if host is not None:
                found.update({op.name: host.name for op in (keeper, *gone)})
        used = {*found, *found.values()}
        for op in alike:
            target = effects(op).writes[0]
            if target in changed and op.name not in used:
                ctx.journal.verdict("merge-duplicate", (op.name,), no("DUP001", buffer=target))
    return found


def _changed_after_all(
    alike: list[Loop], readers_of: list[Loop], changed: set[str], program: Program,
    deps: Dependences,
) -> Loop | None:  # fmt: skip
    """A loop of the same values that comes first and is changed after all uses of the others."""
    last = max(deps.users[effects(op).writes[0]][-1] for op in readers_of)
    start = min(deps.position[op.name] for op in readers_of)
    edge = {program.storage_of(n) for n in program.inputs}
    for op in alike:
        target = effects(op).writes[0]
        if target not in changed or target in edge or deps.position[op.name] > start:
            continue
        later = [u for u in deps.users[target] if u != deps.position[op.name]]
        writers = [u for u in later if (u, target) in deps.writes_version]
        if writers and writers[0] > last:
            return op
    return None


def _applied(program: Program, instead: dict[str, str]) -> Program:
    known = program.op_by_name
    buffer_of = {op: effects(known[op]).writes[0] for op in (*instead, *instead.values())}
    renamed = {buffer_of[op]: buffer_of[other] for op, other in instead.items()}
    buffers = tuple([
        replace(b, view_of=renamed.get(b.view_of, b.view_of)) if b.view_of else b
        for b in program.buffers
        if b.name not in renamed
    ])  # fmt: skip
    ops = [new for op in program.ops if (new := _kept(op, instead, renamed)) is not None]
    return replace(program, buffers=buffers, ops=tuple(ops))


def _kept(op: Operation, gone: dict[str, str], renamed: dict[str, str]) -> Operation | None:
    if op.name in gone:
        return None
    after = tuple(dict.fromkeys(gone.get(a, a) for a in op.after if gone.get(a, a) != op.name))
    if after != op.after:
        op = replace(op, after=after)
    if isinstance(op, Group):
        members = tuple([m for old in op.members if (m := _kept(old, gone, renamed)) is not None])
        if not members:
            return None
        same = len(members) == len(op.members) and all(
            a is b for a, b in zip(members, op.members, strict=True)
        )
        return op if same else op.with_members(members)
    return RENAMERS[next(k for k in RENAMERS if isinstance(op, k))](op, renamed)


def _in_loop(op: Operation, renamed: dict[str, str]) -> Operation:
    assert isinstance(op, Loop)
    if renamed.keys().isdisjoint(effects(op).reads):
        return op

    def in_stmt(stmt: Stmt) -> Stmt:
        if stmt.op in ("load", "bucketize") and stmt.buffer in renamed:
            return stmt.with_attr("buffer", renamed[stmt.buffer])
        return stmt

    return replace(op, body=replace(op.body, stmts=map_stmts(op.body.stmts, in_stmt)))


def _in_call(op: Operation, renamed: dict[str, str]) -> Operation:
    assert isinstance(op, Call)
    if renamed.keys().isdisjoint(effects(op).touched):
        return op
    attrs = tuple([(k, _in_arg(a, renamed)) for k, a in op.attrs])
    return replace(op, args=tuple([_in_arg(a, renamed) for a in op.args]), attrs=attrs)


def _in_arg(arg: Arg, renamed: dict[str, str]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(renamed.get(arg.buffer, arg.buffer))
    if isinstance(arg, Literal | Expr):
        return arg
    return tuple([_in_arg(a, renamed) for a in arg])


def _as_it_is(op: Operation, renamed: dict[str, str]) -> Operation:
    return op


RENAMERS: dict[type[Operation], Callable[[Operation, dict[str, str]], Operation]] = {
    Loop: _in_loop,
    Call: _in_call,
    MultiOutput: _as_it_is,
    Wait: _as_it_is,
    Operation: _as_it_is,
}
"""What may name a buffer that goes: it is never written again, so only readers are renamed."""
