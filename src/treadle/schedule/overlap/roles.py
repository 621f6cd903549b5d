"""What each task is for: feeding a collective, using up what one delivered, or the rest.

feeders    lead to nothing but collectives (casts, copies, gradients of weights): they go where
           the collective goes
spine      everything else that is no wait: it stays in the given order, and waits and
           collectives are placed along it
finishers  need nothing but waits and lead to no spine (updates of parameters): they fill gaps
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.analysis.comm.bounds import in_order
from treadle.analysis.comm.tasks import TaskGraph, TaskKind

NEVER = 1 << 60
"""The first use of a collective that the spine does not need."""


@dataclass(frozen=True)
class Roles:
    """The tasks of a graph by what they are for."""

    graph: TaskGraph
    spine: tuple[int, ...]
    feeders: frozenset[int]
    finishers: frozenset[int]
    """Waits among them."""
    first_use: dict[int, int]
    """For each collective the place on the spine of the first task that uses what it delivers."""
    deadline: dict[int, int]
    """The same, also for the sake of collectives that must come after it."""
    waits: dict[int, tuple[int, ...]]
    """For each collective the waits on it."""
    needs: dict[int, tuple[int, ...]]
    """For each collective what it needs through its feeders, waits and feeders left out."""


def roles_of(graph: TaskGraph) -> Roles:
    """Sort the tasks of a graph."""
    after, order, tasks = graph.after(), in_order(graph), graph.tasks
    waits: dict[int, list[int]] = {k: [] for k in graph.collectives}
    for k, task in enumerate(tasks):
        if task.kind is TaskKind.WAIT and task.of >= 0:
            waits[task.of].append(k)
    feeders: set[int] = set()
    for k in reversed(order):
        if tasks[k].kind in (TaskKind.COMPUTE, TaskKind.NOTHING):
            fed = [s for s in after[k] if s in feeders or tasks[s].kind is TaskKind.COLLECTIVE]
            # A wait holds what its collective reads: it comes after, and is no other use.
            rest = [s for s in after[k] if s not in fed and tasks[s].kind is not TaskKind.WAIT]
            if fed and not rest:
                feeders.add(k)
    finishers = _finishers(graph, after, order, feeders)
    spine = tuple(
        k
        for k, t in enumerate(tasks)
        if t.kind in (TaskKind.COMPUTE, TaskKind.NOTHING)
        and k not in feeders
        and k not in finishers
    )
    deadline = _first_needs(graph, after, order, spine)
    kept = set(graph.kept)
    uses = [[s for s in row if (k, s) not in kept] for k, row in enumerate(after)]
    first_use = _first_needs(graph, uses, order, spine)
    lists = {k: tuple(row) for k, row in waits.items()}
    needs = {k: _needs(graph, feeders, k) for k in graph.collectives}
    return Roles(graph, spine, frozenset(feeders), finishers, first_use, deadline, lists, needs)


def _needs(graph: TaskGraph, feeders: set[int], k: int) -> tuple[int, ...]:
    found: dict[int, None] = {}
    pending, seen = [k], {k}
    while pending:
        for source in graph.before[pending.pop()]:
            if source in seen:
                continue
            seen.add(source)
            if source in feeders:
                pending.append(source)
            elif graph.tasks[source].kind is not TaskKind.WAIT:
                found[source] = None
    return tuple(found)


def _finishers(
    graph: TaskGraph, after: list[list[int]], order: list[int], feeders: set[int]
) -> frozenset[int]:
    tasks = graph.tasks
    from_waits: set[int] = set()
    for k in order:
        kind = tasks[k].kind
        if kind is TaskKind.COLLECTIVE or k in feeders:
            continue
        sources = graph.before[k]
        needs_only_waits = bool(sources) and all(s in from_waits for s in sources)
        if kind is TaskKind.WAIT or needs_only_waits:
            from_waits.add(k)
    found: set[int] = set()
    for k in reversed(order):
        if k in from_waits and all(s in found for s in after[k]):
            found.add(k)
    return frozenset(found)


def _first_needs(
    graph: TaskGraph, after: list[list[int]], order: list[int], spine: tuple[int, ...]
) -> dict[int, int]:
    """The first place on the spine that needs each collective, found from the end."""
    place = {k: at for at, k in enumerate(spine)}
    first = [NEVER] * len(graph.tasks)
    for k in reversed(order):
        needed = [place[s] if s in place else first[s] for s in after[k]]
        first[k] = min(needed, default=NEVER)
    return {k: first[k] for k in graph.collectives}
