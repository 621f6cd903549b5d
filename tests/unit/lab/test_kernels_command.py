"""`treadle kernels`: the same bytes as `schedule`, one kernel in full, a target that counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.core.suggest import suggestion_notes
from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import main

CORPUS = Path(__file__).parents[2] / "corpus" / "inductor"
DUMPS = sorted(CORPUS.glob("*.post.txt"))
SEEDS = sorted((Path(__file__).parents[4] / "shared" / "seeds").glob("00[0-3]_*.txt"))
KEYS = {"name", "kind", "ops", "nests", "bytes_loaded", "bytes_stored", "predicted_us"}


def data_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("path", [*DUMPS, *SEEDS], ids=lambda p: p.stem)
def test_kernels_move_the_bytes_that_schedule_reports(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = data_of(capsys, "kernels", str(path))
    after = data_of(capsys, "schedule", str(path))["after"]
    assert shown["totals"]["bytes_moved"] == after["bytes_moved"]
    assert shown["totals"]["kernels"] == len(shown["kernels"]) == after["kernels"]
    for row in shown["kernels"]:
        assert set(row) == KEYS
    rows = shown["kernels"]
    assert shown["totals"]["bytes_moved"] == sum(
        r["bytes_loaded"] + r["bytes_stored"] for r in rows
    )
    if not shown["kept_given"]:
        # What was fused is one nest: nothing that counts as internal lies in memory.
        assert {r["nests"] for r in rows if r["kind"] in ("loop", "fused")} <= {1}


def test_one_kernel_is_shown_with_its_body(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(next(p for p in DUMPS if p.name.startswith("softmax")))
    (row, *_) = data_of(capsys, "kernels", path)["kernels"]
    assert main(["kernels", path, "--only", row["name"]]) == 0
    text = capsys.readouterr().out
    assert f"launch {row['name']} on " in text
    assert main(["kernels", path, "--only", "nobody"]) == 2
    assert "there is no kernel 'nobody'" in capsys.readouterr().err


def test_a_mistyped_name_among_many_is_answered_in_short() -> None:
    known = [f"kernel_{k:03d}" for k in range(200)]
    close, listed = suggestion_notes("kernl_007", known, "kernels")
    assert close.startswith("did you mean: kernel_")
    assert listed.endswith("kernel_039 and 160 more")


def test_the_target_decides_the_time_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(CORPUS / "gpu_loops_split_again.txt")
    times = {
        t: data_of(capsys, "kernels", path, "--target", t)["totals"]["predicted_us"]
        for t in ("a100", "h200")
    }
    assert times["a100"] > times["h200"]
    assert main(["kernels", path, "--target", "h2000"]) == 2
    assert "unknown target 'h2000'" in capsys.readouterr().err


def test_the_program_of_kernels_is_written_and_reads_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "built.txt"
    path = str(next(p for p in DUMPS if p.name.startswith("softmax")))
    assert main(["kernels", path, "-o", str(out)]) == 0
    text = out.read_text()
    assert "launch " in text
    assert show_program(parse_program(text)) == text
    assert main(["check", str(out)]) == 0


SOFTMAX = """treadle 1
program graph
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[64, 512] on cpu
buffer y : f32[64, 512] on cpu

loop soft on cpu for i0 in 64 reduce r0 in 512 {
  %0 = load x[512*i0 + r0]
  %1 = reduce max %0
  %2 = sub %0, %1
  %3 = exp %2
  %4 = reduce sum %3
  %5 = truediv %3, %4
  store y[512*i0 + r0] = %5
}
"""
SORTED = """treadle 1
program sorted
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[64, 16] on cpu
buffer y : f32[64, 16] on cpu

loop order on cpu for i0 in 64 reduce r0 in 16 {
  %0 = load x[16*i0 + r0]
  %1 = sort %0
  store y[16*i0 + r0] = %1
}
"""


@pytest.fixture
def softmax(tmp_path: Path) -> str:
    path = tmp_path / "softmax.txt"
    path.write_text(SOFTMAX)
    return str(path)


def test_the_target_chooses_the_loop_schedules(
    softmax: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = data_of(capsys, "kernels", softmax)
    (steps,) = here["schedules"].values()
    assert "bind r0 to vector" in steps
    there = data_of(capsys, "kernels", softmax, "--target", "h200")
    (steps,) = there["schedules"].values()
    assert "bind i0 to grid" in steps
    assert any(step.startswith("bind r0") and step.endswith("tile") for step in steps)
    assert there["totals"]["bytes_moved"] == here["totals"]["bytes_moved"]
    assert there["totals"]["predicted_us"] != here["totals"]["predicted_us"]
    out = str(tmp_path / "out.txt")
    assert main(["kernels", softmax, "--target", "h200", "-o", out]) == 0
    assert "bind i0 to grid" in capsys.readouterr().out
    # And back: a program for a GPU, asked about on a CPU.
    back = data_of(capsys, "kernels", softmax, "--target", "cpu")
    assert back["schedules"] == here["schedules"]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("c", ["#pragma omp simd", "int treadle_run("]),
        ("triton", ["import triton", "tl.program_id"]),
        ("plan", ["launch plan graph", "launch k0_soft(x, y)"]),
    ],
)
def test_what_becomes_of_the_kernels_is_printed(
    softmax: str, form: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels", softmax, "--emit", form]) == 0
    text = capsys.readouterr().out
    for word in words:
        assert word in text
    assert data_of(capsys, "kernels", softmax, "--emit", form)["text"].strip() == text.strip()


def test_one_kernel_is_emitted(softmax: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", softmax, "--emit", "c", "--only", "soft"]) == 0
    text = capsys.readouterr().out
    assert "k0_soft(" in text
    assert "treadle_run" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--emit", "c", "--target", "h200"], "C is written for the CPU, not for h200"),
        (["--emit", "triton", "--target", "cpu"], "Triton is written for a GPU"),
        (["--emit", "plan", "--only", "soft"], "a launch plan is of all kernels"),
        (["--emit", "c", "--only", "nobody"], "there is no kernel 'nobody'"),
    ],
)
def test_what_cannot_be_emitted_is_one_line(
    softmax: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels", softmax, *words]) == 2
    assert message in capsys.readouterr().err


def test_kernels_that_have_no_form_there_are_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sorted.txt"
    path.write_text(SORTED)
    assert main(["kernels", str(path), "--emit", "triton"]) == 2
    error = capsys.readouterr().err
    assert "the kernels of sorted cannot be written as triton" in error
    assert "Traceback" not in error
    assert main(["kernels", str(path), "--emit", "c"]) == 0
