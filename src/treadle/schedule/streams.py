"""Streams for independent branches: which operation runs on which, and who waits for whom.

    a -> b -> d        stream 0: a b d        d waits for the event behind c
    a -> c -> d        stream 1: c            c waits for the event behind a

An operation goes behind the one it needs if that is the last on its stream; a branch takes a stream
whose last operation it must follow anyway, or a new one. Operations on one stream run in program
order; an event is recorded only where nothing else already orders the two. Dependences include
overwritten memory of one storage; whoever lets different storages share bytes must ask `ordered`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from treadle.ir.program import Program
from treadle.schedule.partition import links

MOST = 4
"""Streams per device: more branches rarely run at once."""


class Lane(NamedTuple):
    """A stream of a device; the CPU has one, its own thread."""

    device: str
    number: int


@dataclass(frozen=True)
class Streams:
    """The stream of each operation, and the events it waits for."""

    names: tuple[str, ...]
    lane: tuple[Lane, ...]
    """By operation, in program order."""
    waits: tuple[tuple[int, ...], ...]
    """By operation: operations on other streams whose event it waits for."""
    clocks: tuple[dict[Lane, int], ...]
    """By operation: the last operation of each stream that is done when it is."""

    @property
    def events(self) -> int:
        """How many operations record an event."""
        return len({k for row in self.waits for k in row})

    @property
    def count(self) -> int:
        """How many streams are used."""
        return len(set(self.lane))

    def ordered(self, a: int, b: int) -> bool:
        """Whether operation `a` is sure to be done when operation `b` begins."""
        return a != b and self.clocks[b].get(self.lane[a], -1) >= a

    def of(self, name: str) -> Lane:
        """The stream of an operation by name."""
        return self.lane[self.names.index(name)]


def assign_streams(program: Program, most: int = MOST) -> Streams:
    """Streams for the operations of a program in its order; the program stays as it is."""
    after, _ = links(program)
    needs: list[list[int]] = [[] for _ in program.ops]
    for source, targets in enumerate(after):
        for target in targets:
            needs[target].append(source)
    found = _Assignment(most)
    for k, op in enumerate(program.ops):
        found.add(k, op.device, needs[k])
    names = tuple(op.name for op in program.ops)
    return Streams(names, tuple(found.lane), tuple(found.waits), tuple(found.clocks))


class _Assignment:
    """Streams so far."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lane: list[Lane] = []
        self.waits: list[tuple[int, ...]] = []
        self.clocks: list[dict[Lane, int]] = []
        self.last: dict[Lane, int] = {}

    def add(self, k: int, device: str, needs: list[int]) -> None:
        """Place one operation behind those before it."""
        lane = self._choose(device, needs)
        previous = self.last.get(lane)
        clock = {} if previous is None else dict(self.clocks[previous])
        if previous is not None:
            clock[lane] = previous
        waits = []
        for source in sorted(needs, reverse=True):  # a later one often brings the earlier ones
            if clock.get(self.lane[source], -1) < source:
                waits.append(source)
                self._learn(clock, source)
        clock[lane] = k
        self.lane.append(lane)
        self.waits.append(tuple(sorted(waits)))
        self.clocks.append(clock)
        self.last[lane] = k

    def _learn(self, clock: dict[Lane, int], source: int) -> None:
        for lane, at in self.clocks[source].items():
            clock[lane] = max(clock.get(lane, -1), at)

    def _choose(self, device: str, needs: list[int]) -> Lane:
        """The stream whose end is needed latest, one that is done anyway, a new one, any."""
        most = 1 if device.startswith("cpu") else self.most
        lanes = [Lane(device, n) for n in range(most)]
        used = [x for x in lanes if x in self.last]
        ends = [x for x in used if self.last[x] in needs]
        if ends:
            return max(ends, key=lambda x: self.last[x])
        known: dict[Lane, int] = {}
        for source in needs:
            self._learn(known, source)
        done = [x for x in used if known.get(x, -1) >= self.last[x]]
        if done:
            return done[0]
        unused = [x for x in lanes if x not in self.last]
        # All are busy: the one that has been left alone longest.
        return unused[0] if unused else min(used, key=lambda x: self.last[x])
