"""From the text of a dump to its model, with one message that names the line if that fails.

A dump is one file (2024-10 to 2026-04) or up to four that lie next to each other: allocations,
used values, live ranges and a report. Whichever is given, the others are looked for and each may
be missing. What was read is printed and compared before it is handed out, so a dump that could be
read can always be written back byte for byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from treadle.core.errors import InputError
from treadle.core.reading import read_text
from treadle.frontends.xla_dump import parse_allocations, parse_live, parse_values
from treadle.frontends.xla_dump.derive_live import with_derived_live
from treadle.frontends.xla_dump.derive_values import with_derived_values
from treadle.frontends.xla_dump.elements import with_elements, with_names
from treadle.frontends.xla_dump.findings import find_oddities
from treadle.frontends.xla_dump.hlo import Module, parse_hlo
from treadle.frontends.xla_dump.lines import CODE, HloLines
from treadle.frontends.xla_dump.model import (
    ALLOCATIONS,
    LIVE,
    VALUES,
    AllocationSection,
    LiveSection,
    SourceFile,
    ValueSection,
    XlaDump,
    human_size,
)
from treadle.frontends.xla_dump.print import print_file
from treadle.frontends.xla_dump.report import ReportLines, parse_report, print_report

ASSIGNMENT, ONLY_VALUES, ONLY_LIVE, REPORT, HLO = (
    "xla_buffer_assignment", "xla_values", "xla_live_range", "xla_memory_report", "hlo"
)  # fmt: skip
FILE_KINDS = (ASSIGNMENT, ONLY_VALUES, ONLY_LIVE, REPORT, HLO)
SUFFIXES: Mapping[str, str] = {
    ASSIGNMENT: "-buffer-assignment.txt",
    ONLY_VALUES: "-buffer-assignment-values.txt",
    ONLY_LIVE: "-live-range.txt",
    REPORT: "-memory-usage-report.txt",
    HLO: ".txt",
}
_STARTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"BufferAssignment:\r?\n"), ASSIGNMENT),
    (re.compile(r"(?:\r?\n)?Total bytes used: [^\n]*\n\r?\nUsed values:"), ONLY_VALUES),
    (re.compile(r"HloLiveRange \(max"), ONLY_LIVE),
    (re.compile(r"Total bytes used: [^\n]*\n\r?\nAllocations sorted by size"), REPORT),
    (re.compile(r"Memory Space: "), REPORT),
    (re.compile(r"HloModule [^\n]"), HLO),
)


def kind_of_text(text: str) -> str | None:
    """Which of the files of a dump this text is, from its first lines; None if none of them."""
    for pattern, kind in _STARTS:
        if pattern.match(text):
            return kind
    return None


def read_dump(path: str) -> XlaDump:
    """The dump that the file is part of, with what lies next to it, or one InputError."""
    return parse_dump(read_text(path, CODE), path, find_siblings=True)


def parse_dump(text: str, file: str = "<text>", *, find_siblings: bool = False) -> XlaDump:
    """The dump that `text` is, or one InputError with the line and what was expected there.

    With `find_siblings`, files with the same stem are read too; a damaged one is an error.
    """
    kind = kind_of_text(text)
    if kind is None:
        expected = "an XLA dump: 'BufferAssignment:', 'HloLiveRange (max N):' or a kin of these"
        first = text.split("\n", 1)[0].strip()[:60]
        found = f"'{first}'" if first else "an empty line" if text.strip() else "an empty file"
        raise InputError(file=file, line=1, expected=expected, found=found, code=CODE)
    parts = _Parts()
    parts.add(kind, text, file)
    if find_siblings:
        for other, path in siblings(file, kind).items():
            if not parts.has(other):
                parts.add(other, read_text(path, CODE), path)
    return parts.dump()


def siblings(path: str, kind: str) -> dict[str, str]:
    """The other files of the same dump that exist next to this one, by kind."""
    suffix = SUFFIXES[kind]
    if not path.endswith(suffix):
        return {}
    stem = path[: -len(suffix)]
    others = {other: stem + end for other, end in SUFFIXES.items() if other != kind}
    return {other: file for other, file in others.items() if os.path.isfile(file)}


class _Parts:
    """What was found of a dump so far."""

    def __init__(self) -> None:
        self.files: list[SourceFile] = []
        self.texts: list[str] = []
        self.assignment: AllocationSection | None = None
        self.values: ValueSection | None = None
        self.live: LiveSection | None = None
        self.module: Module | None = None
        self.report: ReportLines | None = None

    def has(self, kind: str) -> bool:
        """Whether that part is already there, alone or in a file with others."""
        there: dict[str, object] = {
            ASSIGNMENT: self.assignment, ONLY_VALUES: self.values, ONLY_LIVE: self.live,
            REPORT: self.report, HLO: self.module,
        }  # fmt: skip
        return there[kind] is not None

    def add(self, kind: str, text: str, file: str) -> None:
        """Read one more file."""
        if kind == HLO:
            self.module = with_elements(parse_hlo(text, file))
            return
        newline = "\r\n" if "\r\n" in text else "\n"
        if kind == REPORT:
            self.report = parse_report(text, file)
            _require_same_text(print_report(self.report), text, file, "\n")
            return
        lines = _lines(text, newline, file)
        sections: list[str] = []
        if kind == ASSIGNMENT:
            self.assignment = parse_allocations.parse_allocations(lines)
            sections.append(ALLOCATIONS)
        if kind == ONLY_VALUES or (kind == ASSIGNMENT and not lines.done):
            self.values = parse_values.parse_values(lines)
            sections.append(VALUES)
            _require_end_of_line(lines, text, newline, self.values)
        if kind == ONLY_LIVE or (kind == ASSIGNMENT and not lines.done):
            if kind == ASSIGNMENT:
                _skip_gap(lines, self.values)
            self.live = parse_live.parse_live(lines)
            sections.append(LIVE)
        elif VALUES in sections and kind == ASSIGNMENT and not _may_end_here(self.values):
            raise lines.error("'HloLiveRange (max N):' after the used values: the file is cut")
        if not lines.done:
            raise lines.error("the end of the file")
        self.files.append(SourceFile(file, tuple(sections), newline, tuple(lines.unknown)))
        self.texts.append(text)

    def dump(self) -> XlaDump:
        """All parts together, with what is derived left out of them."""
        values = self.values
        if values and self.assignment:
            total = sum(a.size for a in self.assignment.allocations)
            if values.stated_total == total:
                values = replace(values, stated_total=None)
        if values:
            shown = sum(a.size for a in self.assignment.allocations) if self.assignment else 0
            total = shown if values.stated_total is None else values.stated_total
            if values.stated_human == human_size(total):
                values = replace(values, stated_human=None)
        live = self.live
        if live and live.stated_max == len(live.sequence):
            live = replace(live, stated_max=None)
        dump = XlaDump(tuple(self.files), self.assignment, values, live, self.module, self.report)
        if self.module:
            dump = replace(dump, module=with_names(self.module, dump))
        for file, text in zip(self.files, self.texts, strict=True):
            _require_same_text(print_file(dump, file), text, file.name, file.newline)
        findings = tuple(find_oddities(dump))
        return replace(with_derived_live(with_derived_values(dump)), findings=findings)


def _lines(text: str, newline: str, file: str) -> HloLines:
    parts = text.split(newline)
    if parts[-1] == "":
        parts.pop()
    return HloLines(parts, file)


def _may_end_here(values: ValueSection | None) -> bool:
    """Whether a file may end with the values: before October 2024 there were no live ranges."""
    return values is None or values.joined or not values.used


def _skip_gap(lines: HloLines, values: ValueSection | None) -> None:
    for _ in range(1 if values and values.joined else 2):
        lines.expect("", "a blank line before 'HloLiveRange (max N):'")


def _require_end_of_line(lines: HloLines, text: str, newline: str, values: ValueSection) -> None:
    """A last line without a newline was cut, except in the form whose entries have none."""
    if lines.done and not text.endswith(newline) and not values.joined:
        lines.at = len(lines.lines) - 1
        raise lines.error("a whole line: the file is cut")


def _require_same_text(printed: str, text: str, file: str, newline: str) -> None:
    if printed == text:
        return
    ours, theirs = printed.split(newline), text.split(newline)
    for number, (our, their) in enumerate(zip(ours, theirs), 1):
        if our != their:
            raise InputError(
                file=file, line=number, expected=_quoted(our), found=_quoted(their), code=CODE
            )
    number = min(len(ours), len(theirs))
    expected, found = ("a whole line", "the end") if len(ours) > number else ("the end", "more")
    raise InputError(file=file, line=number, expected=expected, found=found, code=CODE)


def _quoted(line: str) -> str:
    return f"'{line}'" if line else "a blank line"
