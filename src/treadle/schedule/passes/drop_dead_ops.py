"""drop-dead-ops: remove operations whose results nobody can see, and stores nobody reads.

before   t = x + 1 ; y = x * 2 ; return y
after    y = x * 2 ; return y
keeps    what reaches an output or a caller's buffer, side effects, and collectives (other ranks
         wait for them), with their waits
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from treadle.analysis.deps import carry_over
from treadle.analysis.needed import needed_ops
from treadle.core.context import Ctx
from treadle.index import Domain
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.ops import OPS
from treadle.ir.program import Group, Loop, Operation, Program, walk_operations
from treadle.ir.rewrite import acts
from treadle.kernel.joining import without_stores
from treadle.kernel.stages import statement_loops


def drop_dead_ops(program: Program, ctx: Ctx) -> Program:
    """Remove what reaches neither the caller nor a side effect."""
    while True:
        # A store that is gone may have been the last reason to keep what made its storage.
        kept = _without_unneeded(program, ctx)
        program = _without_unread_stores(kept, ctx)
        if program is kept:
            return program


def _without_unneeded(program: Program, ctx: Ctx) -> Program:
    needed = needed_ops(program)
    if len(needed) == len(program.leaves):
        return program
    ops = [kept for op in program.ops if (kept := _kept(op, needed)) is not None]
    for leaf in program.leaves:
        if leaf.name not in needed:
            ctx.journal.emit("step", action="drop-dead-op", args=[leaf.name])
    order = _RemainingOrder(program, needed)
    found = program.with_ops(tuple([order.of(op) for op in ops]))
    carry_over(program, found)
    return found


def _without_unread_stores(program: Program, ctx: Ctx) -> Program:
    """Loops with several results, less the stores of those that nobody looks at."""
    storage = program.storage_of
    read = {storage(n) for n in (*program.inputs, *program.outputs)}
    for leaf in program.leaves:
        of = effects(leaf)
        read.update([storage(n) for n in (*of.reads, *of.mutates)])
    changed: dict[str, Operation] = {}
    for leaf in program.leaves:
        if not isinstance(leaf, Loop) or all(storage(n) in read for n in effects(leaf).writes):
            continue
        body = _over_its_loops(without_stores(leaf.body, lambda name: storage(name) not in read))
        if body is not None and acts(body):
            changed[leaf.name] = replace(leaf, body=body)
            ctx.journal.emit("step", action="drop-unread-store", args=[leaf.name])
    return program.with_ops(tuple([_with(op, changed) for op in program.ops]))


def _over_its_loops(body: Body) -> Body | None:
    """The body with its loops all independent, if the reduction went; None if they cannot be."""
    if not len(body.reduce) or body.has_reduction:
        return body
    along = [loops for s, loops in zip(body.stmts, statement_loops(body), strict=True)
             if not OPS[s.op].produces]  # fmt: skip
    if all(loops == frozenset(body.reduce.vars) for loops in along):
        return Body(body.space, Domain(), body.stmts)
    return None if any(along) else Body(body.domain, Domain(), body.stmts)


def _with(op: Operation, changed: Mapping[str, Operation]) -> Operation:
    if not isinstance(op, Group):
        return changed.get(op.name, op)
    members = tuple([_with(m, changed) for m in op.members])
    same = all(a is b for a, b in zip(members, op.members, strict=True))
    return op if same else op.with_members(members)


def _kept(op: Operation, needed: set[str]) -> Operation | None:
    if not isinstance(op, Group):
        return op if op.name in needed else None
    members = tuple([m for m in (_kept(m, needed) for m in op.members) if m is not None])
    if not members:
        return None
    same = len(members) == len(op.members) and all(
        a is b for a, b in zip(members, op.members, strict=True)
    )
    return op if same else op.with_members(members)


class _RemainingOrder:
    """`after` without the operations that are gone: what they followed takes their place."""

    def __init__(self, program: Program, needed: set[str]) -> None:
        self.program, self.needed = program, needed
        self.told: dict[str, list[str]] = {leaf.name: [] for leaf in program.leaves}
        for op in walk_operations(program.ops):
            for leaf in op.leaves:
                self.told[leaf.name].extend(op.after)

    def of(self, op: Operation) -> Operation:
        """The operation, members included, following only what is still there."""
        if isinstance(op, Group):
            members = tuple([self.of(m) for m in op.members])
            if any(a is not b for a, b in zip(members, op.members, strict=True)):
                op = op.with_members(members)
        after = tuple(dict.fromkeys(self.kept(op.after)))
        return op if after == op.after else replace(op, after=after)

    def kept(self, names: Iterable[str]) -> list[str]:
        """What to follow instead of `names`, those that are there as they are."""
        found: list[str] = []
        pending, seen = list(reversed(list(names))), set[str]()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            leaves = [leaf.name for leaf in self.program.op_by_name[name].leaves]
            if self.needed.isdisjoint(leaves):
                pending.extend(n for leaf in leaves for n in self.told[leaf])
            else:
                found.append(name)
        return found
