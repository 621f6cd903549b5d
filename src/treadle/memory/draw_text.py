"""Plans as text: a map of time and address, the curve of live bytes, the table of the peak."""

from __future__ import annotations

from treadle.memory.draw import Curve, PeakRow, live_curve, pools_drawn, time_range
from treadle.memory.problem import ARENA, Plan, Problem

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def map_text(problem: Problem, plan: Plan, width: int = 72, height: int = 20) -> list[str]:
    """The blocks of each pool as letters, time to the right and addresses upwards.

    A cell shows the block at its middle; `.` is free. A letter may stand for several blocks.
    """
    start, end = time_range(problem)
    lines: list[str] = []
    for pool, size in pools_drawn(problem, plan):
        rows = [["." for _ in range(width)] for _ in range(height)]
        for number, block in enumerate(problem.blocks):
            place = plan.placements[block.name]
            if place.pool != pool:
                continue
            mark = MARKS[number % len(MARKS)]
            for low, high in block.spans:
                columns = _cells(low - start, high - start, end - start, width)
                for row in _cells(place.offset, place.offset + block.size, size, height):
                    for column in columns:
                        rows[row][column] = mark
        lines.append(f"{pool}: {size:,} bytes, time {start} to {end}")
        label = len(f"{size:,}")
        for row in reversed(range(height)):
            address = f"{size * row // height:,}".rjust(label)
            lines.append(f"{address} |{''.join(rows[row])}|")
    return lines


def curve_text(
    problem: Problem, plan: Plan, lower_bound: int, width: int = 72, height: int = 10
) -> list[str]:
    """Live bytes of the arena over time as bars, with the height and the bound marked."""
    start, end = time_range(problem)
    curve = live_curve(problem, plan, ARENA)
    top = max(plan.height, lower_bound, 1)
    values = [highest(curve, *_slice(column, width, start, end)) for column in range(width)]
    lines = []
    for row in reversed(range(height)):
        low = top * row // height
        filled = "".join("#" if value > low else " " for value in values)
        lines.append(f"{low:>15,} |{filled}|")
    lines.append(f"arena {plan.height:,}, lower bound {lower_bound:,}, time {start} to {end}")
    return lines


def peak_text(rows: list[PeakRow], shown: int = 20) -> list[str]:
    """The table of who is live at the peak."""
    lines = [f"{'bytes':>15}  {'life':<15} {'place':<20} name"]
    for row in rows[:shown]:
        life, place = f"{row.lower}-{row.upper}", f"{row.pool}+{row.offset}"
        idle = "" if row.idle is None else f"  idle {row.idle}"
        lines.append(f"{row.size:>15,}  {life:<15} {place:<20} {_plain(row.name)}{idle}")
    if len(rows) > shown:
        rest = sum(row.size for row in rows[shown:])
        lines.append(f"{rest:>15,}  {'':<15} {'':<20} {len(rows) - shown} more")
    return lines


def highest(curve: Curve, start: float, end: float) -> int:
    """The most bytes at any time of [start, end)."""
    best = 0
    for k, time in enumerate(curve.times):
        until = curve.times[k + 1] if k + 1 < len(curve.times) else float("inf")
        if time < end and until > start:
            best = max(best, curve.values[k])
    return best


def _slice(column: int, width: int, start: int, end: int) -> tuple[float, float]:
    step = (end - start) / width
    return start + column * step, start + (column + 1) * step


def _cells(low: int, high: int, whole: int, count: int) -> range:
    """The cells whose middle lies in [low, high), when `whole` is cut into `count` cells."""
    # Middle of cell k: (2k + 1) * whole / (2 * count).
    first = -((whole - 2 * count * low) // (2 * whole))
    last = -((whole - 2 * count * high) // (2 * whole))
    return range(max(0, first), min(count, last))


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)
