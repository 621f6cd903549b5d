"""`treadle export`: programs and dumps out in the form of TorchInductor's dumps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.ir.text import parse_program, show_program
from treadle.kernel.build import with_kernels
from treadle.lab.cli import main

DUMP = Path(__file__).parents[2] / "corpus" / "inductor" / "training.0.post.txt"
PROGRAM = """treadle 1
program demo
inputs x
outputs y
donated x

buffer x : f32[8] on cpu
buffer y : f32[8] on cpu

loop first on cpu for i in 8 {
  %0 = load x[i]
  %1 = relu %0
  store y[i] = %1
}
"""


@pytest.fixture
def program_file(tmp_path: Path) -> str:
    path = tmp_path / "demo.txt"
    path.write_text(PROGRAM)
    return str(path)


def test_a_program_is_written_and_the_check_accepts_it(
    program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "dump.txt")
    assert main(["export", program_file, "-o", out]) == 0
    said = capsys.readouterr().out
    assert "1 nodes, 2 names changed, 1 things that the format cannot say" in said
    assert "not shown: that x may be reused [IND024]" in said
    assert main(["check", out]) == 0
    assert "1 of 1 loop nodes" in capsys.readouterr().out


def test_without_a_file_the_dump_goes_to_the_screen_and_notes_beside_it(
    program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", program_file, "--dialect", "2.5"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("op0: SchedulerNode(ComputedBuffer)\n")
    assert "MemoryDep('buf0', c0, {c0: 8}, None)" in shown.out
    assert "var_ranges = {z0: 8}" in shown.out
    assert shown.err == "note: not shown: that x may be reused [IND024]\n"


def test_json_holds_the_text_the_names_and_the_notes(
    program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", program_file, "--json", "--title", "BEFORE FUSION"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["names"] == {"first": "op0", "y": "buf0"}
    assert data["text"].startswith("BEFORE FUSION\nop0: ")
    assert len(data["notes"]) == 1


def test_a_dump_that_was_scheduled_again_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduled, out = str(tmp_path / "scheduled.txt"), str(tmp_path / "dump.txt")
    assert main(["schedule", str(DUMP), "-o", scheduled]) == 0
    assert main(["export", scheduled, "-o", out, "--dialect", "2.6"]) == 0
    assert main(["check", out]) == 0
    assert "fused headers" in capsys.readouterr().out


def test_a_folder_that_does_not_exist_is_refused(
    program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", program_file, "-o", str(tmp_path / "none" / "x.txt")]) == 2
    assert "a file in a folder that exists" in capsys.readouterr().err


def test_a_program_of_kernels_is_refused_with_what_to_do(
    program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = tmp_path / "built.txt"
    built.write_text(show_program(with_kernels(parse_program(Path(program_file).read_text()))))
    assert main(["export", str(built)]) == 2
    assert "IND030: a dump has no form for kernels" in capsys.readouterr().err
