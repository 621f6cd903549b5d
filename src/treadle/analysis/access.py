"""Reads and writes of every operation as index maps.

A loop touches single elements: the access is a map from its loops to storage indices. A call
touches whole buffers. Either way the access knows the range of the storage it can reach, whether
it is sure to reach all of it, and, between two of them, whether they can ever meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from treadle.index import Domain, Expr, Facts, IndexMap, Kind, mod
from treadle.index.apart import ByteSpan, never_meet
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.pattern import pattern_of, place_of
from treadle.ir.program import Collective, Loop, Nop, Operation, Program, Wait
from treadle.ir.spec_facts import facts_of, storage_limit
from treadle.ir.types import Buffer, BufferKind


@dataclass(slots=True, eq=False)
class Access:
    """One way in which one operation touches one buffer. Made once, never changed.

    There are several for every operation, so it has slots and fills its caches by hand.
    """

    op: str
    buffer: str
    storage: str
    is_write: bool
    mode: str = "plain"
    """`plain`; an atomic mode; `mutate` for a call that changes a buffer in place; `alloc`."""
    map: IndexMap | None = None
    """None: the whole buffer."""
    masked: bool = False
    facts: Facts | None = None
    numel: Expr | None = None
    """Elements in the storage, counted as the access counts; None if they do not fill it."""
    width: int = 1
    """Bytes of an element as the access counts: views of other types count differently."""
    has_gaps: bool = False
    """Whether the buffer, touched as a whole, leaves out elements of its storage."""
    _reach: tuple[int, int] | None = None
    _covers: bool | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it touches the buffer as a whole, with no index known."""
        return self.map is None

    @property
    def is_indirect(self) -> bool:
        """Whether the index depends on data."""
        return self.map is not None and any(s.kind is Kind.INDIRECT for s in self.map.index.free)

    @property
    def also_reads(self) -> bool:
        """Whether a write shows what was there before."""
        return self.is_write and self.mode not in ("plain", "alloc")

    @property
    def reach(self) -> tuple[int, int] | None:
        """The first and last storage index it can touch, None if not known before run time."""
        if self._reach is None and self.map is not None and self.facts is not None:
            lo, hi = self.facts.interval(self.map.index)
            if lo is not None and hi is not None:
                self._reach = (lo, hi)
        return self._reach

    @property
    def byte_reach(self) -> tuple[int, int] | None:
        """The first and last byte it can touch: what accesses of different width compare."""
        reach = self.reach
        if reach is None:
            return None
        return reach[0] * self.width, reach[1] * self.width + self.width - 1

    @property
    def covers_storage(self) -> bool:
        """Whether a write is sure to replace every element of its storage."""
        if self._covers is None:
            self._covers = self._compute_covers()
        return self._covers

    def _compute_covers(self) -> bool:
        if not self.is_write or self.also_reads or self.masked:
            return False
        if self.map is None:
            return not self.has_gaps
        if self.is_indirect or self.numel is None:
            return False
        return reaches_all(self.map, self.numel)


@lru_cache(maxsize=16384)
def reaches_all(indices: IndexMap, numel: Expr) -> bool:
    """Whether a map provably hits each of 0..numel."""
    form = indices.set_form()
    if not len(form.domain):
        return form.index.value == 0 and numel.value == 1
    only_one = len(form.domain) == 1 and form.domain.extents[0] is numel
    return only_one and form.index is form.domain.vars[0]


def is_copy(loop: Loop) -> bool:
    """Whether a loop stores elements of one buffer in another and does nothing else."""
    return pattern_of(loop).pattern.derive(_copies)


def _copies(body: Body) -> bool:
    if len(body.reduce) or [s.op for s in body.stmts] != ["load", "store"]:
        return False
    load, store = body.stmts
    return store.mode == "plain" and place_of(load.buffer) != place_of(store.buffer)


def accesses(program: Program) -> dict[str, tuple[Access, ...]]:
    """The accesses of every leaf operation, reads before writes, by operation name."""
    found: dict[str, tuple[Access, ...]] = {}
    sending: dict[str, tuple[str, ...]] = {}
    for op in program.leaves:
        own = program.derive_of(op, _of_operation)
        if isinstance(op, Wait):
            # Until then the collective may still read what it was given.
            given = sending.get(program.storage_of(op.buffer), ())
            own = (*[Access(op.name, n, program.storage_of(n), False) for n in given], *own)
        found[op.name] = own
        if isinstance(op, Collective):
            of = effects(op)
            for name in (*of.writes, *of.mutates):
                sending[program.storage_of(name)] = of.reads
    return found


def _of_operation(op: Operation, program: Program) -> tuple[Access, ...]:
    return tuple(loop_accesses(op, program) if isinstance(op, Loop) else _of_call(op, program))


