"""The loops that the members of one kernel share, and each member's own loops in terms of them.

    point   for i in 64, j in 32           positions 0..2048, cut after 32
    total   for i in 64 reduce j in 32     64 points of 32 steps
    flat    for k in 2048                  k = 32*i + j
    ->      for i in 64, inner r in 32

Members meet by position: the n-th step of one is the n-th step of the other (at their levels, see
`space`). A cut is a number of steps that stay together; where all cuts divide each other there are
loops of which every member's own are sums. A member whose cuts do not fit takes its loops from the
position, by division and remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from treadle.core.verdict import Verdict, no
from treadle.index import Domain, Expr, IntLike, Symbol, floordiv, loop, mod
from treadle.index.expr import mul
from treadle.ir.body import COMBINING, Body
from treadle.kernel.space import ONE, chain_of, divides, quotient

WHOLE_ROWS = frozenset({"welford", "welford_combine", "online_softmax"})
"""Reductions that go over their row twice: only ever over all inner loops."""


class CommonLoops(NamedTuple):
    """Independent loops, loops inside each of their points, and the members' loops as both."""

    domain: Domain
    inner: Domain
    values: tuple[dict[Symbol, IntLike], ...]
    parts: tuple[Expr | None, ...]
    """For each member that reduces over a part of the inner loops, its place in that part."""


class _Loop(NamedTuple):
    """A common loop: how many steps of the finest level one turn of it holds."""

    variable: Symbol
    extent: Expr
    holds: Expr


def common_loops(bodies: Sequence[Body]) -> CommonLoops | Verdict:
    """The common loops of the bodies, or why there are none (KER001)."""
    if any(n.value == 0 for body in bodies for n in body.space.extents):
        return no("KER001", reason="loops that never run")
    levels = _levels(bodies)
    if levels is None:
        shown = sorted({f"{b.domain.numel} x {b.reduce.numel}" for b in bodies})
        return no("KER001", reason="numbers of points that do not divide", shapes=shown)
    outer, total = levels[0], levels[-1]
    for body in bodies:
        is_part = body.domain.numel is not outer or body.space.numel is not total
        if is_part and combines(body) and not can_be_a_part(body):
            shape = f"{body.domain.numel} x {body.reduce.numel}"
            return no("KER001", reason="rows of different shape", shape=shape)
    ratios = _Ratios(bodies)
    row = ratios.of(total, outer)
    cuts = _with_cuts([ratios.of(total, level) for level in levels], bodies, total, ratios)
    loops = _loops(cuts, total, row, ratios)
    rows = [x for x in loops if ratios.divides(row, x.holds)]
    domain = Domain([(x.variable, x.extent) for x in rows])
    inner = Domain([(x.variable, x.extent) for x in loops[len(rows) :]])
    values = tuple([_values(body, loops, total, ratios) for body in bodies])
    if any(_has_one_step(body) for body in bodies):
        # What reduces a single step still needs a loop to do so.
        step = loop(f"r{len(inner)}")
        inner = Domain([*inner.items(), (step, ONE)])
        for body, known in zip(bodies, values, strict=True):
            if _has_one_step(body):
                known[body.reduce.vars[-1]] = step
    parts = tuple([_part(body, v, inner) for body, v in zip(bodies, values, strict=True)])
    return CommonLoops(domain, inner, values, parts)


def _has_one_step(body: Body) -> bool:
    return combines(body) and body.reduce.numel is ONE


def can_be_a_part(body: Body) -> bool:
    """Whether a body combines in ways that also work over a part of a kernel's inner loops."""
    for stmt in body.stmts:
        if stmt.op in COMBINING and (stmt.op != "reduce" or stmt.attr("kind") in WHOLE_ROWS):
            return False
    return True


def _part(body: Body, values: dict[Symbol, IntLike], inner: Domain) -> Expr | None:
    """Where a member's reduction stands among its own steps, if those are not all inner loops."""
    if not combines(body):
        return None
    place: Expr = ONE - ONE
    for v, n in body.reduce.items():
        place = mul(place, n) + values[v]
    if _has_one_step(body):
        return None if len(inner) == 1 else place
    place = inner.facts.simplify(place)
    wanted = [v for v, n in inner.items() if n is not ONE]
    return None if place.free.issuperset(wanted) else place


def combines(body: Body) -> bool:
    """Whether a body reduces, scans or sorts."""
    return any(s.op in COMBINING for s in body.stmts)


def _levels(bodies: Sequence[Body]) -> tuple[Expr, ...] | None:
    """The numbers of points from coarse to fine, each dividing the next."""
    found: dict[Expr, None] = {}
    for body in bodies:
        if combines(body) or not len(body.reduce):
            found[body.domain.numel] = None
        found[body.space.numel] = None
    return chain_of(list(found))


