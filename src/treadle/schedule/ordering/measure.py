"""The peak of an order, counted by one walk: what every search here is judged by.

Who lives from which step to which is the liveness engine's to say (`steps_of` asks it once); here
its rules are applied to one order after another, because a search asks for thousands. The engine is
made for single moves that are tried and undone: on a backward graph of 127 steps it takes 6.7 us a
step to take in an order and 19 us to move one step and back, where a walk takes 1.2 us a step and
a part of 8 steps is counted again in 5 us. That the two count the same, byte for byte and step for
step, is a property test over random programs and orders (tests/property/test_ordering.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.schedule.ordering.steps import Steps


@dataclass(frozen=True)
class MeasuredOrder:
    """An order with where its steps stand, where storages end, and the bytes during each step."""

    order: list[int]
    place: list[int]
    last: list[int]
    """For each storage the place of its last user; the number of steps for what never ends."""
    curve: list[int]


def measured(steps: Steps, order: list[int]) -> MeasuredOrder:
    """Count one order from its first step to its last."""
    place = [0] * len(order)
    for k, step in enumerate(order):
        place[step] = k
    last = []
    alive = 0
    for h in steps.held:
        if h.ends:
            start = -1 if h.producer is None else place[h.producer]
            last.append(max([place[u] for u in h.users], default=start))
        else:
            last.append(len(order))
        if h.producer is None and last[-1] >= 0:
            alive += h.bytes
    return MeasuredOrder(order, place, last, _levels(steps, order, last, alive, None) or [])


def curve_of(steps: Steps, order: list[int]) -> list[int]:
    """Bytes alive during each step, in order."""
    return measured(steps, order).curve


def peak_of(steps: Steps, order: list[int]) -> int:
    """The most bytes alive at once."""
    return max(curve_of(steps, order), default=0)


def recounted(
    steps: Steps, now: MeasuredOrder, low: int, part: Sequence[int], limit: int
) -> list[int] | None:
    """The bytes during each step of `part`, which stands in for as many steps from `low` on.

    None as soon as one is over the limit. Nothing outside can change: the same steps have run
    before it and after it.
    """
    high = low + len(part)
    before = now.curve[low] - _allocated(steps, now, low)
    return _levels(steps, part, now.last, before, limit, high)


def _allocated(steps: Steps, now: MeasuredOrder, at: int) -> int:
    """What the step at a place allocates in this order."""
    step = now.order[at]
    taken = sum(steps.held[k].bytes for k in steps.givers[step] if now.last[k] == at)
    return steps.made[step] - taken


def _levels(
    steps: Steps,
    part: Sequence[int],
    last: Sequence[int],
    alive: int,
    limit: int | None,
    high: int | None = None,
) -> list[int] | None:
    """Bytes during each step of a part of an order that ends before place `high`.

    `last` may be that of another order of the same part: all it is asked is who ends in it.
    """
    size, touches, givers = steps.sizes, steps.touches, steps.givers
    end = len(part) if high is None else high
    rises = [steps.made[step] for step in part]
    dies = [0] * len(part)
    # From the end: whoever touches a storage first there is the last to touch it.
    seen: set[int] = set()
    for k in range(len(part) - 1, -1, -1):
        step, falls = part[k], 0
        for h in touches[step]:
            if h not in seen and last[h] < end:
                seen.add(h)
                if h in givers[step]:  # its block lives on under another name
                    rises[k] -= size[h]
                else:
                    falls += size[h]
        dies[k] = falls
    found = []
    for rise, falls in zip(rises, dies, strict=True):
        alive += rise
        if limit is not None and alive > limit:
            return None
        found.append(alive)
        alive -= falls
    return found
