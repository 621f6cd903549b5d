"""`treadle kernels FILE [--target T]`: the kernels, their nests, bytes and predicted time.

With `--emit c|triton|plan` what becomes of them: their text, or the plan of their launches.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from treadle.analysis.accounting import ACCOUNTINGS, LAUNCHLESS
from treadle.analysis.cost import Roofline, cost_model, work_of
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.suggest import suggestion_notes
from treadle.core.writing import Outputs
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.effects import runs
from treadle.ir.program import Kernel, Nest, Operation, Program
from treadle.ir.text import show_program
from treadle.ir.text_print import show_operation
from treadle.lab.emitting import EMITTED, emitted, target_of
from treadle.lab.given_or_new import choose, kept_line
from treadle.lab.help import PROGRAM_FILE
from treadle.lab.loading import load_program
from treadle.lab.output import emit, human_bytes, table
from treadle.lab.scheduling import context_for, for_target, options_for
from treadle.runtime.tuning.questions import questions_of
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES


class KernelRow(NamedTuple):
    """One kernel or call: what it runs, what it moves, how long it takes."""

    name: str
    kind: str
    ops: tuple[str, ...]
    nests: int
    bytes_loaded: int
    bytes_stored: int
    predicted_us: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `kernels`."""
    parser.add_argument("file", metavar="FILE", help=PROGRAM_FILE)
    parser.add_argument(
        "--target", metavar="T", help="machine to schedule and predict for: cpu, h100, h200 ..."
    )
    parser.add_argument("--policy", choices=sorted(POLICIES), help="what fusion may do and cost")
    parser.add_argument("--only", metavar="NAME", help="show one kernel, with its body")
    parser.add_argument(
        "--emit", choices=EMITTED, help="print the C or Triton text, or the launch plan, instead"
    )
    parser.add_argument("-o", dest="out", metavar="OUT", help="write the program of kernels here")
    parser.add_argument("--force", action="store_true", help="OUT may be the input")


def run(args: argparse.Namespace) -> int:
    """Schedule the file, build its kernels and show them."""
    given, loaded = load_program(args.file)
    outputs = Outputs({"-o": args.out}, loaded.inputs, args.force)
    options = options_for(loaded.text, args.policy)
    target = target_of(args.emit, args.target)
    if target is not None:
        options = options.with_(target=target)
    given = for_target(given, target)
    program = unpacked(given) if loaded.is_dump else given
    ctx = context_for(program, options, given)
    found = run_pipeline(program, ctx)
    built = run_pipeline(found, ctx, KERNELS)
    choice = choose(given, found, built, ACCOUNTINGS[options.accounting])
    if choice.kept_given:
        built = run_pipeline(given, ctx, KERNELS)
    if args.emit is not None:
        text = emitted(args.emit, built, args.only)
        emit(args.json, {"emit": args.emit, "text": text}, text.splitlines())
        outputs.write("-o", show_program(built))
        return 0
    # The file's own schedule is counted as its maker promised it, ours as it is.
    counted = given if choice.kept_given else built
    model = cost_model(counted, options)
    nests = {op.name: len([m for m in op.leaves if isinstance(m, Nest)]) for op in built.ops}
    rows = [
        _row(counted, op, model, nests.get(op.name, 0))
        for op in counted.ops
        if runs(op) and not isinstance(op, LAUNCHLESS)
    ]
    totals = {
        "kernels": len(rows),
        "bytes_moved": sum(r.bytes_loaded + r.bytes_stored for r in rows),
        "predicted_us": round(sum(r.predicted_us for r in rows), 3),
    }
    shown = _shown(rows, args.only)
    data: dict[str, object] = {
        "kernels": [r._asdict() for r in shown],
        "totals": totals,
        "target": options.target,
        "kept_given": choice.kept_given,
        "schedules": schedules_of(built, [r.name for r in shown]),
        "candidates": candidates_of(built, options, [r.name for r in shown]),
    }
    notes = [kept_line(choice)] if choice.kept_given else []
    total = (
        f"{totals['kernels']} kernels and calls, {human_bytes(int(totals['bytes_moved']))} moved,"
        f" {totals['predicted_us']:,} us predicted"
    )
    if args.only is not None:
        total = f"of {total}"
    emit(args.json, data, [*_lines(built, options, shown, args.only), total, *notes])
    outputs.write("-o", show_program(built))
    return 0


def _row(program: Program, op: Operation, model: Roofline, nests: int) -> KernelRow:
    work = work_of(program, op)
    ran: list[str] = []
    for leaf in op.leaves:
        ran.extend(leaf.runs if isinstance(leaf, Nest) else (leaf.name,))
    return KernelRow(
        name=op.name,
        kind=op.shape if isinstance(op, Kernel) else type(op).__name__.lower(),
        ops=tuple(dict.fromkeys(ran)),
        nests=nests,
        bytes_loaded=work.bytes_read,
        bytes_stored=work.bytes_written,
        predicted_us=round(model.op_ns(op) / 1e3, 3),
    )


def schedules_of(program: Program, kernels: Sequence[str]) -> dict[str, list[str]]:
    """The steps of every nest of these kernels that has a loop schedule."""
    found: dict[str, list[str]] = {}
    for name in kernels:
        for leaf in program.op_by_name[name].leaves if name in program.op_by_name else ():
            if isinstance(leaf, Nest) and leaf.schedule:
                found[leaf.name] = [str(step) for step in leaf.schedule]
    return found


def candidates_of(
    program: Program, options: Options, kernels: Sequence[str]
) -> dict[str, list[tuple[str, float]]]:
    """For nests of these kernels that a GPU is asked about: its schedules and predicted times."""
    ours = {
        leaf.name
        for name in kernels
        if name in program.op_by_name
        for leaf in program.op_by_name[name].leaves
    }
    found: dict[str, list[tuple[str, float]]] = {}
    for question in questions_of(program, cost_model(program, options)):
        for nest in [n for n in question.nests if n in ours]:
            found[nest] = [(c.text, round(c.predicted_ns / 1e3, 3)) for c in question.candidates]
    return found


def _shown(rows: list[KernelRow], only: str | None) -> list[KernelRow]:
    found = [r for r in rows if only is None or r.name == only]
    if only is not None and not found:
        notes = suggestion_notes(only, [r.name for r in rows], "kernels")
        raise UsageError(f"there is no kernel '{only}'", notes=notes)
    return found


def _lines(
    program: Program, options: Options, shown: list[KernelRow], only: str | None
) -> Iterator[str]:
    cells = [
        (r.name, r.kind, len(r.ops), r.nests, human_bytes(r.bytes_loaded),
         human_bytes(r.bytes_stored), r.predicted_us)
        for r in shown
    ]  # fmt: skip
    yield from table(cells, ("kernel", "kind", "ops", "nests", "loaded", "stored", "us"))
    if only is None:
        for name, steps in schedules_of(program, [r.name for r in shown]).items():
            yield f"{name}: {', '.join(steps)}"
    else:
        yield ""
        yield from show_operation(program.op_by_name[only]).splitlines()
        for name, several in candidates_of(program, options, [only]).items():
            yield f"{name}: a GPU decides between these (TUN001), without one the first is used"
            yield from (f"  {us:,} us predicted: {steps}" for steps, us in several)
