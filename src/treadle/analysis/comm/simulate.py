"""When every task runs if they are launched in a given order, and what communication is exposed.

Streams run what they are given in order; a collective begins when what was launched before it on
its stream is done and its channel is free. A launch costs nothing here, for queues are never empty,
unless it was measured (`Task.launch_us`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.analysis.comm.tasks import Task, TaskGraph, TaskKind

NEXT_TO_NOTHING_US = 1e-6
"""Times closer than this are the same: they come from sums of floats."""


@dataclass(frozen=True)
class Run:
    """When each task of a graph begins and ends, in microseconds."""

    graph: TaskGraph
    order: tuple[int, ...]
    begin: tuple[float, ...]
    end: tuple[float, ...]
    held: tuple[float, ...]
    """For each wait how long it held its stream."""

    @property
    def makespan_us(self) -> float:
        """When the last task is done."""
        return max(self.end, default=0.0)

    @property
    def exposed_us(self) -> float:
        """How long streams stood still because of waits."""
        return sum(self.held)

    def exposed_of(self) -> dict[int, float]:
        """For each collective how long streams stood still for it."""
        found = dict.fromkeys(self.graph.collectives, 0.0)
        for k, us in enumerate(self.held):
            of = self.graph.tasks[k].of
            if of >= 0:
                found[of] += us
        return found

    def overlap(self, bound_us: float) -> float:
        """The share of the possible overlap that is had: 1 is all, 0 is none."""
        possible = self.graph.serial_us - bound_us
        if possible <= NEXT_TO_NOTHING_US:
            return 1.0
        return (self.graph.serial_us - self.makespan_us) / possible


def simulate(graph: TaskGraph, order: Sequence[int] | None = None) -> Run:
    """Launch the tasks in this order (default: the given one) and see when each runs."""
    launched = tuple(range(len(graph.tasks))) if order is None else tuple(order)
    clock = _Queues(graph)
    for k in launched:
        clock.launch(k)
    return Run(graph, launched, tuple(clock.begin), tuple(clock.end), tuple(clock.held))


class _Queues:
    """The state of all streams and channels."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        count = len(graph.tasks)
        self.begin, self.end, self.held = [0.0] * count, [0.0] * count, [0.0] * count
        self.streams: dict[str, float] = {}
        self.channels: dict[str, float] = {}
        self.flying: list[tuple[float, float]] = []
        """When collectives are under way, those that are over left out."""
        self.is_single = len({t.stream for t in graph.tasks}) == 1

    def launch(self, k: int) -> None:
        """Let one more task run."""
        task = self.graph.tasks[k]
        ready = self.streams.get(task.stream, 0.0)
        if not self.is_single:
            # What other streams made must be there; on its own stream it is, by order.
            others = (s for s in self.graph.before[k] if self._joins(s, task))
            ready = max([ready, *[self.end[s] for s in others]])
        if task.kind is TaskKind.COLLECTIVE:
            if task.launch_us:
                ready += task.launch_us
                self.streams[task.stream] = ready
            begin = max(ready, self.channels.get(task.channel, 0.0))
            end = begin + task.us
            self.channels[task.channel] = end
            if self.graph.slowdown:
                self.flying.append((begin, end))
            self.begin[k], self.end[k] = begin, end
            return
        end = ready
        if task.kind is TaskKind.WAIT and task.of >= 0:
            end = max(ready, self.end[task.of])
            self.held[k] = end - ready
        elif task.us:
            end = self._worked(ready, task.us) if self.flying else ready + task.us
        self.begin[k], self.end[k] = ready, end
        self.streams[task.stream] = end

    def _joins(self, source: int, task: Task) -> bool:
        made = self.graph.tasks[source]
        return made.stream != task.stream and made.kind is not TaskKind.COLLECTIVE

    def _worked(self, begin: float, us: float) -> float:
        """When a kernel is done that is slower while collectives are under way."""
        self.flying = [f for f in self.flying if f[1] > begin]
        rate = 1 / (1 + self.graph.slowdown)
        now, left = begin, us
        marks = sorted({m for f in self.flying for m in f if m > begin})
        for mark in marks:
            speed = rate if any(a <= now < b for a, b in self.flying) else 1.0
            if left <= (mark - now) * speed:
                return now + left / speed
            left -= (mark - now) * speed
            now = mark
        return now + left


