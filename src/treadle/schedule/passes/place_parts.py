"""place-parts: compute what is copied into a part of a tensor there, and read it from there.

before   t = f(x) ; y = g(t) ; s[512:1024] = t
after    s[512:1024] = f(x) ; y = g(s[512:1024])           t has no memory of its own
needs    t is a temporary that one loop makes and only loops read, none of which touches s; the
         copy is all of t, element after element, at a multiple of 64 bytes; nobody touches that
         part of s before the copy nor writes it behind; the peak does not rise
leaves   what nobody reads but the copy: fusion sees to it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from treadle.analysis.access import accesses, is_copy, reaches_all
from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import Dependences, DepKind, dependences
from treadle.analysis.liveness import program_peak
from treadle.core.context import Ctx
from treadle.index import Expr
from treadle.ir.body import Stmt
from treadle.ir.change import alone, map_loops
from treadle.ir.effects import effects
from treadle.ir.program import Loop, Operation, Program
from treadle.ir.rewrite import map_stmts
from treadle.ir.spec import violations
from treadle.ir.types import BufferKind
from treadle.schedule.policy import policy_of

ALIGNMENT = 64
"""Bytes at whose multiples memory of its own begins on a CPU: a part that begins so is as good."""


class _PlacedPart(NamedTuple):
    """A temporary that may lie in a part of another buffer."""

    buffer: str
    target: str
    offset: Expr
    """Where in the target it begins, in elements."""
    maker: Loop
    copy: Loop
    readers: tuple[Operation, ...]


def place_parts(program: Program, ctx: Ctx) -> Program:
    """Write copied temporaries where they are copied to."""
    policy = policy_of(ctx)
    if not policy.place_parts:
        return program
    parts = _PartFinder(program).parts()
    if not parts:
        return program
    accounting = ACCOUNTINGS[ctx.options.accounting].policy
    placed = _placed(program, parts)
    if program_peak(placed, accounting) > program_peak(program, accounting):
        return program
    for part in parts:
        ctx.journal.emit("step", action="place-part", args=[part.buffer, part.target])
    return placed


class _PartFinder:
    """Looks for parts in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.deps: Dependences = dependences(program)
        self.single = {op.name: op for op in program.ops if isinstance(op, Loop)}
        views = {program.storage_of(b.name) for b in program.buffers if b.view_of is not None}
        self.border = {program.storage_of(n) for n in (*program.inputs, *program.outputs)} | views
        self.told = {name for op in program.leaves for name in op.after}

    def parts(self) -> list[_PlacedPart]:
        """What may lie elsewhere, each temporary once.

        Not what another part of the same target is made of: one loop would read and write the
        target, and whoever walks it would have to tell the places apart.
        """
        found: dict[str, _PlacedPart] = {}
        makers: dict[str, set[str]] = {}
        for position, leaf in enumerate(self.program.leaves):
            if not isinstance(leaf, Loop) or not is_copy(leaf):
                continue
            load, store = leaf.body.stmts
            first = self.deps.users[self.program.storage_of(load.buffer)][0]
            makers.setdefault(store.buffer, set()).add(self.deps.names[first])
            part = self._part(leaf, position)
            if part is not None:
                found.setdefault(part.buffer, part)
        return [
            part
            for part in found.values()
            if makers[part.target].isdisjoint([op.name for op in part.readers])
        ]

    def _part(self, copy: Loop, position: int) -> _PlacedPart | None:
        if copy.name not in self.single or copy.name in self.told:
            return None
        load, store = copy.body.stmts
        source, target = self.program.by_name[load.buffer], self.program.by_name[store.buffer]
        offset = store.address - load.address
        if offset.value is None or offset.value * source.dtype.itemsize % ALIGNMENT:
            return None
        is_own = source.name not in self.border and target.view_of is None
        is_alike = source.dtype is target.dtype and source.device == target.device
        is_tensor = source.kind is target.kind is BufferKind.TENSOR
        if not (is_own and is_alike and is_tensor) or target.name in self.program.inputs:
            return None
        users = [self.program.leaves[k] for k in self.deps.users[source.name]]
        maker = self.single.get(users[0].name)
        readers = [op for op in users[1:] if op is not copy]
        if maker is None or not readers or copy not in users[1:]:
            return None
        if not self._is_made_once(maker, source.name, copy):
            return None
        if any(not _only_loads(op, source.name) for op in readers):
            return None
        if any(target.name in effects(op).touched for op in (maker, *readers)):
            return None
        if not self._is_free_until(position, target.name):
            return None
        return _PlacedPart(source.name, target.name, offset, maker, copy, tuple(readers))

    def _is_made_once(self, maker: Loop, buffer: str, copy: Loop) -> bool:
        """Whether the maker writes all of a buffer, and the copy is all of it."""
        if buffer not in effects(maker).writes or buffer in effects(maker).reads:
            return False
        table = self.program.derive(accesses)
        made = [a for a in table[maker.name] if a.buffer == buffer]
        (read,) = [a for a in table[copy.name] if not a.is_write]
        if len(made) != 1 or not made[0].covers_storage or made[0].numel is None:
            return False
        return read.map is not None and reaches_all(read.map, made[0].numel)

    def _is_free_until(self, position: int, target: str) -> bool:
        """Whether nobody touches what a copy writes before it, nor writes there behind it."""
        before, behind = self.deps.into[position], self.deps.out_of[position]
        if any(d.kind is DepKind.CONTROL for d in (*before, *behind)):
            return False
        is_touched = any(d.storage == target for d in before)
        return not is_touched and all(d.kind is DepKind.RAW for d in behind if d.storage == target)


def _only_loads(op: Operation, buffer: str) -> bool:
    """Whether an operation is a loop that touches a buffer by loading elements alone."""
    if not isinstance(op, Loop) or buffer not in effects(op).reads:
        return False
    of = effects(op)
    others = [at.stmt for at in op.body.walk() if at.stmt.op not in ("load", "store")]
    is_named = any(buffer in stmt.attrs for stmt in others)
    return not is_named and buffer not in (*of.writes, *of.mutates)


def _placed(program: Program, parts: Sequence[_PlacedPart]) -> Program:
    """The program with these parts where they are copied to; those that break a rule stay."""
    new: dict[str, Loop] = {}
    gone: set[str] = set()
    for part in parts:
        touching = [new.get(op.name, op) for op in (part.maker, *part.readers)]
        moved = [_moved(op, part) for op in touching if isinstance(op, Loop)]
        wrong = [v for v in violations(alone(program, moved)) if v.code != "IR015"]
        if not wrong:
            new.update({op.name: op for op in moved})
            gone.add(part.copy.name)
    ops = [op for op in program.ops if op.name not in gone]
    return program.with_ops(
        tuple([map_loops(op, lambda loop: new.get(loop.name, loop)) for op in ops])
    )


def _moved(loop: Loop, part: _PlacedPart) -> Loop:
    """A loop that finds a temporary in its part of the target."""

    def there(stmt: Stmt) -> Stmt:
        if stmt.op not in ("load", "store") or stmt.buffer != part.buffer:
            return stmt
        return stmt.with_attr("buffer", part.target).with_attr("index", stmt.address + part.offset)

    body = replace(loop.body, stmts=map_stmts(loop.body.stmts, there))
    origins = loop.origins
    if loop.name == part.maker.name:
        origins = tuple(dict.fromkeys((*origins, *part.copy.origins)))
    return replace(loop, body=body, origins=origins)
