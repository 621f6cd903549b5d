"""Small changes to an order, kept if it is done sooner and still fits.

A collective that is exposed is moved ahead, with what feeds it; a wait is moved back; two
collectives that follow each other on a channel change places. The number of tries is fixed, not the
time, so that every rank finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from treadle.analysis.comm.simulate import Run, simulate
from treadle.analysis.comm.tasks import TaskGraph, TaskKind

DISTANCES = (1, 3, 8, 24, 96)
"""How many tasks a move passes."""
CLOSE = 1.001
"""An order this close to the bound is good enough: estimates are worse."""


def improved(
    graph: TaskGraph,
    order: list[int],
    bound_us: float,
    fits: Callable[[list[int]], bool],
    tries: int,
) -> list[int]:
    """The order after every change that made it end sooner; at most so many tries."""
    run = simulate(graph, order)
    left = tries
    found = True
    while found and left > 0 and run.makespan_us > bound_us * CLOSE:
        found = False
        for changed in _changes(run):
            if left <= 0:
                break
            left -= 1
            new = simulate(graph, changed)
            is_better = new.makespan_us < run.makespan_us * (1 - 1e-6)
            if is_better and fits(changed):
                run, found = new, True
                break
    return list(run.order)


def _changes(run: Run) -> Iterator[list[int]]:
    """Orders that differ from that of a run in one move, the most promising first."""
    graph, order = run.graph, list(run.order)
    place = {k: at for at, k in enumerate(order)}
    after = graph.after()
    exposed = sorted(run.exposed_of().items(), key=lambda row: (-row[1], row[0]))
    for k, us in exposed:
        if us <= 0:
            continue
        for distance in reversed(DISTANCES):
            yield from _moved_ahead(graph, order, place, k, distance)
        for w in [w for w, t in enumerate(graph.tasks) if t.of == k]:
            for distance in reversed(DISTANCES):
                yield from _moved_back(order, place, after, w, distance)
        yield from _exchanged(graph, order, place, k)


def _moved_ahead(
    graph: TaskGraph, order: list[int], place: dict[int, int], k: int, distance: int
) -> Iterator[list[int]]:
    """The order with a task, and what it needs in between, put so many tasks ahead."""
    low, here = max(0, place[k] - distance), place[k]
    needed = {k}
    for at in range(here, low - 1, -1):
        if order[at] in needed:
            needed.update(graph.before[order[at]])
    part = order[low : here + 1]
    first = [t for t in part if t in needed]
    rest = [t for t in part if t not in needed]
    if rest:
        yield [*order[:low], *first, *rest, *order[here + 1 :]]


def _moved_back(
    order: list[int], place: dict[int, int], after: list[list[int]], k: int, distance: int
) -> Iterator[list[int]]:
    """The order with a task, and what needs it in between, put so many tasks back."""
    here, high = place[k], min(len(order), place[k] + distance + 1)
    held = {k}
    for at in range(here, high):
        if order[at] in held:
            held.update(after[order[at]])
    part = order[here:high]
    last = [t for t in part if t in held]
    rest = [t for t in part if t not in held]
    if rest:
        yield [*order[:here], *rest, *last, *order[high:]]


def _exchanged(
    graph: TaskGraph, order: list[int], place: dict[int, int], k: int
) -> Iterator[list[int]]:
    """The order with a collective put before the one that precedes it on its channel."""
    for at in range(place[k] - 1, -1, -1):
        task = graph.tasks[order[at]]
        if task.kind is TaskKind.COLLECTIVE and task.channel == graph.tasks[k].channel:
            if order[at] not in graph.before[k]:
                yield from _moved_ahead(graph, order, place, k, place[k] - at)
            return
