"""A search for small programs: single tasks change places, worse orders are taken now and then.

The numbers are drawn from a fixed start, so every rank draws the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from treadle.analysis.comm.simulate import simulate
from treadle.analysis.comm.tasks import TaskGraph

LARGEST = 160
"""Tasks of a program that is still searched so."""
TRIES = 9000
WARMEST = 0.03
"""How much later, as a part of the bound, an order is still taken half the time at the start."""


def annealed(
    graph: TaskGraph,
    order: list[int],
    bound_us: float,
    fits: Callable[[list[int]], bool],
) -> list[int]:
    """The best order found that fits; `order` must."""
    draw = random.Random(0)
    after = graph.after()
    best, now = list(order), list(order)
    best_us = now_us = simulate(graph, now).makespan_us
    for number in range(TRIES):
        if best_us <= bound_us * 1.0005:
            break
        heat = WARMEST * bound_us * (1 - number / TRIES) + 1e-9
        changed = _moved(graph, after, now, draw)
        if changed is None:
            continue
        us = simulate(graph, changed).makespan_us
        if us > now_us and draw.random() >= math.exp((now_us - us) / heat):
            continue
        if not fits(changed):
            continue
        now, now_us = changed, us
        if us < best_us * (1 - 1e-9):
            best, best_us = changed, us
    return best


def _moved(
    graph: TaskGraph, after: list[list[int]], order: list[int], draw: random.Random
) -> list[int] | None:
    """The order with one task somewhere else between what it needs and what needs it."""
    at = draw.randrange(len(order))
    task = order[at]
    needs, needed = set(graph.before[task]), set(after[task])
    low = at
    while low > 0 and order[low - 1] not in needs:
        low -= 1
    high = at
    while high + 1 < len(order) and order[high + 1] not in needed:
        high += 1
    if low == high:
        return None
    goal = draw.randint(low, high)
    if goal == at:
        return None
    rest = [*order[:at], *order[at + 1 :]]
    return [*rest[:goal], task, *rest[goal:]]
