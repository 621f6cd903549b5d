"""Ordering by simulation: what `order-collectives` does with option `comm=model`.

before   a = f(x) ; c = gather(y) ; wait c ; b = g(a) ; use(b, c)
after    c = gather(y) ; a = f(x) ; b = g(a) ; wait c ; use(b, c)
keeps    every dependence; the memory budget; what is decided is the same on every rank

Verdicts say of each collective how much of it is hidden, and what keeps the rest from being.
"""

from __future__ import annotations

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.comm.machine import CommMachine, machine_of
from treadle.analysis.comm.simulate import NEXT_TO_NOTHING_US, Run, what_limits
from treadle.analysis.comm.tasks import TaskKind
from treadle.analysis.liveness import program_peak
from treadle.core.context import Ctx
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.program import Program
from treadle.schedule.given_peak import given_peak
from treadle.schedule.ordering.steps import steps_of
from treadle.schedule.overlap.dead import dead_collectives
from treadle.schedule.overlap.list_schedule import Limits
from treadle.schedule.overlap.search import FoundOverlap, find_overlap
from treadle.schedule.policy import policy_of


def order_by_model(program: Program, ctx: Ctx) -> Program | None:
    """Put collectives, waits and the rest in the order that is done soonest on the hardware.

    None if no order that was found is within the budget as the liveness engine counts it.
    """
    machine = machine_of(program, ctx.options)
    found = overlap_of(program, ctx, machine)
    after = program.with_ops(tuple([program.ops[k] for k in found.order]))
    if _peak(after, ctx) > budget_of(program, ctx):
        return None
    for row in dead_collectives(program):
        ctx.journal.verdict("overlap", row.names, no("COL005", bytes=row.bytes))
    _journal(found, ctx)
    return after


def _peak(program: Program, ctx: Ctx) -> int:
    return program_peak(program, ACCOUNTINGS[ctx.options.accounting].policy)


def overlap_of(
    program: Program, ctx: Ctx, machine: CommMachine, *, thorough: bool = True
) -> FoundOverlap:
    """The order found for a program on a machine, within the memory that the context allows."""
    steps, budget = steps_of(program, ctx.options), budget_of(program, ctx)
    options = ctx.options
    is_exact = options.comm == "exact"
    limits = Limits(in_flight=options.in_flight, prefetch=options.prefetch, exact=is_exact)
    return find_overlap(machine.tasks(program), steps, budget, limits, thorough=thorough)


def budget_of(program: Program, ctx: Ctx) -> int:
    """Bytes that an order may hold at once: the user's limit, else a little over the given peak."""
    policy = policy_of(ctx)
    here = _peak(program, ctx)
    if policy.never_raise:
        return here
    if ctx.options.memory_limit is not None:
        return max(here, ctx.options.memory_limit)
    given = max(here, given_peak(ctx))
    return given if policy.peak_factor is None else int(given * policy.peak_factor)


def _journal(found: FoundOverlap, ctx: Ctx) -> None:
    run, tasks = found.after, found.after.graph.tasks
    exposed, limits = run.exposed_of(), {e.collective: e for e in what_limits(run)}
    work = _work_between(run)
    for k, us in exposed.items():
        names = [tasks[k].name, *[t.name for t in tasks if t.of == k]]
        facts: dict[str, object] = {"us": round(tasks[k].us, 3), "exposed_us": round(us, 3)}
        verdict: Verdict
        if us <= NEXT_TO_NOTHING_US:
            verdict = yes("COL000", kernels=work[k], **facts)
        else:
            why = limits[tasks[k].name]
            verdict = no("COL003", **facts, limit=why.limit, by=why.by)
        ctx.journal.verdict("overlap", tuple(names), verdict)
    if not found.order_kept:
        moved = [tasks[k].name for k in run.order if tasks[k].kind is TaskKind.COLLECTIVE]
        won = round(found.before.makespan_us - run.makespan_us, 3)
        ctx.journal.verdict("overlap", tuple(moved[:8]), yes("COL004", order=moved, won_us=won))
    ctx.journal.emit(
        "step",
        action="order-by-model",
        args=[
            round(found.before.makespan_us, 3),
            round(run.makespan_us, 3),
            round(found.bound.us, 3),
            found.peak_bytes,
            found.budget,
        ],
    )


def _work_between(run: Run) -> dict[int, int]:
    """For each collective how many kernels are launched between it and its first wait."""
    counts: dict[int, int] = {}
    under_way: dict[int, int] = {}
    seen = 0
    for k in run.order:
        task = run.graph.tasks[k]
        if task.kind is TaskKind.COMPUTE:
            seen += 1
        elif task.kind is TaskKind.COLLECTIVE:
            under_way[k] = seen
        elif task.kind is TaskKind.WAIT and task.of in under_way:
            counts.setdefault(task.of, seen - under_way[task.of])
    return {k: counts.get(k, seen - begun) for k, begun in under_way.items()}
