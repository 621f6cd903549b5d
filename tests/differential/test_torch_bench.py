"""`treadle bench`: a user's model by several backends, and what it says about bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

torch = pytest.importorskip("torch")

from treadle.core.errors import UsageError  # noqa: E402
from treadle.frontends.torch.bench import builtin, runner, stages, steps, targets  # noqa: E402
from treadle.frontends.torch.bench.asked import Asked, BenchRow  # noqa: E402
from treadle.frontends.torch.bench.picture import page, svg  # noqa: E402
from treadle.frontends.torch.bench.worker import measured  # noqa: E402
from treadle.lab.cli import main  # noqa: E402
from treadle.lab.commands.bench import sections_of  # noqa: E402

pytestmark = pytest.mark.torch

FILE = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
example_inputs = (torch.randn(4, 8),)
scale = torch.full((8,), 2.0)


def function(x):
    return torch.softmax(model[0](x * scale).float(), -1)


def factory():
    def named(*, x, y):
        return {"sum": x + y, "product": x * y}

    return named, {"x": torch.randn(3), "y": torch.randn(3)}


def noisy(x):
    return nn.functional.dropout(model(x), 0.5)


def whole():
    return lambda x: x + 1, (torch.randn(3).double(),)


nothing = 3


def broken():
    return 1 // 0


def lonely(x):
    return x


def odd():
    return "no model"
"""


