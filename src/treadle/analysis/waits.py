"""Waits with nothing to hide them: communication that is waited for as soon as it has started.

exposed_waits(program)     how many waits have no computation between them and their collective
"""

from __future__ import annotations

from treadle.ir.program import (
    Collective,
    Extern,
    Loop,
    Operation,
    Program,
    Template,
    UserKernel,
    Wait,
)

COMPUTES = (Loop, Extern, Template, UserKernel)


def exposed_waits(program: Program) -> int:
    """How many waits stand behind their collective with no computation in between."""
    found = 0
    since: dict[str, int] = {}
    leaves: tuple[Operation, ...] = program.leaves
    for position, op in enumerate(leaves):
        if isinstance(op, Collective):
            for name in (*op.writes, *op.mutates):
                since[program.storage_of(name)] = position
        elif isinstance(op, Wait):
            start = since.get(program.storage_of(op.buffer))
            if start is not None:
                between = leaves[start + 1 : position]
                found += not any(isinstance(other, COMPUTES) for other in between)
    return found
