"""Order and places together, for small programs, through OR-tools' CP-SAT.

Ordering first and packing second can miss the lowest arena: the order with the lowest peak may be
one that cannot be packed without holes. Here both are one question: each step gets a time, each
storage an address, no two storages that live at the same time overlap, and the arena is as low as
can be. Optional: it needs OR-tools and says so. Blocks handed over in place are not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from treadle.analysis.liveness import LivenessPolicy
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.memory.cp_sat import is_available
from treadle.memory.from_program import PlanOptions, problem_of
from treadle.memory.problem import ARENA, Place, Plan
from treadle.memory.validate import validated
from treadle.schedule.ordering.bound import lower_bound
from treadle.schedule.ordering.steps import Steps, StepStorage, steps_of

LARGEST = 60
"""More steps than this are refused: the question grows with their factorial."""


@dataclass(frozen=True)
class JointPlan:
    """An order with a validated plan for it, outputs in the arena, inputs not."""

    order: list[int]
    plan: Plan
    lower_bound: int

    @property
    def is_optimal(self) -> bool:
        """Whether no order has a lower plan."""
        return self.plan.height == self.lower_bound


def find_order_and_plan(
    program: Program,
    *,
    policy: LivenessPolicy | None = None,
    alignment: int | None = None,
    seconds: float = 30.0,
    seed: int = 0,
) -> JointPlan | None:
    """The order and plan with the lowest arena found in time; None if there was none."""
    if not is_available():
        raise UsageError(
            "ordering and placing together needs OR-tools, which is not installed",
            notes=["install it: pip install ortools", "or use find_order, then plan_program"],
        )
    if len(program.ops) > LARGEST:
        raise UsageError(
            f"{len(program.ops)} steps are too many to order and place together",
            notes=[f"at most {LARGEST}", "use find_order, then plan_program"],
        )
    counted = replace(policy or LivenessPolicy(), include_inputs=False, in_place=False)
    options = PlanOptions(alignment=alignment, outputs_in_arena=True)
    steps = steps_of(program, Options(), counted)
    unit = problem_of(program, policy=counted, options=options).alignment
    found = _solved(steps, unit, seconds, seed)
    if found is None:
        return None
    order, offsets, bound = found
    moved = program.with_ops(tuple([program.ops[k] for k in order]))
    problem = problem_of(moved, policy=counted, options=options).problem
    places = {b.name: Place(ARENA, offsets[b.name]) for b in problem.blocks}
    height = max((offsets[b.name] + b.size for b in problem.blocks), default=0)
    return JointPlan(order, validated(problem, Plan(places, height)), min(bound, height))


def _solved(
    steps: Steps, unit: int, seconds: float, seed: int
) -> tuple[list[int], dict[str, int], int] | None:
    """An order, an offset for each storage and a bound of the height."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    count = len(steps)
    times = [model.NewIntVar(0, max(0, count - 1), f"time{s}") for s in range(count)]
    model.AddAllDifferent(times)
    for s in range(count):
        model.AddHint(times[s], s)
        for p in steps.before[s]:
            model.Add(times[p] < times[s])
    held = [h for h in steps.held if h.bytes]
    top = sum(h.bytes + unit for h in held)
    height = model.NewIntVar(min(lower_bound(steps), top), top, "height")
    offsets = {}
    across, up = [], []
    for h in held:
        # Where there is more than one aligned place, offsets count units: fewer values to try.
        place = model.NewIntVar(0, top // unit, f"at {h.name}")
        offsets[h.name] = place
        model.Add(place * unit + h.bytes <= height)
        across.append(_life(model, h, times, count))
        up.append(model.NewFixedSizeIntervalVar(place * unit, h.bytes, f"bytes {h.name}"))
    model.AddNoOverlap2D(across, up)
    model.Minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    if solver.Solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    order = sorted(range(count), key=lambda s: int(solver.Value(times[s])))
    places = {name: int(solver.Value(place)) * unit for name, place in offsets.items()}
    return order, places, int(-(-solver.BestObjectiveBound() // 1))


def _life(model: Any, h: StepStorage, times: list[Any], count: int) -> Any:
    """The interval from the maker to behind the last user, or to the end."""
    start = model.NewConstant(0) if h.producer is None else times[h.producer]
    end = model.NewIntVar(0, count, f"end {h.name}")
    if not h.ends:
        model.Add(end == count)
    elif h.touched_by:
        model.AddMaxEquality(end, [times[u] + 1 for u in h.touched_by])
    length = model.NewIntVar(0, count, f"length {h.name}")
    return model.NewIntervalVar(start, length, end, f"life {h.name}")