def _of_call(op: Operation, program: Program) -> Iterator[Access]:
    of = effects(op)
    for name in of.reads:
        yield Access(op.name, name, program.storage_of(name), False)
    write_mode = "alloc" if isinstance(op, Nop) else "plain"
    for names, mode in ((of.writes, write_mode), (of.mutates, "mutate")):
        for name in names:
            buffer = program.by_name[name]
            # Writing a view as a whole leaves the rest of the storage as it was.
            part = buffer.view_of is not None and buffer.kind is BufferKind.TENSOR
            mode_here = "mutate" if part else mode
            gaps = mode_here == "plain" and _has_gaps(buffer)
            storage = program.storage_of(name)
            yield Access(op.name, name, storage, True, mode_here, has_gaps=gaps)


def _has_gaps(buffer: Buffer) -> bool:
    """Whether filling the buffer leaves elements of its own storage as they were."""
    layout = buffer.layout
    if buffer.kind is not BufferKind.TENSOR or layout.is_contiguous:
        return False
    at = Domain.fresh(layout.sizes)
    return not reaches_all(IndexMap.of(at, layout.index(at.vars)), buffer.storage_numel)


def loop_accesses(op: Loop, program: Program) -> Iterator[Access]:
    """The accesses of one loop over the buffers of `program`, reads before writes."""
    pattern, buffers = pattern_of(op)
    facts, ways = pattern.derive(_ways)
    known = program.derive_from_buffers(_elements)
    for way in ways:
        name = buffers[way.place]
        of = known.get(name)
        if of is None:
            of = known[name] = _elements_of(program.by_name[name], program)
        if way.map is None:
            yield Access(op.name, name, of.storage, False)
        else:
            yield Access(
                op.name, name, of.storage, way.is_write, way.mode, way.map, way.masked, facts,
                of.numel, of.width,
            )  # fmt: skip


class _Way(NamedTuple):
    """An access of a pattern: what all loops of that form share."""

    place: int
    is_write: bool = False
    mode: str = "plain"
    map: IndexMap | None = None
    masked: bool = False


def _ways(body: Body) -> tuple[Facts, tuple[_Way, ...]]:
    reads: dict[tuple[int, Expr | None], _Way] = {}
    writes: dict[tuple[int, Expr, str], _Way] = {}
    for at in body.walk():
        stmt = at.stmt
        if stmt.op == "bucketize":
            place = place_of(stmt.buffer)
            reads[place, None] = _Way(place)
        if stmt.op not in ("load", "store"):
            continue
        place, index = place_of(stmt.buffer), stmt.address
        indices, masked = IndexMap(body.space, (index,)), at.depth > 0
        if stmt.op == "store":
            writes[place, index, stmt.mode] = _Way(place, True, stmt.mode, indices, masked)
        else:
            reads[place, index] = _Way(place, False, "plain", indices, masked)
    return facts_of(body), (*reads.values(), *writes.values())


class _Elements(NamedTuple):
    """What an access must know of its buffer."""

    storage: str
    numel: Expr | None
    width: int


def _elements(program: Program) -> dict[str, _Elements]:
    """Filled by need: most programs declare more than one pass looks at."""
    return {}


def _elements_of(buffer: Buffer, program: Program) -> _Elements:
    storage = program.storage_of(buffer.name)
    return _Elements(storage, _whole_elements(buffer, program), buffer.dtype.itemsize)


def _whole_elements(buffer: Buffer, program: Program) -> Expr | None:
    """How many elements of `buffer`'s type its storage holds, None if bytes may be left over."""
    root = program.by_name[program.storage_of(buffer.name)]
    root_width, width = root.dtype.itemsize, buffer.dtype.itemsize
    if root_width % width and mod(root.storage_numel * root_width, width).value != 0:
        return None
    return storage_limit(buffer, program)


def can_meet(a: Access, b: Access) -> bool:
    """Whether two accesses of one storage may touch the same element; False is a proof."""
    if a.map is None or b.map is None or a.facts is None or b.facts is None:
        return True
    if a.map.index is b.map.index and a.map.domain is b.map.domain and a.width == b.width:
        return True
    one, other = ByteSpan(a.map.index, a.width, a.facts), ByteSpan(b.map.index, b.width, b.facts)
    # Who touches nothing meets nobody, but what it names must exist when it is its turn.
    return not never_meet(one, other) or _touches_nothing(a) or _touches_nothing(b)


def _touches_nothing(access: Access) -> bool:
    """Whether its loop has no iterations, or its mask can never let it through."""
    if access.map is None or access.facts is None:
        return False
    if any(n.value == 0 for n in access.map.domain.extents):
        return True
    if not access.masked or access.numel is None:
        return False
    last = access.facts.interval(access.map.index).hi
    is_before = last is not None and last < 0
    return is_before or access.facts.at_most(access.numel, access.map.index)
