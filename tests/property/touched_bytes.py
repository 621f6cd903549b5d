"""What an operation touches, byte by byte: found by visiting every point, sharing no analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

from treadle.index import Expr, Kind, Symbol, evaluate
from treadle.ir.body import Numbered, number_of
from treadle.ir.effects import effects
from treadle.ir.program import Collective, Loop, Nop, Operation, Program, Wait
from treadle.ir.types import Buffer, BufferKind

Cell: TypeAlias = tuple[str, int]
"""A storage and a byte of it; tokens and tuples count as one byte."""
Sizes: TypeAlias = Mapping[Symbol, int]


class Touched(NamedTuple):
    """Bytes that may be read, may be written, and are sure to be written."""

    reads: frozenset[Cell]
    writes: frozenset[Cell]
    certain: frozenset[Cell]

    def meets(self, later: Touched) -> bool:
        """Whether the order of the two can show: a common byte that one of them writes."""
        return bool(self.writes & (later.reads | later.writes) or self.reads & later.writes)


def touched(program: Program, op: Operation, sizes: Sizes) -> Touched:
    """What a leaf operation touches when the run-time sizes are `sizes`."""
    if isinstance(op, Loop):
        return _by_loop(program, op, sizes)
    of = effects(op)
    seen = (*of.reads, *of.mutates, *(_still_sent(program, op) if isinstance(op, Wait) else ()))
    reads = [c for n in seen for c in cells_of(program, n, sizes)]
    written = [c for n in (*of.writes, *of.mutates) for c in cells_of(program, n, sizes)]
    if isinstance(op, Nop):
        roots = [n for n in op.writes if program.storage_of(n) == n]
        written += [c for n in roots for c in all_cells(program, n, sizes)]
    return Touched(frozenset(reads), frozenset(written), frozenset(written))


def _still_sent(program: Program, wait: Wait) -> tuple[str, ...]:
    """What the collective that is waited for was given: it may read it until then."""
    root = program.storage_of(wait.buffer)
    found: tuple[str, ...] = ()
    for op in program.leaves:
        if op is wait:
            break
        of = effects(op)
        if isinstance(op, Collective) and root in map(
            program.storage_of, (*of.writes, *of.mutates)
        ):
            found = of.reads
    return found


def cells_of(program: Program, name: str, sizes: Sizes) -> Iterator[Cell]:
    """The bytes of a buffer's own elements."""
    b = program.by_name[name]
    if b.kind is not BufferKind.TENSOR:
        yield name, 0
        return
    extents = [evaluate(n, sizes) for n in b.layout.sizes]
    strides = [evaluate(s, sizes) for s in b.layout.strides]
    first = evaluate(b.layout.offset, sizes)
    for at in product(*[range(n) for n in extents]):
        index = first + sum(s * k for s, k in zip(strides, at, strict=True))
        yield from element(program, b, index)


def all_cells(program: Program, name: str, sizes: Sizes) -> Iterator[Cell]:
    """Every byte of the storage behind a buffer, gaps included."""
    root = program.storage_of(name)
    for byte in range(storage_bytes(program.by_name[root], sizes)):
        yield root, byte


def storage_bytes(root: Buffer, sizes: Sizes) -> int:
    """How many bytes a storage needs: up to the last element any coordinate reaches."""
    extents = [evaluate(n, sizes) for n in root.layout.sizes]
    strides = [evaluate(s, sizes) for s in root.layout.strides]
    last = evaluate(root.layout.offset, sizes)
    if 0 in extents:
        return int(last) * root.dtype.itemsize
    last += sum((n - 1) * s for n, s in zip(extents, strides, strict=True) if s > 0)
    return int(last + 1) * root.dtype.itemsize


def element(program: Program, b: Buffer, index: int) -> list[Cell]:
    """The bytes of the storage element `index`, counted in elements of `b`."""
    root, width = program.storage_of(b.name), b.dtype.itemsize
    return [(root, index * width + k) for k in range(width)]


def _by_loop(program: Program, op: Loop, sizes: Sizes) -> Touched:
    reads: set[Cell] = set()
    writes: set[Cell] = set()
    certain: set[Cell] = set()
    ranges = _indirect_ranges(op, sizes)
    for at in op.body.walk():
        stmt = at.stmt
        if stmt.op == "load":
            reads |= _cells(program, op, at, sizes, ranges)
        elif stmt.op == "bucketize":
            reads |= set(cells_of(program, stmt.buffer, sizes))
        elif stmt.op == "store":
            cells = _cells(program, op, at, sizes, ranges)
            writes |= cells
            if not any(s.kind is Kind.INDIRECT for s in stmt.address.free):
                certain |= cells
            if stmt.mode != "plain":
                reads |= cells
    return Touched(frozenset(reads), frozenset(writes), frozenset(certain))


def _indirect_ranges(op: Loop, sizes: Sizes) -> dict[int, int | None]:
    """How far each indirect value can go; None if nothing holds it back."""
    found: dict[int, int | None] = {}
    for at in op.body.walk():
        if at.stmt.op == "indirect" and at.number is not None:
            limit = at.stmt.attr("size")
            assert isinstance(limit, Expr)
            found[at.number] = evaluate(limit, sizes) if at.stmt.attr("check") else None
    return found


def _cells(
    program: Program, op: Loop, at: Numbered, sizes: Sizes, ranges: Mapping[int, int | None]
) -> set[Cell]:
    """The bytes one load or store can reach; those outside the storage cannot happen."""
    buffer, index = program.by_name[at.stmt.buffer], at.stmt.address
    # What does not vary along the reduction loops happens once, even where they are empty.
    body = op.body
    loops = body.space if index.free & set(body.reduce.vars) else body.domain
    extents = [range(evaluate(n, sizes)) for n in loops.extents]
    data = sorted((s for s in index.free if s.kind is Kind.INDIRECT), key=lambda s: s.order)
    known = [ranges[number_of(s)] for s in data]
    storage = set(all_cells(program, buffer.name, sizes))
    if any(n is None for n in known):
        return storage if all(extents) else set()
    found: set[Cell] = set()
    for values in product(*extents, *[range(n or 0) for n in known]):
        point = dict(zip((*loops.vars, *data), values, strict=True))
        found.update(element(program, buffer, evaluate(index, {**sizes, **point})))
    return found & storage
