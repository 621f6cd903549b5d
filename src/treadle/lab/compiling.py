"""`treadle compile` of a program or a dump: its kernels as C or Triton, with plan and manifest.

A program in C that calls no library becomes a package, which `treadle run` runs; other programs
become a folder of sources, for C with a shared library, for Triton with a file for each kernel.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from treadle import __version__
from treadle.analysis.accounting import ACCOUNTINGS
from treadle.codegen.c.unit import FLAGS, LIBRARIES, write_unit
from treadle.codegen.host import HostProgram
from treadle.codegen.lower import lower
from treadle.codegen.package_c.words import as_identifier
from treadle.codegen.triton.unit import write_triton
from treadle.core.errors import TreadleError, UsageError
from treadle.core.options import Options
from treadle.core.toolchain import compile_shared, why_not_compiled
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.effects import effects
from treadle.ir.numerics import TORCH, TORCH_ON_GPU
from treadle.ir.program import Call, Program
from treadle.ir.types import BufferKind
from treadle.lab.emitting import target_of
from treadle.lab.given_or_new import choose
from treadle.lab.loading import load_program
from treadle.lab.scheduling import context_for, for_target, options_for
from treadle.runtime.launch_plan import LaunchPlan, show_plan
from treadle.runtime.launch_plan_json import plan_to_json
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.packages import manifest as about
from treadle.runtime.packages.pack import NamedResult, NamedStorage, Packing, PackRequest
from treadle.runtime.packages.write import (
    SUFFIX,
    Contents,
    file_card,
    put_in_place,
    refuse_to_replace,
    work_folder,
    write_package,
)
from treadle.runtime.plan_launches import plan_launches
from treadle.runtime.triton_ahead import AheadKernel, compile_ahead_for, rows_of
from treadle.runtime.triton_builds import triton_version
from treadle.runtime.tuning.answers import TunedAnswers, for_device, read_answers
from treadle.runtime.tuning.tuner import Tuning
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

KERNEL_FORMAT = "treadle kernels"
TARGETS = ("c", "triton")


@dataclass(frozen=True)
class CompiledFile:
    """What was written, and where."""

    path: str
    kernels: int
    calls: tuple[str, ...]
    is_package: bool
    ahead: tuple[AheadKernel, ...] = ()
    """The kernels that were compiled for other devices."""


def compile_file(
    file: str,
    target: str,
    out: str | None,
    policy: str | None,
    force: bool,
    portable: bool,
    archs: Sequence[str] = (),
) -> CompiledFile:
    """Schedule a file's program for a target and write its kernels, compiled for some devices."""
    name = as_identifier(os.path.splitext(os.path.basename(file))[0] if file != "-" else "program")
    if out is not None:
        refuse_to_replace(out, force)
    built, options = scheduled_file(file, target, policy)
    if archs and options.tuned is not None:
        built = tuned_program(built, options, archs)
    host = lower(built)
    if not host.kernels:
        raise UsageError(f"there is no kernel to write: {built.name} only makes calls")
    calls = tuple(dict.fromkeys(op.target for op in host.program.ops if isinstance(op, Call)))
    shape = LaunchShape(host)
    plan = plan_launches(shape)
    if target == "c" and _is_plain(host, shape):
        where = out or name + SUFFIX
        contents = _package(name, host, shape, plan, portable)
        write_package(contents, where, options, force)
        return CompiledFile(where, len(host.kernels), calls, True)
    where = out or f"{name}.{target}"
    refuse_to_replace(where, force)
    texts = _c_texts(host) if target == "c" else _triton_texts(host)
    ahead: list[AheadKernel] = []
    with work_folder(where) as work:
        if target == "c":
            _add_library(work, host, options, where)
        for arch in archs:
            ahead += compile_ahead_for(write_triton(host), arch)
        _add_binaries(work, ahead)
        _write(work, texts, plan)
        _add_manifest(work, name, target, host, calls, ahead)
        put_in_place(work, where, force)
    return CompiledFile(where, len(host.kernels), calls, False, tuple(ahead))


def scheduled_file(file: str, target: str, policy: str | None) -> tuple[Program, Options]:
    """The program of kernels, scheduled as `treadle kernels --emit` does it."""
    given, loaded = load_program(file)
    machine = target_of(target, None)
    options = options_for(loaded.text, policy).with_(target=machine)
    given = for_target(given, machine)
    if loaded.is_dump and options.numerics != "exact":
        # A dump does not say how exact its maker was: as torch is, which it was made from.
        given = replace(given, numerics=TORCH_ON_GPU if target == "triton" else TORCH)
    program = unpacked(given) if loaded.is_dump else given
    ctx = context_for(program, options, given)
    found = run_pipeline(program, ctx)
    built = run_pipeline(found, ctx, KERNELS)
    if choose(given, found, built, ACCOUNTINGS[options.accounting]).kept_given:
        built = run_pipeline(given, ctx, KERNELS)
    return built, options


