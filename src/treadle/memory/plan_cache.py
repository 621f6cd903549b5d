"""Plans for programs with run-time sizes: one for all of them, or one for each, kept.

    compiled = compile_program(program, plan=PlanCache(program))

A plan is a place for every storage, so it depends on the sizes. If all of them have limits, the
plan for the most that every storage can need is right for every run. Otherwise, or where that
would waste memory, each vector of sizes is planned when it is first seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock

from treadle.analysis.liveness import LivenessPolicy
from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.ir.program import Program
from treadle.memory.from_program import PlanOptions, ProgramProblem, problem_of
from treadle.memory.plan_program import plan_problem
from treadle.memory.portfolio import solve
from treadle.memory.problem import Plan

STEPS = 20_000
"""Search nodes for each plan: a number, not a time, so that plans repeat."""


def plan_for_all_sizes(
    of: ProgramProblem, *, steps: int = STEPS, effort: str = "balanced", ctx: Ctx | None = None
) -> Plan | None:
    """A plan that is right for every run-time size in range; None where a size has no limit."""
    problem = of.widest()
    if problem is None:
        return None
    return solve(problem, steps=steps, effort=effort, ctx=ctx).plan


class PlanCache:
    """A function from run-time sizes to a plan; the newest plans are kept. Safe in threads.

    `waste` is how much more memory than the likely sizes need one plan for all sizes may take:
    1.25 lets it be a quarter more, 0 never uses one plan for all.
    """

    def __init__(
        self,
        program: Program,
        *,
        policy: LivenessPolicy | None = None,
        options: PlanOptions | None = None,
        steps: int = STEPS,
        effort: str = "balanced",
        kept: int = 64,
        waste: float = 1.25,
        ctx: Ctx | None = None,
    ) -> None:
        if kept < 1:
            raise UsageError(f"a cache that keeps {kept} plans keeps none")
        self.of = problem_of(program, policy=policy, options=options)
        self._steps, self._effort, self._kept, self._ctx = steps, effort, kept, ctx
        self._names = tuple(s.name for s in program.sizes)
        self._lock = Lock()
        self._plans: OrderedDict[tuple[int, ...], Plan] = OrderedDict()
        self.planned = 0
        """How many plans were made."""
        self.for_all = self._for_all(waste) if self._names and waste > 0 else None
        """The plan for every size, if it is used."""

    def __call__(self, sizes: Mapping[str, int]) -> Plan:
        """The plan for these run-time sizes."""
        if self.for_all is not None:
            return self.for_all
        key = tuple(sizes[name] for name in self._names)
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
        # Planned outside of the lock: two threads may plan the same, and get the same.
        made = self._plan(dict(zip(self._names, key, strict=True)))
        with self._lock:
            self.planned += 1
            made = self._plans.setdefault(key, made)
            self._plans.move_to_end(key)
            while len(self._plans) > self._kept:
                self._plans.popitem(last=False)
        return made

    def __len__(self) -> int:
        with self._lock:
            return len(self._plans)

    def _plan(self, sizes: Mapping[str, int]) -> Plan:
        found = plan_problem(
            self.of, sizes=sizes, steps=self._steps, effort=self._effort, ctx=self._ctx
        )
        return found.plan

    def _for_all(self, waste: float) -> Plan | None:
        general = plan_for_all_sizes(self.of, steps=self._steps, effort=self._effort, ctx=self._ctx)
        if general is None:
            return None
        likely = plan_problem(self.of, steps=self._steps, effort="fast", ctx=self._ctx)
        return general if general.height <= waste * likely.arena_bytes else None
