"""XLA's own plan as a memory problem with an answer, so that the validator can judge it.

    problem, plan = xla_plan(dump)
    violations(problem, plan)            # nothing: XLA's plan is right

Each allocation is a pool; the largest scratch allocation is the arena. A closed range [start, end]
becomes the half-open life [start, end + 1). Values that XLA lets share bytes while they touch are
groups (see `sharing`). Constants, parameters and thread-local values live throughout.
"""

from __future__ import annotations

from treadle.frontends.xla_dump.findings import require_whole
from treadle.frontends.xla_dump.model import Allocation, Assigned, XlaDump
from treadle.frontends.xla_dump.sharing import Sharing
from treadle.memory.problem import ARENA, Block, Place, Plan, Pool, Problem

ALIGNMENTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)


def alignment_of(dump: XlaDump) -> int:
    """The alignment of the scratch memory: the largest, up to 256, that all its offsets keep.

    XLA uses 128 or 256 bytes on GPUs and 64 on CPUs.
    """
    offsets = [one.offset for a, one in dump.assigned() if a.kind == "temp"]
    return next(n for n in ALIGNMENTS if all(offset % n == 0 for offset in offsets))


def arena_of(dump: XlaDump) -> Allocation | None:
    """The scratch allocation that plays the arena: the largest that no other colour reuses."""
    temps = [a for a in dump.allocations if a.kind == "temp" and not a.recoloured]
    return max(temps, key=lambda a: a.size, default=None)


def pool_name(allocation: Allocation) -> str:
    """The name of the pool that an allocation is."""
    return f"allocation{allocation.number}"


def block_name(one: Assigned) -> str:
    """The name of the block that a value is: unique, and short enough to read."""
    return str(one.value.place) if one.value.index is not None else one.value.name


def xla_plan(dump: XlaDump) -> tuple[Problem, Plan]:
    """The problem that XLA solved and its answer; one InputError for a damaged dump."""
    require_whole(dump)
    arena = arena_of(dump)
    alignment = alignment_of(dump)
    sharing = Sharing(dump)
    groups = {place: leader for leader, all_ in sharing.groups().items() for place in all_}
    end = len(dump.live.sequence) + 1 if dump.live else 1
    blocks: list[Block] = []
    pools: list[Pool] = []
    placements: dict[str, Place] = {}
    height = 0
    for allocation in dump.allocations:
        is_arena = allocation is arena
        name = ARENA if is_arena else pool_name(allocation)
        if not is_arena:
            pools.append(Pool(name, allocation.size, ((0, end),)))
        for one in allocation.values:
            lower, upper = life_of(dump, one, end)
            leader = groups.get(one.value.place)
            block = Block(
                name=block_name(one),
                lower=lower,
                upper=upper,
                size=one.size,
                alignment=alignment if is_arena else 1,
                host=name,
                group=None if leader is None else str(leader),
            )
            blocks.append(block)
            placements[block.name] = Place(name, one.offset)
            if is_arena and one.size:
                height = max(height, one.offset + one.size)
    problem = Problem(tuple(blocks), tuple(pools), name=title_of(dump))
    return problem, Plan(placements, height)


def life_of(dump: XlaDump, one: Assigned, end: int) -> tuple[int, int]:
    """The half-open life of a value; without a live range, the whole time."""
    found = dump.range_of.get(one.value.place)
    return (0, end) if found is None else (found.start, max(found.end, found.start) + 1)


def title_of(dump: XlaDump) -> str:
    """A short name for the program: the module's, or the file's."""
    if dump.module:
        return dump.module.name
    name = dump.files[0].name.replace("\\", "/").rpartition("/")[2] if dump.files else "xla"
    return name.partition("-buffer-assignment")[0].removesuffix(".txt") or "xla"
