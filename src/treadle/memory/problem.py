"""What a memory planner is asked and what it answers, as plain data.

    address
      ^   +---------+
      |   |    c    |      A block occupies [offset, offset + size) of one pool at every time of
      |   +-----+---+--+   its life [lower, upper), except in its gaps.
      |   |  a  |   b  |
      +---+-----+------+--> time

There is one arena, which grows and whose height is what planners minimise, and any number of
hosts: pools of fixed size that others own and that may be used only at some times (an output
before it is born, a donated input after it died). Nothing here knows how plans are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

ARENA = "arena"

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open ranges of time, in ascending order, not touching each other's inside."""


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that are needed from time `lower` up to, not including, time `upper`.

    gaps        times inside the life when others may use the bytes (nothing is kept in them)
    fixed       the offset it must have, in `host` or else in the arena
    host        the only pool it may live in, possibly "arena"; None lets the planner choose
    group       blocks of one group share one slot: same pool, same offset, never in each other's
                way, and as large as the largest of them while any of them lives
    """

    name: str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    gaps: Ranges = ()
    fixed: int | None = None
    host: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.lower >= self.upper:
            raise ValueError(f"block {self.name}: life [{self.lower}, {self.upper}) is empty")
        if self.size < 0:
            raise ValueError(f"block {self.name}: negative size {self.size}")
        if self.alignment < 1:
            raise ValueError(f"block {self.name}: alignment {self.alignment} is less than 1")
        if self.fixed is not None and self.fixed < 0:
            raise ValueError(f"block {self.name}: negative fixed offset {self.fixed}")
        if self.gaps:
            _refuse_bad_ranges(f"block {self.name}: gap", self.gaps, self.lower, self.upper)
            if not self.spans:
                life = f"[{self.lower}, {self.upper})"
                raise ValueError(f"block {self.name}: gaps leave nothing of its life {life}")

    @property
    def spans(self) -> Ranges:
        """The times at which it really occupies its bytes: the life without the gaps."""
        if not self.gaps:
            return ((self.lower, self.upper),)
        edges = [self.lower, *[edge for gap in self.gaps for edge in gap], self.upper]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return tuple((start, end) for start, end in pairs if start < end)


@dataclass(frozen=True, slots=True)
class Pool:
    """A host: `size` bytes of somebody else, which blocks may use at the times in `free`.

    `alignment` is what its first byte is known to be aligned to; None: to anything asked for.
    """

    name: str
    size: int
    free: Ranges
    alignment: int | None = None

    def __post_init__(self) -> None:
        if self.name == ARENA:
            raise ValueError(f"a host cannot be named {ARENA!r}")
        if self.size < 0:
            raise ValueError(f"pool {self.name}: negative size {self.size}")
        if self.alignment is not None and self.alignment < 1:
            raise ValueError(f"pool {self.name}: alignment {self.alignment} is less than 1")
        _refuse_bad_ranges(f"pool {self.name}: free range", self.free, None, None)


class Place(NamedTuple):
    """Where a block lives: a pool's name and an offset in bytes."""

    pool: str
    offset: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Blocks to place in the arena (of at most `capacity` bytes, if given) or in hosts."""

    blocks: tuple[Block, ...]
    pools: tuple[Pool, ...] = ()
    capacity: int | None = None
    name: str = "problem"

    def __post_init__(self) -> None:
        _refuse_repeats("block", [block.name for block in self.blocks])
        _refuse_repeats("pool", [pool.name for pool in self.pools])
        if self.capacity is not None and self.capacity < 0:
            raise ValueError(f"negative capacity {self.capacity}")
        known = {ARENA, *(pool.name for pool in self.pools)}
        for block in self.blocks:
            if block.host is not None and block.host not in known:
                raise ValueError(f"block {block.name}: there is no pool {block.host!r}")
        _refuse_torn_groups(self.blocks)


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer: a place for each block by name, and how many bytes of the arena that takes."""

    placements: Mapping[str, Place] = field(default_factory=dict)
    height: int = 0


def _refuse_repeats(what: str, names: list[str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two {what}s are named {name!r}")
        seen.add(name)


def _refuse_torn_groups(blocks: tuple[Block, ...]) -> None:
    """Members of a group share one place, so they cannot ask for different ones."""
    wishes: dict[tuple[str, str], Block] = {}
    for block in blocks:
        if block.group is None:
            continue
        for what in ("fixed", "host"):
            wish = getattr(block, what)
            if wish is None:
                continue
            other = wishes.setdefault((block.group, what), block)
            if getattr(other, what) != wish:
                raise ValueError(
                    f"group {block.group}: {other.name} and {block.name} have different {what}:"
                    f" {getattr(other, what)} and {wish}"
                )


def _refuse_bad_ranges(what: str, ranges: Ranges, low: int | None, high: int | None) -> None:
    last = low
    for start, end in ranges:
        if start >= end:
            raise ValueError(f"{what} [{start}, {end}) is empty")
        if last is not None and start < last:
            raise ValueError(f"{what} [{start}, {end}) starts before {last}")
        last = end
    if high is not None and last is not None and last > high:
        raise ValueError(f"{what} [{ranges[-1][0]}, {last}) ends after {high}")
