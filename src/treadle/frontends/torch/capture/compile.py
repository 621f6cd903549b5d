"""From a captured graph to something that runs: lower, schedule, generate, load.

Nothing that goes wrong on the way loses the user's call: the graph then runs operator by operator,
with one warning that names the reason and the user's line (TOR001), unless `strict` asks for the
error itself.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from treadle.analysis.cost import cost_model
from treadle.codegen.triton.forms import why_unwritable
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import TreadleError
from treadle.core.garbage import paused_collection
from treadle.core.journal import Journal
from treadle.core.options import Options, cache_folder
from treadle.core.toolchain import why_not_compiled
from treadle.frontends.torch import compat
from treadle.frontends.torch.capture import log
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.capture.owners import owners_of_inputs, owners_of_outputs
from treadle.frontends.torch.capture.signature import blamed_places, signature_of
from treadle.frontends.torch.lowering.devices import device_of
from treadle.frontends.torch.lowering.flex import FlexKernels
from treadle.frontends.torch.lowering.graph import Lowered, lower_graph
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.merge_products import merge_products
from treadle.frontends.torch.lowering.origins import Provenance, source_line
from treadle.frontends.torch.process_groups import agree_on_order
from treadle.ir.numerics import EXACT, TORCH_ON_GPU
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.runtime import CompiledProgram
from treadle.runtime.hosts.numpy import build_program
from treadle.runtime.hosts.torch_cpu import Runner
from treadle.runtime.hosts.torch_gpu import gpu_of
from treadle.runtime.hosts.triton import build_triton_program
from treadle.runtime.run_facts import Owner
from treadle.schedule.failure import PipelineError
from treadle.schedule.kept_schedules import KeptSchedule, KeptSchedules
from treadle.schedule.overlap.agreement import RankOrderError
from treadle.schedule.passes import KERNELS, message_passes
from treadle.schedule.pipeline import run_pipeline

MOST_COMPILED = 256
CAPTURE = "torch's AOTAutograd cannot take it"
NEVER = "(?!)"
"""A pattern that matches nothing."""


class CompileError(TreadleError):
    """A graph that could not be compiled: the reason and the user's line."""


class NoMachineCode(Exception):  # noqa: N818 - says what is missing, not who is to blame
    """The kernels' C was not compiled; the message names the cause."""


@dataclass(frozen=True)
class Settings:
    """What the user asked the backend for."""

    options: Options
    strict: bool = False
    """Whether a failure to compile is an error, like the option of that name."""
    observe: Callable[[Lowered], None] | None = None
    """Called with every graph that was lowered."""
    report: Callable[[Built], None] | None = None
    """Called with every graph that was compiled."""
    called_from: str | None = None
    """The user's line that asked, for what has no line of its own."""

    @property
    def wants_errors(self) -> bool:
        """Whether a graph that cannot be compiled is an error rather than a warning."""
        return self.strict or self.options.strict


class Scheduled(NamedTuple):
    """A program after all passes, and what was decided on the way."""

    program: Program
    """What was decided: operations in groups, in order."""
    kernels: Program
    """What runs: the same as kernels."""
    journal: Journal
    ctx: Ctx


@dataclass(frozen=True)
class Recalled:
    """The same of a program that an earlier run has scheduled."""

    given: Program
    kept: KeptSchedule
    ctx: Ctx

    @cached_property
    def program(self) -> Program:
        """What was decided: operations in groups, in order."""
        return self.kept.program()

    @cached_property
    def kernels(self) -> Program:
        """What runs: the same as kernels."""
        return self.kept.kernels()

    @cached_property
    def journal(self) -> Journal:
        """What was decided on the way: decided once more, for who asks."""
        return schedule(self.given, self.ctx.options).journal


class Made(NamedTuple):
    """A scheduled program and its code."""

    scheduled: Scheduled | Recalled
    compiled: CompiledProgram


@dataclass(frozen=True)
class Built:
    """One graph, compiled: everything a report is made from."""

    name: str
    """`forward`, `backward`, or `graph` for one without gradients."""
    lowered: Lowered
    scheduled: Scheduled | Recalled
    runner: Runner
    provenance: Provenance
    """Operator, line and module behind each node of the graph, for reports and errors."""
    seconds: float


@dataclass
class Saved:
    """What a forward graph leaves for its backward graph, by the node that made it."""

    owners: dict[str, Owner] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    """What the user calls the inputs, in order."""
    forward: Provenance | None = None


class _ByText:
    """A program as a key: equal if the text is."""

    __slots__ = ("program", "text")

    def __init__(self, program: Program) -> None:
        self.program, self.text = program, show_program(program)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByText) and self.text == other.text


