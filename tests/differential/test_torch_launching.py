"""Runs of a GPU that no recording fits are launched from C; when that is tried."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from treadle.runtime.hosts import torch_cpu
from treadle.runtime.hosts.torch_cpu import Misses

pytestmark = pytest.mark.torch
CASES = Path(__file__).with_name("launching_cases.py")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_calls_and_errors_behind_a_driver_of_our_own(tmp_path: Path) -> None:
    """Triton's interpreter stands behind the driver's launch, in a process of its own."""
    own = {"TRITON_INTERPRET": "1", "TREADLE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


class _Recorded:
    def __init__(self) -> None:
        self.replays, self.refused = 0, None


def test_python_walks_again_now_and_then_to_find_what_settled() -> None:
    steps: Any = _Recorded()
    misses = Misses([steps])
    first = [misses.one_more(2) for _ in range(torch_cpu.WALKS_AT_FIRST)]
    assert not any(first)
    later = [misses.one_more(2) for _ in range(160)]
    assert later.count(False) == 160 // torch_cpu.WALKS_EVERY
    steps.replays += 1
    assert not misses.one_more(2)


def test_what_is_never_recorded_is_launched_from_c_soon() -> None:
    steps: Any = _Recorded()
    steps.refused = "not today"
    misses = Misses([steps])
    assert [misses.one_more(2) for _ in range(5)] == [False, False, True, True, True]
