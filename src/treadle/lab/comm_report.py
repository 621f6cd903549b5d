"""What commands say of communication: times before and after, what is exposed and why, lanes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.comm.bounds import MakespanBound, bound_of
from treadle.analysis.comm.machine import CommMachine
from treadle.analysis.comm.simulate import (
    Run,
    longest_flight,
    most_in_flight,
    simulate,
    what_limits,
)
from treadle.analysis.comm.tasks import TaskKind
from treadle.analysis.liveness import Liveness
from treadle.ir.program import Collective, Program
from treadle.lab.output import table

SHOWN_EXPOSED = 8


@dataclass(frozen=True)
class CommFigures:
    """A program on a machine: when it is done, and how much communication is not hidden."""

    run: Run
    bound: MakespanBound

    @property
    def compute_us(self) -> float:
        """All kernels of the busiest stream."""
        return self.bound.stream_us

    def to_json(self) -> dict[str, object]:
        """The figures as plain data."""
        tasks = self.run.graph.tasks
        sent = [t for t in tasks if t.kind is TaskKind.COLLECTIVE]
        return {
            "makespan_us": round(self.run.makespan_us, 3),
            "exposed_comm_us": round(self.run.exposed_us, 3),
            "compute_us": round(self.compute_us, 3),
            "comm_us": round(sum(t.us for t in sent), 3),
            "comm_latency_us": round(sum(t.latency_us for t in sent), 3),
            "collectives": len(sent),
            "in_flight_bytes": most_in_flight(self.run.graph, self.run.order),
            "in_flight_kernels": longest_flight(self.run.graph, self.run.order),
            "bound_us": round(self.bound.us, 3),
            "bound_by": self.bound.by,
            "overlap": round(self.run.overlap(self.bound.us), 4),
        }


def comm_figures(program: Program, machine: CommMachine) -> CommFigures:
    """Simulate a program in its present order."""
    graph = machine.tasks(program)
    return CommFigures(simulate(graph), bound_of(graph))


def has_collectives(program: Program) -> bool:
    """Whether a program communicates at all."""
    return any(isinstance(leaf, Collective) for leaf in program.leaves)


def comm_data(parts: Mapping[str, Program], machine: CommMachine) -> dict[str, object]:
    """What `--json` says: figures of each program, and what is exposed in the last."""
    found = {word: comm_figures(p, machine) for word, p in parts.items()}
    last = list(found.values())[-1]
    exposed = [
        {"collective": e.collective, "us": round(e.us, 3), "limit": e.limit, "by": e.by}
        for e in what_limits(last.run)
    ]
    return {
        "hardware": machine.hardware.name,
        "world": machine.world,
        **{word: figures.to_json() for word, figures in found.items()},
        "exposed": exposed,
    }


def comm_lines(data: Mapping[str, object], words: list[str]) -> Iterator[str]:
    """The same for people."""
    columns = [data[word] for word in words]
    keys = ("makespan_us", "exposed_comm_us", "compute_us", "comm_us", "collectives",
            "in_flight_bytes", "in_flight_kernels", "bound_us", "overlap")  # fmt: skip
    rows = [(key, *[c[key] for c in columns]) for key in keys]  # type: ignore[index]
    yield f"communication on {data['hardware']}, {data['world']} ranks:"
    yield from table(rows, ("", *words))
    exposed = data["exposed"]
    assert isinstance(exposed, list)
    for row in exposed[:SHOWN_EXPOSED]:
        yield f"exposed {row['collective']} {row['us']} us, {row['limit']}: {row['by']}"
    if len(exposed) > SHOWN_EXPOSED:
        yield f"and {len(exposed) - SHOWN_EXPOSED} more"


def chrome_trace(parts: Mapping[str, Program], machine: CommMachine, accounting: str) -> str:
    """Lanes of streams and channels, and bytes alive, as a trace that Perfetto and Chrome open."""
    events: list[dict[str, object]] = []
    for number, (word, program) in enumerate(parts.items(), 1):
        figures = comm_figures(program, machine)
        named = {"name": "process_name", "ph": "M", "pid": number, "args": {"name": word}}
        events += [named, *_lanes(figures.run, number)]
        events += _memory(program, figures.run, accounting, number)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _lanes(run: Run, process: int) -> Iterator[dict[str, object]]:
    lanes: dict[str, int] = {}
    for k in run.order:
        task = run.graph.tasks[k]
        is_sent = task.kind is TaskKind.COLLECTIVE
        lane = f"channel {task.channel}" if is_sent else f"stream {task.stream}"
        us = run.end[k] - run.begin[k]
        if us <= 0:
            continue
        if lane not in lanes:
            lanes[lane] = len(lanes) + 1
            about = {"name": lane}
            place = {"pid": process, "tid": lanes[lane]}
            yield {"name": "thread_name", "ph": "M", **place, "args": about}
        yield {
            "name": task.name,
            "cat": task.kind.value,
            "ph": "X",
            "ts": run.begin[k],
            "dur": us,
            "pid": process,
            "tid": lanes[lane],
            "args": {"what": task.what} if task.what else {},
        }


def _memory(
    program: Program, run: Run, accounting: str, process: int
) -> Iterator[dict[str, object]]:
    """Bytes alive when each task begins."""
    curve = Liveness(program, ACCOUNTINGS[accounting].policy).curve()
    begins = {task.name: run.begin[k] for k, task in enumerate(run.graph.tasks)}
    for name, during, _ in curve:
        if name in begins:
            args = {"bytes": during}
            yield {"name": "alive", "ph": "C", "ts": begins[name], "pid": process, "args": args}
