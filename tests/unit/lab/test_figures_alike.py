"""Figures of different commands, and of before and after, are counted alike and named alike."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from treadle.lab.cli import main

CORPUS = Path(__file__).parents[2] / "corpus"
GPU = CORPUS / "xla" / "gpu"
COMMANDS = ("schedule", "kernels", "plan", "export")

WRITES_A_LITTLE_OF_MUCH = """treadle 1
program p
inputs x, big
outputs y

buffer big : f32[100000] on cpu
buffer x : f32[8] on cpu
buffer y : f32[8] on cpu

loop put on cpu for i in 8 {
  %0 = load x[i]
  store big[i] = %0
  store y[i] = %0
}
"""

PART = """treadle 1
program p
inputs x
outputs y

buffer x : f32[32, 16, 64] on cpu
buffer y : f32[32, 16] on cpu

launch k on cpu fused {
  nest k_nest on cpu for i in 32 reduce r in 16, s in 64 runs (a, b) {
    %0 = load x[1024*i + 64*r + s]
    %1 = reduce_part max %0 over s
    store y[16*i + r] = %1
  }
}
"""


def said(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main([*args]) != 0
    return capsys.readouterr().err


def test_operations_of_an_xla_file_are_counted_alike_before_and_after(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = GPU / "conditional_float32.gpu_after_optimizations-buffer-assignment.txt"
    data = said(capsys, "schedule", str(path))
    assert data["before"]["ops"] == data["after"]["ops"] > 0


def test_any_file_of_an_xla_dump_stands_for_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(GPU.glob("conditional_float32.*"))
    found = [said(capsys, "schedule", str(path))["after"] for path in files]
    assert len(found) == 5
    assert all(one == found[0] for one in found)
    plans = [said(capsys, "plan", str(path))["after"] for path in files]
    assert all(one == plans[0] for one in plans)


def test_one_file_of_an_xla_dump_alone_is_refused_for_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, path in enumerate(sorted(GPU.glob("conditional_float32.*"))):
        alone = tmp_path / f"{k}.txt"
        shutil.copy(path, alone)
        assert main(["check", str(alone)]) == 0
        capsys.readouterr()
        for command in COMMANDS:
            message = refused(capsys, command, str(alone))
            assert message.startswith(f"{alone}: expected allocations"), (path, command)
            assert "XLA003" in message


def test_a_memory_problem_is_not_said_to_be_no_memory_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "problem.csv"
    path.write_text("id,lower,upper,size\na,0,2,4\n", "utf-8")
    for command in ("schedule", "kernels", "export"):
        message = refused(capsys, command, str(path))
        assert "expected a file that holds a program" in message
        assert "found a file of kind minimalloc_csv" in message


@pytest.mark.parametrize("name", ["training.0.post.txt", "softmax.0.post.txt"])
def test_the_peak_is_at_a_kernel_that_is_listed(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(CORPUS / "inductor" / name)
    at = said(capsys, "schedule", path)["after"]["peak_at"]
    assert at in [row["name"] for row in said(capsys, "kernels", path)["kernels"]]
    assert said(capsys, "kernels", path, "--only", at)["kernels"][0]["name"] == at
    assert len(said(capsys, "kernels", path, "--only", at)["kernels"]) == 1


@pytest.mark.parametrize("name", ["softmax.0.pre.txt", "collectives.0.pre.txt"])
def test_plan_says_why_running_takes_less_than_its_maker_counts(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(CORPUS / "inductor" / name)
    for more in ([], ["--order"]):
        data = said(capsys, "plan", path, *more)
        less = data["after"]["total_bytes"] - data["before"]["total_bytes"]
        assert less < 0
        assert sum(data["less_because"].values()) == less
        assert data["more_because"] == {}
    assert main(["plan", path]) == 0
    assert "B less than its maker counts: " in capsys.readouterr().out


def test_kernels_are_counted_as_the_peer_counts_what_they_were_made_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text(WRITES_A_LITTLE_OF_MUCH, "utf-8")
    data = said(capsys, "schedule", str(path))
    before, after = (data[w]["counted_as_inductor"]["bytes_moved"] for w in ("before", "after"))
    assert before == after == 3 * 8 * 4


@pytest.mark.parametrize(
    "over", ["5", "i", "i + s", "2*s", "s + 1", "s // 2", "s % 8", "16*s + r", "63*r + s"]
)
def test_a_part_is_reduced_over_the_position_in_its_loops(
    over: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text(PART, "utf-8")
    assert main(["check", str(path)]) == 0
    path.write_text(PART.replace("over s", f"over {over}"), "utf-8")
    for command in ("check", "show", *COMMANDS):
        assert main([command, str(path)]) == 1
        said = capsys.readouterr()
        assert "IR013 at k_nest: %1: over" in said.out + said.err


def test_a_nest_runs_each_operation_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text(PART.replace("(a, b)", "(a, a)"), "utf-8")
    assert main(["check", str(path)]) == 1
    assert "KER003 at k: nest k_nest says twice what it runs" in capsys.readouterr().out


def test_a_line_that_differs_in_spaces_only_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text(PART.replace("    store", "  store"), "utf-8")
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "line 13 is not in standard form: spaces at its beginning or end" in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "found a JSON list"),
        ("3", "found a JSON int"),
        ('{"treadle_schedule": 1}', "found one without 'program'"),
        ('{"a": 1}', "found version None"),
    ],
)
def test_a_replay_of_another_shape_is_refused_in_plain_words(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, saved = tmp_path / "p.txt", tmp_path / "s.json"
    program.write_text(PART, "utf-8")
    saved.write_text(text, "utf-8")
    message = refused(capsys, "schedule", str(program), "--replay", str(saved))
    assert message.startswith(f"{saved}:1: expected a schedule of version 1, {words} [SCH001]")


def test_a_value_that_leaves_its_allocation_is_found_without_live_ranges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = GPU / "conditional_float32.gpu_after_optimizations-buffer-assignment.txt"
    path = tmp_path / "alone.txt"
    path.write_text(whole.read_text("utf-8").replace("offset=0)", "offset=99999999)", 1), "utf-8")
    for command in ("check", "show", *COMMANDS):
        assert main([command, str(path)]) == 1
        said = capsys.readouterr()
        assert "is outside [0, " in said.out + said.err
        assert "XLA008" in said.out + said.err


def test_what_is_missing_in_an_hlo_text_is_not_said_to_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "module.txt"
    text = (GPU / "conditional_float32.gpu_after_optimizations.txt").read_text("utf-8")
    path.write_text(text, "utf-8")
    assert main(["check", str(path)]) == 0
    assert "every operand and computation is there" in capsys.readouterr().out
    at = text.index("fusion(%") + len("fusion(")
    path.write_text(text[:at] + "%nothing, " + text[at:], "utf-8")
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "which is not there [XLA014]" in out
    assert "every operand" not in out


def test_standard_input_is_nothing_to_write_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.txt"
    path.write_text(PART, "utf-8")
    for command in ("schedule", "kernels", "plan"):
        assert "found '-', which is standard input" in refused(
            capsys, command, str(path), "-o", "-"
        )
    assert [one.name for one in tmp_path.iterdir()] == ["p.txt"]


def test_plan_says_what_the_peak_is_with_inputs_as_others_count_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text(PART, "utf-8")
    shown = said(capsys, "show", str(path))["peak_bytes"]
    assert said(capsys, "schedule", str(path))["before"]["peak_bytes"] == shown
    planned = said(capsys, "plan", str(path))
    assert planned["peak_bytes"] < shown == planned["peak_bytes_with_inputs"]
    assert main(["plan", str(path)]) == 0
    assert f"with them the peak is {shown:,}" in capsys.readouterr().out
