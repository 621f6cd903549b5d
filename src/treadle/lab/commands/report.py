"""`treadle report FILE -o OUT`: one page with what was decided and why; forms for other tools."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.core.errors import UsageError
from treadle.core.writing import Outputs
from treadle.lab.help import ANY_FILE
from treadle.lab.loading import load
from treadle.lab.output import emit, human_bytes
from treadle.lab.reporting import FileReport, Wanted, report_of_file
from treadle.memory.csvio import print_csv
from treadle.page.dot import dot
from treadle.page.html import page
from treadle.page.lanes import predicted_run
from treadle.page.measured import read_measured
from treadle.page.snapshot import snapshot
from treadle.page.trace import chrome_trace
from treadle.schedule.policy import POLICIES

FORMS = ("--trace", "--snapshot", "--csv", "--dot")
"""Outputs that only a file with a program has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    parser.add_argument("file", metavar="FILE", help=ANY_FILE)
    parser.add_argument(
        "-o", dest="out", metavar="OUT", default="report.html", help="the page (report.html)"
    )
    parser.add_argument("--force", action="store_true", help="an output may be the input")
    parser.add_argument("--policy", choices=sorted(POLICIES), help="what fusion may do and cost")
    parser.add_argument(
        "--accounting",
        choices=sorted(ACCOUNTINGS),
        help="how bytes are counted (default: ours; dump for dumps)",
    )
    parser.add_argument(
        "--target", metavar="T", help="machine to schedule for: cpu, h100, h200 ..."
    )
    parser.add_argument(
        "--only", action="store_true", help="do not try the other policies for comparison"
    )
    parser.add_argument(
        "--measured",
        metavar="FILE",
        help="measured times: JSON with microseconds by launch, or a trace of torch's profiler",
    )
    parser.add_argument("--trace", metavar="FILE", help="predicted times for Perfetto, as JSON")
    parser.add_argument(
        "--snapshot", metavar="FILE", help="the memory plan for PyTorch's memory_viz, as a pickle"
    )
    parser.add_argument("--csv", metavar="FILE", help="the memory plan as MiniMalloc's CSV")
    parser.add_argument("--dot", metavar="FILE", help="the graph of launches for Graphviz")


def run(args: argparse.Namespace) -> int:
    """Write the page and whatever else was asked for."""
    start = time.perf_counter()
    loaded = load(args.file)
    paths = {"-o": args.out} | {form: getattr(args, form[2:]) for form in FORMS}
    inputs = [*loaded.inputs, *([args.measured] if args.measured else [])]
    outputs = Outputs(paths, inputs, args.force)
    made = report_of_file(
        loaded, Wanted(args.policy, args.accounting, args.target, others=not args.only)
    )
    asked = [form for form in FORMS if form in outputs.paths]
    if asked and (made.story is None or made.planned is None):
        raise UsageError(f"{asked[0]} needs a program: {args.file} is of kind {loaded.kind}")
    if args.measured is not None:
        _add_measured(made, args.measured, loaded.kind)
    text = page(made.data)
    outputs.write("-o", text)
    _write_forms(made, outputs)
    data: dict[str, Any] = {
        "kind": loaded.kind,
        "file": args.file,
        "out": args.out,
        "bytes": len(text.encode()),
        "written": list(outputs.paths.values()),
        "seconds": round(time.perf_counter() - start, 3),
    }
    if "measured" in made.data:
        data["measured"] = made.data["measured"]
    emit(args.json, data, _lines(data, made.data))
    return 0


def _add_measured(made: FileReport, path: str, kind: str) -> None:
    if made.story is None:
        raise UsageError(f"--measured needs a file with launches, not one of kind {kind}")
    launches = [row["name"] for row in made.data["kernels"]]
    read_measured(path, made.story.counted, launches).put_into(made.data)


def _write_forms(made: FileReport, outputs: Outputs) -> None:
    if made.story is None or made.planned is None:
        return
    kernels, memory = made.data["kernels"], made.data["memory"][1]
    if "--trace" in outputs.paths:
        run_of = predicted_run(made.story.counted, made.story.ctx.options)
        outputs.write("--trace", chrome_trace(made.story.title, kernels, run_of, memory))
    if "--snapshot" in outputs.paths:
        lines = {block["name"]: block["lines"] for block in memory["blocks"]}
        outputs.write_bytes("--snapshot", snapshot(made.planned, lines))
    if "--csv" in outputs.paths:
        outputs.write("--csv", print_csv(made.planned.of.problem, made.planned.plan))
    if "--dot" in outputs.paths:
        outputs.write("--dot", dot(made.story.title, kernels, made.data["edges"]))


def _lines(data: dict[str, Any], shown: dict[str, Any]) -> Iterator[str]:
    for row in shown.get("advice", [])[:3]:
        yield f"{row['what']}: {row['gain']}"
    if "measured" in shown:
        timed = shown["measured"]
        yield (
            f"measured {timed['us']:,} us for {timed['launches']} of {len(shown['kernels'])}"
            f" launches and calls, predicted {timed['predicted_us']:,} us"
        )
        yield from [f"note: {note}" for note in timed["notes"]]
    more = [path for path in data["written"] if path != data["out"]]
    also = f", {', '.join(more)}" if more else ""
    yield f"wrote {data['out']} ({human_bytes(data['bytes'])}){also}; {data['seconds']} s"
