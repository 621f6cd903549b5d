"""What `treadle plan` says about a memory problem in CSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from treadle.core.writing import Outputs
from treadle.lab.loading import SHOWN_ERRORS, LoadedFile
from treadle.lab.output import emit, human_bytes, table
from treadle.memory.csvio import print_csv
from treadle.memory.draw import peak_rows
from treadle.memory.draw_svg import plan_svg
from treadle.memory.draw_text import curve_text, map_text, peak_text
from treadle.memory.portfolio import Solution, solve
from treadle.memory.problem import Plan, Problem


def run(loaded: LoadedFile, args: argparse.Namespace, outputs: Outputs) -> int:
    """Plan the problem; 1 if no plan fits the capacity, or the plan in the file is wrong."""
    found = loaded.table
    assert found is not None, "a file of this kind holds a table"
    problem = found.problem
    if args.capacity is not None:
        problem = replace(problem, capacity=args.capacity)
    solution = solve(
        problem, seconds=args.seconds, steps=args.steps, seed=args.seed, effort=args.effort
    )
    if solution.plan is not None:
        _write(outputs, problem, solution.plan, solution.lower_bound)
    data: dict[str, object] = {
        "kind": "minimalloc_csv",
        "file": loaded.path,
        "buffers": len(problem.blocks),
        "total_bytes": solution.height,
        "temp_bytes": solution.height,
        "plan_lower_bound": solution.lower_bound,
        "gap": round(solution.gap, 6),
        "capacity": problem.capacity,
        "method": solution.method,
        "seconds": solution.seconds,
        "before": _before(found.plan, loaded.errors),
        "tried": [one._asdict() for one in solution.tried],
    }
    errors = [] if solution.verdict else [str(solution.verdict)]
    errors += [f"{loaded.path}: {error}" for error in loaded.errors]
    data |= {"ok": not errors, "errors": errors}
    lines = [*_lines(problem, solution, args), *_wrong(loaded)]
    emit(args.json, data, lines)
    return 1 if errors else 0


def _wrong(loaded: LoadedFile) -> Iterator[str]:
    """What is wrong with the plan that the file holds, in the words of `check`."""
    if loaded.errors:
        yield f"the plan in {loaded.path} is wrong:"
        yield from (f"  {error}" for error in loaded.errors[:SHOWN_ERRORS])


def _before(plan: Plan | None, wrong: tuple[str, ...]) -> dict[str, object] | None:
    """The plan that the file itself holds, if any."""
    if plan is None:
        return None
    return {"total_bytes": plan.height, "ok": not wrong, "errors": list(wrong)}


def _write(outputs: Outputs, problem: Problem, plan: Plan, bound: int) -> None:
    outputs.write("-o", print_csv(problem, plan))
    if "--svg" in outputs.paths:
        outputs.write("--svg", plan_svg(problem, plan, bound))


def _lines(problem: Problem, solution: Solution, args: argparse.Namespace) -> Iterator[str]:
    yield f"memory plan for {len(problem.blocks)} buffers: {solution.method}, {solution.seconds} s"
    if solution.plan is None:
        yield f"no plan: {solution.verdict}"
        return
    state = "as low as can be" if solution.is_optimal else f"{solution.gap:.2%} above"
    yield f"arena        {solution.height:,} ({human_bytes(solution.height)})"
    yield f"lower bound  {solution.lower_bound:,}: {state}"
    if problem.capacity is not None:
        yield f"capacity     {problem.capacity:,}: {'met' if solution.verdict else 'NOT met'}"
    if not solution.verdict:
        yield str(solution.verdict)
    rows = [(one.method, one.height, one.seconds) for one in solution.tried]
    yield from table(rows, ("tried", "height", "seconds"))
    if args.map:
        yield from map_text(problem, solution.plan)
        yield from curve_text(problem, solution.plan, solution.lower_bound)
        yield from peak_text(peak_rows(problem, solution.plan))
