"""Reachability in a graph that grows: facts that settle most questions, and a search for the rest.

A sample of the nodes are landmarks, one bit each. Every node knows which landmarks it reaches
(`ahead`) and which reach it (`behind`), its own included. For two nodes without a direct edge:

    ahead[a] & behind[b] is not empty        a reaches b, through that landmark
    ahead[b] is not within ahead[a]          a does not reach b: it misses what b reaches
    behind[a] is not within behind[b]        a does not reach b: b would have inherited it
    none of these                            any path avoids all landmarks, so the search may too

Besides, the nodes are divided into paths at the start: of two on one path, one reaches the other.

Joining nodes only adds ways to get somewhere, so what was found stays true and bit sets only grow.
A node passes on what it gained and stops where nothing is new: all updates together cost at most
one visit per edge and landmark.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_HUB_DEGREE = 32

Links = Sequence[Mapping[int, int]]


@dataclass(slots=True)
class SearchStats:
    """How much work the questions that needed a search have cost so far."""

    searches: int = 0
    visited: int = 0


class Reach:
    """Answers whether a path joins two nodes of a graph that its owner edits.

    The owner keeps `tag` a topological numbering and reports an edit before it changes the links.

    What holds between edits, for each link u -> v and each node x:
    `ahead[v]` is within `ahead[u]`, and `behind[u]` within `behind[v]`;
    `own[x]`, a single bit or none, is in both `ahead[x]` and `behind[x]`;
    no bit of another landmark that is now part of x is in `ahead[x]` or `behind[x]`.
    """

    __slots__ = (
        "_ahead",
        "_behind",
        "_own",
        "_path",
        "_predecessors",
        "_retired",
        "_successors",
        "_tag",
        "stats",
    )

    def __init__(
        self,
        order: Sequence[int],
        successors: Links,
        predecessors: Links,
        tag: Sequence[int],
        landmarks: int,
    ) -> None:
        self._successors, self._predecessors, self._tag = successors, predecessors, tag
        self._own = [0] * len(order)
        for bit, node in enumerate(_landmarks(order, successors, predecessors, landmarks)):
            self._own[node] = 1 << bit
        self._behind = _gathered(self._own, order, predecessors)
        self._ahead = _gathered(self._own, reversed(order), successors)
        self._path = _paths(order, predecessors)
        # Per node: the bits of landmarks that became part of it when it had one already.
        self._retired: dict[int, int] = {}
        self.stats = SearchStats()

    def has_detour(self, first: int, last: int) -> bool:
        """Whether a path leads from `first` to the later `last` through at least one other node."""
        ahead, behind = self._ahead[first], self._behind[last]
        between = ahead & behind
        if between and between & ~(self._own[first] | self._own[last]):
            return True
        if ahead | self._ahead[last] != ahead or behind | self._behind[first] != behind:
            return False
        if last not in self._successors[first]:
            if between or self._path[first] == self._path[last]:
                return True
        elif len(self._successors[first]) == 1 or len(self._predecessors[last]) == 1:
            return False
        return self._search(first, last)

    def detour(self, first: int, last: int) -> list[int]:
        """A shortest path from `first` to the later `last` that is not their edge, or nothing.

        For explanations: it may have to look at everything between the two.
        """
        via = {first: first}
        layer = [first]
        while layer:
            grown = []
            for node in layer:
                for near in self._successors[node]:
                    if near == last and node != first:
                        return [*_way_to(node, via), last]
                    if near not in via and self._may_lie_before(near, last):
                        via[near] = node
                        grown.append(near)
            layer = grown
        return []

    def connect(self, u: int, v: int) -> None:
        """Record that u is about to get an edge to v."""
        _spread(self._behind, v, self._behind[u], self._successors)
        _spread(self._ahead, u, self._ahead[v], self._predecessors)

    def join(self, kept: int, gone: int) -> None:
        """Record that `gone` is about to become part of `kept`.

        One landmark in a node is enough. The bit of a second one retires: it stays true where it is
        but nobody needs to learn it any more, which spares a hub that swallows its users from
        telling all the others about each.
        """
        behind = self._behind[kept] | self._behind[gone]
        ahead = self._ahead[kept] | self._ahead[gone]
        retired = self._retired.pop(kept, 0) | self._retired.pop(gone, 0)
        if self._own[kept]:
            retired |= self._own[gone]
        else:
            self._own[kept] = self._own[gone]
        if retired:
            self._retired[kept] = retired
            behind &= ~retired
            ahead &= ~retired
        for node in (kept, gone):
            _spread(self._behind, node, behind, self._successors)
            _spread(self._ahead, node, ahead, self._predecessors)
        self._behind[kept], self._ahead[kept] = behind, ahead

    def _may_lie_before(self, node: int, last: int) -> bool:
        """Whether nothing known rules out a path from the node to `last`."""
        ahead, behind = self._ahead[node], self._behind[last]
        return (
            self._tag[node] < self._tag[last]
            and ahead | self._ahead[last] == ahead
            and behind | self._behind[node] == behind
        )

    def _search(self, first: int, last: int) -> bool:
        """Whether there is a detour, given that no landmark lies between.

        Works from both ends, a layer at a time, always where there are fewer edges to look at.
        """
        tag, own, path = self._tag, self._own, self._path
        all_ahead, all_behind = self._ahead, self._behind
        low, high, ahead, behind = tag[first], tag[last], all_ahead[last], all_behind[last]
        ends = (first, last)
        links, other_links = self._successors, self._predecessors
        layer, other_layer = [first], [last]
        seen, other_seen = {first}, {last}
        cost, other_cost = len(links[first]), len(other_links[last])
        goal, other_goal = path[last], path[first]
        self.stats.searches += 1
        while layer and other_layer:
            if other_cost < cost:
                links, other_links = other_links, links
                layer, other_layer = other_layer, layer
                seen, other_seen = other_seen, seen
                goal, other_goal = other_goal, goal
                other_cost = cost
            grown, cost = [], 0
            for node in layer:
                for near in links[node]:
                    if near in other_seen:
                        if near in ends and node in ends:
                            continue  # the edge between the two, which is no detour
                        return True
                    if not low < tag[near] < high or near in seen:
                        continue
                    self.stats.visited += 1
                    if path[near] == goal:
                        return True
                    known = all_ahead[near]
                    if own[near] or known | ahead != known or behind | all_behind[near] != behind:
                        continue
                    seen.add(near)
                    grown.append(near)
                    cost += len(links[near])
            layer = grown
        return False


def _way_to(node: int, via: Mapping[int, int]) -> list[int]:
    """The nodes from where a search started to this one."""
    way = [node]
    while via[node] != node:
        node = via[node]
        way.append(node)
    return way[::-1]


def _landmarks(
    order: Sequence[int], successors: Links, predecessors: Links, count: int
) -> list[int]:
    """About `count` nodes to use as landmarks, in the given order.

    Up to an eighth are the largest hubs, which no search can afford to expand. The others are one
    out of every stretch of the order, at a random place in it, since repeated layers would put a
    regular sample on the same spot of each. Sources and sinks are no use: no path leads through.
    """
    inner = [node for node in order if successors[node] and predecessors[node]]
    if len(inner) <= count:
        return inner
    degrees = ((len(successors[node]) + len(predecessors[node]), node) for node in inner)
    hubs = sorted((pair for pair in degrees if pair[0] >= _HUB_DEGREE), reverse=True)
    chosen = {node for _, node in hubs[: count // 8]}
    dice = random.Random(0)
    for start in range(count):
        place = (start + dice.random()) * len(inner) / count
        chosen.add(inner[int(place)])
    return [node for node in inner if node in chosen]


def _paths(order: Sequence[int], predecessors: Links) -> list[int]:
    """A number for every node such that the nodes of equal number lie on one path.

    A node continues the longest path that ends in one of its predecessors, if any does.
    """
    path = list(range(len(order)))
    length = [0] * len(order)  # of the path that ends here; -1 once it goes on
    for node in order:
        source, longest = node, -1
        for near in predecessors[node]:
            if length[near] > longest:
                source, longest = near, length[near]
        path[node] = path[source]
        length[source] = -1
        length[node] = longest + 1
    return path


def _gathered(own: Sequence[int], order: Iterable[int], sources: Links) -> list[int]:
    """For every node, visited in this order, its own bits and those of its sources.

    Equal neighbours share one integer, so that stretches without landmarks take no memory.
    """
    bits = list(own)
    for node in order:
        gathered = bits[node]
        for source in sources[node]:
            more = bits[source]
            if more is not gathered:
                union = gathered | more
                if union == more:
                    gathered = more
                elif union != gathered:
                    gathered = union
        bits[node] = gathered
    return bits


def _spread(bits: list[int], start: int, gained: int, links: Links) -> None:
    """Give the bits to `start` and all it leads to, stopping where they are already known."""
    if bits[start] | gained == bits[start]:
        return
    bits[start] |= gained
    pending = [start]
    while pending:
        for node in links[pending.pop()]:
            known = bits[node]
            union = known | gained
            if union != known:
                bits[node] = union
                pending.append(node)
