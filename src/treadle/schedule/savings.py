"""What one kernel instead of two saves: bytes that are not moved, and a launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from treadle.analysis.deps import Dependences
from treadle.analysis.inplace import Boundary
from treadle.kernel.space import joined
from treadle.schedule.kernels import KernelDraft, same_point
from treadle.schedule.touches import Touch


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Who else uses a storage, and which the caller sees."""

    users: Mapping[str, tuple[int, ...]]
    kept: frozenset[str]
    nests: bool
    """Whether rows and their elements may meet in one kernel."""

    @classmethod
    def of(cls, deps: Dependences, edge: Boundary, nests: bool) -> Surroundings:
        """From the dependences and the border of a program."""
        return cls(deps.users, edge.inputs | edge.outputs, nests)


def saved_bytes(a: KernelDraft, b: KernelDraft, shared: Iterable[str], around: Surroundings) -> int:
    """Bytes that need not be moved if b's work joins a's."""
    if joined(a.space, b.space, around.nests) is None and b.call is None:
        return _sum_of_shared(a, b, shared)
    total = 0
    for storage in shared:
        mine, theirs = a.touches[storage], b.touches[storage]
        stored_here = _stored(mine)
        stored_there = _stored(theirs)
        if not stored_here and not stored_there:
            total += _read_twice(mine, theirs)
            continue
        if stored_here:
            for t in theirs:
                if not t.is_write:
                    total += t.bytes
        if storage not in around.kept and (
            a.uses[storage] + b.uses[storage] == len(around.users[storage])
        ):
            total += max(stored_here, stored_there)
    return total


def _stored(touches: list[Touch]) -> int:
    most = 0
    for t in touches:
        if t.is_write and t.bytes > most:
            most = t.bytes
    return most


def _read_twice(mine: list[Touch], theirs: list[Touch]) -> int:
    total = 0
    for t in theirs:
        for u in mine:
            if t.is_indirect or u.is_indirect:
                if t.computed is not None and t.computed == u.computed:
                    total += min(t.bytes, u.bytes)
                    break
                continue
            if same_point(t, u):
                total += min(t.bytes, u.bytes)
                break
    return total


def _sum_of_shared(a: KernelDraft, b: KernelDraft, shared: Iterable[str]) -> int:
    """What two kernels that cannot be one have in common: what a refusal leaves on the table."""
    total = 0
    for storage in shared:
        one = max(t.bytes for t in a.touches[storage])
        other = max(t.bytes for t in b.touches[storage])
        total += min(one, other)
    return total
