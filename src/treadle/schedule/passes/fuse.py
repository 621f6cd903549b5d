"""fuse: make one kernel of loops that share data, where it saves bytes and costs no peak.

before   t = x * 2 ; y = t + 1
after    fused { t = x * 2 ; y = t + 1 }       t stays in registers
needs    the stored value is read at the point where it was stored; no cycle; the peak in budget
"""

from __future__ import annotations

from treadle.analysis.deps import carry_over
from treadle.core.context import Ctx
from treadle.ir.program import Fused, Operation, Program
from treadle.schedule.choose import choose_groups
from treadle.schedule.naming import JoinedNames
from treadle.schedule.policy import policy_of
from treadle.schedule.rounds import choose_in_rounds


def fuse(program: Program, ctx: Ctx) -> Program:
    """Fuse kernels by the policy of the options."""
    policy = policy_of(ctx)
    search = choose_in_rounds if policy.search == "rounds" else choose_groups
    found = search(program, ctx, policy)
    if len(found.kernels) == len(program.ops):
        return program  # nothing fused: the order is not this pass's business
    leaves = found.ops
    place = {leaf.name: k for k, leaf in enumerate(program.leaves)}
    known = {tuple(sorted(place[leaf.name] for leaf in op.leaves)): op for op in program.ops}
    kept = {
        members: known[members]
        for members in found.kernels
        if members in known and all(leaves[m] is program.leaves[m] for m in members)
    }
    names = JoinedNames([*leaves, *kept.values()])
    ops: list[Operation] = []
    for members in found.kernels:
        parts = tuple([leaves[m] for m in members])
        if members in kept:
            ops.append(kept[members])
            continue
        if len(parts) == 1:
            ops.append(parts[0])
            continue
        ops.append(Fused(name=names.of(parts), device=parts[0].device, members=parts))
        ctx.journal.emit("step", action="fuse", args=[p.name for p in parts])
    fused = program.with_ops(tuple(ops))
    carry_over(program, fused)
    return fused
