"""`flex_attention` in kernels of ours is eager's, as far as Triton's interpreter can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]
SCRIPT = Path(__file__).with_name("flex_cases.py")


def follow(tmp_path: Path, *arguments: str) -> None:
    """Run the script where Triton interprets; it must find nothing wrong."""
    own = {"TRITON_INTERPRET": "1", "TREADLE_CODE": "triton", "TREADLE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_functions_masks_and_lengths_give_eagers_results_and_gradients_or_a_reason(
    tmp_path: Path,
) -> None:
    follow(tmp_path, "--fuzz", "4", "--share", "0/2")


@pytest.mark.exhaustive
def test_the_others_and_random_ones_do_so_too(tmp_path: Path) -> None:
    follow(tmp_path, "--fuzz", "20")
