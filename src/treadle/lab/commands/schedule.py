"""`treadle schedule FILE [-o OUT]`: run the passes on a program; before and after."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import asdict

from treadle.analysis.accounting import ACCOUNTINGS, figures
from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import InputError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.lab.files import kind_of, read_sound_program, read_text
from treadle.lab.help import PROGRAM_FILE
from treadle.lab.output import emit, human_bytes, table
from treadle.schedule.partition import partitions, with_fewest_partitions
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES
from treadle.schedule.record import Schedule, replay, schedule_of

FIGURES = ("ops", "kernels", "bytes_moved", "peak_bytes", "peak_lower_bound", "peak_at")
"""In the order of the table; `peak_at` may be long and comes last."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `schedule`."""
    parser.add_argument("file", metavar="FILE", help=PROGRAM_FILE)
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
    for path in (args.out, args.save, args.journal):
        if path:
            _refuse_unwritable(path)
    options = _options(args, given)
    # A dump comes with the peer's groups: they are what to beat, not where to start.
    program = unpacked(given) if args.is_dump else given
    ctx = Ctx(options, cost_model(program, options), journal_for(options.with_(explain=True)))
    start = time.perf_counter()
    if args.replay:
        scheduled = replay(program, Schedule.parse(read_text(args.replay), args.replay))
    else:
        scheduled = run_pipeline(program, ctx)
    seconds = round(time.perf_counter() - start, 3)
    parts = {"before": given, "after": scheduled}
    if args.is_dump:
        parts = {"before": given, "unfused": program, "after": scheduled}
    counted = {word: _figures(p, options.accounting) for word, p in parts.items()}
    data: dict[str, object] = {
        **counted,
        "policy": options.policy,
        "accounting": options.accounting,
        "passes": [
            {k: e[k] for k in ("name", "changed", "seconds")} for e in ctx.journal.events("pass")
        ],
        "refusals": _refusals(ctx.journal),
        "partitions": len(partitions(scheduled)),
        "fewest_partitions": len(partitions(with_fewest_partitions(scheduled, options))),
        "seconds": seconds,
    }
    emit(args.json, data, _lines(counted, data))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(show_program(scheduled))
    if args.save:
        schedule_of(program, scheduled).save(args.save)
    if args.journal:
        ctx.journal.write(args.journal)
    return 0


def _options(args: argparse.Namespace, program: Program) -> Options:
    options = Options.from_env()
    text = read_text(args.file)
    args.is_dump = kind_of(text) == "inductor_dump"
    changes = {}
    if args.policy is not None:
        changes["policy"] = args.policy
    if args.accounting is not None:
        changes["accounting"] = args.accounting
    elif args.is_dump:
        changes["accounting"] = "dump"  # sizes of inputs are not in a dump
    return options.with_(**changes)


def _figures(program: Program, accounting: str) -> dict[str, object]:
    other = "ours" if accounting == "inductor" else "inductor"  # to hold against the peer's logs
    mine, theirs = (figures(program, ACCOUNTINGS[name]) for name in (accounting, other))
    also = {"bytes_moved": theirs.bytes_moved, "peak_bytes": theirs.peak_bytes}
    return {"ops": len(program.leaves), **asdict(mine), f"counted_as_{other}": also}


def _refusals(journal: Journal) -> dict[str, dict[str, int]]:
    """How often each rule refused, and the bytes that it left on the table."""
    found: dict[str, dict[str, int]] = {}
    for event in journal.events("verdict"):
        if not event["ok"]:
            row = found.setdefault(event["code"], {"count": 0, "bytes": 0})
            row["count"] += 1
            row["bytes"] += int(event["facts"].get("bytes", 0))
    return dict(sorted(found.items()))


def _lines(counted: dict[str, dict[str, object]], data: dict[str, object]) -> Iterator[str]:
    rows = [(k, *[c[k] for c in counted.values()]) for k in FIGURES]
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
