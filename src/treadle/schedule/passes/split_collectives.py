"""split-collectives: send large messages of several tensors in parts, where that is done sooner.

before   a, b = gather_coalesced([x, y]) ; wait a ; use(a) ; wait b ; use(b)
after    a = gather_coalesced([x]) ; b = gather_coalesced([y]) ; wait a ; use(a) ; wait b ; use(b)
keeps    every dependence; what each tensor receives; the same parts on every rank

Run only if option `split` asks for it, before all other passes: they then order what is sent.
"""

from __future__ import annotations

from treadle.core.context import Ctx
from treadle.ir.program import Program
from treadle.schedule.overlap.splitting import choose_parts


def split_collectives(program: Program, ctx: Ctx) -> Program:
    """Send large messages in parts of the size with which simulation is done soonest."""
    return choose_parts(program, ctx)