def tuned_program(program: Program, options: Options, archs: Sequence[str]) -> Program:
    """The program with the schedules that a device which is not here was measured to prefer."""
    path = options.tuned
    assert path is not None, "a file is named"
    if len(archs) > 1:
        message = f"{path} speaks of one device, and kernels are written once: name one --arch"
        raise UsageError(message, code="OPT002")
    for_device(read_answers(path), "", archs[0], triton_version(), path)  # raises what is wrong
    answers = TunedAnswers(options, "", archs[0], is_alone=False)
    return Tuning(program, options, answers, f"{archs[0]} is not here").program


def _is_plain(host: HostProgram, shape: LaunchShape) -> bool:
    """Whether nothing but kernels runs, on tensors whose sizes their callers show."""
    program = host.program
    if any(op.name not in host.launches for op in program.ops if _does_something(op)):
        return False
    tensors = [program.by_name[n] for n in (*program.inputs, *program.outputs)]
    if any(b.kind is not BufferKind.TENSOR or b.view_of is not None for b in tensors):
        return False
    shown = {n for name in program.inputs for n in program.by_name[name].layout.sizes}
    return all(size in shown for size in program.sizes)


def _does_something(op: object) -> bool:
    return type(op).__name__ != "Nop"


def _package(
    name: str, host: HostProgram, shape: LaunchShape, plan: LaunchPlan, portable: bool
) -> Contents:
    program, unit = host.program, write_unit(host)
    changed = {n for op in program.ops for n in (*effects(op).writes, *effects(op).mutates)}
    results = [NamedResult(n, n, program.by_name[n].layout) for n in program.outputs]
    request = PackRequest(
        name,
        [NamedStorage(n, n) for n in program.inputs],
        results=results,
        changed=frozenset(n for n in program.inputs if n in map(program.storage_of, changed)),
    )
    graph = Packing(shape, unit.storages, request).packed()
    tree = {"tuple": [{"output": k} for k in range(len(results))]}
    return Contents(graph, unit, plan, tree, is_portable=portable)


# ------------------------------------------------------------------------------- files


def _c_texts(host: HostProgram) -> Mapping[str, str]:
    unit = write_unit(host)
    rows = zip(host.kernels, unit.kernels, strict=True)
    return {"kernels.c": unit.text, **{f"{p.name}.c": k.text + "\n" for p, k in rows}}


def _triton_texts(host: HostProgram) -> Mapping[str, str]:
    try:
        unit = write_triton(host)
    except TreadleError as e:
        message = f"the kernels of {host.program.name} cannot be written as triton: {e.message}"
        raise UsageError(message, code=e.code) from e
    texts = {"kernels.py": unit.text}
    for plan, sources in zip(host.kernels, unit.kernels, strict=True):
        texts[f"{plan.name}.py"] = "\n\n".join([one.text for one in sources]) + "\n"
    return texts


def _add_binaries(work: str, ahead: Sequence[AheadKernel]) -> None:
    for one in ahead:
        with open(os.path.join(work, one.file), "wb") as file:
            file.write(one.binary)


def _add_library(work: str, host: HostProgram, options: Options, where: str) -> None:
    unit = write_unit(host)
    level = "-O3" if unit.flags != FLAGS else "-O2"
    made = compile_shared(unit.text, flags=(*unit.flags, level, *LIBRARIES), options=options)
    if not made.verdict:
        raise UsageError(f"{where} cannot be made: {why_not_compiled(made.verdict)}", code="TOR003")
    shutil.copyfile(made.path, os.path.join(work, "kernels.so"))


def _write(work: str, texts: Mapping[str, str], plan: LaunchPlan) -> None:
    more = {
        "plan.json": json.dumps(plan_to_json(plan), indent=1) + "\n",
        "plan.txt": show_plan(plan),
    }
    for name, text in {**texts, **more}.items():
        with open(os.path.join(work, name), "w", encoding="utf-8") as file:
            file.write(text)


def _add_manifest(
    work: str,
    name: str,
    target: str,
    host: HostProgram,
    calls: tuple[str, ...],
    ahead: Sequence[AheadKernel] = (),
) -> None:
    program = host.program
    content = {
        "format": KERNEL_FORMAT,
        "version": about.VERSION,
        "name": name,
        "treadle": __version__,
        "target": target,
        "platform": about.machine() if target == "c" else {},
        "sizes": [s.name for s in program.sizes],
        "inputs": [_buffer(program, n) for n in program.inputs],
        "outputs": [_buffer(program, n) for n in program.outputs],
        "kernels": [{"name": plan.name, "storages": list(plan.storages)} for plan in host.kernels],
        "calls": list(calls),
        "binaries": list(rows_of(ahead)),
        "files": {one: file_card(os.path.join(work, one)) for one in sorted(os.listdir(work))},
    }
    with open(os.path.join(work, about.NAME), "w", encoding="utf-8") as file:
        file.write(about.as_text(content))


def _buffer(program: Program, name: str) -> dict[str, object]:
    one = program.by_name[name]
    if one.kind is not BufferKind.TENSOR:
        return {"name": name, "kind": one.kind.value}
    sizes = [e.value if e.value is not None else str(e) for e in one.layout.sizes]
    return {"name": name, "dtype": one.dtype.text, "shape": sizes}
