"""The total and the used values: where each value flows to, what uses it, what makes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.frontends.xla_dump.lines import (
    INDEX,
    NAME,
    NUMBER,
    VALUE,
    HloLines,
    index_of,
    value_of,
)
from treadle.frontends.xla_dump.model import (
    HloUse,
    HloValue,
    UsedValue,
    ValuePosition,
    ValueSection,
)

TITLE = "Used values:"
NONE = "  (none)"
FROM = " from instruction: "
_TOTAL = re.compile(rf"Total bytes used: {NUMBER} \(([^()]*)\)")
_ENTRY = re.compile(VALUE)
_JOINED = re.compile(rf"(.*){VALUE}", re.DOTALL)
_POSITION = re.compile(rf"  {NAME}(?: {INDEX})?")
_USE = re.compile(rf"  {NAME}, operand {NUMBER}(?: {INDEX})?")
_KEYWORDS = (" positions:", " uses:", FROM)


def parse_values(lines: HloLines) -> ValueSection:
    """The values section: a blank line, the total, a blank line, the values."""
    lines.expect("")
    found = _TOTAL.fullmatch(lines.text)
    if not found:
        raise lines.error("'Total bytes used: N (SIZE)'")
    total_line = lines.number
    lines.take()
    lines.expect("")
    lines.expect(TITLE)
    used, joined = _entries(lines)
    return ValueSection(lines.file, used, int(found[1]), found[2], joined, total_line)


def _entries(lines: HloLines) -> tuple[tuple[UsedValue, ...], bool]:
    used: list[UsedValue] = []
    joined = False
    waiting: tuple[HloValue, int] | None = None
    while waiting or lines.text.startswith(("<", " ")):
        if waiting is None:
            if lines.skip_unknown():
                continue
            line = lines.number
            found = _ENTRY.fullmatch(lines.text)
            if not found:
                raise lines.error("a used value such as '<7 fusion.1 @0>'")
            lines.take()
            waiting = (value_of(found), line)
        value, line = waiting
        entry, waiting = _entry(lines, value, line)
        joined = joined or waiting is not None
        used.append(entry)
    return tuple(used), joined


def _entry(
    lines: HloLines, value: HloValue, line: int
) -> tuple[UsedValue, tuple[HloValue, int] | None]:
    """One entry, and the value that the next one begins with if it stood on the same line."""
    _skip_to(lines, " positions:", value)
    positions: list[ValuePosition] = []
    while not lines.done and not lines.text.startswith(_KEYWORDS):
        if found := _POSITION.fullmatch(lines.text):
            positions.append(ValuePosition(found[1], index_of(found[2])))
            lines.take()
        elif not lines.skip_unknown(_KEYWORDS):
            break
    _skip_to(lines, " uses:", value)
    uses: list[HloUse] = []
    says_none = lines.text == NONE
    if says_none:
        lines.take()
    while not lines.done and not lines.text.startswith(_KEYWORDS):
        if found := _USE.fullmatch(lines.text):
            uses.append(HloUse(found[1], int(found[2]), index_of(found[3])))
            lines.take()
        elif not lines.skip_unknown(_KEYWORDS):
            break
    while lines.skip_unknown(_KEYWORDS):
        pass
    if not lines.text.startswith(FROM):
        raise lines.error(f"'{FROM.strip()}' of {value}")
    text, following = lines.text[len(FROM) :], None
    at = lines.number
    lines.take()
    if lines.text == " positions:" and (found := _JOINED.fullmatch(text)):
        text, following = found[1], (value_of(found, 2), at)
    entry = UsedValue(value, tuple(positions), tuple(uses), text, says_none, line)
    return entry, following


def _skip_to(lines: HloLines, keyword: str, value: HloValue) -> None:
    while lines.skip_unknown(_KEYWORDS):
        pass
    lines.expect(keyword, f"'{keyword.strip()}' of {value}")


def used_lines(section: ValueSection, total: int, human: str) -> list[str]:
    """The lines of the section; in the joined form values follow on the line of the one before."""
    texts = ["", f"Total bytes used: {total} ({human})", "", TITLE]
    for number, used in enumerate(section.used):
        if section.joined and number:
            texts[-1] += str(used.value)
        else:
            texts.append(str(used.value))
        texts += _entry_lines(used)
    return texts


def _entry_lines(used: UsedValue) -> Sequence[str]:
    positions = [f"  {p.name}{_index(p.index)}" for p in used.positions]
    uses = [f"  {u.name}, operand {u.operand}{_index(u.index)}" for u in used.uses]
    if used.says_none:
        uses.insert(0, NONE)
    return (" positions:", *positions, " uses:", *uses, FROM + used.instruction)


def _index(index: tuple[int, ...] | None) -> str:
    return "" if index is None else " {" + ",".join(map(str, index)) + "}"
