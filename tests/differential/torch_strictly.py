"""Functions through the backend, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

Function: TypeAlias = Callable[..., Any]


def compiled(function: Function, **rest: Any) -> Function:
    """The function through the backend; a failure to compile is an error, not a fallback."""
    options = {"strict": True}
    made: Function = torch.compile(function, backend="treadle", options=options, **rest)
    return made
