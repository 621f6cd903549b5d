"""The figures that matter, before and after, and what would improve them most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from treadle.analysis.accounting import figures
from treadle.analysis.cost import cost_model
from treadle.analysis.devices import Device
from treadle.analysis.liveness import Liveness
from treadle.core.tables import human_bytes, human_time
from treadle.ir.effects import runs
from treadle.ir.program import Program
from treadle.page.lanes import PredictedRun
from treadle.page.story import ScheduleStory
from treadle.page.verdicts import ABOUT_KERNELS, code_pages

ROWS = (
    ("kernels", "launches and calls", "count"),
    ("bytes_moved", "bytes moved", "bytes"),
    ("peak_bytes", "peak of live bytes", "bytes"),
    ("peak_lower_bound", "no order is below", "bytes"),
    ("exposed_waits", "waits with nothing to hide them", "count"),
    ("predicted_us", "predicted time", "us"),
    ("ops", "operations", "count"),
)
WORTH_SAYING = 0.005
"""The part of the peak that must go for a block to be named: others would rise in its place."""
COLUMNS = 300
"""Of the picture of live bytes."""
HELD_FOR_NOTHING = 3
"""So many blocks that lie idle at the peak are named."""


def figure_table(story: ScheduleStory) -> dict[str, Any]:
    """The figures of `treadle schedule`, and the predicted time of `treadle kernels`."""
    programs = {"before": story.given, "unfused": story.unfused, "after": story.counted}
    if not story.is_regrouped:
        del programs["unfused"]
    columns = {word: _figures(story, program) for word, program in programs.items()}
    # What runs, as before: kernels have other leaves than the operations they run.
    columns["after"]["ops"] = sum(runs(op) for op in story.scheduled.leaves)
    rows = [
        {"key": key, "words": words, "unit": unit, "values": [c[key] for c in columns.values()]}
        for key, words, unit in ROWS
        if key != "exposed_waits" or any(c[key] for c in columns.values())
    ]
    return {"columns": list(columns), "rows": rows}


def _figures(story: ScheduleStory, program: Program) -> dict[str, Any]:
    model = cost_model(program, story.ctx.options)
    total = sum(round(model.op_ns(op) / 1e3, 3) for op in program.ops if runs(op))
    return {**asdict(figures(program, story.accounting)), "predicted_us": round(total, 3)}


def live_curves(story: ScheduleStory) -> list[dict[str, Any]]:
    """The live bytes of both schedules over their length, counted as the figures count them."""
    found = []
    for label, program in (("before", story.given), ("after", story.counted)):
        curve = [during for _, during, _ in Liveness(program, story.accounting.policy).curve()]
        found.append({"label": label, "curve": as_seen(curve), "peak_bytes": max(curve, default=0)})
    return found


def as_seen(curve: Sequence[int]) -> list[int]:
    """A long curve as so many columns as a small picture has room for, each its highest value."""
    n = min(COLUMNS, len(curve))
    ends = [k * len(curve) // n for k in range(n + 1)] if n else []
    return [max(curve[a:b]) for a, b in pairwise(ends)]


def advice(
    story: ScheduleStory,
    kernels: list[dict[str, Any]],
    verdicts: list[dict[str, Any]],
    memory: Mapping[str, Any] | None,
    run: PredictedRun,
) -> list[dict[str, Any]]:
    """What would improve the figures most, largest first within each figure, with a link."""
    found = [
        *_refused(apart(verdicts, kernels)),
        *_held(memory),
        *_launches(story, kernels),
        *_exposed(run),
    ]
    return sorted(found, key=lambda row: -float(row["share"]))


def apart(verdicts: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Refusals about two operations that are in different launches in the end, each pair once.

    What was refused at first may have come together later, in another order or through a third.
    """
    home = {name: k for k, row in enumerate(kernels) for name in (row["name"], *row["ops"])}
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in verdicts:
        places = {home.get(name, name) for name in row["ops"]}
        if not row["ok"] and row["question"] in ABOUT_KERNELS and len(places) > 1:
            found[(row["code"], *row["ops"])] = row
    return list(found.values())


