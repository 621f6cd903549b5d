"""A dump's temporaries planned anew: many inside outputs not yet born and donated inputs that died.

    problem = replan_problem(dump)      # what may move, what stays, where
    start = xla_answer(dump, problem)   # XLA's own answer to the same problem

XLA gives such a host to one value at a time, at its first byte; we pack as many as fit. What the
caller sees stays put: parameters, outputs, constants. Values that keep one place (see `sharing`)
keep one. Scratch memory of other colours than the largest scratch allocation's is left alone, and
so is every allocation that buffers of another colour reuse.

XLA's source notes that its GPU runtime may look into tuple tables (arrays of pointers) for longer
than their live range says; it never shares them. With `keep_tables` neither do we: each has bytes
of its own for the whole time.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.frontends.xla_dump.findings import require_whole
from treadle.frontends.xla_dump.import_plan import (
    alignment_of,
    arena_of,
    block_name,
    life_of,
    pool_name,
    title_of,
)
from treadle.frontends.xla_dump.model import Allocation, Assigned, HloPosition, XlaDump
from treadle.frontends.xla_dump.sharing import Sharing
from treadle.memory.problem import ARENA, Block, Place, Plan, Pool, Problem

HOSTS = ("output", "donated")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes that no plan changes: all allocations but the arena."""

    total: int
    arena: int
    temp: int
    """Scratch memory other than the arena."""


def fixed_bytes(dump: XlaDump) -> Fixed:
    """What stays as it is in the dump, and how large the arena is there."""
    arena = arena_of(dump)
    size = arena.size if arena else 0
    return Fixed(dump.total_bytes - size, size, dump.temp_bytes - size)


def is_table(one: Assigned) -> bool:
    """Whether a value is a tuple's table of pointers."""
    return one.shape.startswith("(")


def replan_problem(dump: XlaDump, *, keep_tables: bool = False) -> Problem:
    """Everything that may move, with the hosts it may move into and what stays in them.

    One InputError for a dump of which parts are missing or do not fit together.
    """
    require_whole(dump)
    return _ReplanBuilder(dump, keep_tables).problem()


def xla_answer(dump: XlaDump, problem: Problem) -> Plan:
    """Where XLA put the blocks of the problem: an answer that is always there."""
    arena = arena_of(dump)
    places: dict[str, Place] = {}
    sizes = {block.name: block.size for block in problem.blocks}
    height = 0
    for allocation, one in dump.assigned():
        name = block_name(one)
        if name not in sizes:
            continue
        places[name] = Place(ARENA if allocation is arena else pool_name(allocation), one.offset)
        if allocation is arena and one.size:
            height = max(height, one.offset + one.size)
    return Plan(places, height)


def _may_host(allocation: Allocation, color: int) -> bool:
    # Where buffers of another colour lie in an allocation, a dump does not say.
    is_shared = bool(allocation.recoloured)
    return allocation.kind in HOSTS and allocation.color == color and not is_shared


class _ReplanBuilder:
    """Collects blocks and hosts of one dump."""

    def __init__(self, dump: XlaDump, keep_tables: bool) -> None:
        self.dump = dump
        self.keep_tables = keep_tables
        self.arena = arena_of(dump)
        self.alignment = alignment_of(dump)
        self.end = len(dump.live.sequence) + 1 if dump.live else 1
        color = self.arena.color if self.arena else 0
        self.hosts = [a for a in dump.allocations if _may_host(a, color)]
        groups = Sharing(dump).groups()
        self.leader = {place: leader for leader, all_ in groups.items() for place in all_}
        self.pinned = self._pinned()

    def problem(self) -> Problem:
        """The blocks in the order of the dump, and the hosts."""
        blocks: dict[str, Block] = {}
        movers = [*self.hosts, *([self.arena] if self.arena else [])]
        for allocation in movers:
            for one in allocation.values:
                block = self._block(allocation, one)
                blocks.setdefault(block.name, block)
        pools = [Pool(pool_name(a), a.size, ((0, self.end),)) for a in self.hosts]
        return Problem(tuple(blocks.values()), tuple(pools), name=title_of(self.dump))

    def _pinned(self) -> set[HloPosition]:
        """Values, or those that stand for their groups, that must stay where they are."""
        stay: set[HloPosition] = set()
        for allocation in self.hosts:
            for one in allocation.values:
                found = self.dump.range_of.get(one.value.place)
                is_output = found is None or found.end + 1 >= self.end
                if is_output or self._is_parameter(allocation, one):
                    stay.add(self.leader.get(one.value.place, one.value.place))
        return stay

    def _is_parameter(self, allocation: Allocation, one: Assigned) -> bool:
        """Whether this is the value that the caller put there."""
        if allocation.parameter is None:
            return False
        found = self.dump.range_of.get(one.value.place)
        return found is not None and found.start == 0 and one.size == allocation.size

    def _block(self, allocation: Allocation, one: Assigned) -> Block:
        place = one.value.place
        lower, upper = life_of(self.dump, one, self.end)
        leader = self.leader.get(place)
        group = None if leader is None else str(leader)
        name = block_name(one)
        if allocation is not self.arena and (leader or place) in self.pinned:
            host = pool_name(allocation)
            return Block(name, lower, upper, one.size, 1, fixed=one.offset, host=host, group=group)
        if self.keep_tables and is_table(one):
            return Block(name, 0, self.end, one.size, self.alignment, host=ARENA, group=group)
        return Block(name, lower, upper, one.size, self.alignment, group=group)
