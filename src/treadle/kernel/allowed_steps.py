"""Whether a nest may be walked as its loop schedule says, whoever wrote the steps.

Steps that fit a nest (KER006) need not be allowed: vectors along a loop whose points depend on
each other compute something else. What `schedule-loops` asks before it chooses is asked here of any
schedule: of one that was read from a file, and of what the pass delivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.analysis.shared_memory import unstated_sharing
from treadle.core.errors import Violation
from treadle.core.verdict import YES, Verdict, no
from treadle.ir.loop_schedule import (
    AxisPart,
    Binding,
    Keep,
    LoopPlan,
    Tune,
    UnfitStepError,
    plan_loops,
)
from treadle.ir.program import Nest, Program
from treadle.kernel.choose_gpu import may_be_tiled
from treadle.kernel.choose_product import may_be_unrolled
from treadle.kernel.narrow_rows import read_back
from treadle.kernel.stages import plan_nests
from treadle.kernel.vector_rules import accesses_of, has_scan, may_be_vector, may_scan_beside

ALLOWED = "_schedule_is_allowed"
"""The fact that is noted of a nest once it was asked."""


def kernel_violations(program: Program) -> tuple[Violation, ...]:
    """KER007, KER008: schedules that are not allowed, shared memory that is not stated."""
    return program.derive(_kernel_violations)


def _kernel_violations(program: Program) -> tuple[Violation, ...]:
    return (*unstated_sharing(program), *_not_allowed(program))


def _not_allowed(program: Program) -> Iterator[Violation]:
    for leaf in program.leaves:
        if not isinstance(leaf, Nest) or not leaf.schedule or program.knows(leaf, ALLOWED):
            continue
        verdict = is_allowed(leaf, program)
        if verdict:
            program.note(leaf, ALLOWED)
        else:
            yield Violation("KER007", f"its schedule is not allowed: {_reason(verdict)}", leaf.name)


def _reason(verdict: Verdict) -> str:
    return str(verdict.facts.get("reason", verdict))


def is_allowed(nest: Nest, program: Program) -> Verdict:
    """KER007: whether numerics and the nest allow what its steps do to the order of its points."""
    try:
        plan = plan_loops(nest.body, nest.schedule)
    except UnfitStepError:
        return YES  # KER006 says what is wrong with it
    if all(isinstance(step, Keep | Tune) for step in nest.schedule):
        return YES
    numerics = program.numerics
    if not numerics.reassociation or numerics.accumulation == "exact":
        return no("KER007", nest=nest.name, reason="sums must be exact")
    if any(a.binding in (Binding.GRID, Binding.TILE) for a in plan.axes):
        return may_be_tiled(nest, program)
    accesses = accesses_of(nest.body, program)
    allowed = may_scan_beside(nest, accesses)
    if not allowed:
        return allowed
    axes = [a.loop for a in plan.axes if a.reduces]
    walked = [v for k, v in enumerate(axes) if not k or v is not axes[k - 1]]
    if has_scan(nest.body) and walked != list(nest.body.reduce.vars):
        return no(
            "KER007", nest=nest.name, reason="scan goes one by one, in the order of its loops"
        )
    written = {a.storage for a in accesses if a.mode}
    for a in accesses:
        if a.number in plan.staged and a.storage in written:
            reason = f"a tile of '{a.buffer}' would miss what is stored"
            return no("KER007", nest=nest.name, reason=reason)
    late = read_back(nest.body, accesses, plan)
    if late is not None:
        reason = f"what a tile of '{late}' holds is touched before it is stored"
        return no("KER007", nest=nest.name, reason=reason)
    return _may_be_vectors(nest, program, plan)


def _may_be_vectors(nest: Nest, program: Program, plan: LoopPlan) -> Verdict:
    """Whether every loop that is walked side by side with others may be."""
    vector = plan.vector
    if any(a.binding is Binding.UNROLL for a in plan.axes):
        unrolled = may_be_unrolled(nest, program, plan)
        if not unrolled:
            return unrolled
    if vector is None:
        return YES
    lanes = [a for a in plan.lanes if a.part is AxisPart.WITHIN]
    for axis in dict.fromkeys([vector.loop, *[a.loop for a in lanes]]):
        allowed = may_be_vector(nest, program, axis)
        if not allowed:
            return allowed
    return may_have_lanes(nest, program) if lanes and len(nest.body.reduce) else YES


def may_have_lanes(nest: Nest, program: Program) -> Verdict:
    """KER007: whether points may be walked side by side through all passes over a reduction."""
    must = plan_nests(nest.body, program.storage_of, frozenset(), in_any_order=True)
    if any(s.kept for s in must.steps):
        return no("KER007", nest=nest.name, reason="a row must be kept for each point")
    if any(p.loops != frozenset(nest.body.reduce.vars) for p in must.passes.values()):
        return no("KER007", nest=nest.name, reason="passes over different loops")
    return YES
