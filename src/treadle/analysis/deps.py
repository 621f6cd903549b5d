"""Dependences: which operation must follow which, and why.

    RAW      reads what the other wrote                 carries a value
    WAR      overwrites what the other read             order only
    WAW      writes where the other wrote               order only, unless the older value shows
    CONTROL  told to follow, or collectives kept in one order, or side effects

Every storage is walked once in program order with the writes and reads that later operations can
still meet. A write that covers everything closes the past; a write that may reach all that an older
one reached takes its place, because whoever meets the older one meets it too and so is ordered
behind both. Accesses that provably never meet make no dependence. Each mutation gives the storage
a new version: `x@2` is what the second write after the beginning left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from treadle.analysis.access import Access, accesses, can_meet
from treadle.core.garbage import paused_collection
from treadle.core.once import once
from treadle.ir.program import Collective, Group, Operation, Program, walk_operations


class DepKind(Enum):
    """Why one operation must follow another."""

    RAW = "read after write"
    WAR = "write after read"
    WAW = "write after write"
    CONTROL = "control"


class Dep(NamedTuple):
    """`target` must follow `source` (positions among the leaves)."""

    source: int
    target: int
    kind: DepKind
    storage: str
    buffer: str
    """The name under which `target` touches the storage."""
    version: int
    """The version that is read, or that is overwritten."""
    whole: bool
    """Whether one side touches the buffer as a whole, so that no index can tell more."""
    carries: bool
    """Whether data flows: dropping `source` would change what `target` or later ones see."""
    cause: str
    """A sentence with room for the buffer and the version; `reason` fills it in."""

    @property
    def reason(self) -> str:
        """Why the dependence exists, in words."""
        return self.cause.format(buffer=self.buffer, version=self.version)

    @property
    def ordering_only(self) -> bool:
        """Whether it only orders, and so must not extend the life of anything."""
        return not self.carries


READS = "reads {buffer}, version {version}, written there"
OVERWRITES = "overwrites {buffer} that is read there, version {version}"
CHANGES = "changes {buffer}, version {version}, written there"
REWRITES = "writes {buffer} again"
REWRITES_PART = "writes {buffer} again, whose other elements stay"
TOLD = "told to follow it"
COLLECTIVES = "collectives of one group keep their order"
EFFECTS = "side effects keep their order"


@dataclass(frozen=True)
class Dependences:
    """All dependences of a program, by leaf operation."""

    names: tuple[str, ...]
    deps: tuple[Dep, ...]
    reads_version: dict[tuple[int, str], int]
    """(leaf, storage) -> the version it reads."""
    writes_version: dict[tuple[int, str], int]
    """(leaf, storage) -> the version it makes."""
    users: dict[str, tuple[int, ...]]
    """storage -> the leaves that touch it, in order."""
    replaced: dict[str, int]
    """storage -> the last leaf that replaced everything in it, if any did."""

    @once
    def position(self) -> dict[str, int]:
        """Leaf positions by name."""
        return {name: k for k, name in enumerate(self.names)}

    @once
    def into(self) -> list[list[Dep]]:
        """Dependences by target."""
        rows: list[list[Dep]] = [[] for _ in self.names]
        for d in self.deps:
            rows[d.target].append(d)
        return rows

    @once
    def out_of(self) -> list[list[Dep]]:
        """Dependences by source."""
        rows: list[list[Dep]] = [[] for _ in self.names]
        for d in self.deps:
            rows[d.source].append(d)
        return rows

    @property
    def edges(self) -> list[tuple[int, int]]:
        """(source, target) pairs, each once, in order of first appearance."""
        return list(dict.fromkeys((d.source, d.target) for d in self.deps))

    def between(self, a: str, b: str) -> list[Dep]:
        """The dependences between two leaves, in either direction."""
        x, y = self.position[a], self.position[b]
        pairs = ((x, y), (y, x))
        return [d for d in (*self.out_of[x], *self.out_of[y]) if (d.source, d.target) in pairs]

    def last_use(self, storage: str) -> int | None:
        """The last leaf that touches a storage."""
        touching = self.users.get(storage, ())
        return touching[-1] if touching else None

    def shows_at_end(self, leaf: str, storage: str) -> bool:
        """Whether something a leaf wrote to a storage may still be there after the last operation.

        Not so if a later leaf replaces all of it, whatever happens in between.
        """
        return self.position[leaf] >= self.replaced.get(storage, 0)

    def explain(self, d: Dep) -> str:
        """The dependence in words."""
        source, target = self.names[d.source], self.names[d.target]
        return f"{target} after {source}: {d.reason}"

    def versioned(self, leaf: str, storage: str) -> str:
        """The name of what a leaf reads (or, if it only writes, makes): `x@2`."""
        at = self.position[leaf]
        version = self.reads_version.get((at, storage), self.writes_version.get((at, storage)))
        return f"{storage}@{version}"


def dependences(program: Program) -> Dependences:
    """Every dependence between the leaf operations of `program`."""
    return program.derive(_dependences)


def carry_over(old: Program, new: Program) -> None:
    """Tell `new` the dependences of `old` if it has its leaves in another order that keeps them
    all, perhaps less some whose results nobody else touches; otherwise they are found anew.

    A pass that only groups, orders and drops need not have every access compared again.
    """
    known, place = dependences(old), {leaf.name: k for k, leaf in enumerate(new.leaves)}
    at = [place.get(name, GONE) for name in known.names]
    left = [leaf for leaf, k in zip(old.leaves, at, strict=True) if k != GONE]
    same = len(place) == len(left) == len(new.leaves) and old.buffers is new.buffers
    if not same or any(new.leaves[place[x.name]] is not x for x in left):
        return
    if any(op.after for op in walk_operations(new.ops) if isinstance(op, Group)):
        return
    if len(left) < len(at) and not _leave_no_trace(known, at):
        return
    into: list[list[Dep]] = [[] for _ in new.leaves]
    for d in known.deps:
        source, target = at[d.source], at[d.target]
        if source == GONE or target == GONE:
            continue
        if source >= target:
            return
        into[target].append(Dep(source, target, *d[2:]))
    was = old.derive(accesses)
    new.remember(accesses, {leaf.name: was[leaf.name] for leaf in new.leaves})
    new.remember(_dependences, _renumbered(known, at, into, new))


GONE = -1
"""The place of a leaf that the new program does not have."""


def _leave_no_trace(known: Dependences, at: Sequence[int]) -> bool:
    """Whether leaves that go wrote nothing that the others touch, and ordered nobody."""
    for leaf, storage in known.writes_version:
        if at[leaf] == GONE and any(at[user] != GONE for user in known.users[storage]):
            return False
    return not any(
        d.kind is DepKind.CONTROL and GONE in (at[d.source], at[d.target]) for d in known.deps
    )


def _renumbered(
    known: Dependences, at: Sequence[int], into: list[list[Dep]], new: Program
) -> Dependences:
    users = {
        storage: tuple(sorted([at[leaf] for leaf in row if at[leaf] != GONE]))
        for storage, row in known.users.items()
    }
    reads, writes = [
        {(at[leaf], storage): v for (leaf, storage), v in row.items() if at[leaf] != GONE}
        for row in (known.reads_version, known.writes_version)
    ]
    return Dependences(
        tuple([leaf.name for leaf in new.leaves]),
        tuple(_in_rows(into)),
        reads,
        writes,
        {storage: row for storage, row in users.items() if row},
        {storage: at[leaf] for storage, leaf in known.replaced.items() if at[leaf] != GONE},
    )


def same_dependences(old: Program, new: Program) -> None:
    """Tell `new` what is known of `old`: they have the very same leaves in the same order."""
    assert old.leaves == new.leaves, "the programs differ in what dependences come from"
    new.remember(accesses, old.derive(accesses))
    new.remember(_dependences, dependences(old))


def _dependences(program: Program) -> Dependences:
    with paused_collection():
        return _scan_program(program)


def _scan_program(program: Program) -> Dependences:
    scan = _Scan(program)
    for position, op in enumerate(program.leaves):
        for access in scan.accesses[op.name]:  # reads first
            if access.is_write:
                scan.write(position, access)
            else:
                scan.read(position, access)
    for d in _control(program):
        scan.add(d)
    users = {s: tuple(dict.fromkeys(state.users)) for s, state in scan.storages.items()}
    deps = scan.found()
    names = tuple(op.name for op in program.leaves)
    versions = scan.reads_version, scan.writes_version
    return Dependences(names, tuple(deps), *versions, users, scan.replaced)


_LONG_ROW = 16  # beyond this, a target's dependences are found by key instead of by looking


class _PlacedAccess(NamedTuple):
    position: int
    access: Access


class _Storage:
    """What later operations can still meet in one storage."""

    __slots__ = ("readers", "users", "version", "writer_op", "writers")

    def __init__(self) -> None:
        self.users: list[int] = []
        self.writers: list[_PlacedAccess] = []
        self.readers: list[_PlacedAccess] = []
        self.version = 0
        self.writer_op = -1


class _Scan:
    """One scan of the program; collects dependences and versions."""

    def __init__(self, program: Program) -> None:
        self.accesses = program.derive(accesses)
        self.storages: dict[str, _Storage] = {}
        self.into: list[list[Dep]] = [[] for _ in program.leaves]
        self.places: dict[int, dict[tuple[int, str, str], int]] = {}
        self.reads_version: dict[tuple[int, str], int] = {}
        self.writes_version: dict[tuple[int, str], int] = {}
        self.replaced: dict[str, int] = {}

    def add(self, d: Dep) -> None:
        """Note a dependence; of equal ones the first stands, unless only the second carries."""
        row = self.into[d.target]
        at = self._place(row, d)
        if at is None:
            row.append(d)
        elif d.carries and not row[at].carries:
            row[at] = d

    def _place(self, row: list[Dep], d: Dep) -> int | None:
        """Where the row of a target already has the same dependence; most rows are short."""
        if len(row) < _LONG_ROW:
            for k, known in enumerate(row):
                if known.source == d.source and known.kind is d.kind and known.storage == d.storage:
                    return k
            return None
        places = self.places.get(d.target)
        if places is None:
            places = self.places[d.target] = {_in_order(x): k for k, x in enumerate(row)}
        at = places.get(_in_order(d))
        if at is None:
            places[_in_order(d)] = len(row)
        return at

    def found(self) -> list[Dep]:
        """All dependences, by target, then source."""
        return _in_rows(self.into)

    def _at(self, access: Access, position: int) -> _Storage:
        state = self.storages.get(access.storage)
        if state is None:
            state = self.storages[access.storage] = _Storage()
        state.users.append(position)
        return state

    def read(self, position: int, access: Access) -> None:
        """A read meets the writes still in view."""
        state = self._at(access, position)
        self.reads_version[position, access.storage] = state.version
        for w in state.writers:
            if w.position != position and can_meet(w.access, access):
                self._add(w, position, access, DepKind.RAW, state.version, True, READS)
        state.readers.append(_PlacedAccess(position, access))

    def write(self, position: int, access: Access) -> None:
        """A write meets reads and writes still in view, then hides those it can reach."""
        state = self._at(access, position)
        version = state.version
        if access.also_reads:
            self.reads_version.setdefault((position, access.storage), version)
        for r in state.readers:
            if r.position != position and can_meet(r.access, access):
                self._add(r, position, access, DepKind.WAR, version, False, OVERWRITES)
        for w in state.writers:
            if w.position != position and can_meet(w.access, access):
                self._write_after_write(w, position, access, version)
        if state.writer_op != position:
            state.version += 1
            state.writer_op = position
        self.writes_version[position, access.storage] = state.version
        if state.writers and access.covers_storage:
            self.replaced[access.storage] = position
        state.writers = [w for w in state.writers if not _hides(access, w.access)]
        state.readers = [r for r in state.readers if not _hides(access, r.access)]
        state.writers.append(_PlacedAccess(position, access))

    def _write_after_write(
        self, w: _PlacedAccess, position: int, access: Access, version: int
    ) -> None:
        if access.also_reads:
            self._add(w, position, access, DepKind.RAW, version, True, CHANGES)
        shows = not access.covers_storage and w.access.mode != "alloc"
        cause = REWRITES_PART if shows else REWRITES
        self._add(w, position, access, DepKind.WAW, version, shows, cause)

    def _add(
        self,
        earlier: _PlacedAccess,
        position: int,
        access: Access,
        kind: DepKind,
        version: int,
        carries: bool,
        cause: str,
    ) -> None:
        whole = access.map is None or earlier.access.map is None
        storage, buffer, source = access.storage, access.buffer, earlier.position
        self.add(Dep(source, position, kind, storage, buffer, version, whole, carries, cause))


def _in_rows(into: list[list[Dep]]) -> list[Dep]:
    """The dependences of all targets in order, those of one by source."""
    for row in into:
        if len(row) > 1:
            row.sort(key=_in_order)
    return [d for row in into for d in row]


def _in_order(d: Dep) -> tuple[int, str, str]:
    return d.source, d.kind.name, d.storage


def _hides(new: Access, old: Access) -> bool:
    """Whether whoever meets `old` later is sure to meet `new` as well."""
    if new.map is None or new.covers_storage:
        return True
    if old.map is None:
        return False
    one, other = new.byte_reach, old.byte_reach
    if one is None or other is None:
        return False
    # Containment of ranges is enough only if `can_meet` argues by range alone.
    dense = all(abs(c) == 1 for _, c in new.map.index.terms)
    return dense and one[0] <= other[0] and other[1] <= one[1]


def _control(program: Program) -> Iterator[Dep]:
    told = [op for op in walk_operations(program.ops) if op.after]
    place = {op.name: k for k, op in enumerate(program.leaves)} if told else {}
    for op in told:
        for name in op.after:
            for source in _leaf_positions(program, name, place):
                for target in _leaf_positions(program, op.name, place):
                    if source != target:
                        yield _ordered(source, target, TOLD)
    last_of_group: dict[str, int] = {}
    last_effect: int | None = None
    for position, leaf in enumerate(program.leaves):
        if isinstance(leaf, Collective):
            before = last_of_group.get(leaf.group)
            if before is not None:
                yield _ordered(before, position, COLLECTIVES)
            last_of_group[leaf.group] = position
        if getattr(leaf, "has_side_effects", False):
            if last_effect is not None:
                yield _ordered(last_effect, position, EFFECTS)
            last_effect = position


def _leaf_positions(program: Program, name: str, place: dict[str, int]) -> list[int]:
    op: Operation = program.op_by_name[name]
    if isinstance(op, Group):
        return [place[leaf.name] for leaf in op.leaves]
    return [place[name]]


def _ordered(source: int, target: int, cause: str) -> Dep:
    return Dep(source, target, DepKind.CONTROL, "", "", 0, False, False, cause)
