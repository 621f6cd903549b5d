"""name-kernels: give every group a short name that says what it does.

before   fused mul_1_exp_2_sum_3_div_4 { ... }
after    fused sum_exp_truediv_0 { ... }
keeps    the names of the operations inside
"""

from __future__ import annotations

from dataclasses import replace

from treadle.analysis.deps import same_dependences
from treadle.core.context import Ctx
from treadle.ir.program import Group, Operation, Program, walk_operations
from treadle.schedule.naming import kernel_names


def name_kernels(program: Program, ctx: Ctx) -> Program:
    """Rename groups; what had to follow one follows it under its new name."""
    names = kernel_names(program)
    if all(old == new for old, new in names.items()):
        return program
    found = program.with_ops(tuple([_renamed(op, names) for op in program.ops]))
    # Who depends on whom is a matter of leaves; only `after` speaks of groups by their names.
    if not any(op.after for op in walk_operations(program.ops)):
        same_dependences(program, found)
    return found


def _renamed(op: Operation, names: dict[str, str]) -> Operation:
    after = tuple([names.get(n, n) for n in op.after])
    if isinstance(op, Group):
        members = tuple([_renamed(m, names) for m in op.members])
        return replace(op, name=names[op.name], members=members, after=after)
    return op if after == op.after else replace(op, after=after)
