"""schedule-loops: decide how the loops of each nest are walked on the machine it is for.

before   nest for i in 512 reduce r in 512: y[i] = sum of x[i, r]
after    nest ... schedule (order i r, bind r to vector)
keeps    everything but the order of points and of additions, which numerics must allow
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.context import Ctx
from treadle.ir.program import Kernel, Nest, Operation, Program
from treadle.kernel.choose_cpu import choose_steps


def schedule_loops(program: Program, ctx: Ctx) -> Program:
    """Give every nest on a CPU a loop schedule."""

    def scheduled(op: Operation) -> Operation:
        if not isinstance(op, Kernel):
            return op
        return replace(op, members=tuple([nest(m) for m in op.members]))

    def nest(op: Operation) -> Operation:
        if not isinstance(op, Nest) or op.device != "cpu":
            return op
        steps, verdict = choose_steps(op, program)
        if ctx.journal.enabled:
            ctx.journal.verdict("schedule-loops", (op.name,), verdict)
        return replace(op, schedule=steps) if steps != op.schedule else op

    return program.with_ops(tuple([scheduled(op) for op in program.ops]))
