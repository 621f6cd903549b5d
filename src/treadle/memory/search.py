"""Exact search with restarts: the tree walk of search_python / search.c in many orders.

The time a walk takes to find a plan varies enormously with the order in which it tries things:
most walks either find one within a few hundred nodes or not within millions. So walks are cut
short and started again in another order, with limits that follow the sequence 1 1 2 1 1 2 4 ...;
any of them that comes to its end without a plan proves that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from time import monotonic

from treadle.memory.engine import Engine
from treadle.memory.line import Line, granule, top_of
from treadle.memory.search_python import IMPOSSIBLE, OUT_OF_NODES, SOLVED, Way

FIRST_NODES = 500
FIRST_SHARE = 5_000
NOISE = (0.0, 0.3, 0.6, 0.2, 1.0)
SECTION_RULES = (0, 1, 4, 2, 3)
MOST_ITEMS = 5000
"""Beyond this many items in one piece a tree walk has no hope and would only take memory."""


@dataclass(slots=True)
class SearchBudget:
    """Nodes and time that are left; time only ever cuts off, it decides nothing else."""

    nodes: int
    deadline: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds until the deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and monotonic() >= self.deadline

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.nodes <= 0 or self.is_late


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found: SOLVED with addresses, IMPOSSIBLE (proven), or OUT_OF_NODES."""

    status: int
    nodes: int
    walks: int
    offsets: list[int] | None = None


def find(line: Line, engine: Engine, height: int, budget: SearchBudget, seed: int = 0) -> Answer:
    """Look for a plan whose arena is at most `height` high, until the budget is spent."""
    used = walks = 0
    if len(line.items) > MOST_ITEMS:
        return Answer(OUT_OF_NODES, 0, 0)
    limit = line.arena.base + height
    trouble = [0] * len(line.times)
    for way, nodes in ways(line, seed):
        if budget.is_spent:
            break
        status, visited, offsets = engine.search(
            way, trouble, limit=limit, nodes=min(nodes, budget.nodes), seconds=budget.seconds
        )
        used += visited
        walks += 1
        budget.nodes -= max(1, visited)
        if status != OUT_OF_NODES:
            return Answer(status, used, walks, offsets if status == SOLVED else None)
    return Answer(OUT_OF_NODES, used, walks)


def lower(
    line: Line, engine: Engine, bound: int, offsets: list[int], budget: SearchBudget, seed: int = 0
) -> Iterator[tuple[int, list[int] | None]]:
    """Yield (bound, addresses) whenever a higher bound is proven or a lower plan is found.

    First the bound itself is tried, which is often easier than something near it. Then heights
    between what is known and what is hoped for, by halves; when that has narrowed, all over again
    with twice the nodes for each.
    """
    step = granule(line)
    low, high = bound + -bound % step, top_of(line, offsets)
    share = FIRST_SHARE
    while low < high and not budget.is_spent:
        hoped = low  # below this, heights were tried in this round without an answer
        target = low
        while hoped < high and not budget.is_spent:
            part = SearchBudget(min(share, budget.nodes), budget.deadline)
            before = part.nodes
            answer = find(line, engine, target, part, seed)
            budget.nodes -= before - part.nodes
            if answer.status == IMPOSSIBLE:
                low = hoped = target + step
                yield low, None
            elif answer.offsets is not None:
                high = top_of(line, answer.offsets)
                yield low, answer.offsets
            else:
                hoped = target + step
            target = hoped + (high - hoped) // (2 * step) * step
            if target >= high:
                break
        share *= 2


def ways(line: Line, seed: int) -> Iterator[tuple[Way, int]]:
    """Orders to try and the nodes each may visit, without end."""
    twin = _twins(line)
    keys = _keys(line)
    random = Random(seed)
    number = 0
    while True:
        noise = NOISE[min(number // (len(keys) * len(SECTION_RULES)), 1000) % len(NOISE)]
        key = keys[number % len(keys)]
        rule = SECTION_RULES[number // len(keys) % len(SECTION_RULES)]
        if noise:
            key = [k * (1 + noise * (random.random() - 0.5)) for k in key]
        number += 1
        yield Way(_rank(key), twin, rule), FIRST_NODES * luby(number)


def _keys(line: Line) -> list[list[float]]:
    """What makes an item urgent: large numbers go first."""
    widths = [sum(b - a for a, b in item.spans) for item in line.items]
    largest = max((item.size for item in line.items), default=0) + 1
    with_widths = list(zip(line.items, widths, strict=True))
    return [
        [float(item.size) for item in line.items],
        [width + item.size / largest for item, width in with_widths],
        [float(item.duration * item.size) for item in line.items],
        [float(item.duration) for item in line.items],
        [float(width * item.size) for item, width in with_widths],
    ]


def _rank(key: list[float]) -> list[int]:
    rank = [0] * len(key)
    for position, i in enumerate(sorted(range(len(key)), key=lambda i: (-key[i], i))):
        rank[i] = position
    return rank


def _twins(line: Line) -> list[int]:
    known: dict[object, int] = {}
    return [
        known.setdefault((item.size, item.alignment, item.spans, item.regions, item.fixed), number)
        for number, item in enumerate(line.items)
    ]


def luby(number: int) -> int:
    """The number-th (from 1) of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..."""
    while True:
        power = number.bit_length()
        if number == (1 << power) - 1:
            return 1 << (power - 1)
        number -= (1 << (power - 1)) - 1
