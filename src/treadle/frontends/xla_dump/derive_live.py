"""Live ranges for a dump that comes without them, from the order of its HLO text.

    dump = with_derived_live(dump)
    dump.live.is_derived          # True: worked out, not read

A scheduled module (`is_scheduled=true`) is written in the order it runs in; positions and uses of
the values then give their ranges, by the same rules by which printed ranges are checked.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.frontends.xla_dump.model import HloLiveRange, LiveSection, XlaDump
from treadle.frontends.xla_dump.rederive_lives import derived_ranges
from treadle.frontends.xla_dump.schedule import schedule_of_text


def with_derived_live(dump: XlaDump) -> XlaDump:
    """The dump with live ranges, where it has none and its HLO text and values can tell them."""
    module = dump.module
    if dump.live or not (module and module.is_scheduled and dump.values and dump.assignment):
        return dump
    schedule = schedule_of_text(module)
    found = derived_ranges(dump, schedule)
    held = {one.value.place for _, one in dump.assigned()}
    ranges = [HloLiveRange(*place, *ends) for place, ends in found.items() if place in held]
    live = LiveSection(module.file, schedule.sequence, tuple(ranges), is_derived=True)
    return replace(dump, live=live)
