"""Who does the inner loops: compiled code where possible, Python otherwise, with equal results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treadle.core.options import Options
from treadle.memory import fits, search_python
from treadle.memory.line import Line
from treadle.memory.native import Native, native_line
from treadle.memory.search_python import Way


class Engine(Protocol):
    """The two inner loops of the planner, for one line."""

    def fit(
        self, order: Sequence[int], *, best: bool, seconds: float | None = None
    ) -> list[int] | None:
        """Addresses when items are placed in this order, or None; see `fits.fit`."""
        ...

    def search(
        self, way: Way, trouble: list[int], *, limit: int, nodes: int, seconds: float | None = None
    ) -> tuple[int, int, list[int]]:
        """(status, nodes visited, addresses); see `search_python.search`."""
        ...


class PythonEngine:
    """The inner loops in Python."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def fit(
        self, order: Sequence[int], *, best: bool, seconds: float | None = None
    ) -> list[int] | None:
        """Addresses when items are placed in this order, or None."""
        return fits.fit(self._line, order, best=best, seconds=seconds)

    def search(
        self, way: Way, trouble: list[int], *, limit: int, nodes: int, seconds: float | None = None
    ) -> tuple[int, int, list[int]]:
        """(status, nodes visited, addresses)."""
        return search_python.search(
            self._line, way, trouble, limit=limit, nodes=nodes, seconds=seconds
        )


FEW_ITEMS = 64
FEW_NODES = 200
"""Less work than this is done in Python before the compiled code would be loaded."""


class LazyEngine:
    """Python for a little work, compiled code from the first request for more."""

    def __init__(self, line: Line, options: Options) -> None:
        self._line, self._options = line, options
        self._python = PythonEngine(line)
        self._fast: Engine | None = None
        self._visited = 0

    def _for(self, is_little: bool) -> Engine:
        if self._fast is None and is_little:
            return self._python
        if self._fast is None:
            self._fast = engine_for(self._line, self._options)
        return self._fast

    def fit(
        self, order: Sequence[int], *, best: bool, seconds: float | None = None
    ) -> list[int] | None:
        """Addresses when items are placed in this order, or None."""
        engine = self._for(len(order) <= FEW_ITEMS)
        return engine.fit(order, best=best, seconds=seconds)

    def search(
        self, way: Way, trouble: list[int], *, limit: int, nodes: int, seconds: float | None = None
    ) -> tuple[int, int, list[int]]:
        """(status, nodes visited, addresses)."""
        few = len(self._line.items) <= FEW_ITEMS and self._visited + nodes <= FEW_NODES
        engine = self._for(few)
        found = engine.search(way, trouble, limit=limit, nodes=nodes, seconds=seconds)
        self._visited += found[1]
        return found


def engine_for(line: Line, options: Options) -> Engine:
    """The fastest engine there is for the line."""
    native = native_line(line, options)
    return native if isinstance(native, Native) else PythonEngine(line)
