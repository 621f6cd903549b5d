"""Loops that compute the same values twice: equal bodies over equal data, stored to two buffers.

    a = fill(0) ; b = fill(0)           b holds what a holds
    c = cast(x) ; d = cast(x)           d holds what c holds

Two loops compute the same if their bodies differ only in the name they store to, they read the same
versions of the same storages, and the results have the same layout. A result that is changed later
must stay a buffer of its own; `Duplicate.is_kept_apart` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.analysis.deps import Dependences, dependences
from treadle.ir.effects import effects
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Loop, Program


@dataclass(frozen=True)
class Duplicate:
    """`op` computes again what `original` computed before it."""

    op: str
    original: str
    buffer: str
    original_buffer: str
    bytes: int
    is_kept_apart: bool
    """Whether the result is changed later, so that it cannot be the original's buffer."""


def duplicates(program: Program) -> list[Duplicate]:
    """Every loop whose values an earlier loop has already computed, in program order."""
    changed = changed_later(program, dependences(program))
    found: list[Duplicate] = []
    for first, *others in equal_loops(program):
        for op in others:
            target = effects(op).writes[0]
            found.append(
                Duplicate(
                    op=op.name,
                    original=first.name,
                    buffer=target,
                    original_buffer=effects(first).writes[0],
                    bytes=program.by_name[target].tensor_bytes,
                    is_kept_apart=program.storage_of(target) in changed,
                )
            )
    place = {op.name: k for k, op in enumerate(program.leaves)}
    return sorted(found, key=lambda d: place[d.op])


def equal_loops(program: Program) -> list[list[Loop]]:
    """Sets of two and more loops that compute the same values, each in program order."""
    deps = dependences(program)
    sets: dict[object, list[Loop]] = {}
    for position, op in enumerate(program.leaves):
        if isinstance(op, Loop):
            key = _key(op, position, program, deps)
            if key is not None:
                sets.setdefault(key, []).append(op)
    return [alike for alike in sets.values() if len(alike) > 1]


def changed_later(program: Program, deps: Dependences) -> set[str]:
    """Storages written more than once: after its first write something changes them again."""
    writers: dict[str, int] = {}
    for _, storage in deps.writes_version:
        writers[storage] = writers.get(storage, 0) + 1
    inputs = {program.storage_of(n) for n in program.inputs}
    return {s for s, count in writers.items() if count > 1 or s in inputs}


def _key(op: Loop, position: int, program: Program, deps: Dependences) -> object | None:
    of = effects(op)
    if len(of.writes) != 1 or of.mutates:
        return None
    target = program.by_name[of.writes[0]]
    if target.view_of is not None or target.name in of.reads:
        return None
    versions = []
    for name in of.reads:
        storage = program.storage_of(name)
        versions.append((name, deps.reads_version.get((position, storage))))
    form = (target.dtype, target.layout, target.device, op.device)
    # Bodies over the same buffers are equal if their patterns are; the target is what may differ.
    pattern, buffers = pattern_of(op)
    return pattern, buffers.index(target.name), tuple(versions), form
