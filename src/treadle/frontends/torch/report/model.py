"""What Treadle would do with a model, without running it; and what it did with a compiled one.

    treadle.plan(model, x)          memory: peak, breakdown, lower bound, for each graph
    treadle.explain(model, x)       schedule: kernels, bytes, calls and why, refused fusions, breaks
    fast = treadle.compile(model)   torch.compile with this backend; fast.memory when it compiled

`plan` and `explain` capture the function with its real arguments, compile what was captured,
forward and backward, and stop before anything runs. A graph break ends what can be seen without
running; `run=True` runs the function, once, and sees all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

import torch

from treadle.analysis.accounting import OURS, Figures, figures
from treadle.core.errors import UsageError
from treadle.core.tables import Section
from treadle.core.verdict import Verdict
from treadle.frontends.torch import compat
from treadle.frontends.torch.backend import compile_with, read_settings
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.frontends.torch.lowering.origins import calling_line
from treadle.frontends.torch.report.memory import GraphMemory, graph_memory
from treadle.frontends.torch.report.pages import Page, memory_sections, schedule_sections
from treadle.runtime.hosts.torch_c import HostReport, host_report
from treadle.runtime.triton_kernels import TritonKernels

ATTRIBUTE = "memory"


@dataclass(frozen=True)
class GraphBreak:
    """A place where torch stops capturing, and starts anew behind it."""

    reason: str
    source: str | None
    """The user's line, `file:line`."""


G = TypeVar("G", "GraphMemory", "GraphReport")


class ModelReport(Page, Generic[G]):
    """What `plan`, `explain` and `.memory` have in common: graphs by number and by name, tables."""

    graphs: Sequence[G]
    breaks: Sequence[GraphBreak]
    is_whole: bool
    """Whether these are all graphs; behind a break there may be more."""

    @property
    def peak_bytes(self) -> int:
        """The highest peak of a graph; each counts its own inputs."""
        return max([g.peak_bytes for g in self.graphs], default=0)

    @property
    def arena_bytes(self) -> int:
        """The largest arena."""
        return max([g.arena_bytes for g in self.graphs], default=0)

    def __len__(self) -> int:
        return len(self.graphs)

    def __iter__(self) -> Iterator[G]:
        return iter(self.graphs)

    def __bool__(self) -> bool:
        return True  # a report of no graphs yet is a report

    def __getitem__(self, name: str | int) -> G:
        """The last graph called `forward`, `backward` or `graph`, or one by its number."""
        if isinstance(name, int):
            return self.graphs[name]
        for one in reversed(self.graphs):
            if one.name == name:
                return one
        known = ", ".join(dict.fromkeys(g.name for g in self.graphs)) or "none"
        raise KeyError(f"no graph {name!r}; there are: {known}")

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "peak_bytes": self.peak_bytes,
            "arena_bytes": self.arena_bytes,
            "graphs": [g.to_json() for g in self.graphs],
            "breaks": [vars(b) for b in self.breaks],
            "is_whole": self.is_whole,
        }


class MemoryFigures(ModelReport[GraphMemory]):
    """What can be asked about the memory of several graphs."""

    def sections(self) -> Iterator[Section]:
        """The graphs and what each holds at its peak, as tables."""
        yield from memory_sections(self.graphs, self.breaks, self.is_whole)


@dataclass(frozen=True, repr=False)
class MemoryReport(MemoryFigures):
    """The memory of every graph that was compiled."""

    graphs: tuple[GraphMemory, ...]
    breaks: tuple[GraphBreak, ...] = ()
    is_whole: bool = True


