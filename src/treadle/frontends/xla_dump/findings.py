"""What is odd in a dump that could be read: parts that are missing, lines not understood,
references that lead nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.core.errors import InputError
from treadle.frontends.dumps import Finding
from treadle.frontends.xla_dump.model import HloValue, XlaDump
from treadle.frontends.xla_dump.soundness import unsound

UNKNOWN, MISSING, DANGLING, DUPLICATE = "XLA002", "XLA003", "XLA004", "XLA005"
SHOWN_NAMES = 4


def find_oddities(dump: XlaDump) -> Iterator[Finding]:
    """Yield the findings about one dump, file by file."""
    yield from _unknown(dump)
    yield from _missing(dump)
    yield from _repeated(dump)
    yield from _dangling_values(dump)
    yield from _dangling_instructions(dump)
    yield from _dangling_ranges(dump)
    if dump.module:
        yield from unsound(dump.module)


def require_whole(dump: XlaDump) -> None:
    """Raise one InputError unless all parts of the dump are there and fit together."""
    for finding in dump.findings:
        if not finding.is_note:
            raise InputError(
                file=finding.file,
                line=finding.line,
                expected="a dump that fits together",
                found=finding.message,
                code=finding.code,
            )
    if not (dump.assignment and dump.values and dump.live):
        parts = [one.file for one in (dump.module, dump.report) if one]
        file = [*[one.name for one in dump.files], *parts, "<text>"][0]
        expected = "allocations, used values and live ranges, in one file or next to each other"
        raise InputError(file=file, expected=expected, found="only part of them", code=MISSING)


def _unknown(dump: XlaDump) -> Iterator[Finding]:
    for file, line in dump.unknown_lines():
        yield _not_understood(line.text.strip(), file, line.line)
    if dump.assignment:
        for allocation in dump.allocations:
            for _, text in allocation.extra:
                yield _not_understood(text, dump.assignment.file, allocation.line)
    if dump.report:
        for item in dump.report.unknown:
            yield _not_understood(item.text.strip(), dump.report.file, item.line)


def _not_understood(text: str, file: str, line: int) -> Finding:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return Finding(
        UNKNOWN, f"not understood, kept as it is: {shown}", line, is_note=True, file=file
    )


def _missing(dump: XlaDump) -> Iterator[Finding]:
    parts = {
        "allocations": dump.assignment,
        "used values": dump.values,
        "live ranges": dump.live,
    }
    gone = [name for name, part in parts.items() if part is None]
    if not gone or len(gone) == len(parts):
        return
    absent = f"no {' and no '.join(gone)} here or next to it"
    can_tell = dump.assignment and dump.module and dump.module.is_scheduled
    if can_tell and gone[-1] == "live ranges":
        message = f"{absent}: the HLO text gives them"
    else:
        message = f"{absent}: not all can be worked out again"
    yield Finding(MISSING, message, is_note=True, file=dump.files[0].name)


def _repeated(dump: XlaDump) -> Iterator[Finding]:
    """A thing that stands twice where each may stand once."""
    if dump.assignment:
        file = dump.assignment.file
        numbers = ((a.number, a.line) for a in dump.allocations)
        yield from _twice("allocation", numbers, file)
        yield from _twice("value", ((o.value.id, o.line) for _, o in dump.assigned()), file)
        yield from _twice("value", ((o.value.place, o.line) for _, o in dump.assigned()), file)
    if dump.values:
        yield from _twice("used value", ((u.value.id, u.line) for u in dump.used), dump.values.file)
    if dump.live:
        ranges = ((str(r.place), r.line) for r in dump.live.ranges)
        yield from _twice("live range", ranges, dump.live.file)
        first = dump.live.sequence_line + 1
        steps = ((name, first + k) for k, name in enumerate(dump.live.sequence))
        yield from _twice("instruction", steps, dump.live.file)


def _twice(what: str, keys: Iterable[tuple[object, int]], file: str) -> Iterator[Finding]:
    seen: set[object] = set()
    for key, line in keys:
        if key in seen:
            yield Finding(DUPLICATE, f"{what} {key} stands here a second time", line, file=file)
            return
        seen.add(key)


def _dangling_values(dump: XlaDump) -> Iterator[Finding]:
    """Used values are exactly the values of all allocations, under the same names."""
    if not (dump.assignment and dump.values):
        return
    used = {u.value.id: u.value for u in dump.used}
    held = {one.value.id: one.value for _, one in dump.assigned()}
    lines = {one.value.id: one.line for _, one in dump.assigned()}
    for allocation in dump.allocations:
        for other in allocation.recoloured or ():
            held.setdefault(other.value.id, other.value)
            lines.setdefault(other.value.id, other.line)
    absent = [value for number, value in held.items() if number not in used]
    if absent:
        yield _about(absent, "not among the used values", dump.assignment.file, lines)
    renamed = [v for number, v in held.items() if number in used and used[number] != v]
    if renamed:
        what = "not named like this among the used values"
        yield _about(renamed, what, dump.assignment.file, lines)
    absent = [value for number, value in used.items() if number not in held]
    if absent:
        used_lines = {u.value.id: u.line for u in dump.used}
        yield _about(absent, "in no allocation", dump.values.file, used_lines)


def _about(values: list[HloValue], what: str, file: str, lines: dict[int, int]) -> Finding:
    shown = ", ".join(map(str, values[:SHOWN_NAMES]))
    more = f" and {len(values) - SHOWN_NAMES} more" if len(values) > SHOWN_NAMES else ""
    is_are = "is" if len(values) == 1 else "are"
    return Finding(DANGLING, f"{shown}{more} {is_are} {what}", lines[values[0].id], file=file)


def _dangling_instructions(dump: XlaDump) -> Iterator[Finding]:
    """Values that have a live range flow through instructions of the sequence only."""
    if not (dump.values and dump.live):
        return
    known = set(dump.live.sequence)
    for used in dump.used:
        if used.value.place not in dump.range_of:
            continue
        names = [*[p.name for p in used.positions], *[u.name for u in used.uses]]
        if gone := next((name for name in names if name not in known), None):
            message = f"{used.value} names {gone}, which is no instruction of the sequence"
            yield Finding(DANGLING, message, used.line, file=dump.values.file)
            return


def _dangling_ranges(dump: XlaDump) -> Iterator[Finding]:
    """Every live range belongs to a value, ends inside the program, and has an instruction."""
    if not dump.live:
        return
    file, known = dump.live.file, set(dump.live.sequence)
    values = {one.value.place for _, one in dump.assigned()} or {u.value.place for u in dump.used}
    last = len(dump.live.sequence)
    for one in dump.live.ranges:
        if one.name not in known:
            message = f"{one.place} has a live range, but its instruction is not in the sequence"
        elif values and one.place not in values:
            message = f"{one.place} has a live range, but no such value exists"
        elif one.end > last:
            message = f"{one.place} lives until {one.end}, after the end at {last}"
        else:
            continue
        yield Finding(DANGLING, message, one.line, file=file)
        return
