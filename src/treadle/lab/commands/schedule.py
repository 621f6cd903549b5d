"""`treadle schedule FILE [-o OUT]`: run the passes on a program; before and after."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import asdict

from treadle.analysis.accounting import ACCOUNTINGS, Figures, figures
from treadle.core.errors import InputError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.lab.files import read_sound_program, read_text
from treadle.lab.given_or_new import (
    Choice,
    Worse,
    choose,
    explain_worse,
    kept_line,
    refusals_in,
)
from treadle.lab.output import emit, human_bytes, table
from treadle.lab.scheduling import context_for, is_dump, options_for
from treadle.schedule.partition import partitions, with_fewest_partitions
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES
from treadle.schedule.record import Schedule, replay, schedule_of

FIGURES = ("ops", "kernels", "bytes_moved", "exposed_waits", "peak_bytes", "peak_lower_bound",
           "peak_at")  # fmt: skip
"""In the order of the table; `peak_at` may be long and comes last."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `schedule`."""
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("-o", dest="out", metavar="OUT", help="write the scheduled program here")
    parser.add_argument("--save", metavar="FILE", help="write the schedule as data here")
    parser.add_argument("--replay", metavar="FILE", help="apply a saved schedule, do not search")
    parser.add_argument("--journal", metavar="FILE", help="write the journal here")
    parser.add_argument("--policy", choices=sorted(POLICIES), help="what fusion may do and cost")
    parser.add_argument(
        "--accounting",
        choices=sorted(ACCOUNTINGS),
        help="how bytes are counted (default: ours; dump for dumps)",
    )


def _refuse_unwritable(path: str) -> None:
    """Say so before the work is done, not after."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise InputError(
            file=path, expected="a file in a folder that exists", found="none", code="TXT002"
        )


def run(args: argparse.Namespace) -> int:
    """Schedule the program and show what changed."""
    given = read_sound_program(args.file)
    text = read_text(args.file)
    for path in (args.out, args.save, args.journal):
        if path:
            _refuse_unwritable(path)
    options = options_for(text, args.policy, args.accounting)
    # A dump comes with the peer's groups: they are what to beat, not where to start.
    program = unpacked(given) if is_dump(text) else given
    ctx = context_for(program, options)
    start = time.perf_counter()
    if args.replay:
        found = replay(program, Schedule.parse(read_text(args.replay), args.replay))
    else:
        found = run_pipeline(program, ctx)
    seconds = round(time.perf_counter() - start, 3)
    choice = choose(given, found, ACCOUNTINGS[options.accounting], is_asked_for=bool(args.replay))
    scheduled = choice.program
    parts = {"before": given, "unfused": program, "after": scheduled}
    if not is_dump(text):
        del parts["unfused"]
    counted = {word: _figures(p, options.accounting) for word, p in parts.items()}
    data: dict[str, object] = {
        **counted,
        "policy": options.policy,
        "accounting": options.accounting,
        "kept_given": choice.kept_given,
        "passes": [
            {k: e[k] for k in ("name", "changed", "seconds")} for e in ctx.journal.events("pass")
        ],
        "refusals": refusals_in(ctx.journal),
        "partitions": len(partitions(scheduled)),
        "fewest_partitions": len(partitions(with_fewest_partitions(scheduled, options))),
        "seconds": seconds,
    }
    worse = _worse(choice, program, options, data)
    data["worse"] = [each.to_json() for each in worse]
    notes = [kept_line(choice)] if choice.kept_given else [each.line() for each in worse]
    emit(args.json, data, [*_lines(counted, data), *notes])
    _write(args, program, scheduled, ctx.journal)
    return 0


def _worse(
    choice: Choice, program: Program, options: Options, data: dict[str, object]
) -> list[Worse]:
    """What is worse than in the file's own schedule, with a policy that would not do it."""
    accounting = ACCOUNTINGS[options.accounting]

    def under(policy: str) -> Figures:
        ctx = context_for(program, options.with_(policy=policy))
        return figures(run_pipeline(program, ctx), accounting)

    refusals = data["refusals"]
    assert isinstance(refusals, dict)
    return explain_worse(choice, figures(program, accounting), refusals, options.policy, under)


def _write(args: argparse.Namespace, program: Program, new: Program, journal: Journal) -> None:
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(show_program(new))
    if args.save:
        schedule_of(program, new).save(args.save)
    if args.journal:
        journal.write(args.journal)


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
    for code, row in refusals.items():
        size = f", {human_bytes(row['bytes'])} left on the table" if row["bytes"] else ""
        yield f"refused {code} {row['count']} times{size}"
    yield f"policy {data['policy']}, {data['seconds']} s"