@dataclass(frozen=True, repr=False)
class GraphReport(Page):
    """How one graph was scheduled."""

    name: str
    before: Figures
    after: Figures
    memory: GraphMemory
    lowered: int
    """Operators that became loops or views."""
    fallbacks: tuple[tuple[str, str, int], ...]
    """(operator, why it is called instead of generated, how often)."""
    refused: Mapping[str, int]
    """How often fusion and the other passes refused, by code; `treadle explain CODE` says why."""
    agreed: Mapping[str, int]
    """How often they agreed, by code."""
    seconds: float
    source: str
    """The generated C."""
    host: HostReport
    """Who carries it out: a function in C, or Python; and which calls go back to Python."""
    tuned: tuple[Verdict, ...] = ()
    """What a GPU decided, or will, between schedules of kernels (TUN001)."""

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once."""
        return self.memory.peak_bytes

    @property
    def arena_bytes(self) -> int:
        """The height of the arena."""
        return self.memory.arena_bytes

    def sections(self) -> Iterator[Section]:
        """How the graph was scheduled, as tables."""
        yield from schedule_sections([self], (), True)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, without the C."""
        return {
            "name": self.name,
            "before": vars(self.before),
            "after": vars(self.after),
            "memory": self.memory.to_json(),
            "lowered": self.lowered,
            "fallbacks": [list(row) for row in self.fallbacks],
            "refused": dict(self.refused),
            "agreed": dict(self.agreed),
            "seconds": self.seconds,
            "host": asdict(self.host),
            "tuned": [verdict.to_dict() for verdict in self.tuned],
        }


@dataclass(frozen=True, repr=False)
class Explanation(ModelReport[GraphReport]):
    """How a function was captured and scheduled."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[GraphBreak, ...] = ()
    is_whole: bool = True

    @property
    def kernels(self) -> int:
        """Kernels and calls of all graphs together."""
        return sum(g.after.kernels for g in self.graphs)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by all graphs together."""
        return sum(g.after.bytes_moved for g in self.graphs)

    def sections(self) -> Iterator[Section]:
        """Kernels, bytes, calls, refusals and breaks, as tables."""
        yield from schedule_sections(self.graphs, self.breaks, self.is_whole)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {"kernels": self.kernels, "bytes_moved": self.bytes_moved, **super().to_json()}


class Recorder(MemoryFigures):
    """A backend that keeps what it compiled for one function; what `.memory` of it shows."""

    def __init__(self, settings: Settings, is_run: bool = True) -> None:
        self.built: list[Built] = []
        self.breaks: list[GraphBreak] = []
        self.is_run = is_run
        self._settings = replace(settings, report=self.built.append)

    def __reduce__(self) -> tuple[Any, ...]:
        # Settings travel; what was compiled belongs to this process and is compiled again.
        return Recorder, (replace(self._settings, report=None), self.is_run)

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any, **_: Any) -> Any:
        """Compile a graph, as a backend does."""
        self.breaks.extend(_breaks_of(gm))
        compiled = compile_with(self._settings, gm, example_inputs)
        return compiled if self.is_run else _stop

    @property
    def is_whole(self) -> bool:  # type: ignore[override]
        """Whether no graph can be missing."""
        return self.is_run or not self.breaks

    @property
    def graphs(self) -> tuple[GraphMemory, ...]:  # type: ignore[override]
        """The memory of every graph so far."""
        return tuple(graph_memory(b) for b in self.built)

    def report(self) -> MemoryReport:
        """The memory of all graphs so far, as data."""
        return MemoryReport(self.graphs, tuple(self.breaks), self.is_whole)

    def explanation(self) -> Explanation:
        """The schedules of all graphs so far, as data."""
        graphs = tuple(graph_report(b) for b in self.built)
        return Explanation(graphs, tuple(self.breaks), self.is_whole)


def compile(
    model: Any,
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    **more: Any,
) -> Any:
    """`torch.compile` with this backend; the result has `.memory`, a report of what compiled.

    Options are the fields of `Options`, in a dict as for torch or by name:
    `treadle.compile(model, policy="memory", strict=True)`.
    """
    recorder = Recorder(_settings(mode, {**(options or {}), **more}))
    return _compiled(model, recorder, dynamic, fullgraph)


