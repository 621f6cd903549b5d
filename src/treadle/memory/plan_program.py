"""A static memory plan for a program, and who fills its memory at the peak.

    planned = plan_program(program, seconds=2.0)
    planned.plan.placements["t3"]      Place(pool='arena', offset=4096)
    planned.arena_bytes, planned.lower_bound, planned.peak.bytes, planned.breakdown

`compile_program(program, plan=planned.plan)` runs in exactly these bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from treadle.analysis.liveness import LivenessPolicy, PeakPoint
from treadle.analysis.timeline import Storage
from treadle.core.context import Ctx
from treadle.ir.program import Program
from treadle.memory.from_program import PlanOptions, ProgramProblem, problem_of
from treadle.memory.portfolio import Solution, solve
from treadle.memory.problem import Place, Plan


class LiveAtPeak(NamedTuple):
    """One block of memory that is in use at the peak."""

    storage: str
    """Who lives in it just then."""
    bytes: int
    producer: str | None
    """The operation that allocates the block; None for inputs."""
    last_use: str | None
    """The operation after which it is free; None if the caller keeps it."""
    idle: int
    """Steps around the peak in which nobody touches it; 0 if the step at the peak does."""
    place: Place | None
    """Where it lies; None for memory of its own."""


@dataclass(frozen=True)
class PlannedProgram:
    """A plan for a program and how good it is."""

    of: ProgramProblem
    solution: Solution
    plan: Plan

    @property
    def program(self) -> Program:
        """The program that was planned."""
        return self.of.program

    @property
    def arena_bytes(self) -> int:
        """The height of the arena."""
        return self.plan.height

    @property
    def lower_bound(self) -> int:
        """No plan of this order has a lower arena."""
        return self.solution.lower_bound

    @property
    def own_bytes(self) -> int:
        """Bytes of outputs, and of storages on other devices, that lie outside of the arena."""
        inside = self.of.outputs if self.of.options.outputs_in_arena else ()
        apart = [s for s in (*self.of.outputs, *self.of.elsewhere) if s not in inside]
        return sum(self.of.bytes_of(s) for s in apart)

    @property
    def output_bytes(self) -> int:
        """Bytes of the storages that the caller gets."""
        return sum(self.of.bytes_of(s) for s in self.of.outputs)

    @property
    def total_bytes(self) -> int:
        """Everything the program allocates: the arena and what has memory of its own."""
        return self.arena_bytes + self.own_bytes

    @property
    def total_lower_bound(self) -> int:
        """No plan of this order allocates less."""
        return self.lower_bound + self.own_bytes

    @property
    def unshared_bytes(self) -> int:
        """What it would take if no two storages shared memory."""
        inputs = {self.program.storage_of(n) for n in self.program.inputs}
        rows = self.of.live.ranges()
        return sum(r.bytes for r in rows if r.block is not None and r.storage not in inputs)

    @cached_property
    def peak(self) -> PeakPoint:
        """The most bytes live at once in this order, as the policy counts them."""
        return self.of.live.peak()

    @cached_property
    def breakdown(self) -> tuple[LiveAtPeak, ...]:
        """Who is live at the peak, the largest first; together they are the peak."""
        return breakdown_of(self.of, self.plan)


def plan_program(
    program: Program,
    *,
    policy: LivenessPolicy | None = None,
    options: PlanOptions | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float | None = None,
    steps: int | None = None,
    effort: str = "balanced",
    seed: int = 0,
    ctx: Ctx | None = None,
) -> PlannedProgram:
    """Plan the memory of a program in its present order; validated, deterministic in `steps`."""
    return plan_problem(
        problem_of(program, policy=policy, options=options),
        sizes=sizes, seconds=seconds, steps=steps, effort=effort, seed=seed, ctx=ctx,
    )  # fmt: skip


def plan_problem(
    of: ProgramProblem,
    *,
    sizes: Mapping[str, int] | None = None,
    seconds: float | None = None,
    steps: int | None = None,
    effort: str = "balanced",
    seed: int = 0,
    ctx: Ctx | None = None,
) -> PlannedProgram:
    """Plan a program's problem for some run-time sizes (their hints where none are given)."""
    problem = of.at(sizes) if sizes else of.problem
    solution = solve(problem, seconds=seconds, steps=steps, effort=effort, seed=seed, ctx=ctx)
    # Without a capacity everything has a place: a program's fixed blocks lie in hosts they fit.
    assert solution.plan is not None, f"no plan for {of.program.name}: {solution.verdict}"
    if ctx is not None:
        ctx.journal.emit("plan", total_bytes=solution.height, plan_lower_bound=solution.lower_bound)
    return PlannedProgram(of, solution, solution.plan)


def breakdown_of(of: ProgramProblem, plan: Plan) -> tuple[LiveAtPeak, ...]:
    """The blocks in use at the peak of the live bytes, the largest first."""
    live = of.live
    at = live.timeline.peak().step
    rank = {m: k for k, step in enumerate(live.timeline.order()) for m in step}
    users = {s.name: s for s, _ in live.timeline.lives()}
    lives = {s.name: life for s, life in live.timeline.lives()}
    reused_by = live.in_place_reuse()
    # Without steps there are only the inputs that the caller keeps.
    here = -1 if at is None else rank[at]
    kept = [s for s in users.values() if lives[s.name].bytes]
    rows = []
    for s in kept if at is None else live.timeline.live_during(at):
        chain = [s.name]
        while chain[-1] in reused_by:
            chain.append(reused_by[chain[-1]])
        touches = sorted({rank[u] for name in chain for u in _touching(users[name])})
        holder = s.name
        for name in chain:
            first = lives[name].first
            if first is not None and rank[first] <= here:
                holder = name
        first, last = lives[s.name].first, lives[chain[-1]].last
        is_kept = not users[chain[-1]].freeable
        rows.append(
            LiveAtPeak(
                storage=holder,
                bytes=s.bytes,
                producer=None if first is None else live.name_of(first),
                last_use=None if is_kept or last is None else live.name_of(last),
                idle=_idle(touches, here, len(of.steps)),
                place=plan.placements.get(holder),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.storage)))


def _touching(s: Storage) -> tuple[int, ...]:
    return s.users if s.producer is None else (s.producer, *s.users)


def _idle(touches: list[int], here: int, end: int) -> int:
    """Steps between the touches before and after `here`, those two not counted."""
    if here in touches:
        return 0
    before = max([t for t in touches if t < here], default=-1)
    after = min([t for t in touches if t > here], default=end)
    return after - before - 1
