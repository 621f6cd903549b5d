"""What was decided, where people who use torch look for it.

    TORCH_LOGS=fusion         every decision to fuse or not, with its code and numbers
    TORCH_LOGS=schedule       the kernels and calls in order, and the memory they need
    TORCH_LOGS=output_code    the generated C
    TORCH_TRACE=folder        files for tlparse: program, schedule, memory plan, C, summary

Nothing is written or computed unless it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from treadle import __version__
from treadle.analysis.accounting import LAUNCHLESS, OURS, figures
from treadle.analysis.cost import Roofline, cost_model, work_of
from treadle.core.journal import decision_line
from treadle.core.options import Options
from treadle.frontends.torch import compat
from treadle.frontends.torch.report.memory import graph_memory
from treadle.ir.effects import runs
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.runtime.triton_kernels import TritonKernels

if TYPE_CHECKING:
    from treadle.frontends.torch.capture.compile import Built


def with_what_logs_need(options: Options) -> Options:
    """The options with which graphs are compiled: a log of decisions needs them all kept.

    Asked once, before anything is compiled: from there on the options alone say what is done.
    """
    if compat.artifact_log("fusion") is None:
        return options
    return options.with_(explain=True)


def show(built: Built) -> None:
    """Log a compiled graph and add it to the trace, as far as that is asked for."""
    fusion, schedule = compat.artifact_log("fusion"), compat.artifact_log("schedule")
    code = compat.artifact_log("output_code")
    if fusion is not None:
        for event in built.scheduled.journal.events("verdict"):
            fusion.debug("%s: %s", built.name, decision_line(event))
    if schedule is not None:
        schedule.debug("%s:\n%s", built.name, "\n".join(schedule_lines(built)))
    if code is not None:
        # Without the helpers, which are the same every time.
        kernels = "\n".join(k.text for k in built.runner.compiled.unit.kernels)
        code.debug("%s:\n%s", built.name, kernels)
    trace(built)


def follow(built: Built) -> None:
    """Have it logged what a GPU decides between schedules of a graph, once it has."""
    fusion, kernels = compat.artifact_log("fusion"), built.runner.compiled.kernels
    if fusion is None or not isinstance(kernels, TritonKernels):
        return
    name = built.name

    def tell() -> None:
        for verdict in kernels.tuned:
            fusion.debug("%s: tuned: %s", name, verdict)

    built.runner.on_settled = tell


def trace(built: Built) -> None:
    """Add the files of a graph to torch's structured trace."""
    stem = f"treadle_{built.name}"
    program = built.lowered.program
    compat.trace_artifact(f"{stem}_program", "string", lambda: show_program(program))
    compat.trace_artifact(
        f"{stem}_schedule", "string", lambda: show_program(built.scheduled.program)
    )
    compat.trace_artifact(f"{stem}_memory_plan", "json", lambda: _memory_json(built))
    compat.trace_artifact(f"{stem}_c", "string", lambda: built.runner.compiled.unit.text)
    compat.trace_artifact(f"{stem}_summary", "json", lambda: json.dumps(summary(built), indent=1))


def summary(built: Built) -> dict[str, Any]:
    """What the page of a graph begins with: figures before and after, decisions, kernels."""
    kernels, journal = built.scheduled.kernels, built.scheduled.journal
    options = built.scheduled.ctx.options
    model = cost_model(kernels, options)
    own = ("dump", "dump_pass")  # where reproducers go: not something that was asked for
    return {
        "treadle": __version__,
        "graph": built.name,
        "options": {
            one.name: value
            for one in fields(options)
            if (value := getattr(options, one.name)) != one.default and one.name not in own
        },
        "before": vars(figures(built.lowered.program, OURS)),
        "after": vars(figures(kernels, OURS)),
        "agreed": dict(journal.decided(ok=True)),
        "refused": dict(journal.decided(ok=False)),
        "called": [list(row) for row in sorted(set(built.lowered.fallbacks))],
        "kernels": list(_kernel_table(kernels, model)),
        "seconds": round(built.seconds, 3),
    }


def _kernel_table(kernels: Program, model: Roofline) -> Iterator[dict[str, Any]]:
    """Each launch and call in order: what it runs, for whom, what it moves, how long it takes."""
    for op in kernels.ops:
        if not runs(op) or isinstance(op, LAUNCHLESS):
            continue
        work = work_of(kernels, op)
        ran = [n for leaf in op.leaves for n in getattr(leaf, "runs", None) or (leaf.name,)]
        yield {
            "name": op.name,
            "runs": list(dict.fromkeys(ran)),
            "origins": list(dict.fromkeys(o for leaf in op.leaves for o in leaf.origins)),
            "bytes_loaded": work.bytes_read,
            "bytes_stored": work.bytes_written,
            "flops": work.flops,
            "predicted_us": round(model.op_ns(op) / 1e3, 3),
        }


def _memory_json(built: Built) -> str:
    return json.dumps(graph_memory(built).to_json())


def schedule_lines(built: Built) -> Iterator[str]:
    """The operations of a graph in order, with what they hold and where they come from."""
    for op in built.scheduled.program.ops:
        members = [leaf.name for leaf in op.leaves]
        origins = dict.fromkeys(o for leaf in op.leaves for o in leaf.origins)
        what = f" = {' + '.join(members)}" if members != [op.name] else ""
        yield f"  {type(op).__name__:<8} {op.name}{what}   <- {', '.join(origins)}"
    memory = graph_memory(built)
    yield (
        f"  peak {memory.peak_bytes} bytes at {memory.peak_at} (no plan of this order is below"
        f" {memory.lower_bound}), arena {memory.arena_bytes}"
    )
