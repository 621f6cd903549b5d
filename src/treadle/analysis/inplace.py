"""Which output may take over the memory of which input, and why not.

A loop reads and writes element by element. If an input dies in it and every access to that input
has the same index as the write of an output of the same element width, then each element is read
for the last time just before the output's element takes its place: one block serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeAlias

from treadle.analysis.access import Access, accesses
from treadle.analysis.deps import Dependences, dependences
from treadle.analysis.one_walk import is_walked_once
from treadle.core.verdict import YES, Verdict, check_rules, no
from treadle.index import Domain, Facts, IndexMap
from treadle.ir.body import COMBINING, Body
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Foreach, Group, Grouped, Loop, Nest, Operation, Program


@dataclass(frozen=True)
class InPlace:
    """Storage `out` may live in the block of `inp` from operation `op` on."""

    op: str
    out: str
    inp: str
    holds_now: bool = True
    """Whether it can be done in the present order, or only if later uses came earlier."""


@dataclass(frozen=True)
class Boundary:
    """The storages the caller has a say in."""

    inputs: frozenset[str]
    donated: frozenset[str]
    outputs: frozenset[str]

    def lets_die(self, storage: str) -> bool:
        """Whether a storage is no output and no input that the caller keeps."""
        if storage in self.outputs:
            return False
        return storage not in self.inputs or storage in self.donated


def boundary(program: Program) -> Boundary:
    """The storages behind inputs, donated inputs and outputs."""
    named = (program.inputs, program.donated, program.outputs)
    return Boundary(*[frozenset(program.storage_of(n) for n in names) for names in named])


class InPlaceCandidate(NamedTuple):
    """One pair to be judged: the step, its accesses, and the program around them."""

    program: Program
    deps: Dependences
    op: Operation
    touches: tuple[Access, ...]
    out: str
    inp: str


def input_may_die(c: InPlaceCandidate) -> Verdict:
    """INP001: outputs and inputs that belong to the caller must survive."""
    edge = c.program.derive(boundary)
    if c.inp in edge.outputs:
        return no("INP001", input=c.inp, why="it is an output")
    if c.inp in edge.inputs and c.inp not in edge.donated:
        return no("INP001", input=c.inp, why="the caller keeps it")
    return YES


def input_dies_here(c: InPlaceCandidate) -> Verdict:
    """INP002: nothing later touches the input."""
    last = c.deps.last_use(c.inp)
    assert last is not None, "an input that is judged is read by the step"
    name = c.deps.names[last]
    if name == c.op.name or any(name == leaf.name for leaf in c.op.leaves):
        return YES
    return no("INP002", input=c.inp, last_use=name)


def output_is_born_here(c: InPlaceCandidate) -> Verdict:
    """INP003: the output gets its first value here and reads nothing of its own."""
    first = c.deps.names[c.deps.users[c.out][0]]
    is_here = first == c.op.name or any(first == leaf.name for leaf in c.op.leaves)
    if c.out in c.program.derive(boundary).inputs or not is_here:
        return no("INP003", output=c.out, first_use=first)
    return YES


def blocks_fit(c: InPlaceCandidate) -> Verdict:
    """INP004: same device, same element width, and the input's block is large enough."""
    out, inp = c.program.by_name[c.out], c.program.by_name[c.inp]
    if out.device != inp.device:
        return no("INP004", output=out.device, input=inp.device)
    if out.dtype.itemsize != inp.dtype.itemsize:
        return no("INP004", output=str(out.dtype), input=str(inp.dtype))
    # For every run-time size: what fits by its hint need not fit in the next call.
    needed, there = out.storage_numel, inp.storage_numel
    if needed is not there and not Facts().at_most(needed, there):
        return no("INP004", output=out.storage_bytes, input=inp.storage_bytes)
    return YES


def indices_agree(c: InPlaceCandidate) -> Verdict:
    """INP005: every access of both goes the same way through the block, none of it from data."""
    both = [a for a in c.touches if a.storage in (c.out, c.inp)]
    for a in both:
        if a.map is None or a.is_indirect:
            shown = "the whole buffer" if a.map is None else str(a.map.index)
            return no("INP005", buffer=a.buffer, index=shown)
        first = both[0].map
        assert first is not None, "an access without a map was refused above"
        if a.map != first and _access_map(a.map) != _access_map(first):
            return no("INP005", left=str(first), right=str(a.map))
        if a.width != both[0].width:
            return no("INP005", left=f"{both[0].width} bytes", right=f"{a.width} bytes")
    first = both[0].map
    assert first is not None, "an access without a map was refused above"
    if not _visits_once(first):
        return no("INP005", index=str(first), why="two points may touch one element")
    return YES


