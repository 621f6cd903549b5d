"""A dump planned again and set beside XLA's own plan.

result = plan_dump(read_dump(path), seconds=5.0)
result.before.temp_bytes, result.after.temp_bytes      985504, 0
result.plan                                            validated, never worse than XLA's
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from treadle.core.context import Ctx
from treadle.frontends.xla_dump.import_plan import alignment_of
from treadle.frontends.xla_dump.model import XlaDump
from treadle.frontends.xla_dump.replan import fixed_bytes, is_table, replan_problem, xla_answer
from treadle.memory.portfolio import Solution, solve
from treadle.memory.problem import ARENA, Plan, Problem
from treadle.memory.validate import validated

XLA = "xla"
STEPS_FOR_TABLES = 2000
"""Search for the plan that keeps tuple tables apart, which is only a figure to compare with."""


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """Bytes of one plan: of scratch memory, of everything, and what everything needs at least."""

    temp_bytes: int
    total_bytes: int
    plan_lower_bound: int


@dataclass(frozen=True, slots=True)
class Replanned:
    """What XLA's plan needs and what ours does, with the problem both answer."""

    before: PlanFigures
    after: PlanFigures
    problem: Problem
    plan: Plan
    method: str
    """How the plan was found; `xla` if none was lower than XLA's own."""
    solution: Solution
    alignment: int
    temp_bytes_with_tables: int | None
    """Scratch memory where every tuple table keeps bytes of its own; None: there are none."""

    @property
    def in_hosts(self) -> int:
        """How many blocks that may move live inside outputs or donated inputs."""
        free = {block.name for block in self.problem.blocks if block.fixed is None}
        return sum(p.pool != ARENA for name, p in self.plan.placements.items() if name in free)

    def to_json(self) -> dict[str, object]:
        """The figures under the keys that all commands use."""
        return {
            "before": asdict(self.before),
            "after": asdict(self.after),
            "method": self.method,
            "blocks": len(self.problem.blocks),
            "in_hosts": self.in_hosts,
            "alignment": self.alignment,
            "temp_bytes_with_tables": self.temp_bytes_with_tables,
            "is_optimal": self.after.total_bytes == self.after.plan_lower_bound,
        }


def plan_dump(
    dump: XlaDump,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    effort: str = "balanced",
    ctx: Ctx | None = None,
) -> Replanned:
    """Plan the temporaries of a dump anew; time, steps and effort are those of `portfolio.solve`.

    One InputError for a dump of which parts are missing or do not fit together.
    """
    fixed = fixed_bytes(dump)
    problem = replan_problem(dump)
    solution = solve(problem, seconds=seconds, steps=steps, seed=seed, effort=effort, ctx=ctx)
    plan, method = _better(solution, xla_answer(dump, problem))
    bound = fixed.total + solution.lower_bound
    return Replanned(
        before=PlanFigures(dump.temp_bytes, dump.total_bytes, bound),
        after=PlanFigures(fixed.temp + plan.height, fixed.total + plan.height, bound),
        problem=problem,
        plan=validated(problem, plan),
        method=method,
        solution=solution,
        alignment=alignment_of(dump),
        temp_bytes_with_tables=_with_tables(dump, seed, ctx),
    )


def _better(solution: Solution, answer: Plan) -> tuple[Plan, str]:
    """The lower of our plan and XLA's own; ours if they are as low."""
    if solution.plan is None or solution.plan.height > answer.height:
        return answer, XLA
    return solution.plan, solution.method


def _with_tables(dump: XlaDump, seed: int, ctx: Ctx | None) -> int | None:
    if not any(is_table(one) for a, one in dump.assigned() if a.kind == "temp"):
        return None
    problem = replan_problem(dump, keep_tables=True)
    found = solve(problem, steps=STEPS_FOR_TABLES, seed=seed, ctx=ctx)
    fixed = fixed_bytes(dump)
    height = found.height if found.plan else fixed.arena
    return fixed.temp + min(height, fixed.arena)
