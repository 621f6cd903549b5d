"""`treadle plan` and `treadle show` on memory problems in CSV."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.lab.cli import main
from treadle.lab.files import kind_of
from treadle.memory.csvio import parse_csv
from treadle.memory.validate import violations

TEXT = "id,lower,upper,size\na,0,2,4\nb,1,3,6\nc,2,4,4\n"


@pytest.fixture
def case(tmp_path: Path) -> str:
    path = tmp_path / "case.csv"
    path.write_text(TEXT)
    return str(path)


def test_the_kind_is_found_from_the_content() -> None:
    assert kind_of(TEXT) == "minimalloc_csv"


def test_a_plan_is_written_and_drawn(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, svg = tmp_path / "plan.csv", tmp_path / "plan.svg"
    assert main(["plan", case, "-o", str(out), "--svg", str(svg), "--map"]) == 0
    shown = capsys.readouterr().out
    assert "arena        10 (10 B)" in shown
    assert "lower bound  10: as low as can be" in shown
    table = parse_csv(out.read_text(), "plan.csv")
    assert table.plan is not None
    assert violations(table.problem, table.plan) == ()
    assert svg.read_text().startswith("<svg")


def test_json_has_the_common_keys(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", case, "--json", "--effort", "exact", "--steps", "1000"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["total_bytes"], data["temp_bytes"], data["plan_lower_bound"]) == (10, 10, 10)
    assert (data["gap"], data["ok"], data["errors"], data["before"]) == (0.0, True, [], None)
    assert data["seconds"] >= 0
    assert data["method"] in {one["method"] for one in data["tried"]}


def test_a_plan_in_the_file_is_judged_and_not_binding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "before.csv"
    path.write_text("id,lower,upper,size,offset\na,0,2,4,100\nb,1,3,6,101\n")
    assert main(["plan", str(path), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["total_bytes"] == 10
    assert data["errors"][0].startswith(f"{path}: MEM001 at b")
    assert data["before"]["total_bytes"] == 107
    assert data["before"]["errors"][0].startswith("MEM001 at b")


def test_a_capacity_that_is_too_small_exits_with_1(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", case, "--capacity", "9", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert data["errors"][0].startswith("no MEM030 height=10 capacity=9")
    assert main(["plan", case, "--capacity", "9"]) == 1
    assert "NOT met" in capsys.readouterr().out


def test_show_says_buffers_bound_and_times(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", case]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "memory problem: 3 buffers",
        "times           0 to 4",
        "bytes           14 (14 B) without sharing",
        "live sum        10 (10 B) at time 1",
        "lower bound     10 (10 B) for the arena",
    ]
    assert main(["show", case, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["buffers"] == 3


def test_a_file_that_cannot_be_planned_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    assert main(["plan", str(path)]) == 2
    error = capsys.readouterr().err
    assert "expected a Treadle program (a first line 'treadle 1'), a dump or a memory" in error
    assert error.count("\n") == 1


def test_an_output_that_cannot_be_written_gets_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", case, "--svg", str(tmp_path / "no" / "x.svg")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_block_whose_gaps_cover_its_life_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gaps.csv"
    file.write_text("id,lower,upper,size,gaps\na,0,4,8,0-2 2-4\nb,0,4,8,\n")
    for command in ("plan", "check", "show"):
        assert main([command, str(file)]) == 2
        assert "gaps leave nothing of its life [0, 4)" in capsys.readouterr().err
