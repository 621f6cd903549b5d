"""`treadle schedule FILE [-o OUT]`: run the passes on a program; before and after."""

from __future__ import annotations

import argparse
import os
import time

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import InputError
from treadle.core.options import Options
from treadle.ir.text import show_program
from treadle.lab.files import read_sound_program
from treadle.lab.output import emit, table
from treadle.lab.summary import summarise
from treadle.schedule.pipeline import run_pipeline

FIGURES = ("ops", "kernels", "bytes_moved", "peak_bytes", "peak_lower_bound", "peak_at")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `schedule`."""
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("-o", dest="out", metavar="OUT", help="write the scheduled program here")
    parser.add_argument("--journal", metavar="FILE", help="write the journal here")


def _refuse_unwritable(path: str) -> None:
    """Say so before the work is done, not after."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise InputError(
            file=path, expected="a file in a folder that exists", found="none", code="TXT002"
        )


def run(args: argparse.Namespace) -> int:
    """Schedule the program and show what changed."""
    program = read_sound_program(args.file)
    if args.out:
        _refuse_unwritable(args.out)
    options = Options.from_env()
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    start = time.perf_counter()
    scheduled = run_pipeline(program, ctx)
    seconds = round(time.perf_counter() - start, 3)
    before, after = summarise(program).to_json(), summarise(scheduled).to_json()
    figures = {
        "before": {k: before[k] for k in FIGURES},
        "after": {k: after[k] for k in FIGURES},
        "passes": [
            {k: e[k] for k in ("name", "changed", "seconds")} for e in ctx.journal.events("pass")
        ],
        "seconds": seconds,
    }
    rows = [(k, before[k], after[k]) for k in FIGURES]
    emit(args.json, figures, table(rows, ("", "before", "after")))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(show_program(scheduled))
    if args.journal:
        ctx.journal.write(args.journal)
    return 0
