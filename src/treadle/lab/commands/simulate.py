"""`treadle simulate FILE`: the program on more and more ranks, and where that stops paying.

Every rank keeps its own work, so a job that scales takes the same time on any number of ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from treadle.analysis.comm.machine import CommMachine, machine_of
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.writing import Outputs
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.program import Program
from treadle.lab.comm_report import CommFigures, chrome_trace, comm_figures, has_collectives
from treadle.lab.help import PROGRAM_FILE
from treadle.lab.loading import load_program
from treadle.lab.output import emit, table
from treadle.lab.scheduling import add_comm_arguments, comm_changes, context_for, options_for
from treadle.schedule.pipeline import run_pipeline

WORLDS = "8,16,32,64,128,256,512,1024,2048,4096"
SCALES = 0.9
"""A job scales as long as it keeps this share of the speed of the smallest one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `simulate`."""
    parser.add_argument("file", metavar="FILE", help=PROGRAM_FILE)
    parser.add_argument(
        "--worlds", metavar="N,N", default=WORLDS, help=f"numbers of ranks (default {WORLDS})"
    )
    add_comm_arguments(parser)
    parser.add_argument("--trace", metavar="OUT", help="write the lanes of the last as a trace")
    parser.add_argument("--as-given", action="store_true", help="do not schedule, keep the order")


def run(args: argparse.Namespace) -> int:
    """Simulate the program at every number of ranks and say where it stops scaling."""
    given, loaded = load_program(args.file)
    outputs = Outputs({"--trace": args.trace}, loaded.inputs, False)
    options = options_for(loaded.text).with_(**comm_changes(args))
    if not has_collectives(given):
        raise UsageError(f"{args.file}: the program has no collectives", code="COL009")
    program = unpacked(given) if loaded.is_dump else given
    rows = []
    last: tuple[Program, CommMachine] | None = None
    for world in worlds_of(args.worlds):
        here = options.with_(world=world)
        machine = machine_of(program, here)
        scheduled = given if args.as_given else _scheduled(program, given, here)
        rows.append((world, comm_figures(scheduled, machine)))
        last = scheduled, machine
    data: dict[str, object] = {
        "hardware": machine_of(program, options).hardware.name,
        "comm": "as given" if args.as_given else options.comm,
        "worlds": [{"world": world, **f.to_json()} for world, f in rows],
        "stops": stops_scaling(rows),
    }
    emit(args.json, data, _lines(data, rows))
    if args.trace and last is not None:
        trace = chrome_trace({f"{rows[-1][0]} ranks": last[0]}, last[1], options.accounting)
        outputs.write("--trace", trace)
    return 0


def worlds_of(text: str) -> list[int]:
    """The numbers of ranks that were asked for, ascending."""
    found = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 1 << 20 for word in found):
        message = f"--worlds cannot be '{text}': expected numbers of ranks such as 8,64,512"
        raise UsageError(message, code="OPT002")
    return sorted({int(word) for word in found})


def _scheduled(program: Program, given: Program, options: Options) -> Program:
    return run_pipeline(program, context_for(program, options, given))


def stops_scaling(rows: list[tuple[int, CommFigures]]) -> dict[str, object] | None:
    """The first number of ranks at which the job is clearly slower than at the first, and why."""
    _, first = rows[0]
    for world, figures in rows[1:]:
        kept = first.run.makespan_us / figures.run.makespan_us if figures.run.makespan_us else 1.0
        if kept < SCALES:
            return {"world": world, "speed_kept": round(kept, 4), "why": _why(figures)}
    return None


def _why(figures: CommFigures) -> str:
    """What a job that no longer scales is limited by, in words."""
    data = figures.to_json()
    sent, late, busy = data["comm_us"], data["comm_latency_us"], data["compute_us"]
    assert isinstance(sent, float)
    assert isinstance(late, float)
    assert isinstance(busy, float)
    part = late / sent if sent else 0.0
    kind = (
        f"latency ({part:.0%} of it): fewer, larger messages would help"
        if part > 0.5
        else f"bandwidth ({1 - part:.0%} of it): more compute for each byte would help"
    )
    if figures.bound.channel_us > busy:
        where = f"communication takes {sent:.0f} us, more than all compute ({busy:.0f} us)"
    elif figures.run.makespan_us > 1.1 * figures.bound.us:
        where = f"{figures.run.exposed_us:.0f} us of communication are exposed, needlessly"
    else:
        where = f"{figures.run.exposed_us:.0f} us of communication cannot be hidden"
    return f"{where}; it is limited by {kind}"


def _lines(data: dict[str, object], rows: list[tuple[int, CommFigures]]) -> Iterator[str]:
    keys = ("makespan_us", "exposed_comm_us", "compute_us", "comm_us", "bound_us", "overlap")
    cells = []
    for world, figures in rows:
        found = figures.to_json()
        kept = rows[0][1].run.makespan_us / max(figures.run.makespan_us, 1e-9)
        cells.append((str(world), *[found[key] for key in keys], f"{kept:.0%}"))
    yield f"on {data['hardware']}, comm {data['comm']}:"
    yield from table(cells, ("ranks", *keys, "speed kept"))
    stops = data["stops"]
    if isinstance(stops, dict):
        yield f"stops scaling at {stops['world']} ranks: {stops['why']}"
    else:
        yield "scales to the last of these"
