"""Whether two dependences, spelled over different loops, are one access.

    MemoryDep('x', ModularIndexing(27*c0 + c1, 1, 6), {c0: 2, c1: 27})
    MemoryDep('x', ModularIndexing(3*c0 + 9*c1 + c2, 1, 6), {c0: 2, c1: 3, c2: 9})

The peer merges loops and splits them again as it fuses, and what it prints then depends on the way
it came. Both spellings above touch the same elements in the same order, which is what counts: it
is looked at point by point, at every point of small loops and at many points of large ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from random import Random

from treadle.frontends.inductor_dump.model import Dep, MemoryDep
from treadle.index import Expr, FloorDiv, Kind, Max, Min, Mod, Symbol, evaluate, loop

ALL_POINTS = 4096
"""Loops of at most so many points are compared at all of them."""
SOME_POINTS = 1024
TRIES = 3
"""How many values run-time sizes and values of indirect indices are given in turn."""


def is_same_access(one: Dep, other: Dep, sums_too: bool = False) -> bool:
    """Whether both touch the same elements of the same buffer in the same order.

    Sums of multiples have one normal form, which the peer finds as well, so other spellings of
    them are only taken for the same with `sums_too`: for lists from before loops were merged.
    """
    if not isinstance(one, MemoryDep) or not isinstance(other, MemoryDep):
        return False
    if (one.name, one.mode) != (other.name, other.mode):
        return False
    first, second = one.index.expr, other.index.expr
    if first is None or second is None:
        return one.index.text == other.index.text and one.ranges == other.ranges
    if not sums_too and not _divides(first) and not _divides(second):
        return False
    loops = _loops(one), _loops(other)
    if loops[0] is None or loops[1] is None:
        return False
    random = Random(0)
    names = _open_symbols((first, *loops[0].values())), _open_symbols((second, *loops[1].values()))
    for _ in range(TRIES if names[0] or names[1] else 1):
        # Sizes stay small, so that few points are many of all; a value can be anything.
        given = {
            s: random.randrange(2, 8) if s.kind is Kind.SIZE else random.randrange(1 << 20)
            for s in sorted(names[0] | names[1], key=lambda s: s.name)
        }
        if not _same_points((first, loops[0]), (second, loops[1]), given, random):
            return False
    return True


Side = tuple[Expr, Mapping[Symbol, Expr]]


def _loops(dep: MemoryDep) -> dict[Symbol, Expr] | None:
    if any(extent.expr is None for _, extent in dep.ranges):
        return None
    return {loop(name): e for name, extent in dep.ranges if (e := extent.expr) is not None}


def _divides(index: Expr) -> bool:
    """Whether there is a division, a remainder or the like, whose spelling is not unique."""
    waiting = [index]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, FloorDiv | Mod | Min | Max):
            return True
        waiting.extend(expr.children)
    return False


def _open_symbols(exprs: tuple[Expr, ...]) -> set[Symbol]:
    return {s for e in exprs for s in e.free if s.kind is not Kind.LOOP}


def _same_points(one: Side, other: Side, given: Mapping[Symbol, int], random: Random) -> bool:
    try:
        extents = [[evaluate(n, given) for n in side[1].values()] for side in (one, other)]
        totals = [int(prod(row)) for row in extents]
        if min(totals) < 1 or max(totals) % min(totals):
            return max(totals) == min(totals) == 0
        for position in _positions(max(totals), random):
            at = []
            for (index, loops), row, total in zip((one, other), extents, totals, strict=True):
                # Innermost loops that an index does not use are left out of its ranges.
                point = _point(position // (max(totals) // total), row)
                at.append(evaluate(index, {**given, **dict(zip(loops, point, strict=True))}))
            if at[0] != at[1]:
                return False
    except (ZeroDivisionError, KeyError):
        return False  # an index that divides by nothing, or speaks of loops that are not there
    return True


def _positions(total: int, random: Random) -> Iterator[int]:
    if total <= ALL_POINTS:
        yield from range(total)
        return
    yield from (0, 1, total - 1)
    yield from (random.randrange(total) for _ in range(SOME_POINTS))


def _point(position: int, extents: list[int]) -> list[int]:
    """The values of the loops at the given place in the order of execution."""
    values = []
    for extent in reversed(extents):
        position, value = divmod(position, extent)
        values.append(value)
    return values[::-1]
