"""No order of a program's tasks can be done sooner than this.

    stream     all compute of the busiest stream
    channel    all communication of the busiest channel
    path       the longest chain of tasks that need each other
    machine    for a stream or channel by itself: no task before its head (the longest chain up to
               it), its tail (the longest chain behind it) after its end; solved exactly with tasks
               that may be interrupted, which is never later than any real order (Jackson)

The last includes the first three and sees what they miss: the first gather that nothing can hide,
the last reduction behind all compute. Memory, and slower compute beside communication, are left
out: both only make things later.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from treadle.analysis.comm.tasks import TaskGraph, TaskKind, first_come_order


@dataclass(frozen=True)
class MakespanBound:
    """A time that no order beats, and which of the arguments gives it."""

    us: float
    by: str
    stream_us: float
    channel_us: float
    path_us: float
    machine_us: float


def bound_of(graph: TaskGraph) -> MakespanBound:
    """The best lower bound on the makespan of any order."""
    heads, tails = _heads(graph), _tails(graph)
    tasks = graph.tasks
    path = max((heads[k] + t.us + tails[k] for k, t in enumerate(tasks)), default=0.0)
    machines: dict[str, list[int]] = {}
    for k, task in enumerate(tasks):
        if task.kind is TaskKind.COLLECTIVE:
            machines.setdefault(f"channel {task.channel}", []).append(k)
        elif task.us:
            machines.setdefault(f"stream {task.stream}", []).append(k)
    busy = {name: sum(tasks[k].us for k in row) for name, row in machines.items()}
    single = {
        name: interrupted_makespan([(heads[k], tasks[k].us, tails[k]) for k in row])
        for name, row in machines.items()
    }
    stream = max((us for name, us in busy.items() if name.startswith("stream")), default=0.0)
    channel = max((us for name, us in busy.items() if name.startswith("channel")), default=0.0)
    most = max(single, key=lambda name: single[name], default="")
    machine = single.get(most, 0.0)
    by = "path" if path >= machine else most
    return MakespanBound(max(path, machine), by, stream, channel, path, machine)


def _heads(graph: TaskGraph) -> list[float]:
    heads = [0.0] * len(graph.tasks)
    for k in in_order(graph):
        for source in graph.before[k]:
            heads[k] = max(heads[k], heads[source] + graph.tasks[source].us)
    return heads


def _tails(graph: TaskGraph) -> list[float]:
    tails = [0.0] * len(graph.tasks)
    for k in reversed(in_order(graph)):
        for source in graph.before[k]:
            tails[source] = max(tails[source], tails[k] + graph.tasks[k].us)
    return tails


def in_order(graph: TaskGraph) -> list[int]:
    """The tasks, each after those it must follow; the given order where it does that."""
    order = first_come_order(dict(enumerate(graph.before)))
    assert order is not None, "tasks wait for each other in a ring"
    return order


def interrupted_makespan(jobs: list[tuple[float, float, float]]) -> float:
    """The least time for jobs (head, length, tail) on one machine that may interrupt them."""
    waiting = sorted(jobs)
    ready: list[tuple[float, float]] = []  # (minus tail, what is left)
    now = best = 0.0
    at = 0
    while at < len(waiting) or ready:
        if not ready:
            now = max(now, waiting[at][0])
        while at < len(waiting) and waiting[at][0] <= now:
            heapq.heappush(ready, (-waiting[at][2], waiting[at][1]))
            at += 1
        tail, left = heapq.heappop(ready)
        until = waiting[at][0] if at < len(waiting) else float("inf")
        if now + left <= until:
            now += left
            best = max(best, now - tail)
        else:
            heapq.heappush(ready, (tail, left - (until - now)))
            now = until
    return best
