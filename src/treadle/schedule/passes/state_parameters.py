"""state-parameters: say of each kernel what it is given, and what may share memory.

before   launch k { nest: y[i] = x[i] + 1 }
after    launch k { parameter x : read ... ; parameter y : write ... over x ; nest: ... }
keeps    everything else
"""

from __future__ import annotations

from dataclasses import replace

from treadle.analysis.live_table import same_lives
from treadle.analysis.shared_memory import parameters_of
from treadle.core.context import Ctx
from treadle.ir.program import Grouped, Kernel, Operation, Program


def state_parameters(program: Program, ctx: Ctx) -> Program:
    """State the parameters of every kernel."""
    ops = tuple([_stated(op, program) for op in program.ops])
    found = program.with_ops(ops)
    if found is not program:
        same_lives(program, found)
    return found


def _stated(op: Operation, program: Program) -> Operation:
    if isinstance(op, Grouped):
        members = tuple([_stated(m, program) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else op.with_members(members)
    if not isinstance(op, Kernel):
        return op
    parameters = parameters_of(program, op.members)
    return op if parameters == op.parameters else replace(op, parameters=parameters)
