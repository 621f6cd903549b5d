"""Data into one HTML file that needs nothing else: style, script and data are inside."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

SCRIPTS = (
    "core.js",
    "tables.js",
    "graph.js",
    "memory.js",
    "views.js",
    "overview.js",
    "roofline.js",
    "compare.js",
    "start.js",
)
"""In the order in which they stand in the page."""


def page(data: Mapping[str, Any]) -> str:
    """The page that shows `data`; it loads nothing, and a browser would not let it."""
    title = html.escape(f"{data['title']} - treadle")
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    plain = plain.replace("<", "\\u003c")  # no text of the data can end the element it stands in
    shell = asset("shell.html")
    parts = {
        "$TITLE": title,
        "$STYLE": asset("page.css"),
        "$SCRIPT": script(),
        "$DATA": plain,
    }
    found = []
    for piece in _split(shell, list(parts)):  # once over the shell: data may hold such words
        found.append(parts.get(piece, piece))
    return "".join(found)


def data_in(text: str) -> dict[str, Any]:
    """The data of a page; a JSONDecodeError for a text that is no page."""
    _, _, rest = text.partition('<script type="application/json" id="data">')
    found = json.loads(rest.partition("</script>")[0])
    return found if isinstance(found, dict) else {}


def script() -> str:
    """The script of the page, from its files."""
    return "\n".join(asset(name) for name in SCRIPTS)


def asset(name: str) -> str:
    """A file of the page."""
    return files("treadle.page").joinpath("assets", name).read_text("utf-8")


def _split(text: str, marks: list[str]) -> list[str]:
    """The text cut into pieces, the marks by themselves."""
    pieces = [text]
    for mark in marks:
        cut: list[str] = []
        for piece in pieces:
            if piece in marks:
                cut.append(piece)
                continue
            before, found, after = piece.partition(mark)
            cut += [before, found, after] if found else [piece]
        pieces = cut
    return pieces
