"""Plans as one self-contained SVG: time x address for each pool, and the curve of live bytes.

Hover over a block for its name, size, life and place. Colours follow from names, so the same
plan always gives the same picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from zlib import crc32

from treadle.memory.draw import live_curve, pools_drawn, time_range
from treadle.memory.problem import ARENA, Block, Place, Plan, Problem

WIDTH, MAP_HEIGHT, HOST_HEIGHT, CURVE_HEIGHT = 1000, 420, 120, 140
LEFT, RIGHT, TITLE, GAP = 110, 20, 24, 22
STYLE = (
    "text{font:12px sans-serif;fill:#333}.b{stroke:#fff;stroke-width:.4}"
    ".b:hover{stroke:#000;stroke-width:1.5}.axis{stroke:#999;fill:none}"
    ".n{font-size:10px;pointer-events:none;fill:#222}"
)


def plan_svg(problem: Problem, plan: Plan, lower_bound: int, title: str | None = None) -> str:
    """The whole picture: a map for each pool in use, then the curve with the lower bound."""
    body: list[str] = []
    top = GAP + 10
    head = f"{title or problem.name}: {len(problem.blocks)} blocks, arena {plan.height:,} bytes,"
    body.append(_text(LEFT, 20, f"{head} lower bound {lower_bound:,}"))
    for pool, size in pools_drawn(problem, plan):
        height = MAP_HEIGHT if pool == ARENA else HOST_HEIGHT
        body += _map(problem, plan, pool, size, top, height)
        top += TITLE + height + GAP
    body += _curve(problem, plan, lower_bound, top)
    top += TITLE + CURVE_HEIGHT + 2 * GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}"'
        f' width="{WIDTH}" height="{top}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _map(
    problem: Problem, plan: Plan, pool: str, size: int, top: int, height: int
) -> Iterator[str]:
    start, end = time_range(problem)
    across = (WIDTH - LEFT - RIGHT) / (end - start)
    up = height / size
    floor = top + TITLE + height
    yield _text(LEFT, top + 16, f"{pool}: {size:,} bytes")
    yield _frame(top + TITLE, height)
    yield from (
        _text(LEFT - 6, floor - size * k / 4 * up + 4, f"{size * k // 4:,}", "end")
        for k in range(5)
    )
    for block in problem.blocks:
        place = plan.placements[block.name]
        if place.pool != pool or not block.size:
            continue
        tip = escape(_about(block, place))
        colour = _colour(block.group or block.name)
        y, h = floor - (place.offset + block.size) * up, block.size * up
        for low, high in block.spans:
            x, w = LEFT + (low - start) * across, (high - low) * across
            yield (
                f'<rect class="b" x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}"'
                f' fill="{colour}"><title>{tip}</title></rect>'
            )
            if h >= 11 and w >= 7 * len(block.name):
                yield f'<text class="n" x="{x + 3:.2f}" y="{y + h / 2 + 4:.2f}">' + (
                    f"{escape(block.name)}</text>"
                )


def _curve(problem: Problem, plan: Plan, lower_bound: int, top: int) -> Iterator[str]:
    start, end = time_range(problem)
    across = (WIDTH - LEFT - RIGHT) / (end - start)
    whole = max(plan.height, lower_bound, 1)
    up = CURVE_HEIGHT / whole
    floor = top + TITLE + CURVE_HEIGHT
    yield _text(LEFT, top + 16, "live bytes in the arena")
    yield _frame(top + TITLE, CURVE_HEIGHT)
    curve = live_curve(problem, plan, ARENA)
    points, level = [f"{LEFT},{floor}"], float(floor)
    for time, value in zip(curve.times, curve.values, strict=True):
        x = LEFT + (time - start) * across
        points.append(f"{x:.2f},{level:.2f}")
        level = floor - value * up
        points.append(f"{x:.2f},{level:.2f}")
    points += [f"{WIDTH - RIGHT},{level:.2f}", f"{WIDTH - RIGHT},{floor}"]
    yield f'<polygon points="{" ".join(points)}" fill="#9ecae1" stroke="#3182bd"/>'
    for value, colour, name in (
        (lower_bound, "#d95f0e", "lower bound"),
        (plan.height, "#333", "arena"),
    ):
        y = floor - value * up
        yield (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.2f}" y2="{y:.2f}"'
            f' stroke="{colour}" stroke-dasharray="4 3"><title>{name} {value:,}</title></line>'
        )
    yield _text(LEFT - 6, floor - whole * up + 4, f"{whole:,}", "end")
    yield _text(LEFT, floor + 16, f"time {start}")
    yield _text(WIDTH - RIGHT, floor + 16, f"{end}", "end")


def _about(block: Block, place: Place) -> str:
    where = f"{place.pool} [{place.offset:,}, {place.offset + block.size:,})"
    return f"{block.name}: {block.size:,} bytes, life [{block.lower}, {block.upper}), {where}"


def _colour(name: str) -> str:
    number = crc32(name.encode("utf-8", "surrogatepass"))
    return f"hsl({number % 360},{45 + number // 360 % 30}%,{62 + number // 10800 % 18}%)"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _frame(top: int, height: int) -> str:
    width = WIDTH - LEFT - RIGHT
    return f'<rect class="axis" x="{LEFT}" y="{top}" width="{width}" height="{height}"/>'
