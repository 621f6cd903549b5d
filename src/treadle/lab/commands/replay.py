"""`treadle replay FILE`: run a reproducer again; exit 1 if it still fails."""

from __future__ import annotations

import argparse
import tempfile

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.errors import InputError, TreadleError
from treadle.core.journal import Journal
from treadle.lab.output import emit
from treadle.schedule.passes import PASSES
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.reproducer import Reproducer, read_reproducer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `replay`."""
    parser.add_argument("file", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    """Run the recorded passes on the recorded program."""
    repro = read_reproducer(args.file)
    unknown = [name for name in repro.passes if name not in PASSES]
    if unknown:
        known = ", ".join(PASSES)
        raise InputError(
            file=args.file,
            line=1,
            expected=f"passes among {known}",
            found=f"'{unknown[0]}'",
            code="PIPE003",
        )
    error = _replay(repro)
    data = {"ok": error is None, "recorded": repro.error, "errors": [error] if error else []}
    if error is None:
        lines = [f"all {len(repro.passes)} passes are fine now", f"recorded was: {repro.error}"]
    else:
        lines = [error]
    emit(args.json, data, lines)
    return 0 if error is None else 1


def _replay(repro: Reproducer) -> str | None:
    # A failure writes a new reproducer: into a scratch folder, the old one is enough.
    with tempfile.TemporaryDirectory() as scratch:
        options = repro.options.with_(dump=scratch)
        ctx = Ctx(options, cost_model(repro.program, options), Journal(enabled=False))
        try:
            run_pipeline(repro.program, ctx, [PASSES[name] for name in repro.passes])
        except TreadleError as e:
            return "\n".join(line for line in e.lines() if scratch not in line)
    return None
