"""Collectives whose results nobody uses, with all that is there only for them.

They are reported, not removed: other ranks take part in them, and must do the same.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.analysis.comm.tasks import message_bytes
from treadle.analysis.deps import dependences
from treadle.analysis.needed import needed_ops
from treadle.ir.program import Collective, Program


class DeadChain(NamedTuple):
    """A collective that nothing needs, first, and the operations that serve only it."""

    names: tuple[str, ...]
    bytes: int


def dead_collectives(program: Program) -> list[DeadChain]:
    """Every collective that would not be missed if communication were no effect."""
    needed = needed_ops(program, collectives_act=False)
    gone = [op for op in program.leaves if op.name not in needed]
    deps = dependences(program)
    found = []
    for op in gone:
        if not isinstance(op, Collective):
            continue
        near = {op.name}
        for other in gone:  # in order: followers after what they follow
            into = [d for d in deps.into[deps.position[other.name]] if d.carries]
            if any(deps.names[d.source] in near for d in into):
                near.add(other.name)
        for other in reversed(gone):
            out = [d for d in deps.out_of[deps.position[other.name]] if d.carries]
            if out and all(deps.names[d.target] in near for d in out):
                near.add(other.name)
        rest = [g.name for g in gone if g.name in near and g is not op]
        found.append(DeadChain((op.name, *rest), message_bytes(program, op)))
    return found
