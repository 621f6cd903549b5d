"""drop-dead-ops: remove operations whose results nobody can see.

before   t = x + 1 ; y = x * 2 ; return y
after    y = x * 2 ; return y
keeps    what reaches an output or a caller's buffer, side effects, and collectives (other ranks
         wait for them), with their waits
"""

from __future__ import annotations

from dataclasses import replace

from treadle.analysis.deps import dependences
from treadle.core.context import Ctx
from treadle.ir.effects import effects
from treadle.ir.program import Collective, Group, Loop, Operation, Program, Wait


def drop_dead_ops(program: Program, ctx: Ctx) -> Program:
    """Remove what reaches neither the caller nor a side effect."""
    needed = _needed(program)
    ops = [kept for op in program.ops if (kept := _kept(op, needed)) is not None]
    for leaf in program.leaves:
        if leaf.name not in needed:
            ctx.journal.emit("step", action="drop-dead-op", args=[leaf.name])
    return program.with_ops(tuple([_without_lost_order(op, needed, program) for op in ops]))


def _needed(program: Program) -> set[str]:
    deps = dependences(program)
    seen = {program.storage_of(n) for n in (*program.outputs, *program.inputs)}
    needed = [_is_seen(op, seen, program) for op in program.leaves]
    # Backwards: whoever carries a value to something needed is needed.
    for position in range(len(needed) - 1, -1, -1):
        if needed[position]:
            for d in deps.into[position]:
                needed[d.source] = needed[d.source] or d.carries
    return {name for name, is_needed in zip(deps.names, needed, strict=True) if is_needed}


def _is_seen(op: Operation, seen: set[str], program: Program) -> bool:
    if isinstance(op, Collective | Wait) or getattr(op, "has_side_effects", False):
        return True
    if isinstance(op, Loop) and any(at.stmt.op == "assert" for at in op.body.walk()):
        return True
    of = effects(op)
    return any(program.storage_of(n) in seen for n in (*of.writes, *of.mutates))


def _kept(op: Operation, needed: set[str]) -> Operation | None:
    if not isinstance(op, Group):
        return op if op.name in needed else None
    members = tuple([m for m in (_kept(m, needed) for m in op.members) if m is not None])
    if not members:
        return None
    same = len(members) == len(op.members) and all(
        a is b for a, b in zip(members, op.members, strict=True)
    )
    return op if same else replace(op, members=members)


def _without_lost_order(op: Operation, needed: set[str], program: Program) -> Operation:
    """`after` forgets operations that are gone."""
    if isinstance(op, Group):
        members = tuple([_without_lost_order(m, needed, program) for m in op.members])
        if any(a is not b for a, b in zip(members, op.members, strict=True)):
            op = replace(op, members=members)
    after = tuple(
        [n for n in op.after if any(x.name in needed for x in program.op_by_name[n].leaves)]
    )
    return op if after == op.after else replace(op, after=after)
