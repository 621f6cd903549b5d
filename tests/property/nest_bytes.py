"""Bytes that nests load and store, counted from their statements alone.

    for i in 8, j in 16:  load x[16*i + j], load m[i], store y[i]       x 128, m 8, y 8 elements

A load or store touches one element at each point of the loops its index uses; two that go through
the same elements count once, and nothing counts more often than its storage has elements. Where
data decide, every point may touch another element. What is added to is read and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from treadle.index import Domain, IndexMap, Kind, hint
from treadle.ir.body import Stmt
from treadle.ir.program import Nest, Program


class Moved(NamedTuple):
    """Bytes loaded and bytes stored."""

    loaded: int
    stored: int


def moved_by(program: Program, nest: Nest) -> Moved:
    """What one nest moves."""
    loads = [s for s in _touching(nest) if s.op != "store" or s.mode != "plain"]
    stores = [s for s in _touching(nest) if s.op == "store"]
    return Moved(_bytes(program, nest, loads), _bytes(program, nest, stores))


def touched_by(program: Program, nest: Nest) -> set[str]:
    """The storages it touches."""
    return {program.storage_of(s.buffer) for s in _touching(nest)}


def moved_of(program: Program, nest: Nest, buffers: set[str]) -> int:
    """What it moves of these buffers."""
    mine = [s for s in _touching(nest) if s.buffer in buffers]
    loads = [s for s in mine if s.op != "store" or s.mode != "plain"]
    stores = [s for s in mine if s.op == "store"]
    return _bytes(program, nest, loads) + _bytes(program, nest, stores)


def _touching(nest: Nest) -> Iterator[Stmt]:
    for at in nest.body.walk():
        if at.stmt.op in ("load", "store", "bucketize"):
            yield at.stmt


def _bytes(program: Program, nest: Nest, stmts: list[Stmt]) -> int:
    total = 0
    for storage, width in {_place(program, s) for s in stmts}:
        most = program.by_name[storage].storage_bytes // width
        mine = [s for s in stmts if _place(program, s) == (storage, width)]
        ways = {_way(nest, s): _elements(program, nest, s) for s in mine}
        total += min(sum(ways.values()), most) * width
    return total


def _place(program: Program, stmt: Stmt) -> tuple[str, int]:
    """The storage, and the width of the elements it is taken for."""
    return program.storage_of(stmt.buffer), program.by_name[stmt.buffer].dtype.itemsize


def _elements(program: Program, nest: Nest, stmt: Stmt) -> int:
    buffer, space = program.by_name[stmt.buffer], nest.body.space
    if stmt.op == "bucketize":
        return hint(buffer.numel)
    if any(s.kind is Kind.INDIRECT for s in stmt.address.free):
        root = program.by_name[program.storage_of(stmt.buffer)]
        return min(space.numel_hint, root.storage_bytes // buffer.dtype.itemsize)
    return prod(hint(n) for v, n in space.items() if v in stmt.address.free)


def _way(nest: Nest, stmt: Stmt) -> object:
    """Equal for two that go through the same elements."""
    if stmt.op == "bucketize":
        return "all of it", stmt.buffer
    free = stmt.address.free
    if any(s.kind is Kind.INDIRECT for s in free):
        return stmt.op, stmt.mode, stmt.address
    used = Domain([(v, n) for v, n in nest.body.space.items() if v in free])
    return IndexMap(used, (stmt.address,)).set_form()
