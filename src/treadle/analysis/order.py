"""Incremental acyclicity: which operations may still be merged, asked often and answered at once.

A fusion pass asks for many pairs "would merging these two close a cycle?", merges some, and asks
again. `MergeOrder` answers from what it keeps up to date:

1. positions, a topological order of the groups: only the earlier of two can reach the later;
2. landmarks and paths, which prove or refute most of what is left (see `reach.py`);
3. a search from both ends that steps around landmarks, where none lies between the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from treadle.analysis.order_positions import Positions
from treadle.analysis.order_topological import CycleError, topological_order
from treadle.analysis.reach import Reach, SearchStats

__all__ = ["CycleError", "MergeOrder", "SearchStats", "topological_order"]

# Measured up to 100,000 operations: more landmarks shorten searches, fewer make merges cheaper.
_LANDMARKS = 512


class MergeOrder:
    """An acyclic graph whose nodes can be merged, and that knows if a merge would close a cycle.

    Operations are 0..count-1, each first in a group of its own; an edge (u, v) says u runs before
    v. Groups are named by one of their members. Parallel edges count once, and edges between
    members of one group vanish: in which order a group runs its members is up to the group.

    `landmarks` trades the speed of merges (few) against that of questions (many), never answers.
    """

    __slots__ = (
        "_group",
        "_next_member",
        "_positions",
        "_predecessors",
        "_reach",
        "_size",
        "_successors",
        "_tag",
    )

    def __init__(
        self, count: int, edges: Iterable[tuple[int, int]], *, landmarks: int = _LANDMARKS
    ) -> None:
        edges = list(edges)
        order = topological_order(count, edges)
        self._group = sorted(order)  # rather than a range, to share the integers
        self._next_member = sorted(order)  # a ring through the members of each group
        self._size = [1] * count
        # Neighbouring groups, each with the operation at its end of one edge that joins the two.
        self._successors: list[dict[int, int]] = [{} for _ in range(count)]
        self._predecessors: list[dict[int, int]] = [{} for _ in range(count)]
        for u, v in edges:
            self._successors[u][v] = v
            self._predecessors[v][u] = u
        links = self._successors, self._predecessors
        self._positions = Positions(order, *links)
        self._tag = self._positions.tag
        self._reach = Reach(order, *links, self._tag, landmarks)

    @property
    def stats(self) -> SearchStats:
        """How much work the questions that needed a search have cost so far."""
        return self._reach.stats

    def group_of(self, op: int) -> int:
        """The operation that stands for the group of `op`."""
        return self._group[op]

    def members(self, op: int) -> tuple[int, ...]:
        """The operations in the group of `op`, ascending."""
        return tuple(sorted(self._ring(op)))

    def size(self, op: int) -> int:
        """How many operations are in the group of `op`."""
        return self._size[self._group[op]]

    def successors(self, op: int) -> tuple[int, ...]:
        """The groups that the group of `op` has an edge to, ascending."""
        return tuple(sorted(self._successors[self._group[op]]))

    def predecessors(self, op: int) -> tuple[int, ...]:
        """The groups that have an edge to the group of `op`, ascending."""
        return tuple(sorted(self._predecessors[self._group[op]]))

    def reaches(self, a: int, b: int) -> bool:
        """Whether a path leads from the group of `a` to the group of `b`, or they are the same."""
        first, last = self._group[a], self._group[b]
        if self._tag[first] >= self._tag[last]:
            return first == last
        return last in self._successors[first] or self._reach.has_detour(first, last)

    def would_cycle(self, a: int, b: int) -> bool:
        """Whether a path between the two groups, either way, passes through another group."""
        first, last = self._group[a], self._group[b]
        if self._tag[first] < self._tag[last]:
            return self._reach.has_detour(first, last)
        return first != last and self._reach.has_detour(last, first)

    def witness(self, a: int, b: int) -> list[int] | None:
        """A shortest path that makes `would_cycle` true, as one operation per group; else None.

        The first operation is the one its group's edge leaves from; each later one is where the
        edge from the group before arrives. So the first step is an edge between operations, and
        every further step an edge from some operation of that group.
        """
        if not self.would_cycle(a, b):
            return None
        first, last = self._by_position(a, b)
        return self._operations_on(self._reach.detour(first, last))

    def merge(self, a: int, b: int) -> int:
        """Make one group of two and return its name.

        CycleError, with the witness as its cycle and nothing changed, if that would close a cycle.
        """
        first, last = self._by_position(a, b)
        if first == last:
            return first
        cycle = self.witness(a, b)
        if cycle:
            raise CycleError(cycle, f"merging {a} and {b} would close a cycle")
        kept, gone = first, last
        if self._weight(kept) < self._weight(gone):
            kept, gone = gone, kept
        self._positions.make_one(first, last, kept)
        self._reach.join(kept, gone)
        self._absorb(kept, gone)
        return kept

    def add_edge(self, u: int, v: int) -> None:
        """Record that `u` runs before `v`.

        CycleError, with a shortest path from v to u as its cycle (in the form of `witness`) and
        nothing changed, if that closes a cycle. An edge within a group vanishes, but no operation
        can run before itself.
        """
        if u == v:
            raise CycleError([u], "an operation cannot run before itself")
        tail, head = self._group[u], self._group[v]
        if tail == head or head in self._successors[tail]:
            return
        if self.reaches(head, tail):
            direct = tail in self._successors[head]
            path = [head, tail] if direct else self._reach.detour(head, tail)
            reason = f"an edge from {u} to {v} would close a cycle"
            raise CycleError(self._operations_on(path), reason)
        if self._tag[tail] > self._tag[head]:
            self._positions.swap(head, tail)
        self._reach.connect(tail, head)
        self._successors[tail][head] = v
        self._predecessors[head][tail] = u

    def order(self) -> list[tuple[int, ...]]:
        """The groups, each as its members ascending, so that every edge goes forward.

        Of the groups that could come next, the one with the smallest member does: the result
        depends on the groups and edges, not on how they came about.
        """
        names = [op for op, group in enumerate(self._group) if op == group]
        index = {group: place for place, group in enumerate(names)}
        groups = [self.members(group) for group in names]
        edges = [(index[u], index[v]) for u in names for v in self._successors[u]]
        return [groups[place] for place in topological_order(len(names), edges, groups)]

    def _by_position(self, a: int, b: int) -> tuple[int, int]:
        first, last = self._group[a], self._group[b]
        return (first, last) if self._tag[first] < self._tag[last] else (last, first)

    def _ring(self, op: int) -> list[int]:
        members = [op]
        while (member := self._next_member[members[-1]]) != op:
            members.append(member)
        return members

    def _operations_on(self, path: list[int]) -> list[int]:
        arrivals = [self._successors[u][v] for u, v in pairwise(path)]
        return [self._predecessors[path[1]][path[0]], *arrivals]

    def _weight(self, group: int) -> int:
        """What it costs to move the group into another one."""
        links = len(self._successors[group]) + len(self._predecessors[group])
        return links + self._size[group]

    def _absorb(self, kept: int, gone: int) -> None:
        """Move the members and links of one group over to another."""
        for op in self._ring(gone):
            self._group[op] = kept
        ring = self._next_member
        ring[kept], ring[gone] = ring[gone], ring[kept]
        self._size[kept] += self._size[gone]
        for there, back in (
            (self._successors, self._predecessors),
            (self._predecessors, self._successors),
        ):
            for near, their_end in there[gone].items():
                our_end = back[near].pop(gone)
                if near != kept and near not in there[kept]:
                    there[kept][near] = their_end
                    back[near][kept] = our_end
            there[gone].clear()
