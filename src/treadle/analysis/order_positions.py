"""Topological positions of a graph's nodes: one integer each, repaired locally after an edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_GAP = 1 << 20

Links = Sequence[Mapping[int, int]]


class Positions:
    """A linked list of nodes in topological order, whose `tag` grows along the list.

    An edit that is at odds with the order moves only nodes between the two it is about: either what
    the first leads to, or what leads to the last, whichever is found completely with less work.

    Tags are spaced so that a move usually renumbers only what moves. When a gap is used up, the
    run to its right is spread over the shortest span whose length exceeds the square of its node
    count (Dietz and Sleator 1987), which keeps the amortised cost of a move logarithmic.
    """

    __slots__ = ("_next", "_predecessors", "_previous", "_successors", "tag")

    def __init__(self, order: Sequence[int], successors: Links, predecessors: Links) -> None:
        self._successors, self._predecessors = successors, predecessors
        # The last index is a sentinel that closes the ring: before the first, after the last.
        sentinel = len(order)
        self.tag = [0] * (sentinel + 1)
        self._next = [sentinel] * (sentinel + 1)
        self._previous = [sentinel] * (sentinel + 1)
        left = sentinel
        for place, node in enumerate(order, start=1):
            self.tag[node] = place * _GAP
            self._next[left] = node
            self._previous[node] = left
            left = node
        self._previous[sentinel] = left

    def make_one(self, first: int, last: int, kept: int) -> None:
        """Make room for first and last to become one node, `kept`; the other leaves the list."""
        between, after = self._in_the_way(first, last)
        if after:
            self._move(between[1:], last)
            place, other = last, first
        else:
            self._move(between[:-1], self._previous[first])
            place, other = first, last
        self._take_out(other)
        if kept != place:
            self._replace(place, kept)

    def swap(self, first: int, last: int) -> None:
        """Move nodes so that `last` comes before `first`; no path may lead from first to last."""
        between, after = self._in_the_way(first, last)
        self._move(between, last if after else self._previous[first])

    def _in_the_way(self, first: int, last: int) -> tuple[list[int], bool]:
        """`first` and what it leads to before `last`, with True: they can all go after `last`.

        Or, with False, `last` and what leads to it after `first`: they can all go before `first`.
        Both are explored in step, and the one that is complete first is returned, in list order.
        """
        tag, successors, predecessors = self.tag, self._successors, self._predecessors
        low, high = tag[first], tag[last]
        after, before = [first], [last]
        after_seen, before_seen = {first}, {last}
        after_cost, before_cost = len(successors[first]), len(predecessors[last])
        while after and before:
            if after_cost <= before_cost:
                for near in successors[after.pop()]:
                    if tag[near] < high and near not in after_seen:
                        after_seen.add(near)
                        after.append(near)
                if after:
                    after_cost += len(successors[after[-1]])
            else:
                for near in predecessors[before.pop()]:
                    if tag[near] > low and near not in before_seen:
                        before_seen.add(near)
                        before.append(near)
                if before:
                    before_cost += len(predecessors[before[-1]])
        return sorted(before_seen if after else after_seen, key=tag.__getitem__), not after

    def _move(self, nodes: Sequence[int], anchor: int) -> None:
        """Put the nodes, in this order, directly after the anchor."""
        if not nodes:
            return
        for node in nodes:
            self._take_out(node)
        right = self._next[anchor]
        left = anchor
        for node in nodes:
            self._next[left] = node
            self._previous[node] = left
            left = node
        self._next[left] = right
        self._previous[right] = left
        self._renumber(anchor, nodes)

    def _renumber(self, anchor: int, nodes: Sequence[int]) -> None:
        """Give the nodes, which follow the anchor, tags that fit; to neighbours too if need be."""
        tag, sentinel = self.tag, len(self.tag) - 1
        start = tag[anchor]
        run = list(nodes)
        right = self._next[run[-1]]
        while right != sentinel and tag[right] - start <= len(run) ** 2:
            run.append(right)
            right = self._next[right]
        room = (len(run) + 1) * _GAP if right == sentinel else tag[right] - start
        step = room // (len(run) + 1)
        for node in run:
            start += step
            tag[node] = start

    def _take_out(self, node: int) -> None:
        left, right = self._previous[node], self._next[node]
        self._next[left] = right
        self._previous[right] = left

    def _replace(self, old: int, new: int) -> None:
        """Put `new`, which is not in the list, in the place of `old`."""
        left, right = self._previous[old], self._next[old]
        self._next[left] = self._previous[right] = new
        self._previous[new], self._next[new] = left, right
        self.tag[new] = self.tag[old]
