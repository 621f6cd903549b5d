"""What no order can beat: bytes that must be alive together whatever comes first.

During a step its own operands are alive. So is every storage that an ancestor of the step makes and
a descendant needs, and every result for the caller that an ancestor makes. What may take over the
block of another adds nothing where it is born: the other one is counted there.
"""

from __future__ import annotations

from treadle.schedule.ordering.steps import Steps, StepStorage

LARGEST = 6000
"""Beyond this many steps only operands are counted: reachability would cost too much."""


def lower_bound(steps: Steps) -> int:
    """No order of the steps has a lower peak."""
    if not len(steps):
        return 0
    always = sum(h.bytes for h in steps.held if h.producer is None and not h.ends)
    need = [0] * len(steps)
    if len(steps) > LARGEST:
        for h in steps.held:
            if not (h.producer is None and not h.ends):
                for s in dict.fromkeys(h.touched_by):
                    need[s] += 0 if _may_add_nothing(steps, h, s) else h.bytes
        return always + max(need)
    above, below = _ancestors(steps), _descendants(steps)
    for h in steps.held:
        if h.producer is None and not h.ends:
            continue
        for s in _must_hold(h.producer, h.users, h.ends, above, below):
            need[s] += 0 if _may_add_nothing(steps, h, s) else h.bytes
    return always + max(need)


def _may_add_nothing(steps: Steps, h: StepStorage, step: int) -> bool:
    return h.producer == step and h.name in steps.movable


def _ancestors(steps: Steps) -> list[int]:
    """For each step the set of steps before it and itself, as bits."""
    found = [0] * len(steps)
    for s in range(len(steps)):  # the given order is valid
        bits = 1 << s
        for p in steps.before[s]:
            bits |= found[p]
        found[s] = bits
    return found


def _descendants(steps: Steps) -> list[int]:
    found = [0] * len(steps)
    for s in range(len(steps) - 1, -1, -1):
        bits = 1 << s
        for n in steps.after[s]:
            bits |= found[n]
        found[s] = bits
    return found


def _must_hold(
    producer: int | None, users: tuple[int, ...], ends: bool, above: list[int], below: list[int]
) -> list[int]:
    """The steps during which a storage is alive in every order."""
    started = -1 if producer is None else below[producer]
    wanted = 0
    for u in users:
        wanted |= above[u]
    if not ends:
        wanted = -1
    bits = started & wanted if started >= 0 or wanted >= 0 else 0
    if producer is not None:
        bits |= 1 << producer
    found = []
    while bits > 0:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
