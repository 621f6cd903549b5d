"""Printing for people and for scripts: one place decides between text and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from treadle.lab.colour import painted, wants_colour


def emit(as_json: bool, data: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print `data` as one JSON object, or `lines` as text."""
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        colour = wants_colour(sys.stdout)
        for line in lines:
            print(painted(line, colour))


def table(
    rows: Sequence[Sequence[object]], header: Sequence[str], figures: Sequence[str] = ()
) -> list[str]:
    """Rows as aligned text; numbers, and the columns named as `figures`, to the right."""
    cells = [[str(h) for h in header], *[[_cell(c) for c in row] for row in rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    right = [
        name in figures or all(isinstance(row[k], int | float) for row in rows)
        for k, name in enumerate(header)
    ]
    lines = []
    for row in cells:
        parts = [
            text.rjust(w) if r else text.ljust(w)
            for text, w, r in zip(row, widths, right, strict=True)
        ]
        lines.append("  " + "  ".join(parts).rstrip())
    return lines


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def human_bytes(n: int) -> str:
    """A byte count for people, exact below 10 KiB."""
    if n < 10 * 1024:
        return f"{n:,} B"
    size = float(n)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            return f"{size:,.2f} {unit}"
    raise AssertionError(unit)
