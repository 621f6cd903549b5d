"""The demo with torch: one table of kernels, times, bytes and errors by job and backend."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from treadle.core.errors import UsageError
from treadle.lab.output import emit, human_bytes, table

if TYPE_CHECKING:
    from treadle.frontends.torch.demo.measure import MeasuredRow

HEADER = (
    "job", "backend", "kernels", "calls", "compile s", "ms", "speed", "peak predicted",
    "peak measured", "max error",
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Measure and print; exit 1 if a result is not eager's."""
    from treadle.frontends.torch.demo.measure import TOLERANCE, measure
    from treadle.frontends.torch.demo.model import ModelSizes

    if args.rounds < 1 or args.threads < 1:
        raise UsageError("--rounds and --threads are numbers from 1 on")
    start = time.perf_counter()
    sizes = ModelSizes()
    backends = ("treadle", "inductor") if args.peer else ("treadle",)
    rows = measure(sizes, backends, rounds=args.rounds, threads=args.threads)
    ours = [row for row in rows if row.backend == "treadle"]
    wrong = [row for row in ours if not row.ok]
    seconds = time.perf_counter() - start
    data = {
        "kind": "model",
        "model": sizes.describe(),
        "threads": args.threads,
        "tolerance": TOLERANCE,
        "rows": [row.to_json() for row in rows],
        "ok": not wrong,
        "seconds": round(seconds, 3),
    }
    lines = [f"a small language model: {sizes.describe()}; threads: {args.threads}", ""]
    lines += [*lines_of(rows), ""]
    lines.append(f"{_verdict(wrong)}{_speeds(ours)}; {seconds:.1f} s")
    if args.out:
        from treadle.frontends.torch.demo.measure import demo_page

        demo_page(sizes, args.out, threads=args.threads)
        data["page"] = args.out
        lines.append(f"wrote {args.out}")
    emit(args.json, data, lines)
    return 1 if wrong else 0


def lines_of(rows: Sequence[MeasuredRow]) -> Iterator[str]:
    """The table, what its columns count, and what was noted on the way."""
    yield from table([_cells(row) for row in rows], HEADER, HEADER[2:])
    yield ""
    yield "  kernels   generated; calls of torch's operators do not count views"
    yield "  compile   the first call"
    yield "  speed     eager's milliseconds over these; all run in turns"
    yield "  peak      held besides weights and inputs: said before the run, seen by the profiler"
    for row in rows:
        for note in row.notes:
            yield f"  {row.backend}, {row.job}: {note}"


def _cells(row: MeasuredRow) -> tuple[object, ...]:
    compared = row.backend != "eager"
    return (
        row.job,
        row.backend,
        "-" if row.kernels is None else row.kernels,
        "-" if row.calls is None else row.calls,
        f"{row.compile_s:.1f}" if compared else "-",
        f"{row.ms:.2f}",
        f"{row.speed:.2f} x" if row.speed else "-",
        "-" if row.peak_bytes is None else human_bytes(row.peak_bytes),
        human_bytes(row.peak_measured),
        f"{row.max_error:.1e}" if compared else "-",
    )


def _speeds(ours: Sequence[MeasuredRow]) -> str:
    found = [f"{row.speed:.2f} times as fast ({row.job})" for row in ours]
    return f"; treadle is {', '.join(found)}"


def _verdict(wrong: Sequence[MeasuredRow]) -> str:
    if not wrong:
        return "all results are eager's"
    return "RESULTS DIFFER: " + ", ".join(row.job for row in wrong)
