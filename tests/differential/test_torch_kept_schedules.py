"""A graph that an earlier process has scheduled is not scheduled again, and gives the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from treadle.core.options import Options  # noqa: E402
from treadle.lab.cli import main  # noqa: E402
from treadle.schedule.kept_schedules import KeptSchedules, schedules_kept  # noqa: E402

pytestmark = pytest.mark.torch
PROCESS = """
import json, sys, time
import torch
from unittest.mock import patch
import treadle.torch
from treadle.frontends.torch.capture import compile as capture

scheduled = []
def counting(program, options, plain=capture.schedule):
    scheduled.append(program.name)
    return plain(program, options)

def step(x, w, v):
    h = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x @ w, (24,)))
    return (h @ v).log_softmax(-1).square().mean()

torch.manual_seed(0)
x, w, v = (torch.randn(s, requires_grad=True) for s in ((16, 8), (8, 24), (24, 12)))
options = json.loads(sys.argv[1])
with patch.object(capture, "schedule", counting):
    compiled = torch.compile(step, backend="treadle", options=options)
    for _ in range(3):
        loss = compiled(x, w, v)
        found = [loss, *torch.autograd.grad(loss, (x, w, v))]
print(json.dumps({"scheduled": scheduled, "found": [t.tolist() for t in found]}))
"""


def run(folder: Path, **options: Any) -> dict[str, Any]:
    """One process with a cache folder; what it scheduled and what came out."""
    words = [sys.executable, "-c", PROCESS, json.dumps(options)]
    environ = {**os.environ, "TREADLE_CACHE_DIR": str(folder)}
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=environ)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_a_second_process_schedules_nothing_and_computes_the_same(tmp_path: Path) -> None:
    first, second = run(tmp_path / "cache"), run(tmp_path / "cache")
    assert first["scheduled"] == ["forward", "backward"]
    assert second["scheduled"] == []
    assert second["found"] == first["found"]
    other = run(tmp_path / "cache", policy="memory")
    assert other["scheduled"] == ["forward", "backward"], "other options decide otherwise"


def test_a_damaged_schedule_is_made_again(tmp_path: Path) -> None:
    first = run(tmp_path / "cache")
    for place in (tmp_path / "cache" / "schedules" / "compiled").glob("*/code.so"):
        text = place.read_text("utf-8").replace("mul", "add")
        place.write_text(text, "utf-8")
    second = run(tmp_path / "cache")
    assert second["scheduled"] == first["scheduled"]
    assert second["found"] == first["found"]


def test_what_is_recalled_reports_the_same_decisions(tmp_path: Path) -> None:
    import treadle
    from treadle.frontends.torch.capture import compile as capture

    def function(x: Any) -> Any:
        return (x.softmax(-1) * x.sum(0)).tanh().cumsum(0) + x.amax()

    x, reports = torch.randn(9, 33), []
    for _ in range(2):
        capture._made.cache_clear()
        torch._dynamo.reset()
        found = treadle.explain(function, x, options={"cache_dir": str(tmp_path / "cache")})
        report = found["graph"].to_json()
        del report["seconds"]
        reports.append(report)
    assert schedules_kept(Options.make(cache_dir=str(tmp_path / "cache"))).entries()
    assert reports[0] == reports[1]


def test_the_cache_command_shows_and_clears_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "cache")
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    assert main(["cache", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schedules"] == 2
    assert shown["schedule_bytes"] > 1000
    assert main(["cache"]) == 0
    assert "schedules 2 graphs" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "removed schedules of 2 graphs" in capsys.readouterr().out
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedules"] == 0


@pytest.mark.parametrize(
    "asked", [{"debug": 1}, {"check": 2}, {"explain": True}, {"stop_after": 3}], ids=str
)
def test_passes_should_run_where_somebody_wants_to_see_them(asked: dict[str, Any]) -> None:
    assert KeptSchedules(Options.make()).may_be_asked
    assert not KeptSchedules(Options.make(**asked)).may_be_asked
