"""`treadle plan` on programs: figures before and after, better orders, pictures, the peak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.ir.build import ProgramBuilder
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.memory.csvio import parse_csv
from treadle.memory.validate import violations


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Four large temporaries, all made before the first is folded."""
    b = ProgramBuilder("late")
    x, total = b.input("x", "f32", [256]), b.output("total", "f32", [4])
    large = [b.buffer(f"big{k}", "f32", [256]) for k in range(4)]
    for k, target in enumerate(large):
        with b.loop(f"make{k}", [256]) as body:
            (i,) = body.vars
            body.store(target, (i,), body.load(x, i) * float(k + 1))
    for k, source in enumerate(large):
        with b.loop(f"fold{k}", [1], reduce=[256]) as body:
            i, r = body.vars
            body.store(total, (i + k,), body.sum(body.load(source, r)))
    path = tmp_path / "late.treadle"
    path.write_text(show_program(b.build()))
    return str(path)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_program_is_planned(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, file)
    assert found["kind"] == "program"
    assert (found["total_bytes"], found["peak_bytes"]) == (4 * 1024 + 16, 4 * 1024 + 16)
    assert found["temp_bytes"] == 4 * 1024
    assert found["plan_lower_bound"] == found["total_bytes"]
    assert (found["peak_at"], found["gap"], found["ok"]) == ("fold0", 0.0, True)
    assert found["before"]["unshared_bytes"] == 4 * 1024 + 16
    assert found["order"] is None
    row = found["breakdown"][0]
    assert (row["storage"], row["producer"], row["last_use"], row["idle"]) == (
        "big0", "make0", "fold0", 0,
    )  # fmt: skip


def test_a_better_order_is_found_and_planned(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, file, "--order", "--seconds", "2")
    assert found["before"]["total_bytes"] == 4 * 1024 + 16
    assert found["after"]["total_bytes"] == found["total_bytes"] == 1024 + 16
    assert found["order"]["peak_bytes"] == found["order"]["peak_lower_bound"] == 1024 + 16
    assert found["order"]["given_peak_bytes"] == 4 * 1024 + 16


def test_the_table_and_the_pictures_are_drawn(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, svg = tmp_path / "plan.csv", tmp_path / "plan.svg"
    words = ["plan", file, "--order", "--map", "-o", str(out), "--svg", str(svg)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "the plan is as low as can be" in shown
    assert "no order is below 1,040" in shown
    assert "made by" in shown
    assert svg.read_text().startswith("<svg")
    table = parse_csv(out.read_text(), "plan.csv")
    assert table.plan is not None
    assert violations(table.problem, table.plan) == ()


def test_outputs_lie_where_they_are_asked_to(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = planned(capsys, file, "--outputs", "own", "--alignment", "1")
    assert (own["temp_bytes"], own["total_bytes"]) == (4 * 1024, 4 * 1024 + 16)


def test_a_capacity_that_is_not_met_is_a_failure(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", file, "--capacity", "2048", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert found["errors"] == ["4,112 bytes are over the capacity of 2,048"]
    assert main(["plan", file, "--capacity", "2048"]) == 1
    assert "over the capacity" in capsys.readouterr().out


def test_an_unwritable_picture_is_one_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", file, "--svg", "/nowhere/at/all.svg"]) == 2
    assert "TXT002" in capsys.readouterr().err
