"""The peak of an order, counted by one walk: what every search here is judged by."""

from __future__ import annotations

from treadle.schedule.ordering.steps import Steps


def curve_of(steps: Steps, order: list[int]) -> list[int]:
    """Bytes alive during each step, in order."""
    place = [0] * len(order)
    for k, step in enumerate(order):
        place[step] = k
    change = [0] * (len(order) + 1)
    for h in steps.held:
        start = 0 if h.producer is None else place[h.producer]
        if not h.users and h.producer is None and h.ends:
            continue
        end = len(order)
        if h.ends:
            end = max([place[u] for u in h.users], default=start) + 1
        change[start] += h.bytes
        change[max(end, start + 1) if h.producer is not None else end] -= h.bytes
    found, alive = [], 0
    for k in range(len(order)):
        alive += change[k]
        found.append(alive)
    return found


def peak_of(steps: Steps, order: list[int]) -> int:
    """The most bytes alive at once."""
    return max(curve_of(steps, order), default=0)