@lru_cache(maxsize=8192)
def _access_map(m: IndexMap) -> IndexMap:
    """The addresses in order: members of a kernel may cut and call their loops differently."""
    return m.sequence_form()


@lru_cache(maxsize=8192)
def _visits_once(m: IndexMap) -> bool:
    """Whether each element is touched at one point; loops that the index leaves out do not count.

    Those are reduction loops around an access that does not vary along them: it happens once.
    """
    kept = Domain([(v, n) for v, n in m.domain.items() if v in m.index.free])
    return IndexMap(kept, m.results).is_injective()


def reads_come_first(c: InPlaceCandidate) -> Verdict:
    """INP006: the input is not read after the output is stored, nor by a later pass over it."""
    stored_by = None
    for leaf in c.op.leaves:
        assert isinstance(leaf, Loop)
        again = _goes_over_rows_again(c.op, leaf)
        for at in leaf.body.walk():
            stmt = at.stmt
            if stmt.op == "store" and c.program.storage_of(stmt.buffer) == c.out:
                stored_by = leaf.name
            elif stmt.op == "load" and c.program.storage_of(stmt.buffer) == c.inp:
                if stored_by is not None:
                    return no("INP006", stored_by=stored_by, read_by=leaf.name)
            elif stored_by is not None and stmt.op in again:
                # Generated code may run over the reduction loops once more and load again.
                return no("INP006", stored_by=stored_by, then=stmt.op)
    return _in_one_kernel(c)


def _goes_over_rows_again(op: Operation, leaf: Loop) -> frozenset[str]:
    """The statements of a leaf that may begin another pass over elements loaded before.

    A store can do so too where some statements happen once for a whole row: it waits for what
    stands above it, a reduction or a store for the row, and what it stores is computed anew.
    A nest of a kernel is written as it stands, so one that needs a single pass has no other.
    """
    if isinstance(leaf, Nest) and is_walked_once(leaf.body):
        return frozenset()
    loops = [leaf.body for leaf in op.leaves if isinstance(leaf, Loop)]
    is_flat = len({b.domain.numel for b in loops}) == 1 and not any(len(b.reduce) for b in loops)
    return COMBINING if is_flat else COMBINING | {"store", "assert"}


def _in_one_kernel(c: InPlaceCandidate) -> Verdict:
    """INP006 also for members of a Foreach, which know no order: only one may touch the block."""
    if not isinstance(c.op, Foreach) and getattr(c.op, "shape", "") != "foreach":
        return YES
    assert isinstance(c.op, Group)
    touching = {a.op for a in c.touches if a.storage in (c.out, c.inp)}
    members = [m.name for m in c.op.members if touching & {leaf.name for leaf in m.leaves}]
    return YES if len(members) == 1 else no("INP006", stored_by=members[-1], beside=members[0])


Rules: TypeAlias = tuple[Callable[[InPlaceCandidate], Verdict], ...]
# Everything that does not depend on the order of operations.
ORDER_FREE_RULES: Rules = (
    input_may_die,
    output_is_born_here,
    blocks_fit,
    indices_agree,
    reads_come_first,
)
IN_PLACE_RULES: Rules = (
    input_may_die,
    output_is_born_here,
    input_dies_here,
    blocks_fit,
    indices_agree,
    reads_come_first,
)


def check_in_place(program: Program, op: Operation, out: str, inp: str) -> Verdict:
    """Whether storage `out`, produced by `op`, may take the block of storage `inp`."""
    known = program.derive(accesses)
    touches = tuple([a for leaf in op.leaves for a in known[leaf.name]])
    return check_rules(
        IN_PLACE_RULES, InPlaceCandidate(program, dependences(program), op, touches, out, inp)
    )


def in_place_pairs(program: Program) -> list[InPlace]:
    """The hand-overs to use in this order: each block goes to one output, the closest fit first."""
    return [p for p in possible_pairs(program) if p.holds_now]


