"""What a kernel is given: its storages, how it goes through each, and who may share memory.

    parameter x : read contiguous align 4 of caller
    parameter m : readwrite strided align 64
    parameter y : write contiguous align 64 over x

`of caller`: memory that came from outside, of which nobody knows whether two pieces are one. `over
x`: the planner may write it where x lies, which is read for the last time here. All other memory is
the planner's, which lets nothing overlap that is needed at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class ParameterAccess(Enum):
    """What a kernel does with a parameter."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "readwrite"
    ACCUMULATE = "accumulate"
    """Every store adds to what is there, and nothing reads it."""


class Contiguity(Enum):
    """How a kernel goes through a parameter, over all its accesses."""

    CONTIGUOUS = "contiguous"
    """Element by element, none left out."""
    STRIDED = "strided"
    """In another way that is known beforehand."""
    INDIRECT = "indirect"
    """Data decide where."""


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """One storage that a kernel touches."""

    storage: str
    access: ParameterAccess
    contiguity: Contiguity
    alignment: int
    """Bytes that its address is known to be a multiple of, as the launch planner places it."""
    of_caller: bool = False
    """Whether its memory came from outside."""
    over: str | None = None
    """The parameter in whose memory it may be written."""

    @property
    def is_written(self) -> bool:
        """Whether the kernel changes it."""
        return self.access is not ParameterAccess.READ


def may_alias(parameters: Sequence[KernelParameter]) -> dict[str, frozenset[str]]:
    """For each parameter the others that can lie in the same memory."""
    home = _homes(parameters)
    together: dict[str, list[str]] = {}
    for p in parameters:
        together.setdefault(home[p.storage], []).append(p.storage)
    return {p.storage: frozenset(together[home[p.storage]]) - {p.storage} for p in parameters}


def unshared(parameters: Sequence[KernelParameter]) -> frozenset[str]:
    """The parameters through which alone their memory is reached, as far as it is changed.

    What is only read may be read through others too.
    """
    home = _homes(parameters)
    count: dict[str, int] = {}
    changed: set[str] = set()
    for p in parameters:
        where = home[p.storage]
        count[where] = count.get(where, 0) + 1
        if p.is_written:
            changed.add(where)
    return frozenset(
        p.storage
        for p in parameters
        if count[home[p.storage]] == 1 or home[p.storage] not in changed
    )


CALLER = ""
"""The home of all that came from outside."""


def _homes(parameters: Sequence[KernelParameter]) -> Mapping[str, str]:
    """A name for the memory that each parameter may lie in: equal for those that may share it."""
    by_name = {p.storage: p for p in parameters}
    found: dict[str, str] = {}
    for p in parameters:
        at, seen = p, {p.storage}
        while at.over is not None and at.over in by_name and at.over not in seen:
            seen.add(at.over)
            at = by_name[at.over]
        found[p.storage] = CALLER if at.of_caller else at.storage
    return found
