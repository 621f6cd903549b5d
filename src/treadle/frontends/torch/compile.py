"""From a captured graph to something that runs: lower, schedule, generate, load.

Nothing that goes wrong on the way loses the user's call: the graph then runs operator by operator,
with one warning that names the reason and the user's line (TOR001), unless `strict` asks for the
error itself.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.options import Options
from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering import Lowered, lower_graph
from treadle.frontends.torch.origins import source_line
from treadle.frontends.torch.runner import Runner
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.runtime import CompiledProgram, compile_program
from treadle.schedule.pipeline import run_pipeline

MOST_COMPILED = 256


@dataclass(frozen=True)
class Settings:
    """What the user asked the backend for."""

    options: Options
    strict: bool = False
    """Whether a failure to compile is an error rather than a warning."""
    observe: Callable[[Lowered], None] | None = None
    """Called with every graph that was lowered."""


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
    name: str,
    settings: Settings,
    donated: Sequence[int] = (),
) -> Callable[[list[Any]], Any]:
    """The graph as a boxed callable: compiled, or run by torch if that failed."""
    where = _foreign_device(gm)
    if where is not None:
        return _eager(gm, "TOR002", f"it uses {where}, for which no code is generated yet")
    try:
        lowered = lower_graph(gm, name, donated)
        if settings.observe is not None:
            settings.observe(lowered)
        runner = make_runner(lowered, settings)
    except Exception as e:
        if settings.strict:
            raise
        reason = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        return _eager(gm, "TOR001", reason, _line_of(gm, reason))
    if runner is None:
        return _eager(gm, "TOR003", "no C compiler was found")
    return _boxed(runner)


def _boxed(runner: Runner) -> Callable[[list[Any]], Any]:
    def run(args: list[Any]) -> Any:
        return runner(args)

    run.treadle_runner = runner  # type: ignore[attr-defined]
    return compat.make_boxed(run)


def make_runner(lowered: Lowered, settings: Settings) -> Runner | None:
    """A lowered graph, scheduled and compiled; None without a C compiler."""
    compiled = _compiled(_ByText(lowered.program), settings.options)
    return Runner(compiled, lowered) if compiled.is_compiled else None


@lru_cache(maxsize=MOST_COMPILED)
def _compiled(key: _ByText, options: Options) -> CompiledProgram:
    return compile_program(schedule(key.program, options), options=options)


def schedule(program: Program, options: Options) -> Program:
    """The program after all passes."""
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    return run_pipeline(program, ctx)


# ------------------------------------------------------------------------------- falling back


def _foreign_device(gm: torch.fx.GraphModule) -> str | None:
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        for one in val if isinstance(val, list | tuple) else [val]:
            if isinstance(one, torch.Tensor) and one.device.type not in ("cpu", "meta"):
                return str(one.device)
    return None


def _line_of(gm: torch.fx.GraphModule, reason: str) -> str | None:
    """The user's line behind the node a message names, else behind the first node that has one."""
    words = set(re.findall(r"\w+", reason))
    lines = [(node.name in words, source_line(node)) for node in gm.graph.nodes]
    known = [(named, line) for named, line in lines if line]
    return max(known, key=lambda one: one[0])[1] if known else None


def _eager(
    gm: torch.fx.GraphModule, code: str, reason: str, line: str | None = None
) -> Callable[[list[Any]], Any]:
    """The graph run by torch, operator by operator, after one warning."""
    place = f" (at {line})" if line else ""
    warnings.warn(
        f"{code}: a graph runs operator by operator, not compiled, because {reason}{place};"
        f" read more: treadle explain {code}",
        stacklevel=2,
    )

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return gm(*given)

    return compat.make_boxed(run)