def possible_pairs(program: Program) -> tuple[InPlace, ...]:
    """Hand-overs for this order, then those that another order of the operations would allow.

    Each storage gives and takes at most once; what holds now is never given up for what might.
    """
    return program.derive(_possible_pairs)


def _possible_pairs(program: Program) -> tuple[InPlace, ...]:
    found: list[InPlace] = []
    taken: set[str] = set()
    given: set[str] = set()
    later: list[_Asked] = []

    def agree(c: InPlaceCandidate, rules: Rules, now: bool) -> bool:
        if c.inp in taken or c.out in given or not check_rules(rules, c):
            return False
        taken.add(c.inp)
        given.add(c.out)
        found.append(InPlace(c.op.name, c.out, c.inp, now))
        return True

    for _, pairs in groupby(_candidates(program), key=lambda asked: asked[0].out):
        waiting: list[_Asked] = []
        for c, rules in pairs:
            if c.inp in taken:
                continue
            if not _is_in(c.op, c.deps.names[c.deps.users[c.inp][-1]]):
                waiting.append(_Asked(c, rules))
            elif agree(c, rules, True):
                break
        else:
            later.extend(waiting)
    for c, rules in later:
        agree(c, rules, False)
    return tuple(found)


class _Asked(NamedTuple):
    """A pair and the rules that are still to be asked about it."""

    candidate: InPlaceCandidate
    rules: Rules


def _candidates(program: Program) -> Iterator[_Asked]:
    """Every output of a kernel with every input it only reads, smaller inputs first.

    Pairs that are sure to be refused are left out before they are made.
    """
    deps, edge, roots = dependences(program), program.derive(boundary), program.storage_of
    for op in _kernels(program.ops):
        if not all(isinstance(leaf, Loop) for leaf in op.leaves) or not op.leaves:
            continue
        first, *others = op.leaves
        assert isinstance(first, Loop), "every leaf was found to be a loop"
        if not others and all(roots(n) == n for n in pattern_of(first).buffers):
            yield from _of_plain_loop(program, deps, edge, op, first)
        else:
            yield from _of_kernel(program, deps, edge, op)


def _is_in(op: Operation, leaf: str) -> bool:
    """INP002 and INP003 ask for the operation itself or one of its leaves."""
    return leaf == op.name or any(leaf == one.name for one in op.leaves)


def _of_plain_loop(
    program: Program, deps: Dependences, edge: Boundary, op: Operation, loop: Loop
) -> Iterator[_Asked]:
    """The pairs of one loop without views: of INP005 and INP006 its pattern knows the answer."""
    pattern, names = pattern_of(loop)
    known, buffers = pattern.derive(_places_by_form), program.by_name
    form = tuple([(b.dtype.itemsize, b.device) for b in [buffers[n] for n in names]])
    places = known.get(form)
    if places is None:
        at = {name: k for k, name in enumerate(names)}
        pairs = _allowed(program, deps, op, lambda s: True, lambda s: True)
        agreed = [c for c in pairs if check_rules((indices_agree, reads_come_first), c)]
        # In the order in which they are touched: sizes are those of each loop's own buffers.
        outs = dict.fromkeys(c.out for c in agreed)
        places = known[form] = [
            (at[out], inp)
            for out in outs
            for inp in sorted([at[c.inp] for c in agreed if c.out == out])
        ]
    for out, group in groupby(places, key=lambda pair: names[pair[0]]):
        if out in edge.inputs or deps.names[deps.users[out][0]] != loop.name:
            continue
        read = [inp for inp in [names[k] for _, k in group] if edge.lets_die(inp)]
        if len(read) > 1:
            read.sort(key=lambda n: buffers[n].storage_bytes)
        for inp in read:
            yield _Asked(InPlaceCandidate(program, deps, op, (), out, inp), (blocks_fit,))


def _places_by_form(body: Body) -> dict[object, list[tuple[int, int]]]:
    """The pairs found so far, by the widths and devices of the pattern's buffers."""
    return {}


def _of_kernel(
    program: Program, deps: Dependences, edge: Boundary, op: Operation
) -> Iterator[_Asked]:
    """The pairs of any other kernel, which can touch hundreds of storages, most for nothing."""

    def is_born(out: str) -> bool:
        return out not in edge.inputs and _is_in(op, deps.names[deps.users[out][0]])

    rest = (blocks_fit, indices_agree, reads_come_first)
    for c in _allowed(program, deps, op, edge.lets_die, is_born):
        yield _Asked(c, rest)


