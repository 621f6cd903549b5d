"""Tests that use torch begin and end without compiled code, with the same random numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from ranks import Ranks


@pytest.fixture(autouse=True)
def fresh_torch() -> Iterator[None]:
    """No code that Dynamo kept, and seed 0; nothing where Dynamo is not loaded."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    torch: Any = sys.modules["torch"]
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Runs jobs of several ranks."""
    made = Ranks()
    yield made
    made.end()
