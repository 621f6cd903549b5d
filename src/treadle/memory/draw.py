"""What there is to see in a plan, as data: who is live at the peak, how many bytes live when.

`draw_svg` and `draw_text` make pictures of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from treadle.memory.problem import ARENA, Block, Plan, Problem


class PeakRow(NamedTuple):
    """One block that is live at the peak; `idle` is time it is kept without being touched."""

    name: str
    size: int
    lower: int
    upper: int
    pool: str
    offset: int
    idle: int | None


class Curve(NamedTuple):
    """Live bytes as steps: from `times[k]` on there are `values[k]` bytes."""

    times: tuple[int, ...]
    values: tuple[int, ...]


def live_curve(problem: Problem, plan: Plan | None = None, pool: str | None = None) -> Curve:
    """How many bytes live when: of all blocks, or of those that a plan puts into one pool."""
    changes: dict[int, int] = {}
    counted: dict[str, list[Block]] = {}
    for block in problem.blocks:
        if pool is not None and plan is not None and plan.placements[block.name].pool != pool:
            continue
        slot = f"g {block.group}" if block.group is not None else f"b {block.name}"
        counted.setdefault(slot, []).append(block)
    for slot_blocks in counted.values():
        size = max(block.size for block in slot_blocks)
        for start, end in _merged([span for block in slot_blocks for span in block.spans]):
            changes[start] = changes.get(start, 0) + size
            changes[end] = changes.get(end, 0) - size
    times: list[int] = []
    values: list[int] = []
    live = 0
    for time in sorted(changes):
        if changes[time] or not times:
            live += changes[time]
            times.append(time)
            values.append(live)
    return Curve(tuple(times), tuple(values))


def peak_of(curve: Curve) -> tuple[int, int]:
    """(time, bytes) of the first highest step; (0, 0) if nothing ever lives."""
    if not curve.values:
        return 0, 0
    at = max(range(len(curve.values)), key=lambda k: (curve.values[k], -k))
    return curve.times[at], curve.values[at]


def peak_rows(
    problem: Problem, plan: Plan, at: int | None = None, idle: Mapping[str, int] | None = None
) -> list[PeakRow]:
    """Who is live at a time (the peak of the live bytes if not said), the largest first."""
    if at is None:
        at, _ = peak_of(live_curve(problem))
    rows = []
    for block in problem.blocks:
        if not any(start <= at < end for start, end in block.spans):
            continue
        place = plan.placements[block.name]
        rows.append(
            PeakRow(
                block.name,
                block.size,
                block.lower,
                block.upper,
                place.pool,
                place.offset,
                idle.get(block.name) if idle else None,
            )
        )
    return sorted(rows, key=lambda row: (-row.size, row.name))


def pools_drawn(problem: Problem, plan: Plan) -> list[tuple[str, int]]:
    """(pool, bytes) of everything that has room to show: the arena, then the hosts in use."""
    used = {place.pool for place in plan.placements.values()}
    hosts = [(pool.name, pool.size) for pool in problem.pools if pool.name in used and pool.size]
    return [*([(ARENA, plan.height)] if plan.height else []), *hosts]


def time_range(problem: Problem) -> tuple[int, int]:
    """From the first birth to the last death."""
    if not problem.blocks:
        return 0, 1
    return min(b.lower for b in problem.blocks), max(b.upper for b in problem.blocks)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