def _compiled(model: Any, recorder: Recorder, dynamic: bool | None, fullgraph: bool) -> Any:
    made = torch.compile(model, backend=recorder, dynamic=dynamic, fullgraph=fullgraph)
    again = (_compiled, (model, recorder, dynamic, fullgraph))
    compat.attach(made, ATTRIBUTE, recorder, again)
    return made


def memory_of(compiled: Any) -> MemoryReport:
    """The memory of what `treadle.compile` gave, of the graphs compiled so far."""
    found = getattr(compiled, "__dict__", {}).get(ATTRIBUTE)
    if not isinstance(found, Recorder):
        raise UsageError(
            "only what treadle.compile(...) returned knows its memory",
            notes=["treadle.plan(model, *inputs) tells it of any function, without running it"],
        )
    return found.report()


def plan(
    model: Callable[..., Any],
    *inputs: Any,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    run: bool = False,
    **kwargs: Any,
) -> MemoryReport:
    """The memory that the graphs of a call would need; nothing runs unless `run` says so."""
    recorder = Recorder(_settings(mode, options), run)
    return _captured(recorder, model, inputs, kwargs, dynamic, fullgraph).report()


def explain(
    model: Callable[..., Any],
    *inputs: Any,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    run: bool = False,
    **kwargs: Any,
) -> Explanation:
    """How a call would be captured and scheduled; nothing runs unless `run` says so."""
    recorder = Recorder(_settings(mode, options), run)
    return _captured(recorder, model, inputs, kwargs, dynamic, fullgraph).explanation()


def captured_graphs(
    model: Callable[..., Any],
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any] | None,
    *,
    mode: str | None,
    dynamic: bool | None,
    fullgraph: bool,
    run: bool,
) -> tuple[list[Built], list[str]]:
    """Every graph of a call, compiled, and the words of its graph breaks."""
    recorder = Recorder(_settings(mode, options), run)
    _captured(recorder, model, inputs, kwargs, dynamic, fullgraph)
    breaks = [f"{b.reason} ({b.source})" if b.source else b.reason for b in recorder.breaks]
    return recorder.built, breaks


def _settings(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    return replace(read_settings(mode, options), called_from=calling_line())


def graph_report(built: Built) -> GraphReport:
    """The report of one compiled graph."""
    calls = Counter(built.lowered.fallbacks)
    journal, kernels = built.scheduled.journal, built.runner.compiled.kernels
    return GraphReport(
        name=built.name,
        before=figures(built.lowered.program, OURS),
        after=figures(built.scheduled.kernels, OURS),
        memory=graph_memory(built),
        lowered=built.lowered.lowered,
        fallbacks=tuple((name, why, n) for (name, why), n in sorted(calls.items())),
        refused=journal.decided(ok=False),
        agreed=journal.decided(ok=True),
        seconds=built.seconds,
        source="\n".join(k.text for k in built.runner.compiled.unit.kernels),
        host=host_report(built.runner.bound()),
        tuned=tuple(kernels.tuned) if isinstance(kernels, TritonKernels) else (),
    )


# ------------------------------------------------------------------------------- capturing


class _Stopped(Exception):  # noqa: N818
    """Everything is compiled: there is nothing left to see without running."""


def _stop(*_: Any) -> Any:
    raise _Stopped


def _captured(
    recorder: Recorder,
    model: Callable[..., Any],
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: bool | None,
    fullgraph: bool,
) -> Recorder:
    target = compat.fresh_function(compat.not_compiled(model))
    compiled = torch.compile(target, backend=recorder, dynamic=dynamic, fullgraph=fullgraph)
    try:
        with compat.backward_compiled_at_once():
            compiled(*inputs, **kwargs)
    except _Stopped:
        pass
    return recorder


def _breaks_of(gm: Any) -> Iterator[GraphBreak]:
    why = getattr(gm, "compile_subgraph_reason", None)
    if why is not None and why.graph_break:
        frames = list(why.user_stack)
        line = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else None
        yield GraphBreak(str(why.reason).strip().splitlines()[0], line)
