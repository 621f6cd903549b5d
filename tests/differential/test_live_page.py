"""The page of a live model: the graphs that were compiled, with the user's lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402
import treadle.torch  # noqa: E402
from treadle.core.errors import TreadleError  # noqa: E402
from treadle.lab.cli import main  # noqa: E402
from treadle.page.html import data_in  # noqa: E402

pytestmark = pytest.mark.torch


def work(x: Any, w: Any) -> Any:
    return torch.softmax(torch.nn.functional.gelu(x @ w), dim=-1).sum()


def inputs() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(16, 32), torch.randn(32, 32, requires_grad=True)


def test_a_page_of_a_call_says_what_explain_says(tmp_path: Path) -> None:
    out = tmp_path / "model.html"
    made = treadle.report(work, *inputs(), out=str(out))
    told = treadle.explain(work, *inputs())
    graphs = data_in(out.read_text())["graphs"]
    assert [g["title"] for g in graphs] == [g.name for g in told.graphs] == ["forward", "backward"]
    for shown, said in zip(graphs, told.graphs, strict=True):
        after = {row["key"]: row["values"][-1] for row in shown["figures"]["rows"]}
        assert after["kernels"] == len(shown["kernels"]) == said.after.kernels
        assert after["bytes_moved"] == said.after.bytes_moved
        assert f"{said.memory.peak_bytes:,} B at once" in shown["notes"][0]
        assert all(row["lines"] for row in shown["kernels"] if row["kind"] == "loop")
    assert "srcdoc=" in made._repr_html_()
    assert len(repr(made)) < 200  # notebooks keep it beside the page
    assert str(made).endswith("model.html: 2 graphs")


def test_the_option_writes_every_graph_of_the_process_into_one_page(tmp_path: Path) -> None:
    out = tmp_path / "option.html"
    out.write_text("something else")
    torch._dynamo.reset()
    fast = torch.compile(work, backend="treadle", options={"report": str(out)})
    x, w = inputs()
    fast(x, w).backward()
    assert [g["title"] for g in data_in(out.read_text())["graphs"]] == ["forward", "backward"]
    fast(x[:8], w).backward()  # another shape: compiled again
    assert len(data_in(out.read_text())["graphs"]) == 4


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TreadleError, match="a file in a folder that exists"):
        treadle.report(work, *inputs(), out=str(tmp_path / "none" / "x.html"))


@pytest.mark.slow
def test_the_demo_writes_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo.html"
    assert main(["demo", "--rounds", "1", "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(out)
    assert [g["title"] for g in data_in(out.read_text())["graphs"]] == ["forward", "backward"]


def test_the_demo_without_torch_writes_one_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo.html"
    assert main(["demo", "--program", "-o", str(out)]) == 0
    assert data_in(out.read_text())["title"] == "demo"


def test_kernels_are_measured_unless_that_is_left_out(tmp_path: Path) -> None:
    out = tmp_path / "m.html"
    graphs = treadle.report(work, *inputs(), out=str(out)).data["graphs"]
    for graph in graphs:
        timed = [row for row in graph["kernels"] if "measured_us" in row]
        assert len(timed) == graph["measured"]["launches"] == len(graph["kernels"])
        assert all(row["measured_us"] > 0 for row in timed)
        assert "this machine's CPU" in graph["measured"]["source"]
    plain = treadle.report(work, *inputs(), out=str(out), measure=False).data["graphs"]
    assert not any("measured" in graph for graph in plain)
    torch._dynamo.reset()
    asked = {"report": str(out), "report_times": False}
    torch.compile(work, backend="treadle", options=asked)(*inputs())
    assert not any("measured" in graph for graph in data_in(out.read_text())["graphs"])


def test_measuring_draws_no_random_numbers_and_runs_nothing_of_the_users(tmp_path: Path) -> None:
    def draws(x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5) @ x

    x = torch.randn(8, 8)
    before = torch.get_rng_state()
    (graph,) = treadle.report(draws, x, out=str(tmp_path / "m.html")).data["graphs"]
    assert torch.equal(before, torch.get_rng_state())
    kinds = {row["name"]: "measured_us" in row for row in graph["kernels"]}
    assert kinds["mm"]
    assert not all(kinds.values())  # the draw itself has no time


def test_a_page_says_when_the_machine_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.frontends.torch.report import measured

    def notes(*seconds: float) -> list[str]:
        monkeypatch.setattr(measured, "_times", lambda run: iter(seconds))
        page = treadle.report(work, *inputs(), out=str(tmp_path / "m.html"))
        return [note for graph in page.data["graphs"] for note in graph["measured"]["notes"]]

    monkeypatch.setattr(measured, "_load", lambda: (1.5, 2))
    assert notes(10e-6, 11e-6, 12e-6) == []
    assert all("measure again" in note for note in notes(10e-6, 9e-3, 9e-3))
    assert len(notes(10e-6, 9e-3, 9e-3)) == 2  # one for each graph
    monkeypatch.setattr(measured, "_load", lambda: (9.0, 2))
    assert all("9.0 processes wanted the 2 cores" in note for note in notes(10e-6, 11e-6))
