"""The printed peak worked out again, with the two quirks of how XLA prints it.

The moment is found by counting for each value the whole shape of its instruction, so every element
of an operation with several results counts as the table of pointers only; and a value still counts
one step after its end. The first moment with the largest sum is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.frontends.xla_dump.hlo import instructions_of
from treadle.frontends.xla_dump.model import (
    HloLiveRange,
    HloPosition,
    PrintedPeak,
    StackTree,
    XlaDump,
)
from treadle.frontends.xla_dump.shapes import byte_size, subshape


class ValueSizes:
    """Bytes of values and of their whole instructions, from the shapes in their texts."""

    def __init__(self, dump: XlaDump) -> None:
        self.whole: dict[str, int | None] = {}
        self.own: dict[HloPosition, int | None] = {}
        for used in dump.used:
            name = used.value.name
            found = dump.derive(instructions_of).get(name)
            shape = found.shape if found else None
            self.whole[name] = None if shape is None else byte_size(shape)
            inner = None if shape is None else subshape(shape, used.value.index or ())
            self.own[used.value.place] = None if inner is None else byte_size(inner)
        assigned = {one.value.place: one.size for _, one in dump.assigned()}
        for place, size in self.own.items():
            # Shapes whose size the text does not tell are taken from the allocation.
            if size is None and place in assigned:
                self.own[place] = assigned[place]
        for name, size in self.whole.items():
            if size is None:
                self.whole[name] = self.own.get(HloPosition(name, ()))


def peak_moment(dump: XlaDump, sizes: ValueSizes) -> int | None:
    """The moment that XLA prints as the peak; None where a size is not known."""
    assert dump.live is not None, "a peak is derived from live ranges"
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for one in dump.live.ranges:
        size = sizes.whole.get(one.name)
        if size is None:
            return None
        starts[one.start] = starts.get(one.start, 0) + size
        ends[one.end + 1] = ends.get(one.end + 1, 0) + size
    moment = best = now = 0
    for time in sorted({*starts, *ends}):
        now += starts.get(time, 0)
        if now > best:
            moment, best = time, now
        now -= ends.get(time, 0)
    return moment


def peak_rows(
    dump: XlaDump, sizes: ValueSizes, peak: PrintedPeak
) -> list[tuple[str, int, int | None]] | None:
    """What is live at the peak, in the form of the printed rows: name, bytes, running sum."""
    assert dump.live is not None, "a peak is derived from live ranges"
    with_index = any(row.index is not None for row in peak.lines)
    with_sum = any(row.cumulative is not None for row in peak.lines)
    live = [one for one in dump.live.ranges if one.start <= peak.moment <= one.end]
    rows: list[tuple[str, int, int | None]] = []
    keyed: list[tuple[HloLiveRange, int]] = []
    for one in live:
        size = sizes.own.get(one.place) if with_index else sizes.whole.get(one.name)
        if size is None:
            return None
        keyed.append((one, size))
    if with_sum:
        keyed.sort(key=lambda pair: (-pair[1], pair[0].name, pair[0].index))
    total = 0
    for one, size in keyed:
        total += size
        name = str(one.place) if with_index else one.name
        rows.append((name, size, total if with_sum else None))
    return rows


def printed_rows(peak: PrintedPeak) -> list[tuple[str, int, int | None]]:
    """The rows of the file in the same form."""
    return [
        (
            row.name if row.index is None else str(HloPosition(row.name, row.index)),
            row.size,
            row.cumulative,
        )
        for row in peak.lines
    ]


def wrong_tree_rows(tree: StackTree, total: int) -> Iterator[tuple[int, str]]:
    """Rows of the stack trace tree that do not add up, with what they should say."""
    if tree.total != total:
        yield tree.line, f"the values at the peak sum to {total}"
    remaining = tree.total
    sums: dict[int, int] = {}
    for row in reversed(tree.rows):
        children = sums.pop(row.depth + 1, 0)
        sums = {depth: size for depth, size in sums.items() if depth <= row.depth}
        sums[row.depth] = sums.get(row.depth, 0) + row.total
        if row.total != row.current + children:
            yield row.line, f"'{row.label}' and what hangs on it sum to {row.current + children}"
    if tree.rows and sums.get(0, 0) != tree.total:
        yield tree.line, f"the rows sum to {sums.get(0, 0)}"
    for row in tree.rows:
        remaining -= row.current
        if row.remaining != remaining:
            yield row.line, f"after '{row.label}' there remain {remaining}"
            return
        percent = f"{100 * row.total / tree.total:.1f}" if tree.total else row.percent
        if row.percent != percent:
            yield row.line, f"'{row.label}' is {percent}%"


def live_bytes(
    ranges: Mapping[HloPosition, tuple[int, int]], sizes: Mapping[HloPosition, int]
) -> list[int]:
    """Bytes live at each moment, by true sizes, both ends of a range included."""
    last = max((end for _, end in ranges.values()), default=-1)
    change = [0] * (last + 2)
    for place, (start, end) in ranges.items():
        change[start] += sizes.get(place, 0)
        change[end + 1] -= sizes.get(place, 0)
    now, curve = 0, []
    for delta in change[:-1]:
        now += delta
        curve.append(now)
    return curve
