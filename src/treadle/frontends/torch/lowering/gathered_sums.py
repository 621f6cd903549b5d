"""Elements that are added at places which formulas say, gathered instead of scattered.

    y[i // 2] += x[i]               for i   ->   y[t] = sum of x[2*t + k]     over k in 2
    y[min((i + 1) // 2, 63)] += x[i]        ->   y[t] = sum of x[2*t - 1 + k] over k in 3, where
                                                 the place of that element is t

A scatter adds in memory, one element after the other or all at once and in any order. Where what
a place gets lies side by side, it knows its elements: nothing has to be filled first, sums are made
in registers, and what follows can be computed in the same loops. Places that get more or fewer than
others have to ask for theirs. On a GPU that is far cheaper than additions in memory; in a loop of
a CPU it costs what it saves, and they are scattered to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from treadle.frontends.torch.lowering.index_tables import LONGEST, fitting
from treadle.frontends.torch.lowering.values import Index, LoopWriter
from treadle.index import Expr, Kind, Symbol, as_expr, evaluate, maximum, minimum, substitute
from treadle.ir.build_body import Value

MOST_AT_ONE_PLACE = 16
"""More elements at a place than this are left to a scatter."""
MOST_ASKED = 4
"""More elements than this are not asked, along a loop, whether they belong to a place."""


class Sources(NamedTuple):
    """Which points are put at a place: those of one loop, at most `many` from `first` on."""

    loop: int
    many: int
    symbol: Symbol
    """The place in `first`, and the point in `place`."""
    first: Expr
    place: Expr | None = None
    """Where a point is put, if places get more or fewer and have to ask."""
    points: int = 0

    def point(self, place: Expr, k: Expr) -> Expr:
        """The k-th point that is put at a place; one that exists, if places have to ask."""
        at = self._from(place) + k
        return at if self.place is None else minimum(at, self.points - 1)

    def belongs(self, writer: LoopWriter, place: Expr, k: Expr) -> Value | None:
        """Whether the k-th point is put at a place; None if it always is."""
        if self.place is None:
            return None
        at = self._from(place) + k
        is_here = writer.eq(
            writer.index(substitute(self.place, {self.symbol: at}), "i32"),
            writer.index(place, "i32"),
        )
        exists = writer.lt(writer.index(at, "i32"), writer.index(self.points, "i32"))
        return writer.logical_and(is_here, exists)

    def _from(self, place: Expr) -> Expr:
        return substitute(self.first, {self.symbol: place})


def sources_of(
    places: Index,
    loops: Sequence[Symbol],
    extents: Sequence[Expr],
    sizes: Sequence[Expr],
    may_ask: bool = False,
) -> list[Sources] | None:
    """Where each dimension that is put into gets its elements from; None if it is not so.

    Every loop must decide one dimension, by itself. With `may_ask` places may get more or fewer
    elements than others.
    """
    found: list[Sources] = []
    for e, size in zip(places, sizes, strict=True):
        deciding = [k for k, v in enumerate(loops) if v in e.free]
        if len(deciding) != 1 or any(s.kind is not Kind.LOOP for s in e.free):
            return None
        (k,) = deciding
        v = loops[k]
        one: Sources | None = Sources(k, 1, v, as_expr(v))
        if e is not as_expr(v) or extents[k] is not size:
            one = _along(e, k, v, extents[k].value, size.value, may_ask)
        if one is None:
            return None
        found.append(one)
    return found if sorted(one.loop for one in found) == list(range(len(loops))) else None


def _along(
    formula: Expr, loop: int, v: Symbol, points: int | None, size: int | None, may_ask: bool
) -> Sources | None:
    """The points of one loop for each place, if places get theirs in order."""
    if points is None or size is None or not 1 <= points <= LONGEST:
        return None
    table = [evaluate(substitute(formula, {v: i}), {}) for i in range(points)]
    if table != sorted(table):
        return None
    counts, many = Counter(table), points // size
    if set(counts) == set(range(size)) and set(counts.values()) == {many}:
        return Sources(loop, many, v, v * many) if many <= MOST_AT_ONE_PLACE else None
    many = max(counts.values())
    first = _first_of_each(table, v) if may_ask and many <= MOST_ASKED else None
    return None if first is None else Sources(loop, many, v, first, formula, points)


def _first_of_each(table: Sequence[int], v: Symbol) -> Expr | None:
    """A formula for the first point of each place that gets any; None if none was found.

    The first such place may get more than others, whose formula then begins behind it.
    """
    low, high = table[0], table[-1]
    firsts = [bisect_left(table, t) for t in range(low, high + 1)]
    if len(set(table)) != len(firsts) or len(firsts) < 4:
        return None
    regular = fitting(firsts[1:], v)
    if regular is None:
        return None
    regular = substitute(regular, {v: v - (low + 1)})
    steep = max(-(-first // k) for k, first in enumerate(firsts) if k)
    found = maximum(minimum(regular, (v - low) * steep), 0)
    is_right = all(evaluate(found, {v: low + k}) == first for k, first in enumerate(firsts))
    return found if is_right else None
