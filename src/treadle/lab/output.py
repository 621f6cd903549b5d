"""Printing for people and for scripts: one place decides between text and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

from treadle.core.tables import human_bytes, table
from treadle.lab.colour import painted, wants_colour

__all__ = ["emit", "human_bytes", "table"]


def emit(as_json: bool, data: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print `data` as one JSON object, or `lines` as text."""
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        colour = wants_colour(sys.stdout)
        for line in lines:
            print(painted(line, colour))