def most_in_flight(graph: TaskGraph, order: Sequence[int]) -> int:
    """The most bytes of messages that are begun and not yet waited for, in an order of tasks."""
    waits = Counter(task.of for task in graph.tasks if task.kind is TaskKind.WAIT)
    flying = most = 0
    for k in order:
        task = graph.tasks[k]
        if task.kind is TaskKind.COLLECTIVE:
            flying += task.message_bytes
            most = max(most, flying)
        elif task.kind is TaskKind.WAIT and task.of >= 0:
            waits[task.of] -= 1  # a message of several tensors is there when all of them are
            flying -= 0 if waits[task.of] else graph.tasks[task.of].message_bytes
    return most


def longest_flight(graph: TaskGraph, order: Sequence[int]) -> int:
    """The most kernels that stand between a collective and its first wait, in an order of tasks."""
    begun: dict[int, int] = {}
    ran = most = 0
    for k in order:
        task = graph.tasks[k]
        if task.kind is TaskKind.COMPUTE:
            ran += 1
        elif task.kind is TaskKind.COLLECTIVE:
            begun[k] = ran
        elif task.of in begun:
            most = max(most, ran - begun.pop(task.of))
    return most


@dataclass(frozen=True)
class Exposed:
    """A collective that streams stand still for, and why it is not done sooner."""

    collective: str
    us: float
    limit: str
    """channel, operand or launch"""
    by: str
    """The task that makes it late, in words."""


def what_limits(run: Run) -> list[Exposed]:
    """Why each exposed collective is, the most exposed first.

    channel   it could have begun sooner, but another one occupied its channel
    operand   it began as soon as what it sends was made
    launch    what it sends was there, but it was launched later
    """
    found = []
    tasks, previous = run.graph.tasks, _before_on_channel(run)
    for k, us in run.exposed_of().items():
        if us <= NEXT_TO_NOTHING_US:
            continue
        made = [s for s in run.graph.before[k] if tasks[s].kind is TaskKind.COMPUTE]
        last = max(made, key=lambda s: run.end[s], default=None)
        ready = 0.0 if last is None else run.end[last]
        blocker = previous.get(k)
        if blocker is not None and abs(run.end[blocker] - run.begin[k]) <= NEXT_TO_NOTHING_US:
            limit, by = "channel", f"{tasks[blocker].name} occupies {tasks[k].channel} before it"
        elif run.begin[k] - ready <= NEXT_TO_NOTHING_US:
            source = "the beginning" if last is None else tasks[last].name
            limit, by = "operand", f"what it sends is there only after {source}"
        else:
            limit, by = "launch", "it is launched after kernels that it does not need"
        found.append(Exposed(tasks[k].name, us, limit, by))
    return sorted(found, key=lambda e: -e.us)


def critical_chain(run: Run) -> list[int]:
    """The tasks that decide when a run ends, last first: each began when the next one let it.

    A task that is not on it could take longer, or come later, for nothing.
    """
    tasks, on_channel, on_stream = run.graph.tasks, _before_on_channel(run), _before_on_stream(run)

    def what_let_it_begin(k: int) -> int | None:
        task = tasks[k]
        if task.kind is TaskKind.WAIT and run.held[k] > NEXT_TO_NOTHING_US:
            return task.of
        others = [s for s in run.graph.before[k] if tasks[s].stream != task.stream]
        sources = [s for s in others if tasks[s].kind is not TaskKind.COLLECTIVE]
        sources += [row[k] for row in (on_stream, on_channel) if k in row]
        return max(sources, key=lambda s: run.end[s], default=None)

    found: list[int] = []
    here: int | None = max(run.order, key=lambda k: run.end[k], default=None)
    while here is not None and run.end[here] > 0:
        found.append(here)
        here = what_let_it_begin(here)
    return found


def _before_on_stream(run: Run) -> dict[int, int]:
    """For each task the last one before it that its stream had to finish."""
    last: dict[str, int] = {}
    found: dict[int, int] = {}
    for k in run.order:
        task = run.graph.tasks[k]
        if task.stream in last:
            found[k] = last[task.stream]
        if task.kind is not TaskKind.COLLECTIVE:
            last[task.stream] = k
    return found


def _before_on_channel(run: Run) -> dict[int, int]:
    last: dict[str, int] = {}
    found: dict[int, int] = {}
    for k in run.order:
        task = run.graph.tasks[k]
        if task.kind is TaskKind.COLLECTIVE:
            if task.channel in last:
                found[k] = last[task.channel]
            last[task.channel] = k
    return found
