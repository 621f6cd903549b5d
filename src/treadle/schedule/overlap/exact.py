"""The best order of a small program, proved so by OR-tools' CP-SAT, where that is installed.

Every task is an event on its stream: kernels take their time there, launches and waits take none
but do not stand inside a kernel. A collective occupies its channel from some time after its launch
on; a wait stands behind the end of its collective. Memory is left out: an order that does not fit
still says how soon any order could be done.

Nothing is timed: the solver's work is counted, so that every rank that has it finds the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from treadle.analysis.comm.bounds import bound_of, in_order
from treadle.analysis.comm.tasks import TaskGraph, TaskKind, first_come_order
from treadle.core.errors import UsageError

LARGEST_EXACT = 40
"""Tasks that take time, of a program that is still solved."""
WORK = 20.0
"""How much the solver may do, in its own seconds, which do not depend on the machine."""
NANOSECONDS = 1000
"""The solver counts in whole numbers."""


@dataclass(frozen=True)
class ExactOrder:
    """An order, and a time that none beats whatever memory it takes."""

    order: tuple[int, ...]
    bound_us: float
    is_proven: bool
    """Whether the order is done then: there is no better one."""


def is_available() -> bool:
    """Whether OR-tools is installed."""
    return find_spec("ortools") is not None


def is_small(graph: TaskGraph) -> bool:
    """Whether a program is solved at all: it is small, and the model says all that happens."""
    told = not graph.slowdown and not any(t.launch_us for t in graph.tasks)
    return told and sum(t.us > 0 for t in graph.tasks) <= LARGEST_EXACT


def exact_order(graph: TaskGraph) -> ExactOrder:
    """The order that is done soonest, or the best found and how much better another could be."""
    if not is_available():
        notes = ["install it (pip install treadle[opt]), or ask for comm=model"]
        raise UsageError("comm=exact needs OR-tools", code="COL010", notes=notes)
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    events = _Events(model, graph)
    least = int(bound_of(graph).us * NANOSECONDS) - len(graph.tasks)
    end = model.NewIntVar(max(0, least), events.horizon, "end")
    for last in events.ends:
        model.Add(end >= last)
    model.Minimize(end)
    for k in range(len(graph.tasks)):
        model.AddHint(events.at[k], events.known[k])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = WORK
    status = solver.Solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), "the given order is a solution"
    order = events.order([solver.Value(at) for at in events.at], solver)
    bound = solver.BestObjectiveBound() / NANOSECONDS
    return ExactOrder(order, bound, status == cp_model.OPTIMAL)


class _Events:
    """The variables: when each task is begun by its stream, and runs on its channel."""

    def __init__(self, model: Any, graph: TaskGraph) -> None:
        self.graph = graph
        self.length = [int(task.us * NANOSECONDS) for task in graph.tasks]
        self.horizon = sum(self.length) + 1
        self.known = self._one_by_one()
        names = range(len(graph.tasks))
        self.at = [model.NewIntVar(0, self.horizon, f"at{k}") for k in names]
        self.begin = {k: model.NewIntVar(0, self.horizon, f"begin{k}") for k in graph.collectives}
        self.ends = [self._end(k) for k in names]
        self._occupy(model)
        for k in names:
            self._follow(model, k)

    def _one_by_one(self) -> list[int]:
        """When each task is begun if nothing overlaps: a solution to begin with."""
        found, now = [0] * len(self.length), 0
        for k in in_order(self.graph):
            found[k] = now
            now += self.length[k]
        return found

    def _is_sent(self, k: int) -> bool:
        return self.graph.tasks[k].kind is TaskKind.COLLECTIVE

    def _end(self, k: int) -> Any:
        return (self.begin[k] if self._is_sent(k) else self.at[k]) + self.length[k]

    def _occupy(self, model: Any) -> None:
        """One kernel at a time on each stream, one message on each channel."""
        rows: dict[tuple[str, str], list[Any]] = {}
        for k, task in enumerate(self.graph.tasks):
            count = 0 if self._is_sent(k) else self.length[k]
            one = model.NewFixedSizeIntervalVar(self.at[k], count, f"on_stream{k}")
            rows.setdefault(("stream", task.stream), []).append(one)
            if self._is_sent(k):
                sent = model.NewFixedSizeIntervalVar(self.begin[k], self.length[k], f"sent{k}")
                rows.setdefault(("channel", task.channel), []).append(sent)
        for row in rows.values():
            model.AddNoOverlap(row)

    def _follow(self, model: Any, k: int) -> None:
        task = self.graph.tasks[k]
        if self._is_sent(k):
            model.Add(self.begin[k] >= self.at[k])
        if task.kind is TaskKind.WAIT and task.of >= 0:
            model.Add(self.at[k] >= self.ends[task.of])
        for source in self.graph.before[k]:
            if not self._is_sent(source):
                model.Add(self.at[k] >= self.ends[source])
                continue
            model.Add(self.at[k] >= self.at[source])
            if self._is_sent(k) and self.graph.tasks[source].channel == task.channel:
                model.Add(self.begin[k] >= self.ends[source])  # in turn

    def order(self, at: list[int], solver: Any) -> tuple[int, ...]:
        """The tasks as they are launched; on a channel, as they run."""
        begin = {k: solver.Value(var) for k, var in self.begin.items()}
        place = {k: number for number, k in enumerate(in_order(self.graph))}
        before = {k: set(row) for k, row in enumerate(self.graph.before)}
        last: dict[str, int] = {}
        for k in sorted(begin, key=lambda k: (begin[k], place[k])):
            channel = self.graph.tasks[k].channel
            if channel in last:
                before[k].add(last[channel])
                at[k] = max(at[k], at[last[channel]])
            last[channel] = k
        takes_time = [bool(n) and not self._is_sent(k) for k, n in enumerate(self.length)]
        # At the same moment: what takes no time before what does; then as they need each other.
        sooner = sorted(place, key=lambda k: (at[k], takes_time[k], place[k]))
        number = {k: n for n, k in enumerate(sooner)}
        found = first_come_order({number[k]: {number[s] for s in before[k]} for k in sooner})
        assert found is not None, "a solution has no rings"
        return tuple([sooner[n] for n in found])
