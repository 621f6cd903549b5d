"""Elements that are added at places which formulas say, gathered instead of scattered.

    y[i // 2] += x[i]     for i    ->    y[t] = sum of x[2*t + k]     over k in 2

A scatter adds in memory, one element after the other or all at once and in any order. Where every
place gets as many elements, side by side, it knows them: nothing has to be filled first, sums are
made in registers, and what follows can be computed in the same loops. Places that get more or fewer
than others would have to ask for theirs, which costs what it saves: they are scattered to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from treadle.frontends.torch.lowering.index_tables import LONGEST
from treadle.frontends.torch.lowering.values import Index
from treadle.index import Expr, Kind, Symbol, as_expr, evaluate, substitute

MOST_AT_ONE_PLACE = 16
"""More elements at a place than this are left to a scatter."""


class Sources(NamedTuple):
    """Which points are put at a place: those of one loop, `many` from `many * place` on."""

    loop: int
    many: int

    def point(self, place: Expr, k: Expr) -> Expr:
        """The k-th point that is put at a place."""
        return place * self.many + k


def sources_of(
    places: Index, loops: Sequence[Symbol], extents: Sequence[Expr], sizes: Sequence[Expr]
) -> list[Sources] | None:
    """Where each dimension that is put into gets its elements from; None if it is not so.

    Every loop must decide one dimension, by itself.
    """
    found: list[Sources] = []
    for e, size in zip(places, sizes, strict=True):
        deciding = [k for k, v in enumerate(loops) if v in e.free]
        if len(deciding) != 1 or any(s.kind is not Kind.LOOP for s in e.free):
            return None
        (k,) = deciding
        many = 1
        if e is not as_expr(loops[k]) or extents[k] is not size:
            many = _at_each_place(e, loops[k], extents[k].value, size.value)
        if not 1 <= many <= MOST_AT_ONE_PLACE:
            return None
        found.append(Sources(k, many))
    return found if sorted(one.loop for one in found) == list(range(len(loops))) else None


def _at_each_place(formula: Expr, v: Symbol, points: int | None, size: int | None) -> int:
    """How many points are put at each place, if it is as many everywhere and in order; else 0."""
    if points is None or size is None or not size <= points <= LONGEST:
        return 0
    table = [evaluate(substitute(formula, {v: i}), {}) for i in range(points)]
    counts = Counter(table)
    many = points // size
    is_even = table == sorted(table) and set(counts) == set(range(size))
    return many if is_even and set(counts.values()) == {many} else 0
