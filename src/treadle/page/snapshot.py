"""A memory plan as a snapshot of PyTorch's allocator, for memory_viz and its command line.

The arena is one segment, each host another one; storages that are written in place of each other
are one allocation. Time is the number of the step.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from treadle.memory.plan_program import PlannedProgram
from treadle.memory.problem import ARENA

BASE = 0x7000_0000_0000
"""The first address; any would do."""
ROUND = 1 << 21
"""Segments begin at multiples of this, as the allocator's do."""


@dataclass(frozen=True)
class PlannedAllocation:
    """Bytes that are taken from one step to another; `upper` None: until after the end."""

    names: tuple[str, ...]
    address: int
    size: int
    lower: int
    upper: int | None
    frames: tuple[dict[str, Any], ...]


def snapshot(planned: PlannedProgram, lines: dict[str, list[str]]) -> bytes:
    """The pickle of the plan; `lines` says `file:line` for storages where it is known."""
    bases = _bases(planned)
    found = sorted(_allocations(planned, bases, lines), key=lambda a: (a.lower, a.address))
    segments = [
        _segment(base, size, [a for a in found if base <= a.address < base + size])
        for base, size in bases.values()
    ]
    data = {
        "segments": segments,
        "device_traces": [list(_events(bases, found))],
        "allocator_settings": {},
        "external_annotations": [],
    }
    return pickle.dumps(data, protocol=4)


def _bases(planned: PlannedProgram) -> dict[str, tuple[int, int]]:
    """Where each pool, and each storage with memory of its own, begins and how large it is."""
    sizes = {ARENA: planned.arena_bytes} if planned.arena_bytes else {}
    sizes |= {pool.name: pool.size for pool in planned.of.problem.pools if pool.size}
    for name in (*planned.of.outputs, *planned.of.elsewhere):
        if name not in planned.plan.placements and planned.of.bytes_of(name):
            sizes.setdefault(name, planned.of.bytes_of(name))
    found, at = {}, BASE
    for name, size in sizes.items():
        found[name] = (at, size)
        at += -(-size // ROUND) * ROUND + ROUND
    return found


def _allocations(
    planned: PlannedProgram, bases: dict[str, tuple[int, int]], lines: dict[str, list[str]]
) -> Iterator[PlannedAllocation]:
    steps = planned.of.steps
    chains: dict[str, list[Any]] = {}
    for block in planned.of.problem.blocks:
        chains.setdefault(f"g {block.group}" if block.group else f"b {block.name}", []).append(
            block
        )
    for blocks in chains.values():
        place = planned.plan.placements[blocks[0].name]
        upper = max(b.upper for b in blocks)
        first = min(blocks, key=lambda b: b.lower)
        names = tuple(b.name for b in sorted(blocks, key=lambda b: b.lower))
        yield PlannedAllocation(
            names,
            bases[place.pool][0] + place.offset,
            max(b.size for b in blocks),
            first.lower,
            None if names[-1] in planned.of.outputs else upper,
            _frames(names, steps[first.lower] if first.lower < len(steps) else "", lines),
        )
    number = {name: k for k, name in reversed(list(enumerate(steps)))}
    for row in planned.of.live.ranges():
        if (
            row.storage in bases
            and row.first is not None
            and row.storage not in planned.plan.placements
        ):
            base, size = bases[row.storage]
            frames = _frames((row.storage,), row.first, lines)
            yield PlannedAllocation(
                (row.storage,), base, size, number.get(row.first, 0), None, frames
            )


def _frames(
    names: tuple[str, ...], maker: str, lines: dict[str, list[str]]
) -> tuple[dict[str, Any], ...]:
    """A stack for the viewer: the storages, the launch that makes them, the user's lines."""
    found = [{"name": ", ".join(names), "filename": maker, "line": 0}]
    for line in lines.get(names[0], []):
        file, _, number = line.rpartition(":")
        found.append({"name": maker, "filename": file, "line": int(number)})
    return tuple(found)


def _events(
    bases: dict[str, tuple[int, int]], found: list[PlannedAllocation]
) -> Iterator[dict[str, Any]]:
    """Everything in order of time; what ends at a step is freed before others are allocated."""
    for base, size in bases.values():
        yield _event("segment_alloc", base, size, 0, ())
    changes = [(a.lower, 1, k) for k, a in enumerate(found)]
    changes += [(a.upper, 0, k) for k, a in enumerate(found) if a.upper is not None]
    for time, is_begin, k in sorted(changes):
        a = found[k]
        if is_begin:
            yield _event("alloc", a.address, a.size, time, a.frames)
        else:
            yield _event("free_requested", a.address, a.size, time, a.frames)
            yield _event("free_completed", a.address, a.size, time, a.frames)


def _event(
    action: str, address: int, size: int, time: int, frames: tuple[dict[str, Any], ...]
) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time,
            "frames": [dict(f) for f in frames]}  # fmt: skip


def _segment(base: int, size: int, inside: list[PlannedAllocation]) -> dict[str, Any]:
    """A segment as it is after the last step: what the caller keeps is still allocated."""
    kept = sorted([a for a in inside if a.upper is None], key=lambda a: a.address)
    blocks, at = [], base
    for a in kept:
        if a.address > at:
            blocks.append(_block(at, a.address - at, "inactive", ()))
        blocks.append(_block(a.address, a.size, "active_allocated", a.frames))
        at = a.address + a.size
    if at < base + size:
        blocks.append(_block(at, base + size - at, "inactive", ()))
    taken = sum(a.size for a in kept)
    return {
        "device": 0, "address": base, "total_size": size, "allocated_size": taken,
        "active_size": taken, "requested_size": taken, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
    }  # fmt: skip


def _block(
    address: int, size: int, state: str, frames: tuple[dict[str, Any], ...]
) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state,
            "frames": [dict(f) for f in frames]}  # fmt: skip
