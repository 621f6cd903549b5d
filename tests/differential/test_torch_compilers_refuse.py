"""A kernel that a compiler beside us refuses costs speed, not the call."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ranks import Ranks

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.torch

SCRIPT = """
import sys, warnings
import torch
import treadle.torch
from treadle.runtime.triton_builds import BuildError
from treadle.runtime.triton_kernels import TritonKernels

def refused(self):
    raise BuildError("k0 cannot be compiled for sm_90: too large")

TritonKernels.settle = refused
x = torch.randn(4, 8, requires_grad=True)
f = lambda x: torch.tanh(x).sum()
run = torch.compile(f, backend="treadle", options={"strict": sys.argv[1] == "strict"})
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        x.grad = None
        run(x).backward()
expected = 1 - torch.tanh(x) ** 2
print(torch.allclose(x.grad, expected), sum("TOR001" in str(w.message) for w in seen))
"""


def ran(how: str, folder: Path, ranks: Ranks) -> subprocess.CompletedProcess[str]:
    return ranks.script(folder, SCRIPT, how, TRITON_INTERPRET="1", TREADLE_CODE="triton")


def test_the_graph_then_runs_by_torch_with_one_warning_each(tmp_path: Path, ranks: Ranks) -> None:
    found = ran("lenient", tmp_path, ranks)
    assert found.stdout.split() == ["True", "2"], found.stderr[-2000:]


def test_who_is_strict_gets_the_error(tmp_path: Path, ranks: Ranks) -> None:
    found = ran("strict", tmp_path, ranks)
    assert found.returncode != 0
    assert "cannot be compiled" in found.stderr
    assert "too large" in found.stderr