def _refused(verdicts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fusions that were refused although they would save traffic, by code."""
    left: dict[str, dict[str, Any]] = {}
    for row in verdicts:
        size = int(row["facts"].get("bytes", 0))
        if not size:
            continue
        one = left.setdefault(row["code"], {"count": 0, "bytes": 0, "us": 0.0})
        one["count"] += 1
        one["bytes"] += size
        apart, together = row["facts"].get("apart_ns"), row["facts"].get("together_ns")
        if apart is not None and together is not None:
            one["us"] += max(0, apart - together) / 1e3
    titles = code_pages(left)
    for code, one in left.items():
        saved = f"{human_bytes(one['bytes'])} of traffic"
        times = f" and {human_time(one['us'])}" if one["us"] else ""
        what = f"{one['count']} fusion{'s' * (one['count'] != 1)} refused by {code}"
        many = "if it could be done"
        if one["count"] > 1:
            many = "if all of them could be done; one may exclude another"
        yield {
            "what": f"{what} ({titles.get(code, {}).get('title', code)})",
            "gain": f"up to {saved}{times} less {many}",
            "bytes": one["bytes"],
            "link": f"#fusion?code={code}",
            "share": one["bytes"],
        }


def _held(memory: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Blocks that lie idle at the peak, and what the peak were without them."""
    if memory is None:
        return
    rows = [r for r in memory["breakdown"] if r["idle"] and r.get("peak_without") is not None]
    most = memory["peak_bytes"] * (1 - WORTH_SAYING)
    rows = [r for r in rows if r["peak_without"] <= most]
    rows.sort(key=lambda r: (r["peak_without"], -r["bytes"]))
    for row in rows[:HELD_FOR_NOTHING]:
        size = memory["peak_bytes"] - row["peak_without"]
        maker, user = (row[key] or "the caller" for key in ("producer", "last_use"))
        kept = f"made by {maker}, last used by {user}"
        remedy = "computed again, or made later" if row["last_use"] else "made later, or not kept"
        yield {
            "what": f"{row['storage']} ({human_bytes(row['bytes'])}) lies idle for {row['idle']}"
            f" steps around the peak ({kept})",
            "gain": f"the peak is {human_bytes(size)} lower if it is {remedy}",
            "bytes": size,
            "link": f"#memory?block={row['storage']}",
            "share": size,
        }


def _launches(story: ScheduleStory, kernels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Launches that cost more than the work in them."""
    model = cost_model(story.counted, story.ctx.options)
    small = [row for row in kernels if row["bound"] == "launch"]
    if not small:
        return
    machine: Device = model.machine(small[0]["device"])
    us = machine.launch_ns * len(small) / 1e3
    total = sum(row["predicted_us"] for row in kernels)
    moved = sum(row["bytes_loaded"] + row["bytes_stored"] for row in kernels)
    is_gpu = not str(small[0]["device"]).startswith("cpu")
    replay = "record and replay them (CUDA graphs), or " if is_gpu else ""
    yield {
        "what": f"{len(small)} of {len(kernels)} launches take longer to start than to run",
        "gain": f"at most {human_time(us)} of {human_time(total)}: {replay}take a larger batch",
        "us": round(us, 3),
        "link": "#kernels?bound=launch",
        "share": moved * us / max(total, 1e-9),
    }


def _exposed(run: PredictedRun) -> Iterator[dict[str, Any]]:
    if run.exposed_us:
        yield {
            "what": f"computing stands still for communication in {len(run.waits)} waits",
            "gain": f"{human_time(run.exposed_us)} of {human_time(run.total_us)} less"
            " if all were hidden",
            "us": round(run.exposed_us, 3),
            "link": "#lanes",
            "share": run.exposed_us,
        }
