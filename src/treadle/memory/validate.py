"""Whether a plan is right, found out independently of how plans are made.

It shares no code with any solver. A sweep over time keeps the occupied address ranges of each
pool in order; a block that comes to life is compared with its two neighbours only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from treadle.core.errors import SpecError, Violation
from treadle.memory.problem import ARENA, Block, Place, Plan, Pool, Problem


def violations(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """Everything wrong with the plan, empty when it is a right answer to the problem."""
    found = [*_names(problem, plan)]
    if found:
        return tuple(found)  # the other questions need a known place for every block
    pools = {pool.name: pool for pool in problem.pools}
    sizes = _slot_sizes(problem)
    for block in problem.blocks:
        found += _alone(block, plan.placements[block.name], sizes[block.name], pools)
    found += _groups(problem, plan)
    found += _height(problem, plan, sizes)
    found += _overlaps(problem, plan, sizes)
    return tuple(found)


def validated(problem: Problem, plan: Plan) -> Plan:
    """The plan itself, or a SpecError with everything that is wrong with it."""
    if found := violations(problem, plan):
        raise SpecError(f"the memory plan of {problem.name} is wrong", found)
    return plan


def _names(problem: Problem, plan: Plan) -> Iterator[Violation]:
    blocks = {block.name for block in problem.blocks}
    pools = {ARENA, *(pool.name for pool in problem.pools)}
    for name in sorted(blocks - plan.placements.keys()):
        yield Violation("MEM004", "the block has no place", name)
    for name, place in plan.placements.items():
        if name not in blocks:
            yield Violation("MEM005", "the problem has no such block", name)
        elif place.pool not in pools:
            yield Violation("MEM005", f"the problem has no pool {place.pool!r}", name)


def _slot_sizes(problem: Problem) -> dict[str, int]:
    """The bytes each block takes: its own, or those of the largest in its group."""
    largest: dict[str, int] = {}
    for block in problem.blocks:
        if block.group is not None:
            largest[block.group] = max(block.size, largest.get(block.group, 0))
    return {b.name: b.size if b.group is None else largest[b.group] for b in problem.blocks}


def _alone(block: Block, place: Place, size: int, pools: dict[str, Pool]) -> Iterator[Violation]:
    """What can be wrong with a block whatever the others do."""
    if block.fixed is not None and place.offset != block.fixed:
        message = f"offset {place.offset}, but it is fixed at {block.fixed}"
        yield Violation("MEM006", message, block.name)
    required = block.host or (ARENA if block.fixed is not None else None)
    if required is not None and place.pool != required:
        message = f"lives in {place.pool}, but must live in {required}"
        yield Violation("MEM010", message, block.name)
    if size:  # without bytes it is in nobody's way and out of no bounds
        yield from _room(block, place, size, pools.get(place.pool))


def _room(block: Block, place: Place, size: int, pool: Pool | None) -> Iterator[Violation]:
    """Whether the bytes it takes are there, aligned, and free to take."""
    end = place.offset + size
    if place.offset % block.alignment:
        message = f"offset {place.offset} is not a multiple of {block.alignment}"
        yield Violation("MEM002", message, block.name)
    if pool and pool.alignment is not None and pool.alignment % block.alignment:
        message = f"{pool.name} is aligned to {pool.alignment}, the block to {block.alignment}"
        yield Violation("MEM002", message, block.name)
    if place.offset < 0 or (pool and end > pool.size):
        room = f"[0, {pool.size})" if pool else "[0, ...)"
        message = f"[{place.offset}, {end}) is outside {room} of {place.pool}"
        yield Violation("MEM003", message, block.name)
    for start, stop in block.spans if pool else ():
        if not _covered(start, stop, pool):
            message = f"uses {place.pool} in [{start}, {stop}), when it is not free"
            yield Violation("MEM009", message, block.name)
            break


def _covered(start: int, stop: int, pool: Pool | None) -> bool:
    """Whether the pool is free from start to stop; free ranges may touch."""
    assert pool is not None, "a block lies in a pool that there is"
    for low, high in pool.free:
        if low <= start < high:
            start = high
        if start >= stop:
            return True
    return False


def _groups(problem: Problem, plan: Plan) -> Iterator[Violation]:
    first: dict[str, str] = {}
    for block in problem.blocks:
        if block.group is None:
            continue
        leader = first.setdefault(block.group, block.name)
        one, other = plan.placements[leader], plan.placements[block.name]
        if one != other:
            message = (
                f"at {other.pool}+{other.offset}, but {leader} of the same group {block.group}"
                f" is at {one.pool}+{one.offset}"
            )
            yield Violation("MEM007", message, block.name)


def _height(problem: Problem, plan: Plan, sizes: dict[str, int]) -> Iterator[Violation]:
    placed = ((place, sizes[name]) for name, place in plan.placements.items())
    height = max((p.offset + size for p, size in placed if p.pool == ARENA and size), default=0)
    if height != plan.height:
        yield Violation("MEM011", f"the plan says height {plan.height}, its blocks reach {height}")
    if problem.capacity is not None and height > problem.capacity:
        message = f"height {height} is over the capacity of {problem.capacity}"
        yield Violation("MEM008", message)


def _overlaps(problem: Problem, plan: Plan, sizes: dict[str, int]) -> Iterator[Violation]:
    """Two slots that hold bytes of one pool at one time; one finding for each that comes late."""
    events = []
    for block in problem.blocks:
        if not sizes[block.name]:
            continue
        for start, end in block.spans:
            # At equal times deaths come first: a life does not include its upper end.
            events += [(start, 1, block), (end, 0, block)]
    events.sort(key=lambda event: event[:2])
    live: dict[str, list[tuple[int, int, str]]] = {}
    holders: dict[tuple[str | None, str, Place], list[str]] = {}
    for time, is_birth, block in events:
        place = plan.placements[block.name]
        key = (block.group, block.name if block.group is None else "", place)
        entry = (place.offset, place.offset + sizes[block.name], block.group or block.name)
        occupied = live.setdefault(place.pool, [])
        if not is_birth:
            names = holders.get(key, [])
            if block.name in names:
                names.remove(block.name)
                if not names:
                    del occupied[bisect_left(occupied, entry)]
            continue
        if holders.get(key):
            holders[key].append(block.name)  # a second block of a group: the bytes are its own
            continue
        at = bisect_left(occupied, entry)
        clash = next(
            (o for o in occupied[max(0, at - 1) : at + 1] if o[0] < entry[1] and entry[0] < o[1]),
            None,
        )
        if clash:
            message = (
                f"[{entry[0]}, {entry[1]}) of {place.pool} at time {time}"
                f" overlaps {clash[2]} at [{clash[0]}, {clash[1]})"
            )
            yield Violation("MEM001", message, block.name)
        else:
            insort(occupied, entry)
            holders[key] = [block.name]
