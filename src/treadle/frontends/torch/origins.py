"""Where a node came from: its operator and the user's line."""

from __future__ import annotations

import re
from typing import Any

LINE = re.compile(r'File "([^"]+)", line (\d+)')


def origins_of(node: Any) -> tuple[str, ...]:
    """The operator, and `file:line` of the user's code where torch knows it."""
    place = source_line(node)
    name = str(node.target)
    return (name, place) if place else (name,)


def source_line(node: Any) -> str | None:
    """The innermost line of the user's code behind a node."""
    trace = node.meta.get("stack_trace") or ""
    found = LINE.findall(trace)
    return f"{found[-1][0].rpartition('/')[2]}:{found[-1][1]}" if found else None
