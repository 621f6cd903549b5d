"""One block of memory for everything a program allocates, and where each storage lies in it.

A `Placement` maps storages to places: a byte offset in the arena, or in the storage of a host, an
output that is not born yet or a donated input that died. Without a plan every storage has a place
of its own; with one, storages share as the planner decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle.memory.problem import ARENA, Place

ALIGNMENT = 64


Placement: TypeAlias = Mapping[str, Place]
"""Storage -> where it lies."""


@dataclass(frozen=True)
class ArenaLayout:
    """Where storages lie, and how many bytes of the arena that takes."""

    places: Placement
    total: int


def stacked_layout(sizes: Mapping[str, int], start: int = 0) -> ArenaLayout:
    """Every storage behind the one before, none shared."""
    places, end = {}, _aligned(start)
    for name, size in sizes.items():
        places[name] = Place(ARENA, end)
        end += _aligned(size)
    return ArenaLayout(places, end)


def plan_layout(placement: Placement, sizes: Mapping[str, int]) -> ArenaLayout:
    """The places a plan gives; storages it leaves out come behind them."""
    known = {name: placement[name] for name in sizes if name in placement}
    inside = [name for name, place in known.items() if place.pool == ARENA]
    end = max([known[name].offset + sizes[name] for name in inside], default=0)
    rest = stacked_layout({n: s for n, s in sizes.items() if n not in known}, end)
    return ArenaLayout({**known, **rest.places}, rest.total if rest.places else end)


def as_placement(plan: Any) -> Placement:
    """The placement in a planner's plan, or in a mapping from storages to offsets or places."""
    places = getattr(plan, "placements", plan)
    return {
        name: Place(ARENA, place) if isinstance(place, int) else Place(place.pool, place.offset)
        for name, place in places.items()
    }


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


class Arena:
    """The bytes themselves; allocated once and kept until a run needs more."""

    def __init__(self) -> None:
        self._bytes: Any = None

    @property
    def nbytes(self) -> int:
        """How many bytes are held."""
        return 0 if self._bytes is None else int(self._bytes.size)

    def take(self, total: int) -> Any:
        """At least `total` bytes as a numpy array of bytes, aligned."""
        if self._bytes is None or self._bytes.size < total:
            self._bytes = aligned_bytes(total)
        return self._bytes


def aligned_bytes(count: int) -> Any:
    """Fresh memory that begins at a multiple of ALIGNMENT."""
    import numpy as np

    raw = np.empty(count + ALIGNMENT, np.uint8)
    first = -int(raw.ctypes.data) % ALIGNMENT
    return raw[first : first + count]
