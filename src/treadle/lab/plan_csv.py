"""What `treadle plan` says about a memory problem in CSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from treadle.core.errors import InputError
from treadle.lab.output import emit, human_bytes, table
from treadle.memory.csvio import parse_csv, print_csv
from treadle.memory.draw import peak_rows
from treadle.memory.draw_svg import plan_svg
from treadle.memory.draw_text import curve_text, map_text, peak_text
from treadle.memory.portfolio import Solution, solve
from treadle.memory.problem import Plan, Problem
from treadle.memory.validate import violations


def run(text: str, path: str, args: argparse.Namespace) -> int:
    """Plan the problem; 1 if no plan fits the capacity."""
    found = parse_csv(text, path)
    problem = found.problem
    if args.capacity is not None:
        problem = replace(problem, capacity=args.capacity)
    solution = solve(
        problem, seconds=args.seconds, steps=args.steps, seed=args.seed, effort=args.effort
    )
    if solution.plan is not None:
        _write(args, problem, solution.plan, solution.lower_bound)
    data = {
        "kind": "minimalloc_csv",
        "file": path,
        "buffers": len(problem.blocks),
        "total_bytes": solution.height,
        "temp_bytes": solution.height,
        "plan_lower_bound": solution.lower_bound,
        "gap": round(solution.gap, 6),
        "capacity": problem.capacity,
        "method": solution.method,
        "seconds": solution.seconds,
        "before": _before(problem, found.plan),
        "tried": [one._asdict() for one in solution.tried],
        "ok": bool(solution.verdict),
        "errors": [] if solution.verdict else [str(solution.verdict)],
    }
    emit(args.json, data, _lines(problem, solution, args))
    return 0 if solution.verdict else 1


def _before(problem: Problem, plan: Plan | None) -> dict[str, object] | None:
    """The plan that the file itself holds, if any."""
    if plan is None:
        return None
    wrong = [str(one) for one in violations(problem, plan)]
    return {"total_bytes": plan.height, "ok": not wrong, "errors": wrong}


def _write(args: argparse.Namespace, problem: Problem, plan: Plan, bound: int) -> None:
    if args.out is not None:
        _write_text(args.out, print_csv(problem, plan))
    if args.svg is not None:
        _write_text(args.svg, plan_svg(problem, plan, bound))


def _write_text(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
    except OSError as e:
        found = e.strerror or str(e)
        raise InputError(
            file=path, expected="a file that can be written", found=found, code="TXT002"
        ) from None


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
