"""The order of a program in which communication hides best, and how close it is to any other's.

Several orders are made (see `list_schedule`), the best that fits is improved, and the bound says
how much sooner any order could be done: `share` is the part of the possible overlap that is had.
Collectives of a group keep their order unless another one ends clearly sooner; then the order is
new, but the same on every rank, because nothing here depends on anything but the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from treadle.analysis.comm.bounds import MakespanBound, bound_of
from treadle.analysis.comm.simulate import Run, longest_flight, most_in_flight, simulate
from treadle.analysis.comm.tasks import TaskGraph, TaskKind
from treadle.schedule.ordering.measure import peak_of
from treadle.schedule.ordering.steps import Steps
from treadle.schedule.overlap.anneal import LARGEST, annealed
from treadle.schedule.overlap.exact import exact_order, is_small
from treadle.schedule.overlap.list_schedule import Limits, list_schedule, tight_profile
from treadle.schedule.overlap.local_search import CLOSE, improved
from treadle.schedule.overlap.roles import Roles, roles_of

WORTH_REORDERING = 0.0005
"""The part of the time that must be won for collectives of a group to change places."""
TRIED_TASKS = 400_000
"""Tasks simulated by the local search, over all tries: large programs get fewer."""
WAYS = ((False, 8, 0.5), (False, 2, 0.0), (True, 8, 0.5), (True, 2, 0.0))
"""Whether to wait if it is crowded, how many stand in line on a channel, the margin of waits."""
GOOD_SHARE = 0.99
"""With this share of the possible overlap, single tasks no longer change places by chance."""
LARGE = 1500
"""Tasks from which on fewer orders are made: each takes long."""
TIGHTER = 4
"""How often a budget is lowered by what an order was over it."""


@dataclass(frozen=True)
class FoundOverlap:
    """An order with its times before and after, and the bound."""

    order: tuple[int, ...]
    before: Run
    after: Run
    bound: MakespanBound
    """No order that keeps what this one keeps is done sooner."""
    peak_bytes: int
    budget: int
    """What the peak had to stay within; the given order's if that is higher."""
    order_kept: bool
    """Whether collectives of a group follow each other as they did."""

    @property
    def share(self) -> float:
        """The part of the possible overlap that is had."""
        return self.after.overlap(self.bound.us)


def find_overlap(
    graph: TaskGraph,
    steps: Steps,
    budget: int,
    limits: Limits | None = None,
    *,
    thorough: bool = True,
) -> FoundOverlap:
    """The best order found; never later than the given one, never over the budget for it.

    If that one has more under way than the limits allow, it is the one that waits at once instead.

    Not `thorough`: one order is made and not improved, to compare programs by.
    """
    asked = limits or Limits()
    given = list(range(len(graph.tasks)))
    before = simulate(graph)
    given_peak = peak_of(steps, given)
    allowed = max(budget, given_peak)
    kept, bound = _best(graph.with_order_kept(), steps, asked, given, allowed, thorough)
    best, is_kept = kept, True
    possible = bound_of(graph).us
    if thorough and graph.kept and kept.makespan_us > possible * (1 + WORTH_REORDERING):
        free, loose = _best(graph, steps, asked, list(kept.order), allowed, thorough)
        if free.makespan_us < kept.makespan_us * (1 - WORTH_REORDERING):
            best, bound = free, loose
            is_kept = not _changes_places(graph, free)
    order = tuple(best.order)
    after = simulate(graph, order)
    peak = peak_of(steps, list(order))
    return FoundOverlap(order, before, after, bound, peak, allowed, is_kept)


def _changes_places(graph: TaskGraph, run: Run) -> bool:
    place = {k: at for at, k in enumerate(run.order)}
    return any(place[a] > place[b] for a, b in graph.kept)


def _best(
    graph: TaskGraph, steps: Steps, limits: Limits, given: list[int], budget: int, thorough: bool
) -> tuple[Run, MakespanBound]:
    """The earliest of the orders made that fits, improved; and a time that none beats."""
    limit = bound_of(graph)
    within = _within(graph, limits)
    if not within(given):
        given = waited_for_at_once(graph, given)
    best = simulate(graph, given)

    def fits(order: list[int]) -> bool:
        return within(order) and peak_of(steps, order) <= budget

    if limits.exact and thorough and is_small(graph):
        exact = exact_order(graph)
        if exact.bound_us > limit.us:
            limit = replace(limit, us=exact.bound_us, by="exact order")
        run = simulate(graph, exact.order)
        if run.makespan_us < best.makespan_us * (1 - 1e-9) and fits(list(exact.order)):
            best = run
    bound = limit.us
    if best.makespan_us <= bound * CLOSE:
        return best, limit
    for order in _orders(roles_of(graph), steps, limits, budget):
        run = simulate(graph, order)
        if not within(order):
            continue
        if run.makespan_us < best.makespan_us * (1 - 1e-9):
            best = run
        if best.makespan_us <= bound * CLOSE or not thorough:
            return best, limit
    if not thorough:
        return best, limit
    tries = max(40, TRIED_TASKS // max(1, len(graph.tasks)))
    order = improved(graph, list(best.order), bound, fits, tries)
    if len(order) <= LARGEST and simulate(graph, order).overlap(bound) < GOOD_SHARE:
        order = annealed(graph, order, bound, fits)
    return simulate(graph, order), limit


def _within(graph: TaskGraph, limits: Limits) -> Callable[[list[int]], bool]:
    """Whether an order has no more under way at once, and nothing for longer, than is allowed."""
    most_bytes = _allowed_in_flight(graph, limits)
    most_kernels = float("inf") if limits.prefetch is None else limits.prefetch

    def within(order: list[int]) -> bool:
        is_small = most_bytes == float("inf") or most_in_flight(graph, order) <= most_bytes
        return is_small and (
            most_kernels == float("inf") or longest_flight(graph, order) <= most_kernels
        )

    return within


def _allowed_in_flight(graph: TaskGraph, limits: Limits) -> int | float:
    """Bytes that may be under way at once: what was asked for, or the largest message alone."""
    if limits.in_flight is None:
        return float("inf")
    return max([limits.in_flight, *[graph.tasks[k].message_bytes for k in graph.collectives]])


def waited_for_at_once(graph: TaskGraph, order: list[int]) -> list[int]:
    """The order with every wait just behind its collective, where nothing else must come first."""
    of: dict[int, list[int]] = {}
    for k in order:
        of.setdefault(graph.tasks[k].of, []).append(k)
    placed: dict[int, None] = {}
    for k in order:
        placed[k] = None
        if graph.tasks[k].kind is TaskKind.COLLECTIVE:
            ready = [w for w in of.get(k, ()) if all(s in placed for s in graph.before[w])]
            placed.update(dict.fromkeys(ready))
    return list(placed)


def _orders(roles: Roles, steps: Steps, limits: Limits, budget: int) -> Iterator[list[int]]:
    """Orders that fit, made with more and with less begun ahead."""
    profile = tight_profile(roles, steps)
    # The second and the fourth try less ahead, for what little memory is left.
    for crowded, depth, margin in WAYS if len(steps) < LARGE else WAYS[::2]:
        aim = budget
        for _ in range(TIGHTER):
            here = replace(limits, budget=aim, depth=depth, margin=margin, waits_if_crowded=crowded)
            order = list_schedule(roles, steps, here, profile)
            over = peak_of(steps, order) - budget
            if over <= 0:
                yield order
                break
            aim -= over
