"""What other tools are given: their own readers, where they are installed, take it."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from page_tools import assert_is_trace, command, data_of, seed

from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program

FORMS = {"--trace": "t.json", "--snapshot": "s.pickle", "--csv": "p.csv", "--dot": "g.dot"}


def written(source: Path, folder: Path) -> dict[str, Path]:
    paths = {form: folder / name for form, name in FORMS.items()}
    words = [str(word) for pair in paths.items() for word in pair]
    out = folder / "out.html"
    assert main(["report", str(source), "-o", str(out), "--only", *words]) == 0
    return {**paths, "page": out}


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    if request.param == "demo":
        source = folder / "demo.txt"
        source.write_text(show_program(demo_program()))
        return written(source, folder)
    return written(seed(request.param), folder)


everywhere = pytest.mark.parametrize("made", ["demo", "000", "001", "003"], indirect=True)


@everywhere
def test_the_trace_is_the_predicted_time(made: dict[str, Path]) -> None:
    shown, events = data_of(made["page"]), assert_is_trace(made["--trace"].read_text())
    slices = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in slices] == [row[0] for row in shown["lanes"]["slices"]]
    end = max((e["ts"] + e["dur"] for e in slices), default=0)
    assert end == pytest.approx(shown["lanes"]["total_us"], abs=0.01)
    for thread in {e["tid"] for e in slices}:  # nothing in a lane runs beside another
        rows = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == thread)
        assert all(a[1] <= b[0] + 0.002 for a, b in pairwise(rows))
    named = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert "compute" in named


def test_the_trace_of_two_orders_is_a_trace_too(tmp_path: Path) -> None:
    out = tmp_path / "lanes.json"
    words = ["--comm", "model", "--hardware", "h100-8", "--trace", str(out)]
    assert main(["schedule", str(seed("000")), *words]) == 0
    events = assert_is_trace(out.read_text())
    assert {e["pid"] for e in events} == {1, 2}


def test_a_collective_runs_beside_what_does_not_wait_for_it(tmp_path: Path) -> None:
    shown = data_of(written(seed("000"), tmp_path)["page"])
    lanes, kernels = shown["lanes"], {row["name"]: row for row in shown["kernels"]}
    assert len(lanes["waits"]) == sum(
        kernels[r[0]]["kind"] == "collective" for r in lanes["slices"]
    )
    assert all(0 <= w["exposed_us"] <= w["us"] + 1e-9 for w in lanes["waits"])
    busy = sum(us for _, lane, _, us in lanes["slices"] if lane == "compute")
    assert lanes["total_us"] == pytest.approx(busy + lanes["exposed_us"], abs=0.1)


@everywhere
def test_the_snapshot_is_what_memory_viz_reads(made: dict[str, Path]) -> None:
    data = pickle.loads(made["--snapshot"].read_bytes())
    memory = data_of(made["page"])["memory"][1]
    live: dict[int, int] = {}
    peak = 0
    for event in data["device_traces"][0]:
        address, size = event["addr"], event["size"]
        if event["action"] == "alloc":
            overlaps = [a for a, n in live.items() if a < address + size and address < a + n]
            assert overlaps == [], "two allocations in the same bytes"
            live[address] = size
            peak = max(peak, sum(live.values()))
        if event["action"] == "free_completed":
            assert live.pop(address) == size
    assert peak == memory["peak_bytes"]
    kept = sum(b["size"] for b in memory["blocks"] if b["output"])
    assert sum(live.values()) >= kept  # the caller's, after the last step
    spaces = [(s["address"], s["address"] + s["total_size"]) for s in data["segments"]]
    assert sum(s["total_size"] for s in data["segments"]) == memory["total_bytes"]
    for event in data["device_traces"][0]:
        assert any(a <= event["addr"] and event["addr"] + event["size"] <= b for a, b in spaces)


@pytest.mark.torch
def test_torchs_own_tools_read_the_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch.cuda import _memory_viz

    source = tmp_path / "demo.txt"
    source.write_text(show_program(demo_program()))
    data = pickle.loads(written(source, tmp_path)["--snapshot"].read_bytes())
    told = _memory_viz.trace(data)
    assert "cudaMalloc" in told  # the arena
    assert "= a[0:" in told  # what lies in it
    assert "segments: 1" in _memory_viz.segsum(data)
    assert _memory_viz.trace_plot(data).startswith("\n<!DOCTYPE html>")
    assert _memory_viz.segment_plot(data).startswith("\n<!DOCTYPE html>")


@everywhere
def test_the_table_is_a_valid_plan(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    memory = data_of(made["page"])["memory"][1]
    said = command(capsys, "plan", made["--csv"])
    assert said["before"] == {"total_bytes": memory["arena_bytes"], "ok": True, "errors": []}


@everywhere
def test_the_graph_has_every_launch_and_every_edge(made: dict[str, Path]) -> None:
    shown, text = data_of(made["page"]), made["--dot"].read_text()
    assert len(re.findall(r"^  k\d+ \[label=", text, re.M)) == len(shown["kernels"])
    edges = {tuple(map(int, e)) for e in re.findall(r"^  k(\d+) -> k(\d+) ", text, re.M)}
    assert edges == {(a, b) for a, b, _ in shown["edges"]}
    assert all(a < b for a, b in edges)  # data flows forward in a schedule
    if shutil.which("dot"):
        words = ["dot", "-Tplain", str(made["--dot"])]
        assert subprocess.run(words, capture_output=True, check=False).returncode == 0
