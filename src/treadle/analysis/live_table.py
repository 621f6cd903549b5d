"""The lives of a program's storages as one table over its operations in order.

    op            0      1      2      3
    x (input)    =======+                     first -1, last 1
    t                   #######+              first 1, last 2
    out                        ###########    first 2, last 3, never freed

Made once for each program by the liveness engine (`live_table(program)`); whoever plans, partitions
or runs a program asks it and walks no operations again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from treadle.analysis.deps import same_dependences
from treadle.analysis.liveness import Liveness
from treadle.ir.program import Program

THERE_BEFORE = -1
"""The first operation of what exists before the program runs; the last of what nobody touches."""


class LiveRow(NamedTuple):
    """One storage: the positions of the operations that need it first and last."""

    storage: str
    first: int
    last: int
    is_freeable: bool
    """False for outputs and for inputs that were not donated."""


@dataclass(frozen=True)
class LiveTable:
    """Every storage that needs memory, and which ones are written in place of which."""

    ops: int
    rows: Mapping[str, LiveRow]
    reuses: Mapping[str, str]
    """Storage -> the one that is written over it at its last use."""

    def ending_at(self, first: int, last: int) -> list[str]:
        """The storages that may be freed after operations `first` to `last` and not before."""
        rows = self.rows.values()
        return [r.storage for r in rows if r.is_freeable and first <= r.last <= last]


def live_table(program: Program) -> LiveTable:
    """The table of a program in its present order; computed once for each program."""
    return program.derive(_live_table)


def same_lives(old: Program, new: Program) -> None:
    """Tell `new` the lives of `old`: they differ in nothing that lives depend on."""
    same_dependences(old, new)
    new.remember(_live_table, live_table(old))


def _live_table(program: Program) -> LiveTable:
    live = Liveness(program)
    owner = [0] * len(live.deps.names)
    for k, op in enumerate(program.ops):
        for leaf in op.leaves:
            owner[live.deps.position[leaf.name]] = k
    rows = {}
    for storage, life in live.timeline.lives():
        if life.host is None and life.last is not None:
            continue  # it stays inside one kernel and needs no memory
        first = THERE_BEFORE if life.first is None else owner[life.first]
        last = THERE_BEFORE if life.last is None else owner[life.last]
        rows[storage.name] = LiveRow(storage.name, first, last, storage.freeable)
    return LiveTable(len(program.ops), rows, live.in_place_reuse())
