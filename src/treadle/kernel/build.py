"""From operations and groups of them to kernels: what fusion promised becomes one body.

    fused { t = x * 2 ; y = t + 1 }      ->      launch fused { nest: y = x * 2 + 1 }

A loop becomes a kernel of one nest. Members of a fused group are joined into one body over common
loops (see `common_loops`, `joining`); where that cannot be done they follow each other as nests of
one launch, what they share stays in memory, and the verdict says why. Members of a foreach group
stay nests of their own. Around a template, loops before and after it stay nests of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from treadle.analysis.cost import internal_storages
from treadle.core.verdict import Verdict, yes
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.program import (
    Foreach,
    Fused,
    Grouped,
    Kernel,
    Loop,
    MixOrder,
    Nest,
    Operation,
    Program,
    walk_operations,
)
from treadle.ir.rewrite import acts, pruned
from treadle.ir.types import Buffer
from treadle.kernel.joining import join, without_stores
from treadle.kernel.like_bodies import KnownBody, LikeMixes, form_of

Tell = Callable[[str, Sequence[str], Verdict], None]


def with_kernels(program: Program, tell: Tell | None = None) -> Program:
    """The program with kernels for its loops and groups; itself if it has them already."""
    wanted = BUILDERS.keys() - {Grouped}
    if not any(type(op) in wanted for op in walk_operations(program.ops)):
        return program
    return Builder(program, tell or (lambda question, names, verdict: None)).build()


@dataclass
class _Made:
    """Names that are taken, and buffers that kernels need for themselves."""

    given: frozenset[str]
    taken: set[str] = field(default_factory=set)
    buffers: list[Buffer] = field(default_factory=list)

    def name(self, wanted: str) -> str:
        """A name of which there is no other."""
        found, count = wanted, 1
        while found in self.taken or found in self.given:
            count += 1
            found = f"{wanted}_{count}"
        self.taken.add(found)
        return found


class Builder:
    """Builds the kernels of one program; `tell` hears what was joined and what was not."""

    def __init__(self, program: Program, tell: Tell) -> None:
        self.program, self.tell = program, tell
        self.made = _Made(program.derive(_names))
        self._mixes = LikeMixes(program)
        self._known: dict[object, KnownBody] = {}
        """Bodies that were joined before: layers and time steps repeat them over other buffers."""
        self.new_name: dict[str, str] = {}
        """For operations that are inside a kernel now, the kernel's name."""

    def build(self) -> Program:
        """The program with kernels for its loops and groups."""
        ops = [self.operation(op) for op in self.program.ops]
        fresh = tuple([self._following(op) for op in ops])
        program = self.program
        if self.made.buffers:
            program = replace(program, buffers=(*program.buffers, *self.made.buffers))
        return program.with_ops(fresh)

    def tried(self, op: Operation) -> tuple[Operation, tuple[Buffer, ...]]:
        """An operation as a kernel and the buffers it needs, for a look: no name stays taken."""
        self.made = _Made(self.program.derive(_names))
        found = self.operation(op)
        return found, tuple(self.made.buffers)

    def operation(self, op: Operation) -> Operation:
        """The operation as a kernel; itself if no code is generated for it."""
        build = BUILDERS.get(type(op))
        return op if build is None else build(self, op)

    # -- kinds -----------------------------------------------------------------------------
    def loop(self, op: Operation) -> Operation:
        """A loop is a kernel by itself."""
        assert isinstance(op, Loop)
        body = self._without(op.body, internal_storages(self.program, op), [])
        return self._kernel(
            op, "loop", [self._nest([op], body if acts(body) else op.body, op.name)]
        )

    def fused(self, op: Operation) -> Operation:
        """Members of a fused group as few nests; around a call, each side by itself."""
        assert isinstance(op, Fused)
        if all(isinstance(m, Loop) for m in op.members):
            return self._kernel(op, "fused", list(self._joined(op, op.members)))
        members: list[Operation] = []
        loops: list[Loop] = []
        for m in op.members:
            if isinstance(m, Loop):
                loops.append(m)
                continue
            members += [self._nest([x], x.body, op.name) for x in loops]
            members.append(m)
            loops = []
        members += [self._nest([x], x.body, op.name) for x in loops]
        return self._kernel(op, "template", members)

    def foreach(self, op: Operation) -> Operation:
        """Independent members in one launch, each with nests of its own."""
        assert isinstance(op, Foreach)
        sides: list[list[Nest]] = []
        for m in op.members:
            loops = [leaf for leaf in m.leaves if isinstance(leaf, Loop)]
            sides.append(list(self._joined(m, loops, op.name)))
        # Nests of one member follow each other: only single ones are independent.
        shape = "foreach" if all(len(side) <= 1 for side in sides) else "fused"
        return self._kernel(op, shape, [nest for side in sides for nest in side])

    def mixed(self, op: Operation) -> Operation:
        """Rows and columns in one walk over their common data, where that can be written."""
        assert isinstance(op, MixOrder)
        sides = [
            list(self._joined(m, [x for x in m.leaves if isinstance(x, Loop)], op.name))
            for m in op.members
        ]
        apart = [nest for side in sides for nest in side]
        if [len(side) for side in sides] != [1, 1]:
            return self._kernel(op, "fused", apart)
        both = sides[0][0], sides[1][0]
        inside = internal_storages(self.program, op)
        found = self._mixes.nests(
            both,
            inside,
            lambda: self.made.name(f"{op.name}_columns"),
            # What rows hand over to columns need not be in memory.
            lambda middle: self._without(middle, inside, []),
        )
        if isinstance(found, Verdict):
            self.tell("build", (op.name,), found)
            return self._kernel(op, "fused", apart)
        self.made.buffers.extend(found.buffers)
        self.made.taken.difference_update(nest.name for nest in apart)
        runs = tuple([n for nest in apart for n in nest.runs])
        nests = [
            replace(apart[0], name=self.made.name(f"{op.name}_nest"), runs=runs, body=body)
            for body in (found.first, found.middle, found.last)
        ]
        self.tell("build", (op.name,), yes("KER000", nests=len(nests)))
        return self._kernel(op, "mixed", nests)

    def grouped(self, op: Operation) -> Operation:
        """Neighbours stay neighbours."""
        assert isinstance(op, Grouped)
        return replace(op, members=tuple([self.operation(m) for m in op.members]))

    # -- nests -----------------------------------------------------------------------------
    def _joined(
        self, op: Operation, members: Sequence[Operation], stem: str | None = None
    ) -> Iterator[Nest]:
        loops = [m for m in members if isinstance(m, Loop)]
        inside = internal_storages(self.program, op)
        key, buffers = form_of(self.program, loops, inside)
        known = self._known.get(key)
        if known is not None:
            self.tell("build", (op.name,), yes("KER000", nests=1))
            yield self._nest(loops, known.over(buffers), stem or op.name)
            return
        found = list(self._new(op, loops, inside))
        if len(found) == 1 and len(found[0][0]) == len(loops):
            self._known[key] = KnownBody.of(found[0][1], buffers)
        for part, body in found:
            yield self._nest(part, body, stem or op.name)

    def _new(
        self, op: Operation, loops: list[Loop], inside: frozenset[str]
    ) -> Iterator[tuple[list[Loop], Body]]:
        """The nests of a group as loops and their body, without stores that nobody reads."""
        parts = list(self._parts(op, loops))
        without = [self._without(b, inside, [x for x in loops if x not in p]) for p, b in parts]
        if not any(map(acts, without)):
            yield from parts  # a group written by hand that nobody needs is a kernel all the same
            return
        for (part, _), kept in zip(parts, without, strict=True):
            if acts(kept):
                yield part, kept

    def _parts(self, op: Operation, loops: list[Loop]) -> Iterator[tuple[list[Loop], Body]]:
        """The loops in as few bodies as their order allows."""
        if len(loops) == 1:
            yield loops, loops[0].body
            return
        whole = join(self.program, loops)
        if isinstance(whole, Body):
            self.tell("build", (op.name,), yes("KER000", nests=1))
            yield loops, whole
            return
        part, body = [loops[0]], loops[0].body
        for x in loops[1:]:
            found = join(self.program, [*part, x])
            if isinstance(found, Body):
                part, body = [*part, x], found
                continue
            self.tell("build", (part[-1].name, x.name), found)
            yield part, body
            part, body = [x], x.body
        yield part, body

    def _without(self, body: Body, inside: frozenset[str], others: Sequence[Loop]) -> Body:
        """The body without stores that nobody reads: not it, not another nest of the kernel."""
        storage = self.program.storage_of
        if not any(storage(name) in inside for name, _, _, _ in body.stores()):
            return Body(body.domain, body.reduce, pruned(body.stmts))
        read = {storage(name) for name, _, _ in body.loads()}
        read |= {storage(at.stmt.buffer) for at in body.walk() if at.stmt.op == "bucketize"}
        read |= {storage(name) for name, _, mode, _ in body.stores() if mode != "plain"}
        read |= {storage(n) for x in others for n in effects(x).touched}
        return without_stores(body, lambda name: storage(name) in inside - read)

    def _nest(self, loops: Sequence[Loop], body: Body, stem: str) -> Nest:
        return Nest(
            name=self.made.name(f"{stem}_nest"),
            device=loops[0].device,
            origins=_union(x.origins for x in loops),
            body=body,
            runs=tuple([x.name for x in loops]),
        )

    def _kernel(self, op: Operation, shape: str, members: Sequence[Operation]) -> Operation:
        inside = {x.name for x in walk_operations((op,))}
        for name in inside - {op.name}:
            self.new_name[name] = op.name
        after = _union(x.after for x in walk_operations((op,)))
        return Kernel(
            name=op.name,
            device=op.device,
            origins=op.origins or _union(x.origins for x in op.leaves),
            after=tuple([n for n in after if n not in inside]),
            members=tuple(members),
            shape=shape,
        )

    def _following(self, op: Operation) -> Operation:
        """The operation after kernels where it was after what they hold."""
        after = tuple(dict.fromkeys(self.new_name.get(n, n) for n in op.after if n != op.name))
        if isinstance(op, Grouped):
            fresh = tuple([self._following(m) for m in op.members])
            return replace(op, after=after, members=fresh)
        return op if after == op.after else replace(op, after=after)


def _names(program: Program) -> frozenset[str]:
    return frozenset([op.name for op in walk_operations(program.ops)])


def _union(rows: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(x for row in rows for x in row))


BUILDERS: Mapping[type[Operation], Callable[[Builder, Operation], Operation]] = {
    Loop: Builder.loop,
    Fused: Builder.fused,
    MixOrder: Builder.mixed,
    Foreach: Builder.foreach,
    Grouped: Builder.grouped,
}
"""How each kind that code is generated for becomes a kernel."""
