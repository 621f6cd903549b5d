"""Whether one kernel is faster than two: predicted times of whole kernels, compared.

    apart      each moves its bytes and does its work with the cores it has points for, two launches
    together   the saved bytes are not moved, one launch, with the points that both can share

A reduction has few points: it may keep most of a device idle, and so may a kernel that takes it in.
Not so where programs of a GPU share its steps out: then all cores work, and elements that are
stored on the way are stored by the chunk they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.analysis.kernel_time import kernel_ns
from treadle.core.costs import CostModel, Machine
from treadle.core.verdict import YES, Verdict, no, yes
from treadle.index import hint
from treadle.kernel.space import Space
from treadle.schedule.kernels import KernelDraft
from treadle.schedule.rules.pair import Pair

CACHE_SHARE = 8
"""What is moved stays in the cache if it is smaller than this part of it."""
CACHE_SPEED = 4
"""How much faster a cache is than the memory behind it, at the least."""


class PairTimes(NamedTuple):
    """Predicted nanoseconds of two kernels, and of the one they could be."""

    apart_ns: int
    together_ns: int


def times_of(pair: Pair, saved: int) -> PairTimes | None:
    """The times to compare; None where a call keeps its own points and decides for itself."""
    if pair.space is None or pair.first.call is not None or pair.second.call is not None:
        return None
    cost: CostModel = pair.cost
    machine = cost.machine(pair.first.device)
    one, other = pair.first, pair.second
    apart = _alone_ns(one, machine) + _alone_ns(other, machine)
    moved = max(one.moved_bytes + other.moved_bytes - saved, 0)
    points = _points(pair.space, (one, other), machine)
    together = kernel_ns(machine, moved, one.work + other.work, points)
    return PairTimes(round(apart), round(together))


def is_faster(pair: Pair, saved: int) -> Verdict:
    """FUS014: one kernel takes no longer than two, cores that would stand idle included."""
    times = times_of(pair, saved)
    if times is None:
        return YES
    if times.together_ns <= times.apart_ns:
        return yes(**times._asdict())
    assert pair.space is not None, "without a common space there are no times"
    cost: CostModel = pair.cost
    cores = cost.machine(pair.first.device).cores
    return no("FUS014", points=hint(pair.space.outer), cores=cores, **times._asdict())


def worth_in_memory(saved: int, machine: Machine) -> float:
    """How many bytes of memory may be spent for a fusion, at a price of one byte for a byte.

    What is small stays in the cache, where moving it costs a fraction; a launch is worth the bytes
    that could be moved in its time.
    """
    stays = saved < machine.cache_bytes / CACHE_SHARE
    return saved / (CACHE_SPEED if stays else 1) + machine.launch_ns * machine.gigabytes_per_second


def _alone_ns(kernel: KernelDraft, machine: Machine) -> float:
    points = _points(kernel.space, (kernel,), machine)
    return kernel_ns(machine, kernel.moved_bytes, kernel.work, points)


def _points(space: Space, kernels: Sequence[KernelDraft], machine: Machine) -> int:
    """Points that cores can share out: all that they want, or all rows, if they share steps."""
    points = hint(space.outer)
    if points >= machine.cores or not _shares(space, kernels):
        return points
    return machine.cores if len(space.levels) == 2 else max(points, hint(space.levels[1]))


def _shares(space: Space, kernels: Sequence[KernelDraft]) -> bool:
    """Whether the steps of every point can be cut in chunks: none needs what all of them make."""
    if not any(space.outer in kernel.shared for kernel in kernels):
        return False
    if len(space.levels) < 2 or any(space.outer in kernel.kept for kernel in kernels):
        return False
    made = {
        storage
        for kernel in kernels
        for storage, touches in kernel.touches.items()
        if any(t.is_write and t.level is space.outer for t in touches)
    }
    return not any(
        not t.is_write and t.level is not space.outer
        for kernel in kernels
        for storage in made.intersection(kernel.touches)
        for t in kernel.touches[storage]
    )
