"""Small random memory problems of every kind, and the lowest plan by trying everything."""

from __future__ import annotations

from itertools import permutations

from hypothesis import strategies as st

from treadle.memory.problem import ARENA, Block, Pool, Problem

END = 8


@st.composite
def ranges(draw: st.DrawFn, low: int, high: int) -> tuple[tuple[int, int], ...]:
    """Disjoint half-open ranges inside [low, high), none to two."""
    edges = sorted(draw(st.sets(st.integers(low, high), max_size=4)))
    return tuple(zip(edges[::2], edges[1::2], strict=False))


@st.composite
def blocks(draw: st.DrawFn, name: str, pools: tuple[Pool, ...], plain: bool) -> Block:
    lower = draw(st.integers(0, END - 1))
    upper = draw(st.integers(lower + 1, END))
    size = draw(st.integers(0 if not plain else 1, 6))
    if plain:
        return Block(name, lower, upper, size)
    alignment = draw(st.sampled_from([1, 1, 1, 2, 4]))
    gaps = draw(ranges(lower, upper)) if draw(st.integers(0, 3)) == 0 else ()
    if gaps == ((lower, upper),):
        gaps = ()
    fixed = draw(st.integers(0, 3)) * alignment if draw(st.integers(0, 5)) == 0 else None
    names = [pool.name for pool in pools]
    host = draw(st.sampled_from([None, None, ARENA, *names]))
    return Block(name, lower, upper, size, alignment, gaps, fixed, host)


@st.composite
def problems(draw: st.DrawFn, most: int = 5, plain: bool = False) -> Problem:
    """Problems with up to `most` blocks; plain ones have nothing but lives and sizes."""
    pools: tuple[Pool, ...] = ()
    if not plain and draw(st.booleans()):
        free = draw(ranges(0, END))
        pools = (Pool("out", draw(st.integers(0, 8)), free, draw(st.sampled_from([None, 2]))),)
    count = draw(st.integers(1, most))
    made = [draw(blocks(f"b{k}", pools, plain)) for k in range(count)]
    if not plain and count >= 2 and draw(st.integers(0, 2)) == 0:
        a, b = made[0], made[1]
        made[0] = Block(a.name, a.lower, a.upper, a.size, a.alignment, a.gaps, None, None, "g")
        made[1] = Block(b.name, b.lower, b.upper, b.size, b.alignment, b.gaps, None, None, "g")
    return Problem(tuple(made), pools)


def lowest_height(problem: Problem) -> int | None:
    """The height of the lowest plan, by every order and first fit; None if there is no plan.

    Taking the blocks of a lowest plan by address and letting each fall as far as it can gives a
    plan that is as low, so some order finds it.
    """
    slots: dict[object, list[Block]] = {}
    for block in problem.blocks:
        slots.setdefault(("g", block.group) if block.group else block.name, []).append(block)
    kept = [slot for slot in slots.values() if max(b.size for b in slot)]
    heights = [h for order in permutations(kept) if (h := _pile(problem, order)) is not None]
    return min(heights, default=None)


def _pile(problem: Problem, order: tuple[list[Block], ...]) -> int | None:
    done: list[tuple[list[Block], str, int, int]] = []
    for slot in order:
        size = max(block.size for block in slot)
        for name in [*[pool.name for pool in problem.pools], ARENA]:
            offset = _lowest(problem, slot, size, name, done)
            if offset is not None:
                done.append((slot, name, offset, size))
                break
        else:
            return None
    return max((o + size for _, pool, o, size in done if pool == ARENA), default=0)


def _lowest(
    problem: Problem,
    slot: list[Block],
    size: int,
    name: str,
    done: list[tuple[list[Block], str, int, int]],
) -> int | None:
    pool = next((pool for pool in problem.pools if pool.name == name), None)
    times = {t for block in slot for a, b in block.spans for t in range(a, b)}
    for block in slot:
        if (block.host or (ARENA if block.fixed is not None else name)) != name:
            return None
        if pool and pool.alignment and pool.alignment % block.alignment:
            return None
    if pool and not times <= {t for a, b in pool.free for t in range(a, b)}:
        return None
    fixed = next((block.fixed for block in slot if block.fixed is not None), None)
    for offset in range(100) if fixed is None else [fixed]:
        if pool and offset + size > pool.size:
            return None
        if any(offset % block.alignment for block in slot):
            continue
        clash = any(
            where == name
            and start < offset + size
            and offset < start + length
            and times & {t for block in other for a, b in block.spans for t in range(a, b)}
            for other, where, start, length in done
        )
        if not clash:
            return offset
    return None
