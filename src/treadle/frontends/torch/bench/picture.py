"""The answer of `treadle bench` as a picture: speed, compile time by stage, memory, errors.

One SVG, which the page carries inside; both need nothing else, and nothing is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from treadle.core.tables import Section, as_html, human_bytes
from treadle.frontends.torch.bench.asked import BenchRow
from treadle.page.html import asset

WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 130, 150, 18, 6, 34
COLOURS = (
    "#0b5cad",
    "#b35900",
    "#146c2e",
    "#7a3e9d",
    "#a4261d",
    "#5a6470",
    "#0f7b8a",
    "#8a6d00",
    "#444c56",
)
STYLE = "font: 12px system-ui, sans-serif"

Part = tuple[str, float]
Bar = tuple[str, Sequence[Part], str]
"""A row of a chart: its name, named lengths one after the other, and what stands behind."""


def svg(title: str, rows: Sequence[BenchRow]) -> str:
    """The picture by itself."""
    parts, y = [], 24
    for heading, bars in _charts(rows):
        lines, height = _chart(heading, bars, y)
        parts += lines
        y += height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" width="{WIDTH}" '
        f'height="{y + 8}" role="img" style="{STYLE}" fill="currentColor">'
    )
    words = escape(title)
    name = f'<title>{words}</title><text x="0" y="14" font-weight="bold">{words}</text>'
    return "\n".join([head, name, *parts, "</svg>"])


def page(title: str, sections: Sequence[Section], rows: Sequence[BenchRow]) -> str:
    """The picture and the tables as one page."""
    style = asset("page.css")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)} - treadle</title>"
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<style>{style}\nmain svg {{ max-width: 100%; height: auto; }}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{svg(title, rows)}{as_html(sections)}</main>"
        "</body></html>\n"
    )


def _charts(rows: Sequence[BenchRow]) -> Iterator[tuple[str, list[Bar]]]:
    yield "speed over eager (longer is better)", _bars(rows, lambda r: r.speed, _times)
    yield "milliseconds of a step", _bars(rows, lambda r: r.ms, lambda ms: f"{ms:.3g} ms")
    compiled: list[Bar] = [
        (r.backend, list(r.stages.items()) or [("total", r.compile_s)], f"{r.compile_s:.1f} s")
        for r in rows
        if r.compile_s is not None
    ]
    yield "seconds to compile, cold", compiled
    yield (
        "peak memory besides weights and inputs",
        _bars(rows, lambda r: r.peak_measured, lambda n: human_bytes(int(n))),
    )
    yield "digits lost to rounding, against f64 (relative error)", _error_bars(rows)


def _times(speed: float) -> str:
    return f"{speed:.2f} x"


def _bars(
    rows: Sequence[BenchRow],
    figure: Callable[[BenchRow], float | None],
    words: Callable[[float], str],
) -> list[Bar]:
    found: list[Bar] = []
    for row in rows:
        value = figure(row)
        if value is None:
            found.append((row.backend, [], "failed" if row.failed else "-"))
        else:
            found.append((row.backend, [("", float(value))], words(float(value))))
    return found


def _error_bars(rows: Sequence[BenchRow]) -> list[Bar]:
    """Errors by their order of magnitude: one unit for each above 1e-17."""
    found: list[Bar] = []
    for row in rows:
        if row.error is not None:
            size = max(0.0, 17 + math.log10(row.error)) if 0 < row.error < math.inf else 0.0
            found.append((row.backend, [("", size)], f"{row.error:.1e}"))
    return found


def _chart(heading: str, bars: Sequence[Bar], y: int) -> tuple[list[str], int]:
    """The lines of one chart that begins at `y`, and its height."""
    if not bars:
        return [], 0
    longest = max([sum(n for _, n in parts) for _, parts, _ in bars], default=0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / longest
    names = list(dict.fromkeys(name for _, parts, _ in bars for name, _ in parts if name))
    lines = [f'<text x="0" y="{y + 16}" font-weight="bold">{escape(heading)}</text>']
    top = y + HEAD - 8
    for k, (name, parts, words) in enumerate(bars):
        at = top + k * (BAR + GAP)
        lines.append(f'<text x="0" y="{at + 13}">{escape(name)}</text>')
        x = float(LEFT)
        for part, length in parts:
            colour = COLOURS[names.index(part) % len(COLOURS)] if part else COLOURS[0]
            tip = f"<title>{escape(part)} {length:.3g}</title>" if part else ""
            wide = max(length * scale, 0.0)
            lines.append(
                f'<rect x="{x:.1f}" y="{at}" width="{wide:.1f}" height="{BAR}" '
                f'fill="{colour}">{tip}</rect>'
            )
            x += wide
        lines.append(f'<text x="{x + 6:.1f}" y="{at + 13}">{escape(words)}</text>')
    height = HEAD + len(bars) * (BAR + GAP)
    if names:
        lines += _legend(names, y + height + 4)
        height += 18 * -(-len(names) // 4) + 6
    return lines, height


def _legend(names: Sequence[str], y: int) -> Iterator[str]:
    for k, name in enumerate(names):
        x, at = LEFT + (k % 4) * 155, y + 18 * (k // 4)
        yield f'<rect x="{x}" y="{at}" width="10" height="10" fill="{COLOURS[k % len(COLOURS)]}"/>'
        yield f'<text x="{x + 14}" y="{at + 10}" font-size="11">{escape(name)}</text>'
