"""`treadle schedule FILE [-o OUT]`: run the passes on a program; before and after."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

from treadle.analysis.accounting import ACCOUNTINGS, Figures, figures
from treadle.analysis.comm.machine import machine_of
from treadle.core.codes import load_codes
from treadle.core.context import Ctx
from treadle.core.options import Options
from treadle.core.reading import read_text
from treadle.core.writing import Outputs
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.effects import runs
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.lab.comm_report import chrome_trace, comm_data, comm_lines, has_collectives
from treadle.lab.given_or_new import (
    ScheduleChoice,
    Worse,
    choose,
    explain_worse,
    kept_line,
)
from treadle.lab.help import PROGRAM_FILE
from treadle.lab.loading import load_program
from treadle.lab.output import emit, human_bytes, table
from treadle.lab.scheduling import (
    add_comm_arguments,
    comm_changes,
    context_for,
    message_changes,
    options_for,
)
from treadle.page.from_journal import note_programs
from treadle.page.history import note_passes
from treadle.page.story import PassRecord, recorded
from treadle.page.verdicts import refusals_in, traded_in
from treadle.schedule.partition import partitions, with_fewest_partitions
from treadle.schedule.passes import KERNELS, PIPELINE, SCHEDULING, message_passes
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES
from treadle.schedule.record import Schedule, replay, schedule_of

FIGURES = ("ops", "kernels", "bytes_moved", "exposed_waits", "peak_bytes", "peak_lower_bound",
           "peak_at")  # fmt: skip
"""In the order of the table; `peak_at` may be long and comes last."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `schedule`."""
    parser.add_argument("file", metavar="FILE", help=PROGRAM_FILE)
    parser.add_argument("-o", dest="out", metavar="OUT", help="write the scheduled program here")
    parser.add_argument("--save", metavar="FILE", help="write the schedule as data here")
    parser.add_argument("--replay", metavar="FILE", help="apply a saved schedule, do not search")
    parser.add_argument("--force", action="store_true", help="OUT may be the input")
    parser.add_argument(
        "--journal", metavar="FILE", help="write the journal here; `treadle report` takes it"
    )
    parser.add_argument("--policy", choices=sorted(POLICIES), help="what fusion may do and cost")
    add_comm_arguments(parser)
    parser.add_argument("--world", type=int, metavar="N", help="ranks of the job")
    parser.add_argument(
        "--bucket", metavar="BYTES", help="send small collectives together, up to BYTES, or auto"
    )
    parser.add_argument(
        "--split", action="store_true", help="send large collectives of several tensors in parts"
    )
    parser.add_argument(
        "--in-flight", metavar="BYTES", help="messages under way at once, with --comm model"
    )
    parser.add_argument(
        "--prefetch",
        type=int,
        metavar="N",
        help="kernels between a collective and its wait at most, with --comm model",
    )
    parser.add_argument("--trace", metavar="OUT", help="write lanes before and after as a trace")
    parser.add_argument(
        "--accounting",
        choices=sorted(ACCOUNTINGS),
        help="how bytes are counted (default: ours; dump for dumps)",
    )


def run(args: argparse.Namespace) -> int:
    """Schedule the program and show what changed."""
    given, loaded = load_program(args.file)
    paths = {"-o": args.out, "--save": args.save, "--journal": args.journal, "--trace": args.trace}
    read = [*loaded.inputs, *([args.replay] if args.replay else [])]
    outputs = Outputs(paths, read, args.force)
    options = options_for(loaded.text, args.policy, args.accounting).with_(
        **comm_changes(args), **message_changes(args)
    )
    # A dump comes with the peer's groups: they are what to beat, not where to start.
    program = unpacked(given) if loaded.is_dump else given
    ctx = context_for(program, options, given)
    start = time.perf_counter()
    seen: list[PassRecord] = []
    program = run_pipeline(program, ctx, recorded(message_passes(options), seen))
    if args.replay:
        found = replay(program, Schedule.parse(read_text(args.replay), args.replay))
    else:
        found = run_pipeline(program, ctx, recorded(SCHEDULING, seen))
    built = run_pipeline(found, ctx, recorded(KERNELS, seen))
    seconds = round(time.perf_counter() - start, 3)
    accounting = ACCOUNTINGS[options.accounting]
    choice = choose(given, found, built, accounting, is_asked_for=bool(args.replay))
    scheduled = choice.program
    parts = {"before": given, "unfused": program, "after": given if choice.kept_given else built}
    if not loaded.is_dump:
        del parts["unfused"]
    counted = {word: _figures(p, options.accounting) for word, p in parts.items()}
    counted["after"]["ops"] = sum(runs(op) for op in scheduled.leaves)  # as before: what runs
    data: dict[str, object] = {
        **counted,
        "policy": options.policy,
        "accounting": options.accounting,
        "kept_given": choice.kept_given,
        "passes": [
            {k: e[k] for k in ("name", "changed", "seconds")} for e in ctx.journal.events("pass")
        ],
        "refusals": refusals_in(ctx.journal),
        "traded": traded_in(ctx.journal),
        "partitions": len(partitions(scheduled)),
        "fewest_partitions": len(partitions(with_fewest_partitions(scheduled, options))),
        "seconds": seconds,
    }
    worse = _worse(choice, given, program, options, data)
    data["worse"] = [each.to_json() for each in worse]
    comm = _communication(args, parts, options, outputs)
    data.update({"comm": comm} if comm else {})
    notes = [kept_line(choice)] if choice.kept_given else [each.line() for each in worse]
    said = comm_lines(comm, ["before", "after"]) if comm else ()
    emit(args.json, data, [*_lines(counted, data), *said, *notes])
    outputs.write("-o", show_program(scheduled))
    if args.save:
        outputs.write("--save", schedule_of(program, scheduled).to_text())
    if args.journal:
        note_passes(ctx.journal, seen, accounting)
        _note_programs(ctx, choice, given, program, built)
        ctx.journal.write(args.journal)
    return 0


