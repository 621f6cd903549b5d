"""Small changes to an order, kept if it is done sooner and still fits.

A collective is moved ahead, with what feeds it; a wait is moved back; two collectives that follow
each other on a channel change places. Those that decide when the run ends come first (they are few,
even where the network is behind all the time), then all that are exposed. The number of tries is
fixed, not the time, so that every rank finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from treadle.analysis.comm.simulate import (
    NEXT_TO_NOTHING_US,
    Run,
    critical_chain,
    simulate,
)
from treadle.analysis.comm.tasks import TaskGraph, TaskKind

DISTANCES = (1, 3, 8, 24, 96)
"""How many tasks a move passes."""
CLOSE = 1.00005
"""An order this close to the bound is good enough: estimates are worse."""


def improved(
    graph: TaskGraph,
    order: list[int],
    bound_us: float,
    fits: Callable[[list[int]], bool],
    tries: int,
) -> list[int]:
    """The order after every change that made it end sooner; at most so many tries."""
    search = _Search(graph, fits, bound_us, tries)
    run = search.all_along_the_chain(simulate(graph, order))
    run = search.along_the_chain(run)
    return list(search.where_exposed(run).order)


class _Search:
    """Changes tried on one order after the other."""

    def __init__(
        self, graph: TaskGraph, fits: Callable[[list[int]], bool], bound_us: float, tries: int
    ) -> None:
        self.graph, self.after = graph, graph.after()
        self.fits, self.bound_us = fits, bound_us
        self.left = tries

    def all_along_the_chain(self, run: Run) -> Run:
        """The run after moves of all that decides its end at once: layers are alike."""
        while not self.is_over(run):
            better = self.first_better(run, self._moves_of_all(run))
            if better is None:
                return run
            run = better
        return run

    def along_the_chain(self, run: Run) -> Run:
        """The run after moves of what decides its end, until none of them helps any more.

        A task that no move helped is left alone while others can be helped.
        """
        hopeless: set[int] = set()
        while not self.is_over(run):
            task = next((k for k in late_on_the_chain(run) if k not in hopeless), None)
            if task is None:
                return run
            better = self.first_better(run, self._moves(run, task))
            if better is None:
                hopeless.add(task)
            else:
                run = better
        return run

    def where_exposed(self, run: Run) -> Run:
        """The run after moves of anything that is waited for, the longest waited for first."""
        while not self.is_over(run):
            better = self.first_better(run, self._moves_of_exposed(run))
            if better is None:
                return run
            run = better
        return run

    def is_over(self, run: Run) -> bool:
        """Whether there is nothing to win, or no try left."""
        return self.left <= 0 or run.makespan_us <= self.bound_us * CLOSE

    def first_better(self, run: Run, changes: Iterable[list[int]]) -> Run | None:
        """The first of these orders that is done sooner and fits."""
        for changed in changes:
            if self.left <= 0:
                return None
            self.left -= 1
            new = simulate(self.graph, changed)
            if new.makespan_us < run.makespan_us * (1 - 1e-6) and self.fits(changed):
                return new
        return None

    def _moves_of_all(self, run: Run) -> Iterator[list[int]]:
        late = late_on_the_chain(run)
        waits = [k for k in late if self.graph.tasks[k].kind is TaskKind.WAIT]
        begun = [k for k in late if self.graph.tasks[k].kind is not TaskKind.WAIT]
        for tasks in (late, waits, begun):
            for distance in DISTANCES if len(tasks) > 1 else ():
                order = list(run.order)
                for k in tasks:
                    order = self._moved(order, k, distance) or order
                yield order

    def _moves(self, run: Run, k: int) -> Iterator[list[int]]:
        """Orders in which a wait comes later, or a collective sooner."""
        order = list(run.order)
        moved = [self._moved(order, k, distance) for distance in DISTANCES]
        yield from [one for one in moved if one]
        if self.graph.tasks[k].kind is not TaskKind.WAIT:
            yield from _exchanged(self.graph, order, _places(order), k)

    def _moved(self, order: list[int], k: int, distance: int) -> list[int] | None:
        """The order with a wait so many tasks back, or anything else so many ahead."""
        if self.graph.tasks[k].kind is TaskKind.WAIT:
            return next(_moved_back(order, _places(order), self.after, k, distance), None)
        return next(_moved_ahead(self.graph, order, _places(order), k, distance), None)

    def _moves_of_exposed(self, run: Run) -> Iterator[list[int]]:
        """Orders that differ from that of a run in one move, the most promising first."""
        graph, order = self.graph, list(run.order)
        place = _places(order)
        exposed = sorted(run.exposed_of().items(), key=lambda row: (-row[1], row[0]))
        for k, us in exposed:
            if us <= 0:
                continue
            for distance in reversed(DISTANCES):
                yield from _moved_ahead(graph, order, place, k, distance)
            for w in [w for w, t in enumerate(graph.tasks) if t.of == k]:
                for distance in reversed(DISTANCES):
                    yield from _moved_back(order, place, self.after, w, distance)
            yield from _exchanged(graph, order, place, k)


def _places(order: list[int]) -> dict[int, int]:
    return {k: at for at, k in enumerate(order)}


def late_on_the_chain(run: Run) -> list[int]:
    """Where what decides the end goes over from communication to compute, or back.

    These are waits that hold their stream, and collectives whose channel stood idle before them.
    """
    chain, tasks = critical_chain(run), run.graph.tasks
    found = []
    for k, source in zip(chain, [*chain[1:], None], strict=True):
        if tasks[k].kind is TaskKind.WAIT and run.held[k] > NEXT_TO_NOTHING_US:
            found.append(k)
        elif tasks[k].kind is not TaskKind.COLLECTIVE or source is None:
            continue
        elif tasks[source].kind is not TaskKind.COLLECTIVE:
            found.append(k)
    return found


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
