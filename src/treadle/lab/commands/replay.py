"""`treadle replay FILE`: run a reproducer again; exit 1 if it still fails."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.errors import InputError, TreadleError, UsageError
from treadle.core.journal import Journal
from treadle.ir.spec import Stage
from treadle.lab.output import complain, emit
from treadle.schedule.failure import PipelineError
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PASSES, PIPELINE
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
    error, ran = _replay(repro, _to_run(repro.passes, passes))
    of = f"{ran} of {len(repro.passes)} passes ran"
    data: dict[str, object] = {"ok": error is None, "recorded": repro.error}
    data |= {"errors": [error] if error else [], "passes": len(repro.passes), "passes_run": ran}
    data |= {"ignored_options": list(repro.ignored)}
    if error is None:
        lines = [f"{of}, all are fine now", f"recorded was: {repro.error}"]
    else:
        lines = [error, of]
    for name in repro.ignored:
        line = f"warning: option {name} of {args.file} is ignored: no pass reads it"
        complain(line)
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


def _to_run(names: Sequence[str], known: Mapping[str, Pass]) -> list[Pass]:
    """The passes of these names; the first runs in any case, since it is the one that failed.

    Some names stand in the pipeline twice, the second time only after another pass did something:
    if the names are the end of the pipeline, they are those very passes.
    """
    plain = {p.name: p for p in reversed(PIPELINE)}
    found = [plain.get(name, known[name]) for name in names]
    if [p.name for p in PIPELINE[len(PIPELINE) - len(names) :]] == list(names):
        found = list(PIPELINE[len(PIPELINE) - len(names) :])
    found = [known[p.name] if known[p.name] is not PASSES.get(p.name) else p for p in found]
    return [replace(p, only_after=None) for p in found[:1]] + found[1:]


def _replay(repro: Reproducer, passes: Sequence[Pass]) -> tuple[str | None, int]:
    """What went wrong, if anything, and how many passes ran, the one that failed included."""
    journal = Journal()
    # A failure writes a new reproducer: into a scratch folder, the old one is enough.
    with tempfile.TemporaryDirectory() as scratch:
        options = repro.options.with_(dump=scratch)
        ctx = Ctx(options, cost_model(repro.program, options), journal)
        try:
            run_pipeline(repro.program, ctx, passes)
        except TreadleError as e:
            failed = isinstance(e, PipelineError) and e.code == "PIPE002"
            told = "\n".join(line for line in e.lines() if scratch not in line)
            return told, _ran(journal) + failed
    return None, _ran(journal)


def _ran(journal: Journal) -> int:
    return sum(1 for _ in journal.events("pass"))
