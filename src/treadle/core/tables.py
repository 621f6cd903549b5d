"""Tables for people: aligned text for terminals, HTML for notebooks, from the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?(?: ?(?:B|[KMGT]iB|us|ms|s|%|x))?")
"""What is a figure though it is text: 1.50 KiB, 52%, 2.10 x."""


class HeaderLine(str):
    """The names of columns above a table: who prints it may set it off from the rows."""

    __slots__ = ()


def table(
    rows: Sequence[Sequence[object]], header: Sequence[str], figures: Sequence[str] = ()
) -> list[str]:
    """Rows as aligned text; columns of numbers, and those named as `figures`, to the right."""
    cells = [[str(h) for h in header], *[[_cell(c) for c in row] for row in rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    right = _right(rows, header, figures)
    lines = []
    for row in cells:
        parts = [
            text.rjust(w) if r else text.ljust(w)
            for text, w, r in zip(row, widths, right, strict=True)
        ]
        lines.append("  " + "  ".join(parts).rstrip())
    return [HeaderLine(lines[0]), *lines[1:]]


def _right(
    rows: Sequence[Sequence[object]], header: Sequence[str], figures: Sequence[str]
) -> list[bool]:
    return [
        name in figures or _are_figures([row[k] for row in rows]) for k, name in enumerate(header)
    ]


def _are_figures(cells: Sequence[object]) -> bool:
    """Whether a column is one of numbers: most of what stands in it is."""
    filled = [c for c in cells if c not in (None, "", "-")]
    numbers = sum(_is_figure(c) for c in filled)
    return 2 * numbers > len(filled) or not cells


def _is_figure(cell: object) -> bool:
    if isinstance(cell, str):
        return NUMBER.fullmatch(cell) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


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


def human_time(us: float) -> str:
    """Microseconds for people, to four digits."""
    unit, size = (
        ("s", us / 1e6) if abs(us) >= 1e6 else ("ms", us / 1e3) if abs(us) >= 1e3 else ("us", us)
    )
    return f"{float(f'{size:.4g}'):,.12g} {unit}"


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a page with the sentence above it; without rows only the sentence."""

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    figures: tuple[str, ...] = field(default=())
    """Columns of text that are numbers in truth, and stand to the right."""


def as_text(sections: Iterable[Section]) -> str:
    """The page as text."""
    return "\n".join(text_lines(sections))


def text_lines(sections: Iterable[Section]) -> Iterator[str]:
    """The page as text, line by line."""
    for section in sections:
        yield section.title
        if section.rows:
            yield from table(section.rows, section.header, section.figures)


def as_html(sections: Iterable[Section]) -> str:
    """The page as HTML, without styles of its own beyond the side figures stand on."""
    parts = ["<div>"]
    for section in sections:
        parts.append(f"<p>{escape(section.title)}</p>")
        if section.rows:
            parts.append(_html_table(section))
    return "".join([*parts, "</div>"])


def _html_table(section: Section) -> str:
    sides = [
        ' style="text-align: right"' if right else ' style="text-align: left"'
        for right in _right(section.rows, section.header, section.figures)
    ]
    head = "".join(f"<th{s}>{escape(h)}</th>" for s, h in zip(sides, section.header, strict=True))
    body = [
        "".join(f"<td{s}>{escape(_cell(c))}</td>" for s, c in zip(sides, row, strict=True))
        for row in section.rows
    ]
    rows = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
