"""Printing for people and for scripts: one place decides between text and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

from treadle.core.tables import HeaderLine, human_bytes, table
from treadle.lab.colour import BOLD, PLAIN, painted, wants_colour

__all__ = ["complain", "emit", "human_bytes", "table"]


def emit(as_json: bool, data: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print `data` as one JSON object, or `lines` as text."""
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        colour = wants_colour(sys.stdout)
        for line in lines:
            shown = f"{BOLD}{line}{PLAIN}" if colour and isinstance(line, HeaderLine) else line
            print(painted(shown, colour))


def complain(text: str) -> None:
    """Print a note or a warning where errors go, in colours if a person looks there."""
    print(painted(text, wants_colour(sys.stderr)), file=sys.stderr)
