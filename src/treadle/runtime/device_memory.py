"""Where every storage of a run lies on one device, and how many bytes that takes at each step.

    step         0      1      2      3
    x (saved)    =======+                     donated: ours to use after its last reader
    t                   #######+              a kernel's temporary: the arena, or a host
    conv                       #######+       made by a library call, which allocates it
    out                               ####    given to the caller: memory of its own

Data and sums of it: `place_storages` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from treadle.memory.problem import ARENA, Place


class Role(Enum):
    """Whose memory a storage lies in, before anything is planned."""

    KEPT = "input"
    """an input that the caller keeps, or a tensor the graph holds"""
    DONATED = "donated input"
    TEMP = "temporary"
    OUTPUT = "output"
    """given to the caller, written by kernels or by a call that writes where it is told"""
    CALL = "result of a call"
    CALL_OUTPUT = "output made by a call"
    PINNED = "temporary of its own"


@dataclass(frozen=True, slots=True)
class StorageLife:
    """One storage: its bytes, and the steps that touch it first and last."""

    storage: str
    device: str
    role: Role
    bytes: int
    first: int
    """-1 for inputs."""
    last: int
    """The number of steps, if the caller keeps it; -1 if no step touches it."""
    is_whole: bool = True
    """Whether it is all that lies in its memory."""

    @property
    def upper(self) -> int:
        """The first step at which its bytes are not needed."""
        return self.last + 1


class Span(NamedTuple):
    """Memory that is allocated as one piece, and the steps between which it is held."""

    name: str
    kind: str
    """`arena`, or what a `Role` is called."""
    bytes: int
    first: int
    """Allocated before this step; -1: there from the beginning."""
    last: int
    """Dropped after this step; the number of steps: the caller keeps it."""


@dataclass(frozen=True)
class DeviceMemory:
    """A place for every storage of one device at one set of run-time sizes."""

    device: str
    end: int
    """How many steps there are."""
    lives: Mapping[str, StorageLife]
    chains: tuple[tuple[str, ...], ...]
    """Storages that are written one over the other, in order; most stand alone."""
    places: Mapping[str, Place]
    """Storages that lie in the arena or in another storage; all others lie on their own."""
    arena_bytes: int
    arena_lower_bound: int
    """No plan for what is to lie in the arena has a lower one."""
    hosts: tuple[bool, bool] = (True, True)
    """Whether outputs and donated inputs take in others."""
    alone: frozenset[str] = frozenset()
    """The first of each chain of temporaries that has memory of its own."""
    closed: frozenset[str] = frozenset()
    """Outputs that take in nobody, though others do."""
    parts: tuple[tuple[int, int], ...] = ()
    """Steps `first` to `last` before which all they need is allocated, and held until their end:
    so it is with what a device replays. Steps that are in no part take memory as they need it."""

    @cached_property
    def suballocations(self) -> dict[str, list[str]]:
        """Who lies in each pool: the arena or another storage."""
        found: dict[str, list[str]] = {}
        for name, place in self.places.items():
            found.setdefault(place.pool, []).append(name)
        return found

    @cached_property
    def spans(self) -> dict[str, Span]:
        """Every piece of memory by name, inputs included, the arena not."""
        found = {}
        for name, life in self.lives.items():
            if name not in self.places:
                inside = self.suballocations.get(name, [])
                found[name] = self._span(name, life.role.value, life.bytes, [name, *inside])
        return found

    @cached_property
    def arena(self) -> Span | None:
        """The arena as a piece of memory, if anything lies in it."""
        inside = self.suballocations.get(ARENA)
        return self._span(ARENA, ARENA, self.arena_bytes, inside) if inside else None

    @property
    def pieces(self) -> list[Span]:
        """All memory that is held at some time, the arena last."""
        return [*self.spans.values(), *([self.arena] if self.arena is not None else [])]

    def _span(self, name: str, kind: str, size: int, storages: Iterable[str]) -> Span:
        lives = [self.lives[s] for s in storages]
        return Span(name, kind, size, min(x.first for x in lives), max(x.last for x in lives))

    @property
    def at_once(self) -> bool:
        """Whether all is allocated before the first step and held until the last."""
        return self.parts == ((0, self.end - 1),)

    @cached_property
    def held(self) -> list[int]:
        """The bytes held during each step, inputs included."""
        begins = {k: first for first, last in self.parts for k in range(first, last + 1)}
        ends = {k: last for first, last in self.parts for k in range(first, last + 1)}
        pieces = [
            piece._replace(
                first=begins.get(piece.first, piece.first), last=ends.get(piece.last, piece.last)
            )
            for piece in self.pieces
        ]
        return _per_step(pieces, self.end)

    @cached_property
    def peak_step(self) -> int:
        """The first step with the most bytes."""
        return max(range(len(self.held)), key=lambda k: (self.held[k], -k))

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once, inputs included."""
        return self.held[self.peak_step]

    @cached_property
    def input_bytes(self) -> int:
        """The bytes of all inputs, as they lie."""
        return sum(x.bytes for x in self.lives.values() if x.first < 0)

    @cached_property
    def output_bytes(self) -> int:
        """The bytes that the caller gets and that were no input."""
        outputs = (Role.OUTPUT, Role.CALL_OUTPUT)
        return sum(x.bytes for x in self.lives.values() if x.role in outputs)

    @cached_property
    def lower_bound(self) -> int:
        """No plan of this order holds less: what is live at once, each chain as one piece."""
        spans = []
        for chain in self.chains:
            size = max(self.lives[s].bytes for s in chain)
            spans.append(self._span(chain[0], "", size, chain))
        least = max(_per_step(spans, self.end))
        if not self.at_once:
            return least
        own = [x.bytes for x in self.lives.values() if x.role in (Role.KEPT, Role.OUTPUT)]
        return max(least, sum(own))


def _per_step(spans: Iterable[Span], end: int) -> list[int]:
    steps = max(end, 1)
    changes = [0] * (steps + 2)
    for s in spans:
        changes[max(s.first, 0)] += s.bytes
        changes[min(s.last, steps) + 1] -= s.bytes
    held, total = [], 0
    for k in range(steps):
        total += changes[k]
        held.append(total)
    return held
