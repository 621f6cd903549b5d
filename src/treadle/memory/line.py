"""A problem as all solvers see it: items on one line of addresses, times cut into sections.

    |-- host out0 --|-- host out1 --|-- arena ------------------------------->

Every pool is a region of one line, the hosts first and the arena last, so "place it as low as
you can" fills hosts before it grows the arena. An item is a block, or a whole group, or nothing
at all for blocks without bytes. It may start only where it lies inside one region that is open
to it and where its alignment holds. Time is a row of sections: one for each moment at which a
maximal set of items is live; two items conflict exactly if they share a section.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

from treadle.memory.problem import ARENA, Block, Place, Plan, Pool, Problem, Ranges

HUGE = 1 << 200
"""Higher than any address, and the answer where there is no address."""


@dataclass(frozen=True, slots=True)
class Region:
    """Addresses [base, end) of the line that belong to one pool."""

    name: str
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class Item:
    """A slot to place: members share it; `spans` are half-open ranges of section numbers.

    `regions` are the numbers of the regions open to it in ascending order; `fixed` is an address
    of the line. `duration` is in the problem's own time.
    """

    members: tuple[str, ...]
    size: int
    alignment: int
    spans: Ranges
    regions: tuple[int, ...]
    fixed: int | None
    duration: int


@dataclass(frozen=True, slots=True)
class Line:
    """The items of a problem, its regions (the arena is the last) and the time of each section.

    `empty` are the blocks without bytes, which are in nobody's way, and a place for each.
    """

    items: tuple[Item, ...]
    regions: tuple[Region, ...]
    times: tuple[int, ...]
    empty: tuple[tuple[str, Place], ...]

    @property
    def arena(self) -> Region:
        """The region that grows."""
        return self.regions[-1]


def line_of(problem: Problem) -> Line:
    """The problem with groups merged, pools in a row, and time cut into sections."""
    slots = [(slot, max(block.size for block in slot)) for slot in _slots(problem.blocks)]
    kept = [(slot, size) for slot, size in slots if size]
    regions = _regions(problem)
    spans = [union_of([span for block in slot for span in block.spans]) for slot, _ in kept]
    times = _section_times(spans)
    items = tuple(
        _item(slot, size, span, times, regions, problem.pools)
        for (slot, size), span in zip(kept, spans, strict=True)
    )
    empty = tuple(place for slot, size in slots if not size for place in _anywhere(slot))
    return Line(items, regions, times, empty)


def legal_start(item: Item, address: int, regions: Sequence[Region], limit: int = HUGE) -> int:
    """The lowest address from `address` up where the item may start, or HUGE if there is none.

    The arena counts as ending at `limit`.
    """
    if item.fixed is not None:
        return item.fixed if address <= item.fixed <= limit - item.size else HUGE
    size, alignment = item.size, item.alignment
    for number in item.regions:
        region = regions[number]
        start = max(address, region.base)
        start += -start % alignment
        if start + size <= min(region.end, limit):
            return start
    return HUGE


def plan_of(line: Line, offsets: Sequence[int]) -> Plan:
    """The plan that gives each item its address of the line."""
    placements: dict[str, Place] = {}
    bases = [region.base for region in line.regions]
    height = 0
    for item, address in zip(line.items, offsets, strict=True):
        at = len(bases) - 1
        while bases[at] > address:
            at -= 1
        place = Place(line.regions[at].name, address - bases[at])
        if at == len(bases) - 1:
            height = max(height, place.offset + item.size)
        for member in item.members:
            placements[member] = place
    placements.update(line.empty)
    return Plan(placements, height)


def top_of(line: Line, offsets: Sequence[int]) -> int:
    """The height of the arena under these addresses."""
    ends = (address + item.size for item, address in zip(line.items, offsets, strict=True))
    return max(0, max(ends, default=0) - line.arena.base)


def granule(line: Line) -> int:
    """A number that divides the height of some lowest plan: heights in between need no trial.

    A lowest plan stacks sizes on sizes; only alignments that sizes do not keep anyway, and
    fixed offsets, add other numbers.
    """
    base = line.arena.base
    fixed = [item.fixed - base for item in line.items if item.fixed is not None]
    step = gcd(*(item.size for item in line.items), *fixed)
    alignments = {item.alignment for item in line.items}
    while broken := [alignment for alignment in alignments if step % alignment]:
        step = gcd(step, *broken)
        alignments -= set(broken)
    return step or 1


def union_of(spans: Sequence[tuple[int, int]]) -> Ranges:
    """Half-open ranges merged where they overlap or touch, in ascending order."""
    if len(spans) == 1:
        return (spans[0],)
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _slots(blocks: Sequence[Block]) -> list[list[Block]]:
    slots: list[list[Block]] = []
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        if block.group is None:
            slots.append([block])
        elif block.group in groups:
            groups[block.group].append(block)
        else:
            groups[block.group] = [block]
            slots.append(groups[block.group])
    return slots


def _anywhere(slot: list[Block]) -> list[tuple[str, Place]]:
    host = next((block.host for block in slot if block.host is not None), ARENA)
    fixed = next((block.fixed for block in slot if block.fixed is not None), 0)
    return [(block.name, Place(host, fixed)) for block in slot]


def _regions(problem: Problem) -> tuple[Region, ...]:
    step = lcm(*{block.alignment for block in problem.blocks})
    regions, base = [], 0
    for pool in problem.pools:
        regions.append(Region(pool.name, base, base + pool.size))
        base += pool.size + -pool.size % step
    return (*regions, Region(ARENA, base, HUGE))


def _section_times(spans: Sequence[Ranges]) -> tuple[int, ...]:
    """The times of births followed by a death: there the sets of the living are largest."""
    starts = sorted(start for ranges in spans for start, _ in ranges)
    ends = sorted(end for ranges in spans for _, end in ranges)
    times: list[int] = []
    at = 0
    for end in ends:
        before = at
        while at < len(starts) and starts[at] < end:
            at += 1
        if at > before:
            times.append(starts[at - 1])
    return tuple(times)


def _item(
    slot: list[Block],
    size: int,
    spans: Ranges,
    times: Sequence[int],
    regions: tuple[Region, ...],
    pools: tuple[Pool, ...],
) -> Item:
    alignment = lcm(*[block.alignment for block in slot])
    fixed = next((block.fixed for block in slot if block.fixed is not None), None)
    host = next((block.host for block in slot if block.host is not None), None)
    if fixed is not None and host is None:
        host = ARENA
    is_open = [
        number
        for number, pool in enumerate(pools)
        if pool.size >= size
        and (host is None or host == pool.name)
        and (pool.alignment is None or not pool.alignment % alignment)
        and all(_free(pool.free, start, end) for start, end in spans)
    ]
    if host is None or host == ARENA:
        is_open.append(len(pools))
    if fixed is not None:
        region = regions[is_open[0]] if is_open else Region("", HUGE, HUGE)
        fixed += region.base
        if fixed % alignment or fixed + size > region.end:
            is_open, fixed = [], HUGE
    return Item(
        members=tuple(block.name for block in slot),
        size=size,
        alignment=alignment,
        spans=tuple((bisect_left(times, start), bisect_left(times, end)) for start, end in spans),
        regions=tuple(is_open),
        fixed=fixed,
        duration=sum(end - start for start, end in spans),
    )


def _free(ranges: Ranges, start: int, end: int) -> bool:
    """Whether [start, end) lies inside ranges, which may touch."""
    for low, high in ranges:
        if low <= start < high:
            start = high
        if start >= end:
            return True
    return False
