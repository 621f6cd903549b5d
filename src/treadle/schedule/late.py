"""Running operations as late as their first user allows, where that does not raise the peak.

    before   z = fill(0) ; ... long ... ; use(z)      z is alive all the time
    after    ... long ... ; z = fill(0) ; use(z)

One walk from the end to the beginning on the timeline; a move that raises the peak is undone.
"""

from __future__ import annotations

from treadle.analysis.order import MergeOrder
from treadle.analysis.timeline import LifeError, Timeline


def run_late(timeline: Timeline, order: MergeOrder) -> int:
    """Move steps back to their first user; gives how many moved."""
    moved = 0
    peak = timeline.peak().bytes
    for step in reversed([s[0] for s in timeline.order()]):
        after = order.successors(order.group_of(step))
        if not after:
            continue
        first = min(after, key=timeline.order_key) if len(after) > 1 else after[0]
        if timeline.follows(step, first):
            continue
        mark = timeline.checkpoint()
        try:
            timeline.move_before(step, first)
        except LifeError:
            timeline.rollback(mark)
            continue
        now = timeline.peak().bytes
        if now > peak:
            timeline.rollback(mark)
            continue
        peak, moved = now, moved + 1
    timeline.commit()
    return moved
