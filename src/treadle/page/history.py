"""What a pass, or a whole schedule, changed: kernels joined and taken apart, operations moved."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from treadle.analysis.accounting import Accounting, figures
from treadle.core.journal import Journal
from treadle.ir.program import Program
from treadle.page.kernels import operations_of
from treadle.page.story import PassRecord, ScheduleStory

FIGURES = ("kernels", "bytes_moved", "peak_bytes")
"""What is counted after each pass that changed something."""
CHANGES = ("fused", "split", "dropped", "added", "rewritten", "moved", "remade")
NOTED = ("about", "changes", "figures")
"""What a journal may say of a pass besides its event."""


def pass_list(journal: Journal) -> list[dict[str, Any]]:
    """The passes that a journal tells of, with what it noted of each (`note_passes`)."""
    noted = {e["of_pass"]: e for e in journal.events("note") if isinstance(e.get("of_pass"), int)}
    rows = []
    for number, e in enumerate(journal.events("pass"), 1):
        row = {"number": number, "name": e["name"], "about": "", "changed": e["changed"]}
        row |= {"seconds": e.get("seconds", 0.0)}
        row |= {"ops": [e.get("ops_before"), e.get("ops_after")]}
        told = noted.get(number, {})
        rows.append(row | {key: told[key] for key in NOTED if _is_as_noted(key, told.get(key))})
    return rows


def _is_as_noted(key: str, told: object) -> bool:
    """Whether a journal, which may be anybody's, says of a pass what `note_passes` writes."""
    if key == "about":
        return isinstance(told, str)
    needed = FIGURES if key == "figures" else CHANGES
    return isinstance(told, dict) and all(name in told for name in needed)


def note_passes(journal: Journal, passes: Sequence[PassRecord], accounting: Accounting) -> None:
    """Add to a journal what each of its passes changed, for a page that is made from it alone."""
    for number, record in enumerate(passes, 1):
        said = {"about": record.summary, **_what_changed(record, accounting)}
        journal.emit("note", text=f"pass {number}, {record.name}", of_pass=number, **said)


def _what_changed(record: PassRecord, accounting: Accounting) -> dict[str, Any]:
    if not record.changed:
        return {}
    counted = asdict(figures(record.after, accounting))
    return {
        "changes": changes(record.before, record.after),
        "figures": {name: counted[name] for name in FIGURES},
    }


def pass_rows(story: ScheduleStory) -> list[dict[str, Any]]:
    """One row for each pass that ran: what it changed, how long it took, the figures after it.

    A story from a journal knows no program between passes: its rows are those of the journal.
    """
    if not story.passes:
        return pass_list(story.ctx.journal)
    events = list(story.ctx.journal.events("pass"))
    rows: list[dict[str, Any]] = []
    for number, (record, event) in enumerate(zip(story.passes, events, strict=True), 1):
        row: dict[str, Any] = {"number": number, "name": record.name, "about": record.summary}
        row |= {"changed": record.changed, "seconds": event["seconds"]}
        rows.append(row | _what_changed(record, story.accounting))
    return rows


def changes(before: Program, after: Program) -> dict[str, Any]:
    """What differs between two forms of one program, by name."""
    old, new = launches_of(before), launches_of(after)
    old_leaves = {leaf.name: leaf for leaf in before.leaves}
    new_leaves = {leaf.name: leaf for leaf in after.leaves}
    old_ops, new_ops = _names(old), _names(new)
    home = {name: k for k, ops in enumerate(old) for name in ops}
    away = {name: k for k, ops in enumerate(new) for name in ops}
    same = [name for name in new_leaves if name in old_leaves]
    return {
        "fused": [list(ops) for ops in new if len({home[n] for n in ops if n in home}) > 1],
        "split": [list(ops) for ops in old if len({away[n] for n in ops if n in away}) > 1],
        "dropped": [name for name in old_ops if name not in new_ops],
        "added": [name for name in new_ops if name not in old_ops],
        "rewritten": [name for name in same if new_leaves[name] != old_leaves[name]],
        "moved": moved(old, new),
        "remade": _remade(before, after),
        "buffers": len(after.buffers) - len(before.buffers),
    }


def _remade(before: Program, after: Program) -> list[str]:
    """Launches of another name or form than before: kernels for groups, stated parameters."""
    known = {op.name: op for op in before.ops}
    return [op.name for op in after.ops if known.get(op.name) != op]


def launches_of(program: Program) -> list[tuple[str, ...]]:
    """The operations of each launch and call, in order."""
    return [tuple(operations_of(op)) for op in program.ops if op.leaves]


def moved(old: Sequence[tuple[str, ...]], new: Sequence[tuple[str, ...]]) -> list[str]:
    """The least operations that must move for the one order to become the other."""
    place = {name: k for k, name in enumerate(_names(new))}
    order = [name for name in _names(old) if name in place]
    # What can stay is a longest ascending row of places (patience sorting, with its way back).
    ends: list[int] = []
    at: list[int] = []
    back: list[int] = []
    for k, name in enumerate(order):
        here = bisect_left(ends, place[name])
        ends[here : here + 1] = [place[name]]
        at[here : here + 1] = [k]
        back.append(at[here - 1] if here else -1)
    stays, k = set(), at[-1] if at else -1
    while k >= 0:
        stays.add(order[k])
        k = back[k]
    return [name for name in order if name not in stays]


def _names(launches: Sequence[tuple[str, ...]]) -> dict[str, None]:
    return dict.fromkeys(_flat(launches))


def _flat(launches: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for ops in launches:
        yield from ops
