"""How long a kernel takes on a machine: the one formula by which passes compare kernels.

    time = max(bytes / bandwidth, work / peak) / busy + launch

`busy` is the share of the cores that the kernel has independent points for: a reduction to few
results keeps most of a device idle.
"""

from __future__ import annotations

from treadle.core.costs import Machine
from treadle.ir.body import Body
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Loop


def kernel_ns(machine: Machine, moved: float, work: float, points: int) -> float:
    """Predicted nanoseconds of one launch that moves bytes and works at independent points."""
    busy = min(1.0, max(points, 1) / machine.cores)
    spent = max(moved / machine.gigabytes_per_second, work / machine.vector_gflops)
    return spent / busy + machine.launch_ns


def work_of_loop(op: Loop) -> float:
    """Arithmetic of a loop: each statement once for every point."""
    return pattern_of(op).pattern.derive(_work_at_a_point) * op.body.space.numel_hint


def _work_at_a_point(body: Body) -> float:
    return sum(at.stmt.definition.work for at in body.walk())
