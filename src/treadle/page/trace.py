"""The predicted schedule as a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from typing import Any

from treadle.page.lanes import PredictedRun

PROCESS = 1


def chrome_trace(title: str, kernels: list[dict[str, Any]], run: PredictedRun,
                 memory: dict[str, Any] | None) -> str:  # fmt: skip
    """Lanes as threads, launches as slices with what they move, live bytes as a counter."""
    lanes = list(dict.fromkeys(part.lane for part in run.slices))
    row_of = {row["name"]: row for row in kernels}
    events: list[dict[str, Any]] = [_named("process_name", 0, f"{title}, predicted")]
    events += [_named("thread_name", k + 1, lane) for k, lane in enumerate(lanes)]
    live = dict(zip(memory["steps"], memory["curve"], strict=True)) if memory is not None else {}
    for part in run.slices:
        row = row_of.get(part.name, {})
        said = {
            k: row[k] for k in ("kind", "ops", "bytes_loaded", "bytes_stored", "lines") if k in row
        }
        events.append(
            {
                "name": part.name,
                "ph": "X",
                "pid": PROCESS,
                "tid": lanes.index(part.lane) + 1,
                "ts": round(part.start_us, 3),
                "dur": round(part.us, 3),
                "args": said,
            }
        )
        if part.name in live:
            counted = {"bytes": live[part.name]}
            events.append(
                {"name": "live bytes", "ph": "C", "pid": PROCESS, "ts": round(part.start_us, 3),
                 "args": counted}
            )  # fmt: skip
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=1)


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PROCESS, "tid": thread, "args": {"name": name}}
