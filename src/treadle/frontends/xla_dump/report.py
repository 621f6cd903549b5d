"""`memory-usage-report.txt`, both forms: read, printed back, worked out again from a dump.

Until 2026 it lists the allocations by size and then, for each that holds several values, a table
of offsets. Since then it has those tables only, one for each allocation, by memory space.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.core.errors import InputError
from treadle.frontends.xla_dump.lines import CODE, NUMBER
from treadle.frontends.xla_dump.model import Allocation, human_size
from treadle.frontends.xla_dump.parse_allocations import attribute_texts
from treadle.frontends.xla_dump.shapes import parse_shape

_SIZE = r"([0-9]+(?:\.[0-9]+)?(?:B|[KMGTPE]iB))"
_TOTAL = re.compile(rf"(Total bytes(?: used)?): {NUMBER} \({_SIZE}\)")
_ALLOCATION_ROW = re.compile(rf" *{_SIZE}\( *{NUMBER}%\); *{_SIZE}; (allocation {NUMBER}: .*:)")
_OFFSET_ROW = re.compile(
    rf"(\t|  ) *{_SIZE}\( *([0-9]{{1,19}}|-?nan)%\); *{_SIZE}; *{NUMBER}; *{NUMBER}; (\S.*)"
)
_HEADER = re.compile(rf"allocation {NUMBER}: size .*:")
_SPACE = re.compile(rf"Memory Space: (.*) \(color={NUMBER}\)")
_FIXED = re.compile(
    r"|Allocations sorted by size( with their values)?:|[\t ]*cumulative_size; .*|[\t ]*-{20,}"
    r"|  The rest \d+ values are less than \d+% of the total size and not shown\."
)
_MANY = re.compile(r"(?:([0-9]{1,9})×)?(.*)")


@dataclass(frozen=True, slots=True)
class ReportText:
    """A line without figures: a title, a rule, a blank line, or one that is not known."""

    text: str
    is_known: bool = True
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReportTotal:
    """`Total bytes used: N (SIZE)`."""

    title: str
    size: int
    human: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReportAllocation:
    """A row of the list of allocations by size."""

    cumulative: str
    percent: int
    rest: str
    header: str
    number: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReportOffset:
    """A row of a table of offsets: what lives at one offset of an allocation."""

    indent: str
    cumulative: str
    percent: str
    size: str
    offset: int
    count: int
    shapes: str
    line: int = field(default=0, compare=False)


Item = ReportText | ReportTotal | ReportAllocation | ReportOffset


@dataclass(frozen=True, slots=True)
class ReportLines:
    """The lines of a report, each taken apart."""

    file: str
    items: tuple[Item, ...]
    by_space: bool
    final_newline: bool = True

    @property
    def unknown(self) -> tuple[ReportText, ...]:
        """Lines that nobody understood."""
        return tuple([i for i in self.items if isinstance(i, ReportText) and not i.is_known])

    def tables(self) -> Iterator[tuple[int | None, list[ReportOffset]]]:
        """The tables of offsets, each with the number of its allocation where it is named."""
        number: int | None = None
        rows: list[ReportOffset] = []
        for item in self.items:
            if isinstance(item, ReportOffset):
                rows.append(item)
                continue
            if rows:
                yield number, rows
                rows, number = [], None
            if isinstance(item, ReportText) and (found := _HEADER.fullmatch(item.text)):
                number = int(found[1])
        if rows:
            yield number, rows


def parse_report(text: str, file: str = "<text>") -> ReportLines:
    """The report that `text` is, or one InputError."""
    lines = text.split("\n")
    final = lines[-1] == ""
    if final:
        lines.pop()
    items = tuple([_item(line, number) for number, line in enumerate(lines, 1)])
    if not any(isinstance(item, ReportTotal) for item in items):
        expected = "a memory report with 'Total bytes used: N (SIZE)'"
        found = f"'{lines[0][:60]}'" if lines and lines[0] else "none"
        raise InputError(file=file, line=1, expected=expected, found=found, code=CODE)
    return ReportLines(file, items, any(_SPACE.fullmatch(line) for line in lines), final)


def _item(text: str, line: int) -> Item:
    if found := _OFFSET_ROW.fullmatch(text):
        indent, cumulative, percent, size, offset, count, shapes = found.groups()
        return ReportOffset(
            indent, cumulative, percent, size, int(offset), int(count), shapes, line
        )
    if found := _ALLOCATION_ROW.fullmatch(text):
        return ReportAllocation(found[1], int(found[2]), found[3], found[4], int(found[5]), line)
    if found := _TOTAL.fullmatch(text):
        return ReportTotal(found[1], int(found[2]), found[3], line)
    known = _FIXED.fullmatch(text) or _HEADER.fullmatch(text) or _SPACE.fullmatch(text)
    return ReportText(text, bool(known), line)


def print_report(report: ReportLines) -> str:
    """The text of the report."""
    return "\n".join([_text(item) for item in report.items]) + "\n" * report.final_newline


def _text(item: Item) -> str:
    if isinstance(item, ReportText):
        return item.text
    if isinstance(item, ReportTotal):
        return f"{item.title}: {item.size} ({item.human})"
    if isinstance(item, ReportAllocation):
        return f"{item.cumulative:>10}({item.percent:3}%); {item.rest:>10}; {item.header}"
    return (
        f"{item.indent}{item.cumulative:>9}({item.percent:>3}%); {item.size:>10}; "
        f"{item.offset:12}; {item.count:16}; {item.shapes}"
    )


# ----------------------------------------------------------------------------- re-derivation


def wrong_lines(
    report: ReportLines, allocations: tuple[Allocation, ...]
) -> Iterator[tuple[int, str]]:
    """Lines whose figures do not follow from the allocations, with what they should be.

    Within one size XLA's order of rows and of shapes is that of a hash table: not compared.
    """
    yield from _wrong_totals(report, allocations)
    yield from _wrong_list(report, allocations)
    by_number = {a.number: a for a in allocations}
    in_order = iter(sorted(allocations, key=lambda a: (a.color, -a.size, a.number)))
    for number, rows in report.tables():
        if number is not None:
            allocation = by_number.get(number)
        else:
            allocation = next((a for a in in_order if a.values), None)
        if allocation is None:
            yield rows[0].line, "a table of an allocation that does not exist"
        else:
            yield from _wrong_table(rows, allocation)


def _wrong_totals(
    report: ReportLines, allocations: tuple[Allocation, ...]
) -> Iterator[tuple[int, str]]:
    color: int | None = None
    for item in report.items:
        if isinstance(item, ReportText) and (found := _SPACE.fullmatch(item.text)):
            color = int(found[2])
        if isinstance(item, ReportTotal):
            total = sum(a.size for a in allocations if color in (None, a.color))
            if (item.size, item.human) != (total, human_size(item.size)):
                yield item.line, f"the total is {total} ({human_size(total)})"


def _wrong_list(
    report: ReportLines, allocations: tuple[Allocation, ...]
) -> Iterator[tuple[int, str]]:
    rows = [item for item in report.items if isinstance(item, ReportAllocation)]
    total = sum(a.size for a in allocations)
    cumulative = 0
    order = sorted(allocations, key=lambda a: (-a.size, a.number))
    for row, allocation in zip(rows, order):
        cumulative += allocation.size
        attributes = "".join([f", {text}" for text in attribute_texts(allocation)])
        header = f"allocation {allocation.number}: size {human_size(allocation.size)}{attributes}:"
        derived = (human_size(cumulative), human_size(total - cumulative), header)
        percent = round(100 * cumulative / total) if total else 100
        if (row.cumulative, row.rest, row.header) != derived or abs(row.percent - percent) > 1:
            yield row.line, f"the row is {derived[0]} ({percent}%), {derived[1]}, {header}"


def _wrong_table(rows: list[ReportOffset], allocation: Allocation) -> Iterator[tuple[int, str]]:
    sizes: dict[int, int] = {}
    shapes: dict[int, Counter[str]] = {}
    for one in allocation.values:
        sizes[one.offset] = max(one.size, sizes.get(one.offset, 0))
        plain = str(parse_shape(one.shape) or one.shape)
        shapes.setdefault(one.offset, Counter())[plain] += 1
    cumulative = 0
    for row in rows:
        size = sizes.get(row.offset)
        if size is None:
            yield row.line, f"allocation {allocation.number} has nothing at offset {row.offset}"
            continue
        cumulative += size
        count = shapes[row.offset].total()
        derived = (human_size(cumulative), human_size(size), count)
        if (row.cumulative, row.size, row.count) != derived:
            yield row.line, f"the row is {derived[0]}; {derived[1]}; {count} values"
        elif _counted(row.shapes) != shapes[row.offset]:
            wanted = ", ".join(f"{n}×{shape}" for shape, n in shapes[row.offset].items())
            yield row.line, f"the shapes are {wanted}"


def _counted(text: str) -> Counter[str]:
    """The shapes of a row with how often each stands there."""
    counts: Counter[str] = Counter()
    depth = start = 0
    for at, sign in enumerate(text + ","):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            found = _MANY.fullmatch(text[start:at].strip())
            assert found is not None, "the line was matched as a list of shapes before"
            counts[str(parse_shape(found[2]) or found[2])] += int(found[1] or 1)
            start = at + 1
    return counts
