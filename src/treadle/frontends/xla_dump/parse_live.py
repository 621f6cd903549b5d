"""The live ranges: the sequence of instructions, a closed range for each value, the peak."""

from __future__ import annotations

import re

from treadle.frontends.xla_dump.lines import INDEX, NAME, NUMBER, HloLines, index_of
from treadle.frontends.xla_dump.model import (
    HloLiveRange,
    LiveSection,
    PeakLine,
    PrintedPeak,
    StackTree,
    TreeLine,
    index_text,
)

_TITLE = re.compile(rf"HloLiveRange \(max {NUMBER}\):")
SEQUENCE, RANGES = "  InstructionSequence:", "  BufferLiveRange:"
_STEP = re.compile(rf"    {NUMBER}:{NAME}")
_RANGE = re.compile(rf"    {NAME}{INDEX}:{NUMBER}-{NUMBER}")
_PEAK = re.compile(rf"  Live ranges at {NUMBER} \(peak\):")
_PEAK_LINE = re.compile(rf"    {NAME}{INDEX}?: {NUMBER} bytes(?: \(cumulative: {NUMBER} bytes\))?")
_SPACED = r"([0-9]{1,3}(?: [0-9]{3}){0,6})"
_TREE = re.compile(rf"  Stack trace breakdown for peak usage: {_SPACED} bytes")
_TREE_LINE = re.compile(
    rf"    ((?:  (?:│   |    )*(?:├── |└── ))?)(.*) \(([0-9]+\.[0-9])%, total: {_SPACED} bytes, "
    rf"current: {_SPACED} bytes, remaining: {_SPACED} bytes\)"
)


def parse_live(lines: HloLines) -> LiveSection:
    """The live range section from the cursor to the end of the file."""
    line = lines.number
    found = _TITLE.fullmatch(lines.text)
    if not found:
        raise lines.error("'HloLiveRange (max N):'")
    lines.take()
    sequence_line = lines.expect(SEQUENCE)
    sequence = _sequence(lines)
    lines.expect(RANGES, "a numbered instruction or 'BufferLiveRange:'")
    ranges = _ranges(lines)
    no_peak = None
    peak = _peak(lines)
    if peak is None:
        if lines.done or "peak" not in lines.text.lower() or not lines.text.startswith("  "):
            raise lines.error("a live range such as 'fusion{}:3-5', or 'Live ranges at N (peak):'")
        no_peak = lines.take()
    while lines.skip_unknown():
        pass
    return LiveSection(
        lines.file, sequence, ranges, peak, no_peak, int(found[1]), line, sequence_line
    )


def _sequence(lines: HloLines) -> tuple[str, ...]:
    names: list[str] = []
    while not lines.done and lines.text != RANGES:
        if found := _STEP.fullmatch(lines.text):
            if int(found[1]) != len(names):
                raise lines.error(f"instruction number {len(names)}")
            names.append(found[2])
            lines.take()
        elif not lines.skip_unknown():
            break
    return tuple(names)


def _ranges(lines: HloLines) -> tuple[HloLiveRange, ...]:
    ranges: list[HloLiveRange] = []
    while not lines.done:
        if found := _RANGE.fullmatch(lines.text):
            index = index_of(found[2]) or ()
            start, end = int(found[3]), int(found[4])
            if start > end:
                raise lines.error("a live range that ends no earlier than it starts")
            ranges.append(HloLiveRange(found[1], index, start, end, lines.number))
            lines.take()
        elif not (lines.text.startswith("     ") and lines.skip_unknown()):
            break
    return tuple(ranges)


def _peak(lines: HloLines) -> PrintedPeak | None:
    title = _PEAK.fullmatch(lines.text)
    if lines.done or not title:
        return None
    line = lines.number
    lines.take()
    rows: list[PeakLine] = []
    while not lines.done and not _TREE.fullmatch(lines.text):
        if found := _PEAK_LINE.fullmatch(lines.text):
            cumulative = int(found[4]) if found[4] else None
            rows.append(
                PeakLine(found[1], index_of(found[2]), int(found[3]), cumulative, lines.number)
            )
            lines.take()
        elif not lines.skip_unknown():
            break
    return PrintedPeak(int(title[1]), tuple(rows), _tree(lines), line)


def _tree(lines: HloLines) -> StackTree | None:
    title = _TREE.fullmatch(lines.text)
    if lines.done or not title:
        return None
    line = lines.number
    lines.take()
    rows: list[TreeLine] = []
    while not lines.done:
        found = _TREE_LINE.fullmatch(lines.text)
        # What does not hang on the row before is none of the tree.
        if found and (depth := len(found[1]) // 4) <= (rows[-1].depth + 1 if rows else 0):
            total, current, remaining = (_plain(found[k]) for k in (4, 5, 6))
            rows.append(
                TreeLine(depth, found[2], found[3], total, current, remaining, lines.number)
            )
            lines.take()
        elif not lines.skip_unknown():
            break
    return StackTree(_plain(title[1]), tuple(rows), line)


def _plain(text: str) -> int:
    return int(text.replace(" ", ""))


# --------------------------------------------------------------------------------- printing


def live_lines(section: LiveSection) -> list[str]:
    """The lines of the section, as XLA writes them."""
    count = len(section.sequence) if section.stated_max is None else section.stated_max
    texts = [f"HloLiveRange (max {count}):", SEQUENCE]
    texts += [f"    {k}:{name}" for k, name in enumerate(section.sequence)]
    texts.append(RANGES)
    texts += [f"    {r.place}:{r.start}-{r.end}" for r in section.ranges]
    if section.no_peak is not None:
        texts.append(section.no_peak)
    if peak := section.peak:
        texts.append(f"  Live ranges at {peak.moment} (peak):")
        texts += [_peak_text(row) for row in peak.lines]
        if peak.tree:
            total = spaced(peak.tree.total)
            texts.append(f"  Stack trace breakdown for peak usage: {total} bytes")
            texts += tree_texts(peak.tree.rows)
    return texts


def _peak_text(row: PeakLine) -> str:
    index = "" if row.index is None else index_text(row.index)
    suffix = "" if row.cumulative is None else f" (cumulative: {row.cumulative} bytes)"
    return f"    {row.name}{index}: {row.size} bytes{suffix}"


def spaced(number: int) -> str:
    """27 398 276: digits in threes."""
    return f"{number:,}".replace(",", " ")


def tree_texts(rows: tuple[TreeLine, ...]) -> list[str]:
    """The rows with the lines that join them: which rows have a later sibling is worked out."""
    texts: list[str] = []
    open_at: set[int] = set()  # depths at which a sibling follows further down
    for row in reversed(rows):
        open_at = {depth for depth in open_at if depth <= row.depth}
        drawing = ""
        if row.depth:
            inner = ["│   " if d in open_at else "    " for d in range(1, row.depth)]
            drawing = "  " + "".join(inner) + ("├── " if row.depth in open_at else "└── ")
        sizes = f"total: {spaced(row.total)} bytes, current: {spaced(row.current)} bytes"
        remaining = f"remaining: {spaced(row.remaining)} bytes"
        texts.append(f"    {drawing}{row.label} ({row.percent}%, {sizes}, {remaining})")
        open_at.add(row.depth)
    return texts[::-1]
