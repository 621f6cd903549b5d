"""Which values of a dump keep one place: hand-overs in XLA's plan, and what loops force together.

XLA's live ranges are closed, so two values that touch (one ends where the other starts) are both
there at that moment. XLA lets such values share bytes in two cases, and so do we, never more:

    hand-over   the instruction that makes the second uses the first as an operand, and both have
                the same allocation, offset and size: it writes over what it reads
    join        one of them is a value that a while, a conditional or a parameter of their
                computations joins (`phi`): the same bytes under another name

Such values form a group: one place for all of them. Values that a loop or a branch must hand on in
place although their ranges do not touch are found from the HLO text; without it, all values of
one size in the place of a `phi` are kept together, which is safe and somewhat stricter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from treadle.frontends.xla_dump.model import Assigned, HloPosition, ShapeIndex, UsedValue, XlaDump

Key = tuple[int, int, int]
"""Allocation, offset, size."""


class Sharing:
    """Groups of values that keep one place, each under the name of its first value."""

    def __init__(self, dump: XlaDump) -> None:
        self.dump = dump
        self.used = {one.value.place: one for one in dump.used}
        self.at: dict[HloPosition, Key] = {}
        self.parent: dict[HloPosition, HloPosition] = {}
        places: dict[Key, list[Assigned]] = {}
        for allocation, one in dump.assigned():
            if one.value.place in dump.range_of:
                key = (allocation.number, one.offset, one.size)
                self.at[one.value.place] = key
                places.setdefault(key, []).append(one)
        for values in places.values():
            self._touching(values)
        self._forced(places)

    def group_of(self, place: HloPosition) -> HloPosition:
        """The value that stands for all values in the place of this one."""
        while (up := self.parent.get(place, place)) != place:
            self.parent[place] = place = self.parent.get(up, up)
        return place

    def groups(self) -> dict[HloPosition, list[HloPosition]]:
        """Groups of at least two, by the value that stands for them."""
        found: dict[HloPosition, list[HloPosition]] = {}
        for place in self.at:
            found.setdefault(self.group_of(place), []).append(place)
        return {leader: members for leader, members in found.items() if len(members) > 1}

    def join(self, places: Iterable[HloPosition]) -> None:
        """Keep these together as far as XLA's plan has them in one place."""
        first: dict[Key, HloPosition] = {}
        for place in places:
            key = self.at.get(place)
            if key is None:
                continue
            leader = self.group_of(first.setdefault(key, place))
            other = self.group_of(place)
            if leader != other:
                self.parent[other] = leader

    def _touching(self, values: list[Assigned]) -> None:
        ranges = self.dump.range_of
        ordered = sorted(values, key=lambda one: (ranges[one.value.place].start, one.value.id))
        for first, second in pairwise(ordered):
            one, other = ranges[first.value.place], ranges[second.value.place]
            if one.end == other.start and self._may_hand_over(first, second):
                self.join((first.value.place, second.value.place))

    def _may_hand_over(self, first: Assigned, second: Assigned) -> bool:
        if first.value.is_phi or second.value.is_phi:
            return True
        used = self.used.get(first.value.place)
        return used is None or any(use.name == second.value.name for use in used.uses)

    def _forced(self, places: dict[Key, list[Assigned]]) -> None:
        if self.dump.module is None:
            for values in places.values():
                if any(one.value.is_phi for one in values):
                    self.join([one.value.place for one in values])
            return
        at_position, by_use = _indexed(self.dump.used)
        for name, parts in _joins(self.dump):
            tables = [at_position.get(part, {}) for part in (name, *parts)]
            tables.append(by_use.get(name, {}))
            for index in {index for table in tables for index in table}:
                self.join([place for table in tables for place in table.get(index, ())])


_Table = dict[str, dict[ShapeIndex, list[HloPosition]]]


def _indexed(used: Iterable[UsedValue]) -> tuple[_Table, _Table]:
    """Values by the positions they have, and by the first operand they are used as."""
    at_position: _Table = {}
    by_use: _Table = {}
    for one in used:
        for position in one.positions:
            table = at_position.setdefault(position.name, {})
            table.setdefault(position.index or (), []).append(one.value.place)
        for use in one.uses:
            if use.operand == 0:
                table = by_use.setdefault(use.name, {})
                table.setdefault(use.index or (), []).append(one.value.place)
    return at_position, by_use


def _joins(dump: XlaDump) -> Iterator[tuple[str, list[str]]]:
    """Whiles and conditionals with the parameters and roots whose values they join."""
    assert dump.module is not None, "joins are looked up in the text of the module"
    computations = dump.module.by_name()
    for computation in dump.module.computations:
        for one in computation.instructions:
            called = [computations[name] for _, name in one.called if name in computations]
            if one.opcode == "while":
                body = dict(one.called).get("body")
                inner = [i.name for c in called for i in c.instructions if i.opcode == "parameter"]
                inner += [c.root.name for c in called if c.name == body]
                yield one.name, inner
            elif one.opcode == "conditional":
                yield one.name, [c.root.name for c in called]
