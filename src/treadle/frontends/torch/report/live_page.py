"""The page of a live model: every graph that was compiled for it, in one file.

    treadle.report(model, x)                             report.html; the model does not run
    torch.compile(model, backend="treadle", options={"report": "out.html"})

Graphs come one after the other: with the option the file is written again with each of them.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.writing import Outputs
from treadle.frontends.torch.report.measured import measured_launches
from treadle.frontends.torch.report.memory import graph_memory
from treadle.page.html import data_in, page
from treadle.page.report import head, report_of_story
from treadle.page.story import tell

if TYPE_CHECKING:
    from treadle.frontends.torch.capture.compile import Built

DEFAULT = "report.html"
FRAME = (
    '<iframe title="report" style="width:100%;height:720px;border:1px solid #888" srcdoc="{}">'
    "</iframe>"
)


@dataclass(frozen=True, repr=False)
class ReportPage:
    """A page that was written; in Jupyter it is shown in place."""

    path: str
    data: Mapping[str, Any]

    def __str__(self) -> str:
        graphs = self.data["graphs"]
        return f"{self.path}: {len(graphs)} graph{'s' * (len(graphs) != 1)}"

    def __repr__(self) -> str:
        return f"ReportPage({str(self)!r})"  # the data are the whole page

    def _repr_html_(self) -> str:
        return FRAME.format(html.escape(page(self.data), quote=True))


def report(
    model: Callable[..., Any],
    *inputs: Any,
    out: str = DEFAULT,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    run: bool = False,
    measure: bool = True,
    **kwargs: Any,
) -> ReportPage:
    """Write the page of how a call would be compiled; the model runs only if `run` says so.

    On the CPU each kernel is measured by itself, on memory of its own, unless `measure` is False.
    """
    from treadle.frontends.torch.report.model import captured_graphs

    outputs = Outputs({"out": out}, ())  # refused before the work
    built, breaks = captured_graphs(
        model, inputs, kwargs, options, mode=mode, dynamic=dynamic, fullgraph=fullgraph, run=run
    )
    name = getattr(model, "__name__", type(model).__name__)
    data = model_page(name, [graph_page(one, measure) for one in built], breaks)
    outputs.write("out", page(data))
    return ReportPage(out, data)


def model_page(
    title: str, graphs: Sequence[dict[str, Any]], breaks: Sequence[str] = ()
) -> dict[str, Any]:
    """The data of several graphs: the page lets the reader choose among them."""
    data = head("model", title) | {"graphs": list(graphs), "run": os.getpid()}
    if graphs and breaks:
        graphs[0].setdefault("notes", []).extend(f"graph break: {one}" for one in breaks)
    return data


def graph_page(built: Built, measure: bool = True) -> dict[str, Any]:
    """The data of one compiled graph: the same passes again, with all that they decide kept."""
    program, options = built.lowered.program, built.scheduled.ctx.options
    options = options.with_(explain=True, dump=None, debug=0)
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    story = tell(program, program, ctx, built.name)
    data = report_of_story(story)
    if measure and (times := measured_launches(built)) is not None:
        times.put_into(data)
    memory = graph_memory(built)
    data["notes"] = [
        f"A run holds at most {memory.peak_bytes:,} B at once, inputs and outputs counted, at"
        f" {memory.peak_at}; no plan of this order holds less than {memory.lower_bound:,} B."
    ]
    data["notes"] += [
        f"{name} is called, not generated: {why}"
        for name, why in sorted(set(built.lowered.fallbacks))
    ]
    return data


def add_to_page(path: str, built: Built) -> None:
    """Write the page of what this process has compiled into the file so far, and of this graph."""
    outputs = Outputs({"report": path}, ())
    known: list[dict[str, Any]] = []
    try:
        with open(path, encoding="utf-8") as file:
            old = data_in(file.read())
        if old.get("kind") == "model" and old.get("run") == os.getpid():
            known = list(old["graphs"])
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        pass  # nothing there yet, or a file of somebody else, which is written over as asked
    measure = built.scheduled.ctx.options.report_times
    data = model_page(os.path.basename(path), [*known, graph_page(built, measure)])
    outputs.write("report", page(data))
