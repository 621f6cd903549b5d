"""Memory for a page: every block with its time and place, live bytes, and the peak's breakdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir.effects import effects
from treadle.ir.program import Program
from treadle.memory.draw import live_curve, peak_of, peak_rows, pools_drawn, time_range
from treadle.memory.plan_program import PlannedProgram
from treadle.memory.problem import ARENA, Block, Plan, Problem
from treadle.page.kernels import is_line, operations_of

WEIGHED = 60
"""Of so many of the largest blocks at the peak it is worked out what the peak were without them."""


def map_of_program(planned: PlannedProgram, label: str, lines_from: Program) -> dict[str, Any]:
    """The memory map of a planned program; figures under the keys of `treadle plan`."""
    of, plan, steps = planned.of, planned.plan, planned.of.steps
    lines = _lines(planned.program, lines_from)
    curve = [during for _, during, _ in of.live.curve()]
    outputs = set(of.outputs)
    blocks = [
        {
            **_block(block, plan),
            "made_by": steps[block.lower],
            "last_use": None if block.name in outputs else steps[block.upper - 1],
            "lines": lines.get(block.name, []),
            "output": block.name in outputs,
        }
        for block in of.problem.blocks
    ]
    spans = _spans(of.problem)
    rows = []
    for k, row in enumerate(planned.breakdown):
        place = None if row.place is None else f"{row.place.pool}+{row.place.offset}"
        entry = {**row._asdict(), "place": place, "lines": lines.get(row.storage, [])}
        if k < WEIGHED and row.storage in spans:
            entry["peak_without"] = peak_without(curve, *spans[row.storage], row.bytes)
        rows.append(entry)
    return {
        "label": label,
        "counts_inputs": of.live.policy.include_inputs,
        "steps": list(steps),
        "blocks": blocks,
        "pools": [list(pool) for pool in pools_drawn(of.problem, plan)],
        "curve": curve,
        "arena_bytes": planned.arena_bytes,
        "arena_lower_bound": planned.lower_bound,
        "total_bytes": planned.total_bytes,
        "plan_lower_bound": planned.total_lower_bound,
        "peak_bytes": planned.peak.bytes,
        "peak_at": planned.peak.at,
        "unshared_bytes": planned.unshared_bytes,
        "method": planned.solution.method,
        "breakdown": rows,
    }


def map_of_plan(problem: Problem, plan: Plan, lower_bound: int, label: str) -> dict[str, Any]:
    """The memory map of a plan whose program is not known (XLA's buffers, a table of lives)."""
    start, end = time_range(problem)
    found = live_curve(problem)
    values = dict(zip(found.times, found.values, strict=True))
    curve, live = [], 0
    for time in range(start, end):
        live = values.get(time, live)
        curve.append(live)
    at, peak = peak_of(found)
    blocks = [{**_block(block, plan), "lines": [], "output": False} for block in problem.blocks]
    for row in blocks:
        row["lower"], row["upper"] = row["lower"] - start, row["upper"] - start
        row |= {"made_by": str(row["lower"] + start), "last_use": str(row["upper"] + start - 1)}
    spans = _spans(problem)
    rows = []
    for k, live_row in enumerate(peak_rows(problem, plan, at)):
        lower, upper = spans[live_row.name]
        entry: dict[str, Any] = {
            "storage": live_row.name,
            "bytes": live_row.size,
            "producer": str(live_row.lower),
            "last_use": str(live_row.upper - 1),
            "idle": live_row.idle,
            "place": f"{live_row.pool}+{live_row.offset}",
            "lines": [],
        }
        if k < WEIGHED:
            entry["peak_without"] = peak_without(curve, lower - start, upper - start, live_row.size)
        rows.append(entry)
    return {
        "label": label,
        "steps": [str(time) for time in range(start, end)],
        "blocks": blocks,
        "pools": [list(pool) for pool in pools_drawn(problem, plan)],
        "curve": curve,
        "arena_bytes": plan.height,
        "arena_lower_bound": lower_bound,
        "peak_bytes": peak,
        "peak_at": str(at),
        "breakdown": rows,
    }


def peak_without(curve: Sequence[int], lower: int, upper: int, size: int) -> int:
    """The most bytes live at once if `size` of them were not there from `lower` to `upper`."""
    inside = [live - size for live in curve[lower:upper]]
    return max([*curve[:lower], *inside, *curve[upper:]], default=0)


def _block(block: Block, plan: Plan) -> dict[str, Any]:
    place = plan.placements[block.name]
    row: dict[str, Any] = {"name": block.name, "lower": block.lower, "upper": block.upper}
    row |= {"size": block.size, "pool": place.pool, "offset": place.offset}
    if block.group is not None:
        row["chain"] = block.group
    if place.pool != ARENA:
        row["in_host"] = True
    return row


def _spans(problem: Problem) -> dict[str, tuple[int, int]]:
    """When the block that a storage lies in is taken: for a chain in place, from end to end."""
    chains: dict[str, tuple[int, int]] = {}
    for block in problem.blocks:
        if block.group is not None:
            lower, upper = chains.get(block.group, (block.lower, block.upper))
            chains[block.group] = (min(lower, block.lower), max(upper, block.upper))
    return {
        block.name: (block.lower, block.upper) if block.group is None else chains[block.group]
        for block in problem.blocks
    }


def _lines(program: Program, known: Program) -> dict[str, list[str]]:
    """The user's lines behind what first writes each storage."""
    origins = {leaf.name: leaf.origins for leaf in known.leaves}
    found: dict[str, list[str]] = {}
    for op in program.leaves:
        said = [*op.origins, *[o for n in operations_of(op) for o in origins.get(n, ())]]
        lines = list(dict.fromkeys(o for o in said if is_line(o)))
        for name in effects(op).writes if lines else ():
            found.setdefault(program.storage_of(name), lines)
    return found
