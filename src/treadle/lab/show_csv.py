"""What `treadle show` says about a memory problem in CSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from treadle.lab.loading import LoadedFile
from treadle.lab.output import emit, human_bytes
from treadle.memory.csvio import Table
from treadle.memory.draw import live_curve, peak_of, time_range
from treadle.memory.lower_bound import lower_bound


def run(loaded: LoadedFile, args: argparse.Namespace) -> int:
    """Print the blocks, when they live and what they need; 1 if the plan in the file is wrong."""
    table = loaded.table
    assert table is not None, "a file of this kind holds a table"
    problem = table.problem
    at, live = peak_of(live_curve(problem))
    start, end = time_range(problem)
    data: dict[str, object] = {
        "kind": "minimalloc_csv",
        "buffers": len(problem.blocks),
        "hosts": len(problem.pools),
        "capacity": problem.capacity,
        "sum_bytes": sum(block.size for block in problem.blocks),
        "peak_bytes": live,
        "peak_at": at,
        "plan_lower_bound": lower_bound(problem),
        "first_time": start,
        "last_time": end,
        "plan_bytes": table.plan.height if table.plan else None,
    }
    data |= {"ok": not loaded.errors, "errors": list(loaded.errors)}
    emit(args.json, data, _lines(table, data, loaded.errors))
    return 1 if loaded.errors else 0


def _lines(table: Table, data: dict[str, object], wrong: tuple[str, ...]) -> Iterator[str]:
    problem = table.problem
    hosts = f", {len(problem.pools)} hosts" if problem.pools else ""
    yield f"memory problem: {len(problem.blocks)} buffers{hosts}"
    yield f"times           {data['first_time']} to {data['last_time']}"
    total, live, bound = (
        int(str(data[k])) for k in ("sum_bytes", "peak_bytes", "plan_lower_bound")
    )
    yield f"bytes           {total:,} ({human_bytes(total)}) without sharing"
    yield f"live sum        {live:,} ({human_bytes(live)}) at time {data['peak_at']}"
    yield f"lower bound     {bound:,} ({human_bytes(bound)}) for the arena"
    if problem.capacity is not None:
        yield f"capacity        {problem.capacity:,}"
    if table.plan is not None:
        state = f"wrong: {wrong[0]}" if wrong else "valid"
        yield f"plan            {table.plan.height:,} bytes, {state}"
