"""Kernels for a page: what each runs, moves and takes, its loops, its text, who feeds whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from treadle.analysis.accounting import LAUNCHLESS
from treadle.analysis.cost import Roofline, cost_model, work_of
from treadle.analysis.deps import dependences
from treadle.codegen.c.kernel import write_kernel
from treadle.codegen.c.sites import Sites
from treadle.codegen.host import HostProgram, KernelPlan
from treadle.codegen.lower import lower
from treadle.codegen.names import Names
from treadle.codegen.triton.writer import TritonWriter
from treadle.core.errors import TreadleError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.effects import effects, runs
from treadle.ir.numerics import EXACT, TORCH_ON_GPU
from treadle.ir.program import Kernel, Nest, Operation, Program
from treadle.ir.text_print import show_operation
from treadle.page.story import ScheduleStory
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

LOOSER = "written with the sums that torch promises; the figures are those of exact sums"
LINE = re.compile(r"^[^\s:]+:\d+$")
"""`file:line` among the origins of an operation."""


def kernel_rows(story: ScheduleStory) -> list[dict[str, Any]]:
    """One row for each launch and call, in order; the figures are those of `treadle kernels`."""
    program, built = story.counted, as_written(story)
    model = cost_model(program, story.ctx.options)
    lines, texts = source_lines(story.unfused), kernel_texts(built)
    if built is not story.built:
        for text in texts.values():
            text.setdefault("code_note", LOOSER)
    rows = []
    for op in program.ops:
        if not runs(op) or isinstance(op, LAUNCHLESS):
            continue
        shown = built.op_by_name.get(op.name, op)
        ran = operations_of(op)
        work, touched = work_of(program, op), effects(op)
        rows.append(
            {
                "name": op.name,
                "kind": op.shape if isinstance(op, Kernel) else type(op).__name__.lower(),
                "device": op.device,
                "ops": ran,
                "nests": sum(isinstance(m, Nest) for m in shown.leaves),
                "bytes_loaded": work.bytes_read,
                "bytes_stored": work.bytes_written,
                "flops": work.flops,
                "predicted_us": round(model.op_ns(op) / 1e3, 3),
                "bound": bound_of(model, op),
                "peak_gflops": model.peak_gflops(op),
                "reads": list(touched.reads),
                "writes": list(dict.fromkeys((*touched.writes, *touched.mutates))),
                "steps": {
                    leaf.name: [str(step) for step in leaf.schedule]
                    for leaf in shown.leaves
                    if isinstance(leaf, Nest) and leaf.schedule
                },
                "ir": show_operation(shown),
                "lines": sorted({line for name in ran for line in lines.get(name, ())}),
                "from": sorted({o for leaf in op.leaves for o in leaf.origins if not is_line(o)}),
                **texts.get(op.name, {}),
            }
        )
    return rows


def as_written(story: ScheduleStory) -> Program:
    """The kernels as they are shown: for a GPU with torch's numerics, where nothing else was asked.

    A dump does not say how exact its sums are, so it is scheduled and counted with exact ones,
    which have no form in Triton. The groups stay; only how each is walked is chosen anew.
    """
    is_exact = story.built.numerics == EXACT
    if not is_exact or all(op.device.startswith("cpu") for op in story.built.ops):
        return story.built
    looser = replace(story.scheduled, numerics=TORCH_ON_GPU)
    quiet = replace(story.ctx, journal=Journal(level=0))
    try:
        return run_pipeline(looser, quiet, KERNELS)
    except TreadleError:
        return story.built


def roofs_of(program: Program, options: Options) -> dict[str, dict[str, Any]]:
    """For each device of a program the machine it is predicted as, and how fast that can be."""
    model = cost_model(program, options)
    machines = {op.device: model.device_of(op) for op in program.ops if runs(op)}
    return {
        device: {
            "machine": machine.name,
            "gigabytes_per_second": machine.gigabytes_per_second,
            "launch_us": machine.launch_ns / 1e3,
        }
        for device, machine in machines.items()
    }


def operations_of(op: Operation) -> list[str]:
    """The operations that a launch or call runs."""
    ran: list[str] = []
    for leaf in op.leaves:
        ran.extend(leaf.runs if isinstance(leaf, Nest) else (leaf.name,))
    return list(dict.fromkeys(ran))


def is_line(origin: str) -> bool:
    """Whether an origin is a line of somebody's file."""
    return LINE.match(origin) is not None


def source_lines(program: Program) -> dict[str, list[str]]:
    """The user's lines behind each operation, as far as they are known."""
    return {leaf.name: [o for o in leaf.origins if is_line(o)] for leaf in program.leaves}


def bound_of(model: Roofline, op: Operation) -> str:
    """What a launch takes most of its time for: `launch`, `memory` or `arithmetic`."""
    device, work = model.device_of(op), work_of(model.program, op)
    memory = work.bytes / device.gigabytes_per_second
    rest = model.op_ns(op) - device.launch_ns
    if rest <= device.launch_ns:
        return "launch"
    return "memory" if memory >= rest else "arithmetic"


def kernel_texts(built: Program) -> dict[str, dict[str, str]]:
    """The generated text of each launch: Triton for a GPU where it has one, else C."""
    try:
        host = lower(built)
    except TreadleError:  # without kernels that can be run there is no text either
        return {}
    names, found = Names(), {}
    for operation, name in host.launches.items():
        plan = host.kernel_by_name[name]
        is_gpu = not built.op_by_name[operation].device.startswith("cpu")
        found[operation] = _text(host, plan, names, is_gpu)
    return found


def _text(host: HostProgram, plan: KernelPlan, names: Names, is_gpu: bool) -> dict[str, str]:
    note = ""
    if is_gpu:
        try:
            parts = [
                TritonWriter(host.program, nest, names.fresh("k", nest.name)).write().text
                for nest in plan.nests
            ]
            return {"language": "Triton", "code": "\n\n".join(parts)}
        except TreadleError as e:
            note = f"no Triton: {e.message}; this is the C that a CPU would run"
    try:
        text = write_kernel(host.program, plan, Sites()).text
    except TreadleError as e:
        return {"language": "", "code": "", "code_note": f"it has no text: {e.message}"}
    return {"language": "C", "code": text, **({"code_note": note} if note else {})}


def edges_of(program: Program, rows: list[dict[str, Any]]) -> list[list[Any]]:
    """[source row, target row, storages] wherever one launch reads what another one made."""
    place = {row["name"]: k for k, row in enumerate(rows)}
    top = {leaf.name: op.name for op in program.ops for leaf in op.leaves}
    found: dict[tuple[int, int], dict[str, None]] = {}
    for source, target, storage in _flows(program, top, place):
        found.setdefault((source, target), {})[storage] = None
    return [[a, b, list(names)] for (a, b), names in sorted(found.items())]


def _flows(
    program: Program, top: Mapping[str, str], place: Mapping[str, int]
) -> Iterator[tuple[int, int, str]]:
    """Data between launches; through what is no launch (a wait, a tuple) it is followed."""
    deps = dependences(program)
    makers: list[dict[int, None]] = [{} for _ in deps.names]
    for leaf, name in enumerate(deps.names):
        if top[name] in place:
            makers[leaf] = {place[top[name]]: None}
    for leaf, name in enumerate(deps.names):
        for d in deps.into[leaf]:
            if not d.carries:
                continue
            if top[name] not in place:
                makers[leaf] |= makers[d.source]
                continue
            here = place[top[name]]
            for source in makers[d.source]:
                if source != here:
                    yield source, here, d.storage