def compile_graph(
    gm: torch.fx.GraphModule,
    kind: GraphKind,
    settings: Settings,
    donated: Sequence[int] = (),
    saved: Saved | None = None,
) -> Callable[[list[Any]], Any]:
    """The graph as a boxed callable: compiled, or run by torch if that failed."""
    where = _foreign_device(gm)
    if where is not None:
        return _eager(gm, "TOR002", f"it uses {where}, for which no code is generated yet")
    try:
        # Torch's own objects are many: walking them for cycles costs more than most of our steps.
        with paused_collection():
            built = _build(gm, kind, settings, donated, saved or Saved())
    except NoMachineCode as e:
        if settings.wants_errors:
            raise CompileError(
                f"graph '{kind.value}' cannot be compiled: {e}", code="TOR003"
            ) from e
        return _eager(gm, "TOR003", str(e))
    except RankOrderError:
        raise  # run by torch here and as compiled there, ranks would wait for each other
    except Exception as e:
        return _without(gm, kind, settings, e)
    built.runner.give_up = partial(_without, gm, kind, settings)
    log.show(built)
    log.follow(built)
    if settings.report is not None:
        settings.report(built)
    if settings.options.report is not None:
        from treadle.frontends.torch.report.live_page import add_to_page

        add_to_page(settings.options.report, built)
    return compat.make_boxed(built.runner)


def _without(
    gm: torch.fx.GraphModule, kind: GraphKind, settings: Settings, error: Exception
) -> Callable[[list[Any]], Any]:
    """The graph run by torch because of an error; the error itself if the user wants it."""
    reason = _in_one_line(error)
    line, again = _line_of(gm, reason), error.again if isinstance(error, PipelineError) else None
    if settings.wants_errors:
        place = f" (at {line})" if line else ""
        message = f"graph '{kind.value}' cannot be compiled{place}: {reason}"
        raise CompileError(message, code="TOR001", notes=[again] if again else []) from error
    return _eager(gm, "TOR001", reason, line, again)


def _build(
    gm: torch.fx.GraphModule,
    kind: GraphKind,
    settings: Settings,
    donated: Sequence[int],
    saved: Saved,
) -> Built:
    began = time.perf_counter()
    part = partial(compile_graph, kind=GraphKind.INFERENCE, settings=settings)
    if settings.options.numerics != "exact":
        merge_products(gm)
    is_triton = settings.options.code == "triton" or device_of(gm) != "cpu"
    refuses = why_unwritable if is_triton else None
    own, flex = _own_products(settings.options), _flex(gm, settings.options) if is_triton else None
    lowered = lower_graph(gm, kind, donated, part, refuses, own, flex)
    if settings.options.numerics == "exact":
        lowered.program = replace(lowered.program, numerics=EXACT)
    elif any(b.device.startswith("cuda") for b in lowered.program.buffers):
        lowered.program = replace(lowered.program, numerics=TORCH_ON_GPU)
    if settings.observe is not None:
        settings.observe(lowered)
    is_backward = kind is GraphKind.BACKWARD
    provenance = Provenance(
        gm.graph,
        settings.called_from,
        () if is_backward else saved.inputs,
        saved.forward,
        lowered.made_for,
    )
    owners = owners_of_inputs(gm, lowered, saved.owners if is_backward else {})
    try:
        scheduled, compiled = _made(_ByText(lowered.program), settings.options)
    except Exception:
        # Other ranks may have compiled it: they must have kept the order in which torch runs it.
        agree_on_order(lowered.program, lowered.program)
        raise
    agree_on_order(scheduled.kernels, lowered.program)
    blame = partial(blamed_places, provenance, compiled.program)
    signature = signature_of(lowered, owners, scheduled.kernels)
    runner = Runner(compiled, signature, scheduled.ctx, blame)
    if kind is GraphKind.FORWARD:
        saved.forward = provenance
        saved.owners.update(owners_of_outputs(gm, lowered))
    runner.bound()  # planned now, for the likely sizes: planning is part of compiling
    return Built(kind.value, lowered, scheduled, runner, provenance, time.perf_counter() - began)


def _flex(gm: torch.fx.GraphModule, options: Options) -> FlexKernels:
    """How attention with functions inside is compiled for a graph's device."""
    refusal = "numerics are exact" if options.numerics == "exact" else None
    return FlexKernels(options, gpu_of({device_of(gm)}), refusal)


def _own_products(options: Options) -> bool:
    """Whether kernels in C may multiply matrices, whose sums are then as exact as others."""
    return options.products == "auto" and options.numerics != "exact" and options.code != "triton"


