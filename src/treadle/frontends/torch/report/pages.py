"""Reports as tables a person reads: `print(treadle.plan(...))`, and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.core.tables import Section, as_html, as_text, human_bytes
from treadle.core.verdict import Verdict

if TYPE_CHECKING:
    from treadle.frontends.torch.report.memory import GraphMemory, Piece
    from treadle.frontends.torch.report.model import GraphBreak, GraphReport

SHOWN_PIECES = 10
SHOWN_WORDS = 60
GRAPHS = ("graph", "peak", "at", "lower bound", "arena", "inputs", "outputs", "run adds")
PIECES = ("bytes", "kind", "what", "operator", "where")
SCHEDULES = (
    "graph", "kernels before", "after", "moved before", "after ", "peak", "loops", "calls", "s",
)  # fmt: skip
CALLS = ("graph", "called operator", "times", "why it is not generated")
TUNED = ("graph", "kernel", "predicted us", "measured us", "used", "who says so", "schedule")
REFUSALS = ("graph", "code", "times", "what it says")


class Page(ABC):
    """Something that is shown as tables wherever it is looked at."""

    @abstractmethod
    def sections(self) -> Iterator[Section]:
        """The tables, in order."""

    def __repr__(self) -> str:
        return as_text(self.sections())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return as_html(self.sections())


def memory_sections(
    graphs: Sequence[GraphMemory], breaks: Sequence[GraphBreak], is_whole: bool
) -> Iterator[Section]:
    """A table of the graphs, and of what each holds at its peak."""
    peak = max([g.peak_bytes for g in graphs], default=0)
    yield Section(
        f"memory of {_count(graphs)}: at most {human_bytes(peak)} at once",
        GRAPHS,
        tuple([_memory_row(g) for g in graphs]),
        tuple(name for name in GRAPHS if name not in ("graph", "at")),
    )
    for graph in graphs:
        yield from held_sections(graph)
    yield from break_sections(breaks, is_whole)


def held_sections(graph: GraphMemory) -> Iterator[Section]:
    """What one graph holds at its peak, largest first."""
    rows = [_piece_row(piece) for piece in graph.breakdown[:SHOWN_PIECES]]
    rest = graph.breakdown[SHOWN_PIECES:]
    if rest:
        rows.append((human_bytes(sum(p.bytes for p in rest)), f"{len(rest)} more", "", "", ""))
    sizes = ", ".join(f"{name} = {n}" for name, n in graph.sizes.items())
    at = f" with {sizes}" if sizes else ""
    yield Section(f"held at the peak of {graph.name}{at}:", PIECES, tuple(rows), ("bytes",))
    if graph.unknown:
        yield Section(f"not counted, only a run can tell: {', '.join(graph.unknown)}")


def schedule_sections(
    graphs: Sequence[GraphReport], breaks: Sequence[GraphBreak], is_whole: bool
) -> Iterator[Section]:
    """Kernels and bytes of the graphs, what is called and why, what was refused."""
    kernels = sum(g.after.kernels for g in graphs)
    moved = sum(g.after.bytes_moved for g in graphs)
    yield Section(
        f"{_count(graphs)}: {kernels} kernels and calls, {human_bytes(moved)} moved",
        SCHEDULES,
        tuple([_schedule_row(g) for g in graphs]),
        tuple(name for name in SCHEDULES if name != "graph"),
    )
    calls = [(g.name, name, n, _short(why)) for g in graphs for name, why, n in g.fallbacks]
    if calls:
        yield Section("operators that are called, not generated:", CALLS, tuple(calls))
    back = [(g.name, name, n, _short(why)) for g in graphs for name, why, n in g.host.back]
    if back:
        yield Section("calls that go from the host in C back to Python:", CALLS, tuple(back))
    slow = [(g.name, _short(g.host.reason)) for g in graphs if g.host.host == "python"]
    if slow:
        yield Section("graphs whose host is Python:", ("graph", "why"), tuple(slow))
    if tuned := [row for g in graphs for verdict in g.tuned for row in _tuned(g.name, verdict)]:
        yield Section("schedules that a GPU decides between (TUN001):", TUNED, tuple(tuned))
    if refused := [(g.name, code, n) for g in graphs for code, n in g.refused.items()]:
        from treadle.core.codes import load_codes

        titles = {code: found.title for code, found in load_codes().items()}
        rows = [(name, code, n, titles.get(code, "")) for name, code, n in refused]
        yield Section("refused (`treadle explain CODE` says more):", REFUSALS, tuple(rows))
    yield from break_sections(breaks, is_whole)


def break_sections(breaks: Sequence[GraphBreak], is_whole: bool) -> Iterator[Section]:
    """Where torch stopped capturing."""
    if breaks:
        rows = [(b.source or "", _short(b.reason)) for b in breaks]
        yield Section("graph breaks:", ("where", "why"), tuple(rows))
    if not is_whole:
        yield Section("behind a graph break there may be more graphs: run=True sees them")


def _memory_row(g: GraphMemory) -> tuple[object, ...]:
    figures = (g.lower_bound, g.arena_bytes, g.input_bytes, g.output_bytes, g.allocated_bytes)
    return (g.name, human_bytes(g.peak_bytes), g.peak_at, *map(human_bytes, figures))


def _piece_row(piece: Piece) -> tuple[str, ...]:
    where = ", ".join(part for part in (piece.source, piece.module) if part)
    what = piece.name or piece.storage
    return (human_bytes(piece.bytes), piece.kind, what, _operator(piece.operator), where)


def _schedule_row(g: GraphReport) -> tuple[object, ...]:
    moved = [human_bytes(f.bytes_moved) for f in (g.before, g.after)]
    calls = sum(n for _, _, n in g.fallbacks)
    return (
        g.name, g.before.kernels, g.after.kernels, *moved, human_bytes(g.memory.peak_bytes),
        g.lowered, calls, f"{g.seconds:.2f}",
    )  # fmt: skip


def _tuned(graph: str, verdict: Verdict) -> Iterator[tuple[object, ...]]:
    """One row for each schedule of a kernel; the usual one first."""
    facts: Mapping[str, Any] = verdict.facts
    measured = facts.get("measured_us", ())
    for k, steps in enumerate(facts["schedules"]):
        used = steps == facts.get("chosen", facts["schedules"][0])
        time = measured[k] if k < len(measured) and measured[k] is not None else ""
        who = facts["by"] if verdict else f"the model: {facts['reason']}"
        start = (graph, facts["kernel"]) if k == 0 else ("", "")
        end = ("yes" if used else "", who if used else "", steps)
        yield (*start, facts["predicted_us"][k], time, *end)


def _count(graphs: Sequence[object]) -> str:
    return f"{len(graphs)} graph{'' if len(graphs) == 1 else 's'}" if graphs else "no graph so far"


def _operator(name: str | None) -> str:
    return (name or "").removeprefix("aten.").removesuffix(".default")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_WORDS else f"{text[: SHOWN_WORDS - 3]}..."
