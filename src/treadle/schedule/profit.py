"""Whether one kernel is faster than two: predicted times, compared.

    apart      each moves its bytes with as many cores as it has points for, two launches
    together   the saved bytes are not moved, one launch, with the points that both can share

A reduction has few points: it may keep most of a device idle, and so may a kernel that takes it in.
"""

from __future__ import annotations

from treadle.core.costs import CostModel, Machine
from treadle.core.verdict import YES, Verdict, no
from treadle.index import hint
from treadle.schedule.kernels import KernelDraft
from treadle.schedule.rules.pair import Pair

CACHE_SHARE = 8
"""What is moved stays in the cache if it is smaller than this part of it."""
CACHE_SPEED = 4
"""How much faster a cache is than the memory behind it, at the least."""


def is_faster(pair: Pair, saved: int) -> Verdict:
    """FUS014: cores that would stand idle cost less than what is saved."""
    if pair.space is None or pair.first.call is not None or pair.second.call is not None:
        return YES  # a call keeps its own points
    cost: CostModel = pair.cost
    machine = cost.machine(pair.first.device)
    points = hint(pair.space.outer)
    if points >= machine.cores:
        return YES
    moved = [moved_bytes(k) for k in (pair.first, pair.second)]
    apart = sum(
        _ns(n, hint(k.space.outer), machine)
        for n, k in zip(moved, (pair.first, pair.second), strict=True)
    )
    together = _ns(max(sum(moved) - saved, 0), points, machine)
    if together <= apart:
        return YES
    return no(
        "FUS014", points=points, cores=machine.cores, apart_ns=round(apart),
        together_ns=round(together),
    )  # fmt: skip


def worth_in_memory(saved: int, machine: Machine) -> float:
    """How many bytes of memory may be spent for a fusion, at a price of one byte for a byte.

    What is small stays in the cache, where moving it costs a fraction; a launch is worth the bytes
    that could be moved in its time.
    """
    stays = saved < machine.cache_bytes / CACHE_SHARE
    return saved / (CACHE_SPEED if stays else 1) + machine.launch_ns * machine.gigabytes_per_second


def moved_bytes(kernel: KernelDraft) -> int:
    """Bytes that a kernel reads and writes, each storage once each way."""
    total = 0
    for touches in kernel.touches.values():
        total += max((t.bytes for t in touches if not t.is_write), default=0)
        total += max((t.bytes for t in touches if t.is_write), default=0)
    return total


def _ns(moved: int, points: int, machine: Machine) -> float:
    busy = min(1.0, max(points, 1) / machine.cores)
    return moved / machine.gigabytes_per_second / busy + machine.launch_ns
