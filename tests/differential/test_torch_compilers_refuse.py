"""A kernel that a compiler beside us refuses costs speed, not the call."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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


def ran(how: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"TRITON_INTERPRET": "1", "TREADLE_CODE": "triton"}
    command = [sys.executable, "-c", SCRIPT, how]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_the_graph_then_runs_by_torch_with_one_warning_each():
    found = ran("lenient")
    assert found.stdout.split() == ["True", "2"], found.stderr[-2000:]


def test_who_is_strict_gets_the_error():
    found = ran("strict")
    assert found.returncode != 0
    assert "cannot be compiled" in found.stderr
    assert "too large" in found.stderr
