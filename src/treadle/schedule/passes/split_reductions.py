"""split-reductions: give a reduction with few points enough of them, in two stages; or the reverse.

before   s = sum(x)                                     1 point, 16777216 steps: one core works
after    p[b] = sum(x[16384*b : 16384*(b+1)]) ; s = sum(p)     1024 points, then one
needs    more steps than a launch costs; static loops that divide; nothing that needs rows twice
keeps    every bit up to f32: partial sums are f64, rounded once. Sums of f64 stay in one stage;
         so does what programs of a GPU will share out by themselves (schedule-loops)

The reverse where one stage has enough points, or is too small for its cores to matter: the second
stage reduces by itself and the first is left to drop-dead-ops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.analysis.cost import work_of
from treadle.analysis.deps import Dependences, dependences
from treadle.analysis.duplicates import changed_later
from treadle.analysis.inplace import boundary
from treadle.analysis.kernel_time import kernel_ns, work_of_loop
from treadle.core.context import Ctx
from treadle.core.costs import CostModel
from treadle.core.verdict import YES, Verdict, check_rules, no, yes
from treadle.index import hint
from treadle.ir.effects import effects
from treadle.ir.program import Loop, Operation, Program
from treadle.ir.reduced import reduced_once
from treadle.ir.types import DType
from treadle.ir.typing import infer_types
from treadle.kernel.choose_gpu import BUSY_PROGRAMS, COLUMNS
from treadle.kernel.cooperate import shares_out
from treadle.schedule.one_stage import as_one_stage
from treadle.schedule.policy import Policy, policy_of
from treadle.schedule.two_stages import SPLITTABLE, Cut, Splitter, cuts

PARTIAL_BYTES = 8
"""A partial result is an f64, written and read once."""


@dataclass(frozen=True)
class SplitCandidate:
    """A loop that might be cut."""

    op: Loop
    program: Program
    policy: Policy
    cost: CostModel

    @property
    def points(self) -> int:
        """Independent points."""
        return hint(self.op.body.domain.numel)

    @property
    def steps(self) -> int:
        """Reduction steps per point."""
        return hint(self.op.body.reduce.numel)

    @property
    def cores(self) -> int:
        """Cores of the device."""
        return self.cost.machine(self.op.device).cores


def has_few_points(c: SplitCandidate) -> Verdict:
    """SPL001: fewer points than cores want, and far more steps than a launch is worth."""
    wanted = c.cores * c.policy.points_per_core
    few = c.points < wanted and c.steps >= 2 * c.policy.split_chunk
    if few and c.points * c.steps >= c.policy.small_kernel:
        return YES
    return no("SPL001", points=c.points, wanted=wanted, steps=c.steps)


def reduces_once(c: SplitCandidate) -> Verdict:
    """SPL002: nothing needs the rows again once they are reduced."""
    return YES if reduced_once(c.op.body) else no("SPL002", operation=c.op.name)


def combines_exactly(c: SplitCandidate) -> Verdict:
    """SPL003: partial results combine to the same bits."""
    types = infer_types(c.op.body, c.program.by_name)
    for at in c.op.body.walk():
        if at.stmt.op != "reduce" or at.number is None:
            continue
        kind, to = str(at.stmt.attr("kind")), types[at.number]
        element = to[0] if isinstance(to, tuple) else to
        rounds = kind in ("sum", "prod", "dot", "welford")
        if kind not in SPLITTABLE or (rounds and element is DType.F64):
            return no("SPL003", reduction=kind, element=str(element))
    return YES


def can_be_cut(c: SplitCandidate) -> Verdict:
    """SPL004: the reduction loops have a known length that divides."""
    return YES if best_cut(c) is not None else no("SPL004", loops=str(c.op.body.reduce))


def is_faster_in_two(c: SplitCandidate) -> Verdict:
    """SPL005: the cores that were idle save more time than the second launch costs."""
    cut = best_cut(c)
    if cut is None:
        return YES  # SPL004 says it
    machine = c.cost.machine(c.op.device)
    moved = work_of(c.program, c.op).bytes
    partial = 2 * PARTIAL_BYTES * c.points * cut.blocks(c.op.body.reduce)
    work, blocks = work_of_loop(c.op), cut.blocks(c.op.body.reduce)
    one = kernel_ns(machine, moved, work, c.points)
    # The stages share the bytes of the parts, and the second has as many points as the one had.
    first = kernel_ns(machine, moved + partial / 2, work, c.points * blocks)
    two = first + kernel_ns(machine, partial / 2, 0.0, c.points)
    if two < one:
        return YES
    return no("SPL005", one_stage_ns=round(one), two_stages_ns=round(two))


RULES = (has_few_points, reduces_once, combines_exactly, can_be_cut, is_faster_in_two)


def best_cut(c: SplitCandidate) -> Cut | None:
    """The fewest blocks that give every core enough points, else as many as are long enough."""
    reduce = c.op.body.reduce
    fitting = [(k.blocks(reduce), k) for k in cuts(reduce)]
    fitting = [(n, k) for n, k in fitting if c.steps // n >= c.policy.split_chunk]
    enough = [x for x in fitting if x[0] * c.points >= c.cores * c.policy.split_points]
    if enough:
        return min(enough, key=lambda x: x[0])[1]
    return max(fitting, key=lambda x: x[0])[1] if fitting else None


def split_reductions(program: Program, ctx: Ctx) -> Program:
    """Cut reductions with few points in two stages, and join stages where that is not needed."""
    policy = policy_of(ctx)
    if policy.split == "never" or not any(_reduces(op) for op in program.ops):
        return program
    while (joined := _joined(program, ctx, policy)) is not program:
        program = joined
    return _split(program, ctx, policy)


def _reduces(op: Operation) -> bool:
    return isinstance(op, Loop) and len(op.body.reduce) > 0


def _stays_whole(op: Loop, program: Program, policy: Policy) -> bool:
    """Whether somebody else sees to it that all cores work: threads, or schedule-loops.

    Programs of a GPU share a kernel out themselves where sums may be added in any order, in f32.
    """
    if policy.split == "always":
        return False
    if op.device.startswith("cpu"):
        return True
    shared = program.numerics.reassociation and program.numerics.accumulation != "exact"
    return shared and shares_out(op.body, COLUMNS, BUSY_PROGRAMS // 4)


def _split(program: Program, ctx: Ctx, policy: Policy) -> Program:
    ops: list[Operation] = []
    for op in program.ops:
        if not isinstance(op, Loop) or not _reduces(op) or _stays_whole(op, program, policy):
            ops.append(op)
            continue
        c = SplitCandidate(op, program, policy, ctx.cost)
        verdict = check_rules(RULES, c)
        cut = best_cut(c) if verdict else None
        if cut is not None:
            verdict = yes("SPL000", points=c.points, blocks=cut.blocks(op.body.reduce))
        if verdict.code not in ("SPL001", "SPL005"):  # most reductions have points enough
            ctx.journal.verdict("split", (op.name,), verdict)
        if cut is None:
            ops.append(op)
            continue
        stages = Splitter(op, program, cut).stages()
        ops.extend([stages.first, stages.second])
        # Names of later buffers must differ from these.
        program = replace(program, buffers=(*program.buffers, *stages.partial))
        ctx.journal.emit("step", action="split", args=[op.name, cut.blocks(op.body.reduce)])
    return program.with_ops(tuple(ops))


def _joined(program: Program, ctx: Ctx, policy: Policy) -> Program:
    """The program with second stages that do the work of the first where that is enough."""
    deps, new = dependences(program), dict[str, Loop]()
    top = {op.name for op in program.ops}
    changed: set[str] | None = None
    for op in program.ops:
        if not isinstance(op, Loop) or not _reduces(op):
            continue
        for name in effects(op).reads:
            first = _maker(name, op, program, deps, new)
            if first is None or first.name not in top:
                continue
            changed = changed_later(program, deps) if changed is None else changed
            if any(program.storage_of(n) in changed for n in effects(first).reads):
                continue
            found = as_one_stage(first, op, program.by_name[name], program)
            if found is not None and not has_few_points(
                SplitCandidate(found, program, policy, ctx.cost)
            ):
                new[op.name] = found
                ctx.journal.emit("step", action="join-stages", args=[first.name, op.name])
                break
    return program.with_ops(tuple([new.get(op.name, op) for op in program.ops]))


def _maker(
    name: str, op: Loop, program: Program, deps: Dependences, new: dict[str, Loop]
) -> Loop | None:
    """The reduction that makes a buffer for `op` alone."""
    edge = program.derive(boundary)
    users = deps.users.get(name, ())
    if len(users) != 2 or name in edge.outputs or name in edge.inputs:
        return None
    if program.by_name[name].view_of is not None or deps.names[users[1]] != op.name:
        return None
    first = program.op_by_name[deps.names[users[0]]]
    fits = first.name not in new and first.device == op.device
    return first if isinstance(first, Loop) and fits and _reduces(first) else None