class _Ratios:
    """How often one number of points goes into another; run-time sizes may hide it from division.

    What the loops of a body multiply to is remembered: `3*s + n*s` points in rows of `n + 3` are
    `s` rows, because some body has that many.
    """

    def __init__(self, bodies: Sequence[Body]) -> None:
        self._steps: dict[Expr, dict[Expr, Expr]] = {}
        for body in bodies:
            within: Expr = ONE
            for n in reversed(body.space.extents):
                outside = mul(within, n)
                self._steps.setdefault(outside, {})[within] = n
                within = outside
            self._steps.setdefault(body.space.numel, {})[body.reduce.numel] = body.domain.numel
            self._steps.setdefault(body.space.numel, {})[body.domain.numel] = body.reduce.numel

    def of(self, fine: Expr, coarse: Expr) -> Expr:
        """`fine` over `coarse`, which divides it."""
        if fine is coarse:
            return ONE
        found = self._along(fine, coarse, ONE, set())
        return quotient(fine, coarse) if found is None else found

    def divides(self, coarse: Expr, fine: Expr) -> bool:
        """Whether `fine` is a known multiple of `coarse`."""
        return divides(coarse, fine) or self._along(fine, coarse, ONE, set()) is not None

    def _along(self, fine: Expr, coarse: Expr, ratio: Expr, seen: set[Expr]) -> Expr | None:
        if fine is coarse:
            return ratio
        if fine.value is not None and coarse.value is not None:
            return None  # division tells it
        seen.add(fine)
        for smaller, n in self._steps.get(fine, {}).items():
            if smaller not in seen:
                found = self._along(smaller, coarse, mul(ratio, n), seen)
                if found is not None:
                    return found
        return None

    def chain(self, numbers: list[Expr]) -> list[Expr] | None:
        """The numbers from small to large, each once, if each divides the next."""
        found: list[Expr] = []
        for number in dict.fromkeys(numbers):
            at = len(found)
            while at and self.divides(number, found[at - 1]):
                at -= 1
            found.insert(at, number)
        fits = all(self.divides(a, b) for a, b in pairwise(found))
        return found if fits else None


def _own_cuts(body: Body, total: Expr, ratios: _Ratios) -> list[Expr]:
    """After how many steps of the finest level each loop of a body, innermost first, turns."""
    holds = ratios.of(total, body.space.numel)
    found = []
    for n in reversed(body.space.extents):
        found.append(holds)
        holds = mul(holds, n)
    return [*found, holds]


def _with_cuts(
    cuts: list[Expr], bodies: Sequence[Body], total: Expr, ratios: _Ratios
) -> list[Expr]:
    """The cuts of levels and of as many members as fit, those with most to index first."""
    found = list(cuts)
    for body in sorted(bodies, key=_weight, reverse=True):
        wanted = [c for c in _own_cuts(body, total, ratios) if c not in found]
        found = ratios.chain([*found, *wanted]) or found
    return ratios.chain(found) or found


def _weight(body: Body) -> tuple[int, int]:
    return int(combines(body)), sum(isinstance(a, Expr) for s in body.walk() for a in s.stmt.attrs)


def _loops(cuts: list[Expr], total: Expr, row: Expr, ratios: _Ratios) -> list[_Loop]:
    """One loop between each two cuts, coarse to fine; loops within `row` steps are inner ones."""
    points = [c for c in cuts if c is not total]
    found: list[_Loop] = []
    outside = total
    counts = {"i": 0, "r": 0}
    for holds in reversed(points):
        prefix = "i" if ratios.divides(row, holds) else "r"
        variable = loop(f"{prefix}{counts[prefix]}")
        counts[prefix] += 1
        found.append(_Loop(variable, ratios.of(outside, holds), holds))
        outside = holds
    return found


def _values(
    body: Body, loops: Sequence[_Loop], total: Expr, ratios: _Ratios
) -> dict[Symbol, IntLike]:
    """The loop variables of a body in terms of the common loops."""
    holds = [x.holds for x in loops] + [total]
    cuts = _own_cuts(body, total, ratios)
    if all(c in holds for c in cuts):
        return {
            v: _between(loops, within, outside, ratios)
            for v, within, outside in zip(
                reversed(body.space.vars), cuts[:-1], cuts[1:], strict=True
            )
        }
    position = _between(loops, cuts[0], total, ratios)
    found: dict[Symbol, IntLike] = {}
    within: Expr = ONE
    for v, n in reversed(list(body.space.items())):
        found[v] = mod(floordiv(position, within), n)
        within = mul(within, n)
    return found


def _between(loops: Sequence[_Loop], within: Expr, outside: Expr, ratios: _Ratios) -> Expr:
    """How many blocks of `within` steps the common loops are past in a block of `outside`."""
    found: Expr = ONE - ONE
    for x in loops:
        end = mul(x.holds, x.extent)
        if ratios.divides(within, x.holds) and ratios.divides(end, outside):
            found = found + mul(x.variable, ratios.of(x.holds, within))
    return found
