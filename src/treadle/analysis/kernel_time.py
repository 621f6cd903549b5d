"""How long a kernel takes on a machine: the one formula by which passes compare kernels.

    time = max(bytes / bandwidth, work / peak) / busy + launch

`busy` is the share of the cores that the kernel has independent points for: a reduction to few
results keeps most of a device idle. The slower of the two hides the other where many threads wait
for memory while others compute; a core of a CPU does one after the other, and passes that weigh
work against bytes there ask for the sum.
"""

from __future__ import annotations

from treadle.core.costs import Machine
from treadle.ir.body import Body
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Loop


def kernel_ns(
    machine: Machine, moved: float, work: float, points: int, *, in_turn: bool = False
) -> float:
    """Predicted nanoseconds of one launch that moves bytes and works at independent points.

    `in_turn`: what moves and what computes do not hide each other.
    """
    busy = min(1.0, max(points, 1) / machine.cores)
    moving, working = moved / machine.gigabytes_per_second, work / machine.vector_gflops
    spent = moving + working if in_turn else max(moving, working)
    return spent / busy + machine.launch_ns


def work_of_loop(op: Loop) -> float:
    """Arithmetic of a loop: each statement once for every point."""
    return pattern_of(op).pattern.derive(work_at_a_point) * op.body.space.numel_hint


def work_at_a_point(body: Body) -> float:
    """Arithmetic of all statements of a body, each once."""
    return sum(at.stmt.definition.work for at in body.walk())
