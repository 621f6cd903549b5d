"""Live ranges worked out again from positions and uses.

    start   the time of the defining instruction; parameters: of their computation's first one
    end     the latest of: its uses; its positions, where one that is the root of a computation
            counts as that computation's end

A use by `call` is a use inside what is called; a use by `while` counts where the body begins.
Entry parameters that are not donated live throughout. Values that share their place although
these ranges overlap are one buffer to XLA (the state of a loop, a donated parameter and its
output): there each gives way to the next, which lives on for it.
"""

from __future__ import annotations

from itertools import pairwise

from treadle.frontends.xla_dump.model import HloPosition, UsedValue, XlaDump
from treadle.frontends.xla_dump.schedule import CONTROL, HloSchedule

Range = tuple[int, int]


def derived_ranges(dump: XlaDump, schedule: HloSchedule) -> dict[HloPosition, Range]:
    """The range of every used value whose instruction is in the sequence."""
    donated = {one.value.place for allocation, one in dump.assigned() if allocation.is_donated}
    ranges: dict[HloPosition, Range] = {}
    for used in dump.used:
        if used.value.name in schedule.time:
            place = used.value.place
            ranges[place] = _range(used, schedule, place in donated)
    _give_way(dump, ranges)
    return ranges


def _range(used: UsedValue, schedule: HloSchedule, is_donated: bool) -> Range:
    name = used.value.name
    start = schedule.parameter_start.get(name, schedule.time[name])
    if name in schedule.entry_parameters and not is_donated:
        return 0, len(schedule.sequence)
    end = start
    for position in used.positions:
        at = schedule.root_end.get(position.name)
        end = max(end, schedule.time.get(position.name, 0) if at is None else at)
    for use in used.uses:
        if use.name in schedule.calls:
            continue
        inner = schedule.body_parameter.get(use.name, use.name)
        end = max(end, schedule.time.get(inner, 0))
    return start, end


def _give_way(dump: XlaDump, ranges: dict[HloPosition, Range]) -> None:
    """Clip the ranges of values in one place, in order of their starts."""
    shared: dict[tuple[int, int], list[tuple[Range, int, HloPosition]]] = {}
    for allocation, one in dump.assigned():
        place = one.value.place
        if place in ranges:
            key = (allocation.number, one.offset)
            shared.setdefault(key, []).append((ranges[place], one.value.id, place))
    for values in shared.values():
        values.sort(key=lambda v: (v[0][0], v[1]))
        for (_, _, first), (_, _, second) in pairwise(values):
            (start, end), (next_start, next_end) = ranges[first], ranges[second]
            if end > next_start and start != next_start:
                ranges[first] = (start, next_start)
                ranges[second] = (next_start, max(end, next_end))


def is_plausible(used: UsedValue, printed: Range, schedule: HloSchedule) -> bool:
    """Whether a range that could not be worked out at least covers what is sure.

    Sure are the definition and the uses by instructions that run no other computation.
    """
    name = used.value.name
    plain = [
        schedule.time[use.name]
        for use in used.uses
        if schedule.opcode.get(use.name, "call") not in ("call", *CONTROL)
        and use.name in schedule.time
    ]
    start, end = printed
    return start <= schedule.time[name] and all(time <= end for time in plain)
