"""What dies at each operation, what begins there, and what is written in place: one table.

    op     begins   dies     in place
    mul    t        x        -
    exp    y        t        y over t

All of it is read off the liveness engine, for the order that the program has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.ir.program import Program


@dataclass
class LastUseRow:
    """One operation's line of the table; storages in order of declaration."""

    op: str
    begins: list[str] = field(default_factory=list)
    """Storages that get memory here; one that is written in place gets that of another."""
    dies: list[str] = field(default_factory=list)
    """Storages that nobody needs after it: they are freed, or handed over here."""
    in_place: dict[str, str] = field(default_factory=dict)
    """Storage written here -> the storage that dies here and whose memory it takes."""


def last_uses(program: Program, policy: LivenessPolicy | None = None) -> list[LastUseRow]:
    """The table of a program, one row per operation, in order.

    Storages that live only inside one kernel are in no row: they need no memory.
    """
    live = Liveness(program, policy)
    rows = {op.name: LastUseRow(op.name) for op in program.ops}
    owner = {leaf.name: op.name for op in program.ops for leaf in op.leaves}
    owner.update({op.name: op.name for op in program.ops})
    reused_by = live.in_place_reuse()
    for r in live.ranges():
        if r.block is None:
            continue
        if r.first is not None:
            rows[owner[r.first]].begins.append(r.storage)
        if r.last is not None and (r.freed or r.storage in reused_by):
            rows[owner[r.last]].dies.append(r.storage)
        if r.storage in reused_by and r.last is not None:
            rows[owner[r.last]].in_place[reused_by[r.storage]] = r.storage
    return list(rows.values())
