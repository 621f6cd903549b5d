"""Nests of any length shared by threads, which otherwise only long ones are worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from treadle.codegen.c import unit
from treadle.kernel import choose_cpu, row_chunks

WORTH_IT = "least = 30000.0"
"""Where threads.h says how long a part takes at least."""


@contextmanager
def short_nests_are_shared() -> Iterator[None]:
    """Share every nest that may be shared, however short it is."""
    header = unit._header

    def eager(name: str) -> str:
        text = header(name)
        assert name != "threads" or WORTH_IT in text
        return text.replace(WORTH_IT, "least = 1e-6")

    with ExitStack() as stack:
        stack.enter_context(patch.object(unit, "_header", eager))
        stack.enter_context(patch.object(choose_cpu, "LEAST_SHARED_NS", 0))
        stack.enter_context(patch.object(choose_cpu, "SHARED_BLOCK", 16))
        stack.enter_context(patch.object(row_chunks, "LEAST_SHARED", 1))
        stack.enter_context(patch.object(row_chunks, "LEAST_CHUNK", 1))
        stack.enter_context(patch.object(row_chunks, "FEWEST_ROWS", 1))
        yield
