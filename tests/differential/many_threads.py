"""Torch with several threads, and kernels that make use of them however short they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))

from short_nests import short_nests_are_shared


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let torch have so many threads, and share every nest that may be shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with short_nests_are_shared():
            yield
    finally:
        torch.set_num_threads(before)
