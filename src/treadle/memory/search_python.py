"""The exact search, readable: search.c does the same, node for node.

Items are piled up from below. The *floor* of a section is an address below which no item that
is still to be placed can start there; the *base* is the top of what was placed. At every node:

- The lowest floor f of the part is found, and one section s that has it. Whatever lies lowest
  in s either starts exactly at f, or nothing starts there and the floor of s goes up. Trying
  each candidate for f and then "nothing" visits every plan at most once.
- An item can start no lower than the highest floor of its sections; a section can be entered
  no lower than by the lowest of its items. Both are repeated until nothing moves.
- floor + what is still to come must stay within the limit in every section.
- Only plans in which no item can fall are looked for: an unsupported candidate, or an item that
  would fit into room that is already given up below it, ends the branch. A lowest plan exists
  among those that remain.
- Of items that are alike in everything only the first is tried.
- Parts of time that no remaining item connects are solved one after the other; if one fails,
  no other choice in its neighbours is tried.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from time import monotonic
from typing import NamedTuple, TypeAlias

from treadle.memory.line import HUGE, Line, legal_start

SOLVED, IMPOSSIBLE, OUT_OF_NODES = 1, 0, -1
CLOCK_STEP = 128

_Walk: TypeAlias = Generator[tuple[int, int, bool], int | None, int]


class Way(NamedTuple):
    """The order in which a search tries things; every order finds an answer in the end.

    rank: candidates of lower rank first; twin: equal numbers mark items alike in everything;
    rule: which of the lowest sections first: 0 the fullest, 1 the one with fewest candidates,
    2 the first in time, 3 the last, 4 the one that was overfull most often.
    """

    rank: Sequence[int]
    twin: Sequence[int]
    rule: int


def search(
    line: Line,
    way: Way,
    trouble: list[int],
    *,
    limit: int,
    nodes: int,
    seconds: float | None = None,
) -> tuple[int, int, list[int]]:
    """(status, nodes visited, addresses) for placing all items below the address `limit`.

    It stops after so many nodes, or after so many seconds, without an answer. `trouble` counts,
    over all walks, how often each section was found overfull.
    """
    state = _State(line, limit, way, trouble)
    status = state.begin()
    if status == SOLVED:
        status = state.run(nodes, seconds)
    return status, state.nodes, state.offset


class _State:
    def __init__(self, line: Line, limit: int, way: Way, trouble: list[int]) -> None:
        self.trouble = trouble
        self.items, self.regions, self.limit = line.items, line.regions, limit
        self.rank, self.twin, self.rule = way.rank, way.twin, way.rule
        sections, count = len(line.times), len(line.items)
        self.sections_of = [[t for a, b in item.spans for t in range(a, b)] for item in line.items]
        self.here: list[list[int]] = [[] for _ in range(sections)]
        self.floor, self.base, self.rest = [0] * sections, [0] * sections, [0] * sections
        self.low, self.offset, self.placed = [0] * count, [0] * count, [False] * count
        self.count = [0] * sections
        self.queue: list[int] = []
        self.trail: list[tuple[list[int] | None, int, int]] = []
        self.nodes = self.node_limit = 0
        self.deadline: float | None = None

    def begin(self) -> int:
        """Floors and lowest addresses before anything is placed."""
        for i, item in enumerate(self.items):
            self.low[i] = legal_start(item, 0, self.regions, self.limit)
            if self.low[i] == HUGE:
                return IMPOSSIBLE
            for t in self.sections_of[i]:
                self.rest[t] += item.size
                self.count[t] += 1
                self.here[t].append(i)
        for s in range(len(self.here)):
            if self.rest[s] > self.limit or not self.raise_floor(s):
                return IMPOSSIBLE
        return SOLVED if self.settle() else IMPOSSIBLE

    # -- what follows from what is placed --------------------------------------------------

    def set(self, values: list[int], at: int, value: int) -> None:
        self.trail.append((values, at, values[at]))
        values[at] = value

    def undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            values, at, old = self.trail.pop()
            if values is not None:
                values[at] = old
                continue
            self.placed[at] = False
            for t in self.sections_of[at]:
                self.rest[t] += self.items[at].size
                self.count[t] += 1

    def push(self, section: int) -> None:
        if section not in self.queue:
            self.queue.append(section)

    def waiting(self, section: int) -> Iterator[int]:
        return (i for i in self.here[section] if not self.placed[i])

    def raise_floor(self, s: int) -> bool:
        if not self.count[s]:
            return True
        lowest = min(self.low[j] for j in self.waiting(s))
        if lowest > self.floor[s]:
            self.set(self.floor, s, lowest)
            if lowest + self.rest[s] > self.limit:
                self.trouble[s] += 1
                return False
            self.push(s)
        return True

    def rest_on(self, i: int) -> int:
        """Where the item would lie on what is placed already."""
        highest = max(self.base[t] for t in self.sections_of[i])
        return legal_start(self.items[i], highest, self.regions, self.limit)

    def could_drop(self, i: int) -> bool:
        """Whether room for the item has been given up below the lowest place it still has."""
        start = self.rest_on(i)
        if start >= self.low[i]:
            return False
        top = start + self.items[i].size
        return all(
            self.floor[t] >= top or all(j == i or self.low[j] >= top for j in self.waiting(t))
            for t in self.sections_of[i]
        )

    def raise_items(self, s: int) -> bool:
        for i in self.waiting(s):
            old = self.low[i]
            if old >= self.floor[s]:
                continue
            low = legal_start(self.items[i], self.floor[s], self.regions, self.limit)
            if low == HUGE:
                return False
            self.set(self.low, i, low)
            for t in self.sections_of[i]:
                if self.floor[t] <= old and not self.raise_floor(t):
                    return False
            if self.could_drop(i):
                return False
        return True

    def settle(self) -> bool:
        while self.queue:
            s = self.queue.pop()
            if not self.raise_items(s) or not self.raise_floor(s):
                self.queue.clear()
                return False
        return True

    # -- choices ---------------------------------------------------------------------------

    def pick_section(self, x: int, y: int, f: int) -> int:
        def key(s: int) -> tuple[int, int]:
            if self.rule == 0:
                return -self.rest[s], s
            if self.rule == 1:
                return sum(self.low[i] == f for i in self.waiting(s)), -self.rest[s]
            if self.rule == 4:
                return -self.trouble[s], -self.rest[s]
            return (s, 0) if self.rule == 2 else (-s, 0)

        return min((s for s in range(x, y) if self.count[s] and self.floor[s] == f), key=key)

    def candidates(self, s: int, f: int) -> list[int]:
        found: dict[int, int] = {}
        for i in self.waiting(s):
            if self.low[i] == f and self.rest_on(i) == f:
                found.setdefault(self.twin[i], i)
        return sorted(found.values(), key=lambda i: self.rank[i])

    def put(self, i: int, f: int) -> bool:
        size = self.items[i].size
        self.trail.append((None, i, 0))
        self.placed[i] = True
        self.offset[i] = f
        for t in self.sections_of[i]:
            self.rest[t] -= size
            self.count[t] -= 1
            self.set(self.base, t, f + size)
            self.set(self.floor, t, f + size)
            self.push(t)
        return self.settle()

    def next_floor(self, s: int, x: int, y: int, f: int) -> int:
        """The lowest address above f at which anything can start in s if nothing starts at f.

        The lowest item there then lies on one that is elsewhere and still to be placed.
        """
        lowest = HUGE
        for i, item in enumerate(self.items):
            if self.placed[i] or not x <= item.spans[0][0] < y:
                continue
            is_here = any(a <= s < b for a, b in item.spans)
            address = self.low[i] if is_here else self.low[i] + item.size
            if f < address < lowest:
                lowest = address
        return lowest

    def parts(self, x: int, y: int) -> Iterator[tuple[int, int]]:
        """Stretches of sections that items still to be placed hold together."""
        s = x
        while s < y:
            if not self.count[s]:
                s += 1
                continue
            start, reach = s, s + 1
            while s < reach:
                for i in self.waiting(s):
                    reach = max(reach, self.items[i].spans[-1][1])
                s += 1
            yield start, reach

    # -- the walk --------------------------------------------------------------------------

    def run(self, node_limit: int, seconds: float | None) -> int:
        """Walk the tree with a stack of its own: plans are deeper than Python's calls may be.

        The stack holds generators; each yields stretches to solve and is told the outcome.
        """
        self.node_limit = node_limit
        self.deadline = None if seconds is None else monotonic() + seconds
        stack: list[_Walk] = [self.solve_parts(0, len(self.here))]
        told: int | None = None
        while stack:
            try:
                x, y, is_part = stack[-1].send(told)
                stack.append(self.solve(x, y) if is_part else self.solve_parts(x, y))
                told = None
            except StopIteration as done:
                stack.pop()
                told = done.value
        assert told is not None, "the walk ends with an outcome"
        return told

    def is_over(self) -> bool:
        """Whether nodes or time have run out; time is looked at now and then."""
        if self.nodes >= self.node_limit:
            return True
        if self.deadline is None or self.nodes % CLOCK_STEP:
            return False
        return monotonic() > self.deadline

    def solve_parts(self, x: int, y: int) -> _Walk:
        for start, reach in self.parts(x, y):
            outcome = yield start, reach, True
            assert outcome is not None, "the walk is resumed with an outcome"
            if outcome != SOLVED:
                return outcome
        return SOLVED

    def solve(self, x: int, y: int) -> _Walk:
        while True:
            if self.is_over():
                return OUT_OF_NODES
            self.nodes += 1
            f = min(self.floor[s] for s in range(x, y) if self.count[s])
            s = self.pick_section(x, y, f)
            for i in self.candidates(s, f):
                mark = len(self.trail)
                if self.put(i, f):
                    outcome = yield x, y, False
                    if outcome:
                        return outcome
                self.undo(mark)
            following = self.next_floor(s, x, y, f)
            if following + self.rest[s] > self.limit:
                return IMPOSSIBLE
            self.set(self.floor, s, following)
            self.push(s)
            if not self.settle():
                return IMPOSSIBLE
