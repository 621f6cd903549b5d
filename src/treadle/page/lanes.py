"""When everything would run if it took as long as predicted: one lane to compute, one per group.

A collective runs beside what follows it until its wait; what the wait still waits for is exposed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from treadle.analysis.cost import cost_model
from treadle.core.options import Options
from treadle.ir.effects import effects, runs
from treadle.ir.program import Collective, Operation, Program, Wait

COMPUTE = "compute"


@dataclass(frozen=True)
class LaneSlice:
    """Something that runs in a lane, in microseconds from the beginning."""

    name: str
    lane: str
    start_us: float
    us: float


@dataclass(frozen=True)
class ExposedWait:
    """A collective, its wait, and how long nothing else could run meanwhile."""

    collective: str
    wait: str
    us: float
    exposed_us: float


@dataclass
class PredictedRun:
    """Slices in order of their start, and what waits cost."""

    slices: list[LaneSlice] = field(default_factory=list)
    waits: list[ExposedWait] = field(default_factory=list)
    total_us: float = 0.0

    @property
    def exposed_us(self) -> float:
        """The time in which computing stood still for communication."""
        return sum(row.exposed_us for row in self.waits)

    def to_json(self) -> dict[str, Any]:
        """Waits and totals as plain data, and slices as rows: name, lane, start, length."""
        rows = [[s.name, s.lane, round(s.start_us, 3), round(s.us, 3)] for s in self.slices]
        return {
            "slices": rows,
            "waits": [asdict(row) for row in self.waits],
            "total_us": round(self.total_us, 3),
            "exposed_us": round(self.exposed_us, 3),
        }


def predicted_run(program: Program, options: Options) -> PredictedRun:
    """The program in its order, each operation as long as the cost model says."""
    model = cost_model(program, options)
    found = PredictedRun()
    now = 0.0
    busy: dict[str, float] = {}
    ends: dict[str, tuple[str, float, float]] = {}
    for op in program.ops:
        if not runs(op):
            continue
        waits = [leaf for leaf in op.leaves if isinstance(leaf, Wait)]
        for wait in waits:
            done = ends.pop(program.storage_of(wait.buffer), None)
            if done is not None:
                name, end, took = done
                found.waits.append(ExposedWait(name, wait.name, took, max(0.0, end - now)))
                now = max(now, end)
        us = model.op_ns(op) / 1e3
        if not us:
            continue
        lane = _lane(op)
        if lane == COMPUTE:
            found.slices.append(LaneSlice(op.name, lane, now, us))
            now += us
            continue
        start = max(now, busy.get(lane, 0.0))
        busy[lane] = start + us
        found.slices.append(LaneSlice(op.name, lane, start, us))
        for name in _written(program, op):
            ends[name] = (op.name, start + us, us)
    found.total_us = max([now, *busy.values()])
    return found


def _lane(op: Operation) -> str:
    groups = [leaf.group for leaf in op.leaves if isinstance(leaf, Collective)]
    return f"communication {groups[0]}".strip() if groups else COMPUTE


def _written(program: Program, op: Operation) -> set[str]:
    touched = effects(op)
    return {program.storage_of(n) for n in (*touched.writes, *touched.mutates)}
