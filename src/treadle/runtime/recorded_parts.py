"""Where a recording is cut in two, so that a run need not hold everything at once.

    step        0     1     2     3     4            one recording: 7 pieces are held throughout
    saved a     ======+                              cut after step 1: `a` is free when the second
    saved b     ==================+                  part takes its memory, and `d` is not yet there
    gradient c        ====================           while `a` is
    gradient d                    ========

What is replayed is allocated before its first step and let go of after its last. A training step
that frees what the forward saved while gradients are made would hold both. Each part costs the
host some time, so that few are made, and none where that time would be felt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from treadle.runtime.device_memory import DeviceMemory, Role, Span

LEAST_BYTES = 8 << 20
LEAST_SHARE = 0.04
"""What cuts must save, in bytes and as a share of the peak."""
LEAST_NS = 500_000.0
"""How long a run must take on the device, so that the host starts parts faster than they run."""
SLACK = (1.0, 1.01, 1.02, 1.05, 1.1)
"""Peaks over the lowest one for which parts are tried; lower ones need more parts."""
ENOUGH = 0.8
"""The share of what could be saved that is enough, if it takes fewer parts."""
MOST_PARTS = 4

BY_CALLS = frozenset({Role.CALL.value, Role.CALL_OUTPUT.value})
"""What calls allocate while they are recorded belongs to the recording, in one part or in many."""


def in_parts(whole: DeviceMemory, stepwise: DeviceMemory) -> DeviceMemory | None:
    """The plan of steps cut into a few parts, if that holds so much less than `whole` does."""
    pieces = [p for p in stepwise.pieces if p.kind not in BY_CALLS]
    results = [p for p in stepwise.pieces if p.kind in BY_CALLS]
    now = sum(p.bytes for p in whole.pieces if p.kind not in BY_CALLS)
    least = max(_needed(pieces, k, k) for k in range(stepwise.end)) if stepwise.end else 0
    gain = max(LEAST_BYTES, int(now * LEAST_SHARE), int((now - least) * ENOUGH))
    found: list[tuple[tuple[int, int], ...]] = []
    for slack in SLACK:
        parts = tuple(_parts(pieces, results, stepwise.end, int(least * slack)))
        peak = max([_needed(pieces, *part) for part in parts], default=0)
        if len(parts) <= MOST_PARTS and now - peak >= gain:
            found.append(parts)
    return replace(stepwise, parts=min(found, key=len)) if found else None


def may_gain(whole: DeviceMemory) -> bool:
    """Whether it is worth planning without parts at all: how little steps could hold."""
    now = sum(p.bytes for p in whole.pieces if p.kind not in BY_CALLS)
    stepwise = replace(whole, parts=())
    return now - stepwise.lower_bound >= max(LEAST_BYTES, int(now * LEAST_SHARE))


def _parts(
    pieces: Sequence[Span], results: Sequence[Span], end: int, limit: int
) -> Iterator[tuple[int, int]]:
    """Parts as long as the limit allows, cut where no result of a call must be carried over."""
    first = 0
    while first < end:
        last = first
        while last + 1 < end and _needed(pieces, first, last + 1) <= limit:
            last += 1
        if last + 1 < end:
            free = [k for k in range(first, last + 1) if not _carried(results, k)]
            last = free[-1] if free else last
        yield first, last
        first = last + 1


def _needed(pieces: Sequence[Span], first: int, last: int) -> int:
    """The bytes of all that is needed by some step of a part."""
    return sum(p.bytes for p in pieces if p.first <= last and p.last >= first)


def _carried(results: Sequence[Span], k: int) -> bool:
    """Whether a result of a call up to step `k` is looked at after it."""
    return any(p.first <= k < p.last for p in results)
