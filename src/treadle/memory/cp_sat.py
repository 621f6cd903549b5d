"""OR-tools' CP-SAT as an optional second opinion: same problem, another solver.

The planner never needs it. Where it is installed (`pip install treadle[opt]`), it proves or
improves small problems and checks the search in tests.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from treadle.core.errors import UsageError
from treadle.memory.line import Item, Line, granule, line_of, plan_of
from treadle.memory.lower_bound import bound_of
from treadle.memory.problem import Plan, Problem


def is_available() -> bool:
    """Whether OR-tools is installed."""
    return find_spec("ortools") is not None


def solve_with_cp_sat(
    problem: Problem, *, seconds: float = 60.0, workers: int = 1, seed: int = 0
) -> tuple[Plan | None, int]:
    """(the lowest plan found or None, a proven lower bound of the height)."""
    if not is_available():
        raise UsageError("OR-tools is not installed", notes=["install it: pip install ortools"])
    from ortools.sat.python import cp_model

    line = line_of(problem)
    bound = bound_of(line).height
    if any(not item.regions for item in line.items):
        return None, bound
    model = cp_model.CpModel()
    step = granule(line)
    top = sum(item.size + item.alignment for item in line.items)
    top += sum(item.fixed for item in line.items if item.fixed is not None)
    top = problem.capacity if problem.capacity is not None else top
    height = model.NewIntVar(bound, max(top, bound), "height")
    starts = [_place(model, line, item, k, height) for k, item in enumerate(line.items)]
    _keep_apart(model, line, starts)
    model.Minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    status = solver.Solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound
    proven = int(-(-solver.BestObjectiveBound() // 1))
    plan = plan_of(line, [solver.Value(start) for start in starts])
    return plan, max(bound, proven + -proven % step if plan.height > proven else proven)


def _place(model: Any, line: Line, item: Item, number: int, height: Any) -> Any:
    """The address of an item: inside one of the regions open to it, aligned, below the height."""
    base = line.arena.base
    if item.fixed is not None:
        start = model.NewConstant(item.fixed)
        if line.arena.base <= item.fixed:
            model.Add(start + item.size - base <= height)
        return start
    highest = base + sum(other.size + other.alignment for other in line.items)
    highest += sum(other.fixed or 0 for other in line.items)
    unit = model.NewIntVar(0, highest // item.alignment + 1, f"unit{number}")
    start = unit * item.alignment
    chosen = []
    for region_number in item.regions:
        region = line.regions[region_number]
        is_here = model.NewBoolVar(f"in{number}.{region_number}")
        model.Add(start >= region.base).OnlyEnforceIf(is_here)
        if region is line.arena:
            model.Add(start + item.size - base <= height).OnlyEnforceIf(is_here)
        else:
            model.Add(start + item.size <= region.end).OnlyEnforceIf(is_here)
        chosen.append(is_here)
    model.AddExactlyOne(chosen)
    return start


def _keep_apart(model: Any, line: Line, starts: list[Any]) -> None:
    """No two items share an address and a moment."""
    across, up = [], []
    for item, start in zip(line.items, starts, strict=True):
        for first, last in item.spans:
            across.append(model.NewFixedSizeIntervalVar(first, last - first, ""))
            up.append(model.NewFixedSizeIntervalVar(start, item.size, ""))
    model.AddNoOverlap2D(across, up)