def _allowed(
    program: Program,
    deps: Dependences,
    op: Operation,
    may_die: Callable[[str], bool],
    is_born: Callable[[str], bool],
) -> Iterator[InPlaceCandidate]:
    """Pairs with equal ways through both, of which no input is read after its output is stored."""
    known = program.derive(accesses)
    touches = tuple([a for leaf in op.leaves for a in known[leaf.name]])
    written = dict.fromkeys(a.storage for a in touches if a.is_write)
    read = dict.fromkeys(a.storage for a in touches if a.storage not in written)
    inputs = sorted(filter(may_die, read), key=lambda n: program.by_name[n].storage_bytes)
    made = list(filter(is_born, written)) if inputs else []
    if not made:
        return
    maps = _ways_through(program, op, touches, {*inputs, *made})
    by_map: dict[tuple[object, ...], list[str]] = {}
    for inp in inputs:
        if inp in maps:
            by_map.setdefault(maps[inp], []).append(inp)
    order = _TouchOrder.of(program, op)
    for out in made:
        for inp in by_map.get(maps[out], ()) if out in maps else ():
            if order.allows(out, inp):
                yield InPlaceCandidate(program, deps, op, touches, out, inp)


def _ways_through(
    program: Program, op: Operation, touches: tuple[Access, ...], wanted: set[str]
) -> dict[str, tuple[object, ...]]:
    """How the kernel goes through each storage; only storages with equal ways can share a block.

    Storages that it goes through in several ways, or as data says, are left out.
    """
    member: dict[str, str] = {}
    if isinstance(op, Foreach):  # its members know no order: one alone may touch the block
        member = {leaf.name: m.name for m in op.members for leaf in m.leaves}
    found: dict[str, tuple[object, ...] | None] = {}
    for a in touches:
        if a.storage not in wanted or found.get(a.storage, ()) is None:
            continue
        if a.map is None or a.is_indirect:
            found[a.storage] = None
            continue
        b = program.by_name[a.storage]
        way = (_access_map(a.map), a.width, b.device, b.dtype.itemsize, member.get(a.op))
        if found.setdefault(a.storage, way) != way:
            found[a.storage] = None
    return {name: way for name, way in found.items() if way is not None}


@dataclass(frozen=True)
class _TouchOrder:
    """When a kernel's statements touch each storage: INP006 in two comparisons for a pair."""

    first_store: dict[str, int]
    last_load: dict[str, int]
    again: tuple[tuple[int, str], ...]
    """The last statement that may begin another pass, and the last that is no store to the same
    storage as that one: the position and the storage it stores to, if it is a store."""

    @classmethod
    def of(cls, program: Program, op: Operation) -> _TouchOrder:
        """The order of the statements of all loops of `op`."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        again: tuple[tuple[int, str], ...] = ()
        loops = [leaf for leaf in op.leaves if isinstance(leaf, Loop)]
        starts = {leaf.name: _goes_over_rows_again(op, leaf) for leaf in loops}
        statements = [(at.stmt, starts[leaf.name]) for leaf in loops for at in leaf.body.walk()]
        for position, (stmt, begins) in enumerate(statements):
            touched = ""
            if stmt.op in ("load", "store"):
                touched = program.storage_of(stmt.buffer)
            if stmt.op == "load":
                last[touched] = position
            elif stmt.op == "store":
                first.setdefault(touched, position)
            if stmt.op in begins:
                again = ((position, touched), *[o for o in again if o[1] != touched][:1])
        return cls(first, last, again)

    def allows(self, out: str, inp: str) -> bool:
        """Whether no read of `inp`, and no other pass over it, comes after the store of `out`."""
        stored = self.first_store.get(out)
        if stored is None:
            return True
        others = [position for position, storage in self.again if storage != out]
        return self.last_load.get(inp, -1) < stored and all(p < stored for p in others)


def _kernels(ops: tuple[Operation, ...]) -> list[Operation]:
    found: list[Operation] = []
    for op in ops:
        if isinstance(op, Grouped):
            found.extend(_kernels(op.members))
        else:
            found.append(op)
    return found