def _note_programs(
    ctx: Ctx, choice: ScheduleChoice, given: Program, program: Program, built: Program
) -> None:
    """Let the journal hold all that a page is made from."""
    if choice.kept_given:
        quiet = replace(ctx, journal=type(ctx.journal)())
        built = run_pipeline(given, quiet, KERNELS)
    found = {"given": given, "unfused": program, "scheduled": choice.program, "built": built}
    note_programs(ctx.journal, found, ctx.options, choice.kept_given)


def _communication(
    args: argparse.Namespace, parts: dict[str, Program], options: Options, outputs: Outputs
) -> dict[str, object]:
    """Predicted communication before and after, if it was asked for and there is any."""
    asked = (
        args.comm or args.hardware or args.world or options.bucket or options.split or args.trace
    )
    if not asked or not has_collectives(parts["before"]):
        return {}
    machine = machine_of(parts["before"], options)
    both = {word: parts[word] for word in ("before", "after")}
    if args.trace:
        outputs.write("--trace", chrome_trace(both, machine, options.accounting))
    return comm_data(both, machine)


def _worse(
    choice: ScheduleChoice,
    given: Program,
    program: Program,
    options: Options,
    data: dict[str, object],
) -> list[Worse]:
    """What is worse than in the file's own schedule, with a policy that would not do it."""
    accounting = ACCOUNTINGS[options.accounting]

    def under(policy: str) -> Figures:
        ctx = context_for(program, options.with_(policy=policy), given)
        return figures(run_pipeline(program, ctx, PIPELINE), accounting)

    refusals = data["refusals"]
    assert isinstance(refusals, dict)
    return explain_worse(choice, figures(program, accounting), refusals, options.policy, under)


def _figures(program: Program, accounting: str) -> dict[str, object]:
    other = "ours" if accounting == "inductor" else "inductor"  # to hold against the peer's logs
    mine, theirs = (figures(program, ACCOUNTINGS[name]) for name in (accounting, other))
    also = {"bytes_moved": theirs.bytes_moved, "peak_bytes": theirs.peak_bytes}
    return {**asdict(mine), f"counted_as_{other}": also}


def _lines(counted: dict[str, dict[str, object]], data: dict[str, object]) -> Iterator[str]:
    shown = [k for k in FIGURES if k != "exposed_waits" or any(c[k] for c in counted.values())]
    rows = [(k, *[c[k] for c in counted.values()]) for k in shown]
    yield from table(rows, ("", *counted))
    other = "ours" if data["accounting"] == "inductor" else "inductor"
    also = [c[f"counted_as_{other}"] for c in counted.values()]
    rows = [(k, *[a[k] for a in also]) for k in ("bytes_moved", "peak_bytes")]  # type: ignore[index]
    yield f"counted as {other}:"
    yield from table(rows, ("", *counted))
    refusals = data["refusals"]
    assert isinstance(refusals, dict)
    titles = load_codes()
    for code, row in refusals.items():
        size = f", {human_bytes(row['bytes'])} left on the table" if row["bytes"] else ""
        means = f" ({titles[code].title})" if code in titles else ""
        yield f"refused {code}{means} {row['count']} time{'s' * (row['count'] != 1)}{size}"
    traded = data["traded"]
    assert isinstance(traded, dict)
    if traded["fusions"]:
        yield (
            f"{traded['fusions']} fusions raised the peak by {human_bytes(traded['peak_bytes'])}"
            f" so that {human_bytes(traded['saved_bytes'])} are not moved"
        )
    yield f"policy {data['policy']}, {data['seconds']} s"
