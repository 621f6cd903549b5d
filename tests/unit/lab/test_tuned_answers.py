"""What was measured about schedules is shown, handed on as a file, and used ahead of time."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from treadle.analysis.cost import cost_model
from treadle.core.options import Options
from treadle.lab.cli import main
from treadle.lab.compiling import scheduled_file, tuned_program
from treadle.runtime.triton_builds import triton_version
from treadle.runtime.tuning.answers import TunedAnswer, all_kept, answers_kept, as_file, put
from treadle.runtime.tuning.questions import questions_of

ONE = TunedAnswer("k", "A", "sm_90", "3", "n", ("a", "b"), (1.0, 1.0), (2.0, 1.0), 1)
LARGE = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[8192, 4096] on cuda:0
buffer y : f32[8192, 4096] on cuda:0

loop softplus on cuda:0 for i in 33554432 {
  %0 = load x[i]
  %1 = exp %0
  %2 = add %1, %0
  store y[i] = %2
}
"""


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    return Options.from_env()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["cache", *words])
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def test_answers_are_shown_handed_on_and_thrown_away(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (ONE, replace(ONE, gpu="B")):
        put(answers_kept(options), one)
    assert "measured  2 kinds of GPU kernels on A, B" in said(capsys)[1]
    assert len(json.loads(said(capsys, "--json")[1])["tuned"]) == 2
    file = tmp_path / "tuned.json"
    assert said(capsys, "export", str(file), "--gpu", "B") == (
        0,
        f"wrote {file}: 1 kind of GPU kernel\n",
    )
    assert "removed 2 kinds of GPU kernels" in said(capsys, "clear")[1]
    assert all_kept(options) == []
    read = f"read {file}: 1 kind of GPU kernel, "
    assert said(capsys, "import", str(file)) == (0, f"{read}1 of them new\n")
    assert said(capsys, "import", str(file)) == (0, f"{read}0 of them new\n")
    assert all_kept(options) == [replace(ONE, gpu="B")]


def test_export_replaces_no_file_and_writes_no_empty_one(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuned.json"
    status, text = said(capsys, "export", str(file))
    assert (status, "nothing was measured yet" in text, file.exists()) == (2, True, False)
    put(answers_kept(options), ONE)
    file.write_text("mine")
    status, text = said(capsys, "export", str(file))
    assert (status, "is there already" in text, file.read_text()) == (2, True, "mine")
    assert said(capsys, "export", str(file), "--force")[0] == 0
    status, text = said(capsys, "export", str(tmp_path / "b.json"), "--gpu", "C")
    assert (status, "nothing was measured about C yet" in text) == (2, True)


@pytest.mark.parametrize("words", [("export",), ("show", "file"), ("clear", "--gpu", "A")])
def test_arguments_that_do_not_fit_are_refused(
    words: tuple[str, ...], options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, *words)[0] == 2


def test_a_damaged_file_is_one_line_and_nothing_is_imported(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(as_file([ONE]).replace('"chosen": 1', '"chosen": 0'))
    status, text = said(capsys, "import", str(file))
    expected = "expected answers as they were written, found others: their sum differs"
    assert (status, f"{file}: {expected} [TUN002]" in text) == (2, True)
    assert all_kept(options) == []
    assert said(capsys, "import", str(tmp_path / "none.json"))[0] == 2


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_a_file_decides_what_is_compiled_for_a_device_that_is_not_here(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file = tmp_path / "p.txt", tmp_path / "tuned.json"
    source.write_text(LARGE)
    program, own = scheduled_file(str(source), "triton", None)
    (question,) = questions_of(program, cost_model(program, own))
    steps = tuple([c.text for c in question.candidates])
    times = tuple([1.0] * len(steps))
    kind = question.key, "NVIDIA H200", "sm_90", triton_version(), "softplus"
    answer = TunedAnswer(*kind, steps, times, times, 1)
    file.write_text(as_file([answer]))
    own = own.with_(tuned=str(file))
    assert _schedule(tuned_program(program, own, ["sm_90"])) == steps[1]
    assert _schedule(tuned_program(program, own, ["sm_100"])) == steps[0]
    monkeypatch.setenv("TREADLE_TUNED", str(file))
    compile_it = ["compile", str(source), "--target", "triton", "-o", str(tmp_path / "out")]
    assert main([*compile_it, "--arch", "sm_90", "--arch", "sm_100"]) == 2
    file.write_text("no answers")
    assert main([*compile_it, "--arch", "sm_90"]) == 2
    assert not (tmp_path / "out").exists()


def _schedule(program: object) -> str:
    (nest,) = program.ops[0].members  # type: ignore[attr-defined]
    return ", ".join([str(step) for step in nest.schedule])


def test_one_kernel_is_shown_with_what_a_device_decides_between(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "p.txt"
    source.write_text(LARGE)
    assert main(["kernels", str(source), "--target", "h200", "--only", "softplus"]) == 0
    shown = capsys.readouterr().out
    assert "a GPU decides between these (TUN001)" in shown
    assert shown.count("us predicted: split i by") >= 2