NAMED = """
import torch
from types import SimpleNamespace
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def __len__(self):
        raise TypeError("no length")

    def forward(self, x):
        h = self.layer(x)
        return SimpleNamespace(loss=h.square().mean(), scores=h)


def example_inputs():
    return {"x": torch.randn(3, 4)}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "user_model.py"
    path.write_text(FILE)
    return path


def asked(target: str, *backends: str, **more: Any) -> Asked:
    return Asked(target, backends, rounds=2, **more)


def test_a_users_model_by_two_backends_and_one_that_there_is_not(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = file.with_name("out.html")
    words = ["bench", f"{file}:model", "--backends", "eager,treadle,no_such", "--train"]
    assert main([*words, "--rounds", "3", "--json", "-o", str(out)]) == 0
    data = json.loads(capsys.readouterr().out)
    eager, ours, other = data["rows"]
    assert [row["backend"] for row in data["rows"]] == ["eager", "treadle", "no_such"]
    assert "no_such" in other["failed"]
    assert (eager["failed"], ours["failed"]) == (None, None)
    assert 0 < ours["error"] < 1e-5
    assert ours["eager_error"] == eager["error"]
    assert ours["error_to_eager"] < 1e-5
    assert set(ours["stages"]) == set(stages.STAGES), "a step of compiling has another name"
    assert sum(ours["stages"].values()) > ours["compile_s"] * 0.5
    assert (ours["rounds"], ours["notes"]) == (3, [])
    assert ours["low_ms"] <= ours["ms"] <= ours["high_ms"]
    assert ours["speed"] == pytest.approx(ours["eager_ms"] / ours["ms"])
    # What the caller keeps of the forward pass is no part of the plan: the result, 64 bytes.
    assert 0 <= ours["peak_measured"] - ours["peak_predicted"] <= 64
    text = out.read_text()
    assert "<script" not in text
    assert "http-equiv" in text
    assert all(name in text for name in ("treadle", "no_such", "AOTAutograd", "C compiler"))


def test_a_model_that_has_no_length_and_names_its_loss_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "named.py"
    path.write_text(NAMED)
    row = measured(asked(f"{path}:Model", "aot_eager", train=True, dynamic=True))
    assert row.failed is None
    assert row.error is not None
    assert row.error < 1e-5


@pytest.mark.parametrize("name", ["model", "function", "factory"])
def test_the_reference_runs_in_f64_whatever_the_function_asks_for(file: Path, name: str) -> None:
    target = targets.load_target(f"{file}:{name}", "cpu", None)
    wide = targets.in_double(target)
    with targets.AllDouble():
        made = steps.tensors_in(wide.call(*wide.args, **wide.kwargs))
    assert {x.dtype for x in made} == {torch.float64}
    assert torch.get_default_dtype() is torch.float32
    plain = steps.tensors_in(target.call(*target.args, **target.kwargs))
    assert {x.dtype for x in plain} == {torch.float32}
    for a, b in zip(plain, made, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_weights_and_inputs_are_of_the_type_asked_for(file: Path) -> None:
    target = targets.load_target(f"{file}:model", "cpu", "bfloat16")
    assert {p.dtype for m in target.modules() for p in m.parameters()} == {torch.bfloat16}
    assert target.args[0].dtype is torch.bfloat16


def test_random_numbers_are_not_compared(file: Path) -> None:
    row = measured(asked(f"{file}:noisy", "eager"))
    assert row.failed is None
    assert row.error is None
    assert any("random" in note for note in row.notes)


def test_an_error_is_relative_and_never_hides_what_is_no_number() -> None:
    a = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert steps.error_between([a * 1.01], [a]) == pytest.approx(0.01, rel=1e-3)
    nan = torch.tensor([3.0, float("nan")], dtype=torch.float64)
    assert steps.error_between([nan], [a]) == float("inf")
    assert steps.error_between([nan], [nan]) == 0.0
    assert steps.error_between([a], [a, a]) == float("inf")
    zero = torch.full((2,), 1e-9, dtype=torch.float64)
    assert steps.error_between([a, zero * 3], [a, zero]) < 1e-5, "noise beside numbers"
    assert steps.error_between([zero * 3], [zero]) == pytest.approx(2.0)
    assert steps.error_between([a[:1]], [a]) == float("inf")


@pytest.mark.parametrize(
    "words, said",
    [
        (["no_model"], "is no built-in model"),
        (["missing.py:model"], "missing.py: no such file"),
        (["{file}:"], "expected file.py:name"),
        (["{file}:modle"], "did you mean: model"),
        (["{file}:nothing"], "expected a model or function"),
        (["{file}:broken"], "user_model.py:33: ZeroDivisionError"),
        (["{file}:odd"], "gives str; expected (model or function, inputs)"),
        (["mlp", "--backends", ","], "--backends"),
        (["mlp", "--rounds", "0"], "--rounds"),
        (["{file}:model", "-o", "{file}"], "would overwrite"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def here(one: Asked, backend: str) -> BenchRow:
        try:
            return measured(one)
        except targets.TargetError as e:
            raise UsageError(e.message, notes=e.notes) from e

    monkeypatch.setattr(runner, "_in_a_process", here)
    given = [word.replace("{file}", str(file)) for word in words]
    assert main(["bench", *given]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_file_that_cannot_be_loaded_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import torch\n\nx = torch.ones(2) @ torch.ones(3)\n")
    with pytest.raises(targets.TargetError, match=r"bad\.py:3: RuntimeError"):
        targets.load_target(f"{path}:x", "cpu", None)
    path.write_text("def f(:\n")
    with pytest.raises(targets.TargetError, match=r"bad\.py:1: SyntaxError"):
        targets.load_target(f"{path}:f", "cpu", None)


def test_a_process_that_dies_or_hangs_is_a_row_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "dies.py"
    path.write_text("import os\nos._exit(7)\n")
    (row,) = runner.bench(asked(f"{path}:model", "eager"))
    assert "exit code 7" in str(row.failed)
    path.write_text("import time\ntime.sleep(60)\n")
    (row,) = runner.bench(asked(f"{path}:model", "eager", timeout=1))
    assert row.failed == "it took longer than 1 s"


def test_the_built_in_models_are_those_that_are_named() -> None:
    assert sorted(builtin.MODELS) == sorted(runner.BUILTIN)
    for name in builtin.MODELS:
        target = targets.load_target(name, "cpu", None)
        (made, *_) = steps.ModelStep(target, train=True).results()
        assert bool(made.isfinite().all())


def test_the_picture_is_well_formed_and_has_every_backend() -> None:
    rows = [
        BenchRow("eager", ms=2.0, speed=1.0, error=1e-7, peak_measured=4096),
        BenchRow("a<b>", ms=1.0, speed=2.0, compile_s=1.5, stages={"Dynamo": 0.5, "x & y": 1.0}),
        BenchRow("gone", failed='it said "no" & <left>'),
    ]
    root = ElementTree.fromstring(svg("one & two", rows))
    texts = [element.text for element in root.iter() if element.text]
    assert {"eager", "a<b>", "gone", "2.00 x", "x & y", "failed"} <= set(texts)
    whole = page("one & two", list(sections_of(rows)), rows)
    assert "&lt;left&gt;" in whole
    assert "<left>" not in whole
