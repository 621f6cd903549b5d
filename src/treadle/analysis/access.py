"""Reads and writes of every operation as index maps.

A loop touches single elements: the access is a map from its loops to storage indices. A call
touches whole buffers. Either way the access knows the range of the storage it can reach, whether
it is sure to reach all of it, and, between two of them, whether they can ever meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from treadle.index import Expr, Facts, IndexMap, Kind
from treadle.ir.effects import effects
from treadle.ir.program import Loop, Nop, Operation, Program
from treadle.ir.spec_body import facts_of, storage_limit
from treadle.ir.types import BufferKind


@dataclass(frozen=True)
class Access:
    """One way in which one operation touches one buffer."""

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
    """Elements in the storage."""

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

    @cached_property
    def reach(self) -> tuple[int, int] | None:
        """The first and last storage index it can touch, None if not known before run time."""
        if self.map is None or self.facts is None:
            return None
        lo, hi = self.facts.interval(self.map.index)
        return None if lo is None or hi is None else (lo, hi)

    @cached_property
    def covers_storage(self) -> bool:
        """Whether a write is sure to replace every element of its storage."""
        if not self.is_write or self.also_reads or self.masked:
            return False
        if self.map is None:
            return True
        if self.is_indirect or self.numel is None:
            return False
        form = self.map.set_form()
        if not len(form.domain):
            return form.index.value == 0 and self.numel.value == 1
        only_one = len(form.domain) == 1 and form.domain.extents[0] is self.numel
        return only_one and form.index is form.domain.vars[0]


def accesses(program: Program) -> dict[str, tuple[Access, ...]]:
    """The accesses of every leaf operation, reads before writes, by operation name."""
    return {op.name: tuple(_of_operation(op, program)) for op in program.leaves}


def _of_operation(op: Operation, program: Program) -> Iterator[Access]:
    if isinstance(op, Loop):
        yield from _of_loop(op, program)
        return
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
            yield Access(op.name, name, program.storage_of(name), True, mode_here)


def _of_loop(op: Loop, program: Program) -> Iterator[Access]:
    facts = facts_of(op.body)
    space = op.body.space
    reads: dict[tuple[str, Expr | None], Access] = {}
    writes: dict[tuple[str, Expr, str], Access] = {}
    for at in op.body.walk():
        stmt = at.stmt
        if stmt.op == "bucketize":
            name = str(stmt.attrs[0])
            reads[name, None] = Access(op.name, name, program.storage_of(name), False)
        if stmt.op not in ("load", "store"):
            continue
        name, index = str(stmt.attrs[0]), stmt.attrs[1]
        assert isinstance(index, Expr)
        is_write = stmt.op == "store"
        access = Access(
            op=op.name,
            buffer=name,
            storage=program.storage_of(name),
            is_write=is_write,
            mode=str(stmt.attrs[2]) if is_write else "plain",
            map=IndexMap(space, (index,)),
            masked=at.depth > 0,
            facts=facts,
            numel=storage_limit(program.by_name[name], program),
        )
        if is_write:
            writes[name, index, access.mode] = access
        else:
            reads[name, index] = access
    yield from reads.values()
    yield from writes.values()


def can_meet(a: Access, b: Access) -> bool:
    """Whether two accesses of one storage may touch the same element; False is a proof."""
    if a.map is None or b.map is None:
        return True
    if a.map.index is b.map.index and a.map.domain == b.map.domain:
        return True
    one, other = a.reach, b.reach
    if one is None or other is None:
        return True
    if one[1] < other[0] or other[1] < one[0]:
        return False
    return not _different_residues(a, b)


def _different_residues(a: Access, b: Access) -> bool:
    """Whether for some step g, all indices of a and b fall in different places modulo g."""
    assert a.map is not None
    assert b.map is not None
    steps = {abs(c) for base, c in a.map.index.terms} & {abs(c) for _, c in b.map.index.terms}
    for g in sorted(steps - {1}, reverse=True):
        first, second = _residues(a, g), _residues(b, g)
        if first is None or second is None:
            continue
        (lo, hi), (low, high) = first, second
        if hi < low or high < lo:
            return True
    return False


def _residues(access: Access, g: int) -> tuple[int, int] | None:
    """The range of index modulo g, if what is not a multiple of g stays inside one period."""
    assert access.map is not None
    assert access.facts is not None
    index = access.map.index
    small = index
    for base, c in index.terms:
        if gcd(c, g) == g:
            small = small - base * c
    lo, hi = access.facts.interval(small)
    if lo is None or hi is None or lo // g != hi // g:
        return None
    return lo % g, hi % g
