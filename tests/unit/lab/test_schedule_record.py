"""Schedules saved, replayed and compared; the story of two operations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.schedule.record import Schedule, replay, schedule_of


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "p.txt"
    program.write_text(show_program(demo_program()))
    names = {n: str(tmp_path / n) for n in ("s.json", "t.json", "out.txt", "j.jsonl", "k.jsonl")}
    return {"program": str(program), **names}


def schedule(files: dict[str, str], *more: str) -> int:
    return main(["schedule", files["program"], "--json", *more])


def test_a_saved_schedule_replays_to_the_same_program(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert schedule(files, "--save", files["s.json"], "-o", files["out.txt"]) == 0
    first = Path(files["out.txt"]).read_text()
    assert schedule(files, "--replay", files["s.json"], "-o", files["out.txt"]) == 0
    assert Path(files["out.txt"]).read_text() == first
    data = json.loads(capsys.readouterr().out.split("}\n{")[-1].join(["{", ""]))
    assert data["after"]["kernels"] == 1


def test_a_schedule_knows_what_it_is_for(files: dict[str, str]) -> None:
    program = demo_program()
    found = schedule_of(program, parse_program(show_program(program)))
    assert replay(program, found) == program
    smaller = Program(program.name, program.buffers, program.ops[:2], program.inputs)
    with pytest.raises(InputError) as caught:
        replay(smaller, found)
    assert caught.value.code == "SCH002"


DAMAGED = ("", "[]", "{}", '{"treadle_schedule": 2}',
           '{"treadle_schedule": 1, "structure": [{"members": 3}]}')  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_schedules_get_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Schedule.parse(text, "s.json")
    assert caught.value.code == "SCH001"
    assert "s.json" in str(caught.value)


def test_diff_of_schedules_programs_and_journals(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    schedule(
        files, "--save", files["s.json"], "-o", files["out.txt"], "--journal", files["j.jsonl"]
    )
    schedule(
        files, "--save", files["t.json"], "--policy", "inductor", "--journal", files["k.jsonl"]
    )
    capsys.readouterr()
    assert main(["diff", files["s.json"], files["s.json"]]) == 0
    assert "the same kernels" in capsys.readouterr().out
    assert main(["diff", files["program"], files["out.txt"], "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["before"]["kernels"], data["after"]["kernels"]) == (4, 1)
    assert data["kernels_only_in_b"] == [["norm_apply", "norm_scale", "softmax", "update"]]
    assert main(["diff", files["j.jsonl"], files["j.jsonl"]]) == 0
    assert "the same decisions" in capsys.readouterr().out
    assert main(["diff", files["j.jsonl"], files["s.json"]]) == 2
    assert "cannot compare a journal with a schedule" in capsys.readouterr().err


def test_why_tells_what_every_rule_said(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", files["program"], "softmax", "update", "--json"]) == 0
    story = json.loads(capsys.readouterr().out)["fusion"]
    assert story["one_kernel"]
    assert {r["rule"] for r in story["rules"]} >= {"both_are_loops", "meets_at_one_point"}
    assert all(r["ok"] for r in story["rules"])
    assert story["decided"][0]["code"] == "FUS000"
    assert main(["why", files["program"], "softmax", "update"]) == 0
    assert "one kernel: sum_max_exp_0" in capsys.readouterr().out