@lru_cache(maxsize=MOST_COMPILED)
def _made(key: _ByText, options: Options) -> Made:
    scheduled = scheduled_or_recalled(key.program, key.text, options)
    if is_for_triton(key.program, options):
        gpu = gpu_of({b.device for b in key.program.buffers})
        return Made(scheduled, build_triton_program(scheduled.kernels, options, gpu))
    compiled = build_program(scheduled.kernels, options=options)
    if not compiled.is_compiled:
        # Raised, so that it is not remembered: the next graph may find a compiler again.
        raise NoMachineCode(why_not_compiled(compiled.verdict))
    return Made(scheduled, compiled)


def is_for_triton(program: Program, options: Options) -> bool:
    """Whether kernels of a program are written in Triton."""
    devices = {b.device.partition(":")[0] for b in program.buffers}
    return "cuda" in devices or options.code == "triton"


def scheduled_or_recalled(program: Program, text: str, options: Options) -> Scheduled | Recalled:
    """The program after all passes, which earlier runs may have run."""
    earlier = KeptSchedules(options)
    if (kept := earlier.find(program, text)) is not None:
        found = Recalled(program, kept, context_of(program, options))
        with suppress(TreadleError):  # one that cannot be read is as good as none
            if found.kernels.ops:
                return found
    made = schedule(program, options)
    earlier.keep(program, text, made.program, made.kernels)
    return made


def context_of(program: Program, options: Options) -> Ctx:
    """What passes are given for a graph."""
    return Ctx(options, cost_model(program, options), journal_for(options))


def schedule(program: Program, options: Options) -> Scheduled:
    """The program after all passes; a pass that fails leaves a reproducer in the cache folder."""
    ctx = context_of(program, options)
    journal = ctx.journal
    if options.dump is None:
        # The pipeline writes reproducers where it dumps: not into the user's folder, then.
        folder = os.path.join(cache_folder(options), "reproducers")
        ctx = Ctx(options.with_(dump=folder, dump_pass=NEVER), ctx.cost, journal)
    program = run_pipeline(program, ctx, message_passes(options))
    scheduled = run_pipeline(program, ctx)
    return Scheduled(scheduled, run_pipeline(scheduled, ctx, KERNELS), journal, ctx)


# ------------------------------------------------------------------------------- falling back


def not_captured(
    gm: torch.fx.GraphModule, error: Exception, settings: Settings, steps: OwnSteps
) -> Callable[..., Any]:
    """The graph as Dynamo captured it, run by torch, if AOTAutograd cannot take it (TOR005)."""
    step = steps.behind(error)
    whose = f"{step}, a step of Treadle's inside torch's AOTAutograd, fails" if step else CAPTURE
    reason = f"{whose}: {_in_one_line(error)}"
    line = _line_of(gm, reason)
    if settings.wants_errors:
        place = f" (at {line})" if line else ""
        raise CompileError(f"a graph was not compiled{place}: {reason}", code="TOR005") from error
    _warn("TOR005", reason, line)
    return gm


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _foreign_device(gm: torch.fx.GraphModule) -> str | None:
    """A device of the graph for which no code can be generated here."""
    known = ("cpu", "meta", *(["cuda"] if find_spec("triton") is not None else []))
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        for one in val if isinstance(val, list | tuple) else [val]:
            if isinstance(one, torch.Tensor) and one.device.type not in known:
                return str(one.device)
    return None


def _line_of(gm: torch.fx.GraphModule, reason: str) -> str | None:
    """The user's line behind the node a message names, else behind the first node that has one."""
    words = set(re.findall(r"\w+", reason))
    lines = [(node.name in words, source_line(node)) for node in gm.graph.nodes]
    known = [(named, line) for named, line in lines if line]
    return max(known, key=lambda one: one[0])[1] if known else None


def _eager(
    gm: torch.fx.GraphModule,
    code: str,
    reason: str,
    line: str | None = None,
    again: str | None = None,
) -> Callable[[list[Any]], Any]:
    """The graph run by torch, operator by operator, after one warning."""
    _warn(code, reason, line, again)

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return gm(*given)

    return compat.make_boxed(run)


def _warn(code: str, reason: str, line: str | None, again: str | None = None) -> None:
    place = f" (at {line})" if line else ""
    how = f"; {again}" if again else ""
    warnings.warn(
        f"{code}: a graph runs operator by operator, not compiled, because {reason}{place}{how};"
        f" read more: treadle explain {code}",
        stacklevel=3,
    )
