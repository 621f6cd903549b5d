"""Steps of ours that torch carries out while it captures a graph, and which of them failed.

torch calls decompositions and the division of a graph on its own account. If capturing then fails,
whose error it is decides what the user is told: torch cannot take the graph, or we have a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OwnSteps:
    """Remembers the error that left a step of ours last, and what the step was doing."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._doing = ""

    def watched(self, doing: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which is a step of ours; `doing` says what for, as a noun."""

        def step(*args: Any, **rest: Any) -> Any:
            try:
                return function(*args, **rest)
            except Exception as e:
                if e is not self._error:  # the innermost step that it leaves is the one to name
                    self._error, self._doing = e, doing
                raise

        return step

    def behind(self, error: BaseException | None) -> str | None:
        """What a step of ours was doing, if this error is its, or one that torch made of it."""
        while error is not None:
            if error is self._error:
                return self._doing
            error = error.__cause__ or error.__context__
        return None
