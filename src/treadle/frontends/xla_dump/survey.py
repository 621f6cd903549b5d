"""What is in a dump, in figures: bytes by kind, the true peak, bounds, waste, what is largest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from treadle.frontends.xla_dump.import_plan import alignment_of, arena_of
from treadle.frontends.xla_dump.model import KINDS, Allocation, Assigned, HloPosition, XlaDump
from treadle.frontends.xla_dump.replan import HOSTS, is_table
from treadle.frontends.xla_dump.sharing import Sharing

LARGEST = 5


@dataclass(slots=True)
class XlaSurvey:
    """Figures about one dump; what its missing parts would tell is left at zero or empty."""

    instructions: int = 0
    values: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    total: int = 0
    temp: int = 0
    peak: int = 0
    """Bytes that really live at once, by true sizes, both ends of a range included."""
    peak_at: str = ""
    printed_peak: int | None = None
    printed_peak_at: int | None = None
    alignment: int = 1
    temp_bound: int = 0
    """What the values of the scratch memory need at once, each rounded up to the alignment."""
    joint_bound: int = 0
    """What outputs, donated inputs and temporaries need at once."""
    idle_in_hosts: int = 0
    """Bytes of outputs never used before they are born."""
    tables: int = 0
    table_bytes: int = 0
    largest: list[tuple[str, int]] = field(default_factory=list)
    donated: list[str] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)


def survey(dump: XlaDump) -> XlaSurvey:
    """The figures of a dump."""
    s = XlaSurvey(values=len(dump.used) or sum(1 for _ in dump.assigned()))
    s.instructions = len(dump.live.sequence) if dump.live else 0
    for kind in KINDS:
        some = [a for a in dump.allocations if a.kind == kind]
        s.counts[kind], s.bytes[kind] = len(some), sum(a.size for a in some)
    s.total, s.temp = dump.total_bytes, dump.temp_bytes
    s.alignment = alignment_of(dump)
    sharing = Sharing(dump)
    _peaks(dump, sharing, s)
    _bounds(dump, sharing, s)
    _contents(dump, s)
    return s


def _peaks(dump: XlaDump, sharing: Sharing, s: XlaSurvey) -> None:
    if dump.live is None:
        return
    everything = [one for _, one in dump.assigned()]
    s.peak, moment = _most(dump, sharing, everything)
    names = dump.live.sequence
    s.peak_at = f"{moment} ({names[moment] if moment < len(names) else 'the end'})"
    if peak := dump.live.peak:
        s.printed_peak_at, s.printed_peak = peak.moment, sum(row.size for row in peak.lines)


def _bounds(dump: XlaDump, sharing: Sharing, s: XlaSurvey) -> None:
    if dump.live is None:
        return
    arena = arena_of(dump)
    if arena:
        s.temp_bound, _ = _most(dump, sharing, arena.values, s.alignment)
    shared = [one for a, one in dump.assigned() if a.kind in (*HOSTS, "temp")]
    s.joint_bound, _ = _most(dump, sharing, shared)
    last = len(dump.live.sequence)
    for allocation in dump.allocations:
        if allocation.kind == "output":
            s.idle_in_hosts += _idle(dump, allocation, last)


def _idle(dump: XlaDump, allocation: Allocation, last: int) -> int:
    """Bytes of an output that nothing uses until the output itself is written."""
    before = [
        one.offset + one.size
        for one in allocation.values
        if (found := dump.range_of.get(one.value.place)) and found.end < last
    ]
    return allocation.size - max(before, default=0)


def _most(
    dump: XlaDump, sharing: Sharing, values: Iterable[Assigned], alignment: int = 1
) -> tuple[int, int]:
    """The most bytes of these values that live at once, and the first moment they do.

    Values that keep one place count once. With an alignment all but the topmost are rounded up.
    """
    slots: dict[HloPosition, tuple[int, list[tuple[int, int]]]] = {}
    for one in values:
        found = dump.range_of.get(one.value.place)
        if found:
            leader = sharing.group_of(one.value.place)
            size, lives = slots.get(leader, (0, []))
            slots[leader] = (max(size, one.size), [*lives, (found.start, found.end)])
    exact = _highest((size, lives) for size, lives in slots.values())
    if alignment == 1:
        return exact
    rounded = [(-(-size // alignment) * alignment, lives) for size, lives in slots.values()]
    slack = max((r[0] - s[0] for r, s in zip(rounded, slots.values())), default=0)
    best, moment = _highest(rounded)
    return max(exact, (best - slack, moment))


def _highest(slots: Iterable[tuple[int, list[tuple[int, int]]]]) -> tuple[int, int]:
    changes: dict[int, int] = {}
    for size, lives in slots:
        end = -1
        for start, stop in sorted(lives):
            start = max(start, end)
            if stop + 1 > start:
                changes[start] = changes.get(start, 0) + size
                changes[stop + 1] = changes.get(stop + 1, 0) - size
                end = stop + 1
    now = best = moment = 0
    for time in sorted(changes):
        now += changes[time]
        if now > best:
            best, moment = now, time
    return best, moment


def _contents(dump: XlaDump, s: XlaSurvey) -> None:
    values = [one for _, one in dump.assigned()]
    ordered = sorted(values, key=lambda one: (-one.size, one.value.id))
    s.largest = [(str(one.value.place).removesuffix("{}"), one.size) for one in ordered[:LARGEST]]
    tables = [one for one in values if is_table(one)]
    s.tables, s.table_bytes = len(tables), sum(one.size for one in tables)
    for allocation in dump.allocations:
        if allocation.is_donated and allocation.parameter:
            s.donated.append(f"parameter {allocation.parameter.number}")
    colors = {a.color for a in dump.allocations}
    if len(colors) > 1:
        s.oddities.append(f"memory of {len(colors)} colours")
    temps = [a for a in dump.allocations if a.kind == "temp"]
    if len(temps) > 1:
        s.oddities.append(f"{len(temps)} scratch allocations")
    if dump.live:
        unborn = [o for a, o in dump.assigned() if o.value.place not in dump.range_of]
        unborn = [one for one in unborn if one.value.name in set(dump.live.sequence)]
        if unborn:
            s.oddities.append(f"{len(unborn)} values of the sequence without a live range")
    empty = [a.number for a in dump.allocations if not a.values]
    if empty:
        s.oddities.append(f"{len(empty)} allocations without a value")
