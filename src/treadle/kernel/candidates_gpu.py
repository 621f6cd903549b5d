"""Schedules of a nest on a GPU that are worth measuring: the usual one, and others like it.

    usual        1024 points, 4 warps      predicted 41 us
    lean         2048 points, 4 warps      predicted 41 us
    lean         1024 points, 8 warps      predicted 42 us

The model that predicts times knows tiles, warps and walks; it does not know what a compiler makes
of them. Where it sees no difference a device may, so what it predicts to be about as fast as the
best is kept, and no more than a few of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from treadle.analysis.devices import Device
from treadle.analysis.gpu_time import scheduled_ns
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.loop_schedule import Step
from treadle.ir.program import Nest, Program
from treadle.kernel.allowed_steps import is_allowed
from treadle.kernel.choose_gpu import Lean, choose_gpu_steps
from treadle.kernel.vector_rules import accesses_of

MOST_CANDIDATES = 3
CLOSE = 1.25
"""What is predicted to take longer than the best by this factor is not tried."""
POINT_LEANINGS = (
    Lean(tile=1), Lean(warps=-1), Lean(tile=-1), Lean(warps=1), Lean(tile=-1, warps=-1),
    Lean(tile=1, warps=1), Lean(tile=2, warps=1), Lean(tile=-2, warps=-1),
)  # fmt: skip
ROW_LEANINGS = (
    Lean(warps=-1), Lean(warps=1), Lean(tile=1), Lean(is_walked=True), Lean(tile=-1),
    Lean(tile=-1, warps=-1), Lean(tile=1, warps=1), Lean(pipeline=2), Lean(pipeline=4),
)  # fmt: skip
"""In the order in which they are tried where the model sees no difference: nests without inner
loops, and with some."""
LEANINGS = tuple(dict.fromkeys((*POINT_LEANINGS, *ROW_LEANINGS)))


class Candidate(NamedTuple):
    """A schedule, and how long the model says that a launch takes."""

    steps: tuple[Step, ...]
    predicted_ns: float

    @property
    def text(self) -> str:
        """The steps as a program shows them."""
        return ", ".join([str(step) for step in self.steps])


def may_be_measured(nest: Nest, program: Program) -> Verdict:
    """TUN001: whether a nest can run on any memory of the right size and take its usual time."""
    for a in accesses_of(nest.body, program):
        if a.is_indirect:
            return no("TUN001", nest=nest.name, reason=f"data decide where '{a.buffer}' is touched")
        device = program.by_name[a.storage].device
        if device != nest.device:
            return no("TUN001", nest=nest.name, reason=f"'{a.buffer}' is on {device}")
    return yes("TUN001", nest=nest.name)


def candidates(
    nest: Nest,
    program: Program,
    moved: float,
    device: Device,
    count: int = 1,
    most: int = MOST_CANDIDATES,
) -> tuple[Candidate, ...]:
    """The schedule a nest has, first, and others that may be faster; `count` nests share a launch.

    A nest whose schedule somebody else chose has no others.
    """
    usual = _predicted(nest, nest.schedule, moved, device, count)
    if nest.schedule != choose_gpu_steps(nest, program)[0]:
        return (usual,)
    others = [_predicted(nest, s, moved, device, count) for s in _leaning(nest, program)]
    best = min([usual.predicted_ns, *[one.predicted_ns for one in others]])
    close = [one for one in others if one.predicted_ns <= CLOSE * best]
    return (usual, *sorted(close, key=lambda one: one.predicted_ns)[: most - 1])


def _leaning(nest: Nest, program: Program) -> Iterator[tuple[Step, ...]]:
    """Other schedules that numerics and the nest allow, each once."""
    seen = {nest.schedule}
    for lean in ROW_LEANINGS if len(nest.body.reduce) else POINT_LEANINGS:
        steps, verdict = choose_gpu_steps(nest, program, lean)
        if verdict and steps not in seen and is_allowed(_with(nest, steps), program):
            seen.add(steps)
            yield steps


def _with(nest: Nest, steps: tuple[Step, ...]) -> Nest:
    return replace(nest, schedule=steps)


def _predicted(
    nest: Nest, steps: tuple[Step, ...], moved: float, device: Device, count: int
) -> Candidate:
    alike = [(_with(nest, steps), moved)] * count
    return Candidate(steps, scheduled_ns(alike, device, count > 1))
