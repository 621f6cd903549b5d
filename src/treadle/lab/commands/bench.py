"""`treadle bench TARGET`: one model by several backends of torch.compile, side by side."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from treadle.core.errors import UsageError
from treadle.core.tables import Section, text_lines
from treadle.core.writing import Outputs
from treadle.frontends.torch.bench.asked import Asked, BenchRow
from treadle.frontends.torch.bench.picture import page, svg
from treadle.frontends.torch.bench.runner import BUILTIN, DEVICES, DTYPES, bench, check
from treadle.lab.output import complain, emit, human_bytes

SPEEDS = ("backend", "ms", "half of the rounds", "speed", "in CPU time", "compile s", "CPU s")
EXACT = ("backend", "error to f64", "eager's own", "to eager", "peak predicted", "peak measured")
BACKENDS = "eager,aot_eager,inductor,treadle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bench`."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="file.py:name (a model or function with `example_inputs` in the file, or a factory "
        f"that gives a model and its inputs) or a built-in model: {', '.join(BUILTIN)}",
    )
    parser.add_argument(
        "--backends", default=BACKENDS, help=f"names with commas between (default: {BACKENDS})"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where it runs (cpu)")
    parser.add_argument("--dtype", choices=DTYPES, help="type of weights and inputs (as they are)")
    parser.add_argument(
        "--train", action="store_true", help="forward and backward instead of forward alone"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads torch may use (default: 1)")
    parser.add_argument(
        "--dynamic", action="store_true", help="compile for run-time sizes (dynamic=True)"
    )
    parser.add_argument("--rounds", type=int, default=20, help="runs that are timed (default: 20)")
    parser.add_argument(
        "--timeout", type=float, default=600, metavar="S", help="seconds for a backend (600)"
    )
    parser.add_argument(
        "-o", dest="out", metavar="OUT", help="write a picture: a page, or OUT.svg by itself"
    )


def run(args: argparse.Namespace) -> int:
    """Ask every backend and print; exit 1 if Treadle failed."""
    asked = _asked(args)
    check(asked)
    outputs = Outputs({"-o": args.out}, [asked.target.rpartition(":")[0]])
    if find_spec("torch") is None:
        raise UsageError("torch is not installed: pip install 'treadle[torch]'")
    start = time.perf_counter()
    rows = bench(asked, _say)
    sections = list(sections_of(rows))
    how = _how(asked)
    text = (svg if str(args.out).endswith(".svg") else _page(sections))(how, rows)
    outputs.write("-o", text)
    lines = [how, *text_lines(sections)]
    lines += [f"wrote {args.out}"] if args.out else []
    seconds = round(time.perf_counter() - start, 1)
    data: dict[str, Any] = {
        "kind": "bench",
        "asked": asked.to_json(),
        "rows": [row.to_json() for row in rows],
        "ok": not any(row.failed for row in rows if row.backend == "treadle"),
        "seconds": seconds,
    }
    emit(args.json, data, lines)
    return 0 if data["ok"] else 1


def _page(sections: Sequence[Section]) -> Any:
    return lambda title, rows: page(title, sections, rows)


def _say(backend: str) -> None:
    if sys.stderr.isatty():
        complain(f"measuring {backend} ...")


def _asked(args: argparse.Namespace) -> Asked:
    return Asked(
        target=args.target,
        backends=tuple([name.strip() for name in args.backends.split(",")]),
        device=args.device,
        dtype=args.dtype,
        train=args.train,
        threads=args.threads,
        dynamic=args.dynamic,
        rounds=args.rounds,
        timeout=args.timeout,
    )


def _how(asked: Asked) -> str:
    """What was measured, in one line."""
    job = "training step" if asked.train else "forward"
    threads = f", {asked.threads} thread{'s' * (asked.threads != 1)}" * (asked.device == "cpu")
    more = f", {asked.dtype}" if asked.dtype else ""
    sizes = ", run-time sizes" if asked.dynamic else ""
    return f"{asked.target}: {job} on {asked.device}{threads}{more}{sizes}"


def sections_of(rows: Sequence[BenchRow]) -> Iterator[Section]:
    """The tables: speed and compile time, errors and memory, stages, and what went wrong."""
    ran = [row for row in rows if row.failed is None]
    if ran:
        yield Section("", SPEEDS, tuple(map(_speeds, ran)), SPEEDS[1:])
        yield Section("", EXACT, tuple(map(_exact, ran)), EXACT[1:])
    for row in ran:
        if row.stages:
            shown = [(stage, f"{seconds:.3f}") for stage, seconds in row.stages.items()]
            title = f"compiling by {row.backend}, seconds by stage:"
            yield Section(title, ("stage", "s"), tuple(shown), ("s",))
    wrong = [(row.backend, row.failed) for row in rows if row.failed is not None]
    if wrong:
        yield Section("failed:", ("backend", "why"), tuple(wrong))
    for row in rows:
        for note in row.notes:
            yield Section(f"{row.backend}: {note}")


def _speeds(row: BenchRow) -> tuple[object, ...]:
    spread = "-" if row.low_ms is None else f"{row.low_ms:.3g} to {row.high_ms:.3g}"
    return (
        row.backend,
        _number(row.ms, ".3g"),
        spread,
        _number(row.speed, ".2f", " x"),
        _number(row.cpu_speed, ".2f", " x"),
        _number(row.compile_s, ".2f"),
        _number(row.compile_cpu_s, ".2f"),
    )


def _exact(row: BenchRow) -> tuple[object, ...]:
    peaks = [row.peak_predicted, row.peak_measured]
    return (
        row.backend,
        _number(row.error, ".1e"),
        _number(row.eager_error, ".1e"),
        _number(row.error_to_eager, ".1e"),
        *["-" if n is None else human_bytes(n) for n in peaks],
    )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
