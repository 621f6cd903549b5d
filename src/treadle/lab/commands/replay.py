"""`treadle replay FILE`: run a reproducer again; exit 1 if it still fails."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from importlib import import_module

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.errors import InputError, TreadleError, UsageError
from treadle.core.journal import Journal
from treadle.ir.spec import Stage
from treadle.lab.output import emit
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PASSES
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.reproducer import Reproducer, read_reproducer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `replay`."""
    parser.add_argument(
        "file", metavar="FILE", help="a reproducer (repro-*.pkg), or - for standard input"
    )
    parser.add_argument(
        "--pass",
        dest="passes",
        metavar="MODULE:FUNCTION",
        action="append",
        default=[],
        help="a pass of your own; its name in the reproducer is the function's, with dashes",
    )


def run(args: argparse.Namespace) -> int:
    """Run the recorded passes on the recorded program."""
    repro = read_reproducer(args.file)
    passes = {**PASSES, **{p.name: p for p in map(_own_pass, args.passes)}}
    unknown = [name for name in repro.passes if name not in passes]
    if unknown:
        known = ", ".join(passes)
        raise InputError(
            file=args.file,
            line=1,
            expected=f"passes (name your own with --pass module:function) among {known}",
            found=f"'{unknown[0]}'",
            code="PIPE003",
        )
    error = _replay(repro, [passes[name] for name in repro.passes])
    data = {"ok": error is None, "recorded": repro.error, "errors": [error] if error else []}
    if error is None:
        lines = [f"all {len(repro.passes)} passes are fine now", f"recorded was: {repro.error}"]
    else:
        lines = [error]
    emit(args.json, data, lines)
    return 0 if error is None else 1


def _own_pass(text: str) -> Pass:
    """The pass that `module:function` names."""
    module, _, function = text.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as e:
        raise UsageError(f"--pass {text}: {e}") from None
    if isinstance(found, Pass):
        return found
    return Pass(function.replace("_", "-"), found, Stage.GROUPED)


def _replay(repro: Reproducer, passes: Sequence[Pass]) -> str | None:
    # A failure writes a new reproducer: into a scratch folder, the old one is enough.
    with tempfile.TemporaryDirectory() as scratch:
        options = repro.options.with_(dump=scratch)
        ctx = Ctx(options, cost_model(repro.program, options), Journal(enabled=False))
        try:
            run_pipeline(repro.program, ctx, passes)
        except TreadleError as e:
            return "\n".join(line for line in e.lines() if scratch not in line)
    return None
