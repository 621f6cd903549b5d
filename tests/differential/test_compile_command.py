"""`treadle compile module.py:model`: models become packages, everything else one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402
from treadle.lab.cli import main  # noqa: E402

pytestmark = pytest.mark.torch

MODULE = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
example_inputs = (torch.ones(2, 6),)
number = 3


class Needs(nn.Module):
    def __init__(self, width):
        super().__init__()


class Doubles(nn.Module):
    def forward(self, x, *, scale=2.0):
        return x * scale


def loops(x):
    while x.sum() > 0:
        x = x - 1
    return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module, which is where we are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "module.py").write_text(MODULE)
    return tmp_path


def test_a_model_of_a_file_becomes_a_package(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "module.py:model", "--dynamic", "0:0=batch[1..32]"]) == 0
    said = capsys.readouterr().out
    assert "input input : f32[batch, 6]" in said
    assert "size batch: 1 to 32" in said
    loaded = treadle.load_package("model.treadle")
    found = loaded(np.ones((3, 6), np.float32))
    again = loaded(torch.ones(3, 6))
    assert np.allclose(found, again.numpy())
    assert (folder / "model.treadle" / "model.h").exists()
    assert main(["run", "model.treadle", "--random", "0", "--size", "batch=5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["shape"] == [5, 4]


def test_a_class_and_a_function_with_inputs_from_the_command_line(folder: Path) -> None:
    words = ["compile", "module.py:Doubles", "--inputs", "f32[2, 3]", "-o", "d.zip", "--name", "d"]
    assert main(words) == 0
    x = np.ones((2, 3), np.float32)
    assert (treadle.load_package("d.zip")(x) == 2).all()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (["module.py:modle"], "PKG005: module.py has no 'modle'"),
        (["module.py:number"], "PKG005: module.py: 'number' is a int"),
        (["module.py:Needs"], "PKG005: module.py: Needs() raised TypeError"),
        (["module.py"], "PKG005: which model of module.py?"),
        (["none.py:model"], "none.py: expected a Python file, found none [PKG005]"),
        (["bad.py:model"], "bad.py:2: expected Python, found invalid syntax [PKG005]"),
        (["raises.py:model"], "PKG005: raises.py:1: its import raised ZeroDivisionError"),
        (["ends.py:model"], "PKG005: ends.py:1: its import raised SystemExit"),
        (["bare.py:model"], "PKG005: bare.py has no example_inputs"),
        (["odd.py:model"], "PKG005: odd.py: example_inputs is a int"),
        (["module.py:loops", "--inputs", "f32[3]"], "PKG005: torch.export cannot take the model"),
        (["module.py:model", "--inputs", "f32[3,7]"], "PKG005: torch.export cannot take"),
        (["module.py:model", "--inputs", "f32[3"], "OPT002: --inputs cannot be 'f32[3'"),
        (["module.py:model", "--dynamic", "7:0=n"], "OPT002: there is no input 7"),
        (["module.py:model", "--dynamic", "0:5=n"], "OPT002: input 'input' has no dimension 5"),
        (["module.py:model", "--dynamic", "0:1=n"], "PKG005: torch.export cannot take"),
        (["module.py:model", "--target", "triton"], "OPT002: a model becomes a package in C"),
        (["module.py:model", "-o", "module.py"], "TXT003: module.py is there already"),
        (["module.py:model", "-o", "none/x"], "none/x: expected a file in a folder that exists"),
        (["none.pt2"], "none.pt2: expected a file of torch.export, found none [PKG005]"),
        (["broken.pt2"], "broken.pt2: expected a program that torch.export.save wrote"),
        (["none.txt"], "none.txt"),
        (["module.py:model", "-o", ".", "--force"], "TXT003: . is a folder that is no package"),
    ],
)
def test_everything_else_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], what: list[str], said: str
) -> None:
    (folder / "bad.py").write_text("x = 1\ndef (:\n")
    (folder / "raises.py").write_text("model = 1 / 0\n")
    (folder / "ends.py").write_text("raise SystemExit(0)\n")
    (folder / "bare.py").write_text("def model(x):\n    return x\n")
    (folder / "odd.py").write_text("example_inputs = 3\ndef model(x):\n    return x\n")
    (folder / "broken.pt2").write_bytes(b"PK\x03\x04")
    before = sorted(os.listdir(folder))
    assert main(["compile", *what]) == 2
    err = capsys.readouterr().err
    assert err.startswith(said) or said in err.splitlines()[0]
    assert "Traceback" not in err
    assert [name for name in sorted(os.listdir(folder)) if name != "__pycache__"] == before
