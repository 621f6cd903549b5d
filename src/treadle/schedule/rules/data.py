"""Rules that look at data: what one kernel stores and the other touches must meet at one point.

A kernel's points run in any order and at the same time. A value that one member stores and another
reads must therefore be stored at the very point at which it is read, and a place that one member
overwrites must be read by the others at that point only. Accesses that never meet are free.
"""

from __future__ import annotations

from treadle.analysis.access import can_meet
from treadle.core.verdict import YES, Verdict, no
from treadle.schedule.kernels import same_point
from treadle.schedule.rules.pair import Pair
from treadle.schedule.touches import Touch, visits_once


def shares_data(p: Pair) -> Verdict:
    """FUS007: kernels that share nothing gain nothing from being one."""
    return YES if p.shared else no("FUS007")


def meets_at_one_point(p: Pair) -> Verdict:
    """FUS008: what one stores and the other touches is touched at the same point by both."""
    for storage in p.shared:
        for a in p.first.touches[storage]:
            for b in p.second.touches[storage]:
                if a.is_write or b.is_write:
                    verdict = _meets(a, b)
                    if not verdict:
                        return verdict
    return YES


def _meets(a: Touch, b: Touch) -> Verdict:
    if a.is_write and b.is_write and a.mode == b.mode != "plain":
        return YES  # atomic stores of one kind take turns
    if not same_point(a, b):
        if not can_meet(a.access, b.access):
            return YES  # parts of one storage, as of a concatenation
        return no("FUS008", storage=a.storage, left=_shown(a), right=_shown(b))
    for store in (a, b):
        if store.is_write and (store.access_map is None or not visits_once(store.access_map)):
            return no("FUS009", storage=a.storage, store=_shown(store), mode=store.mode)
    return YES


def _shown(t: Touch) -> str:
    if t.access.map is None:
        return "all of it"
    return str(t.access_map if t.access_map is not None else t.access.map)


DATA_RULES = (shares_data, meets_at_one_point)
