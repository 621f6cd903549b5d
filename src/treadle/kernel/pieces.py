"""A nest in pieces along its lines of memory, so that in each of them indices are sums of loops.

    for i, j in 512:       y[i, j] = x[i, (j + 505) % 512]
    ->   for i, j in 7:    y[i, j] = x[i, j + 505]
         for i, j in 505:  y[i, j + 7] = x[i, j]

    for i, j in 64:        y[i, j] = x[i, j // 2]
    ->   for i, j in 32:   y[i, 2*j] = x[i, j];  y[i, 2*j + 1] = x[i, j]

    for i, j in 512:       y[i, j] = x[i, j // 16]
    ->   for i, g, j in 16:  y[i, 16*g + j] = x[i, g]

Vectors load what lies side by side, and no branch may stand in their loop. A remainder that wraps,
a minimum or maximum, a mask at the edge of a picture is the same almost everywhere: the loop is cut
where it changes. What comes again after a few steps is written out for each of them, and what does
after many is a loop within the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, count
from math import gcd, lcm

from treadle.index import (
    Domain,
    Expr,
    FloorDiv,
    Kind,
    Max,
    Min,
    Mod,
    Symbol,
    as_expr,
    coefficient,
    floordiv,
)
from treadle.ir.body import Body
from treadle.ir.masks import COMPARISONS, MaskFacts, is_at_least_zero, whole_number
from treadle.ir.program import Nest, Program
from treadle.ir.spec_facts import storage_limit
from treadle.ir.spec_races import stores_cannot_race
from treadle.kernel.decided import over_parts
from treadle.kernel.vector_rules import STOPPING, accesses_of, may_reorder, with_regions

MOST_PIECES = 6
MOST_COPIES, LEAST_STEPS = 4, 8
"""Steps after which indices must come again at most to be written out, and at least for a loop."""
SHORTEST = 8
"""A piece must be so long on the average, or vectors gain nothing."""
LONGEST = 400
"""Statements of all pieces together, beyond which a compiler would take too long."""


def in_pieces(nest: Nest, program: Program) -> tuple[Body, ...] | None:
    """Bodies that do the work of a nest on a CPU, in order; None if it is best left as it is."""
    body = nest.body
    if len(body.reduce) or any(n.value == 0 for n in body.domain.extents):
        return None
    v = line_of(body)
    if v is None or not _is_uneven(body, v):
        return None
    if not may_reorder(nest, accesses_of(body, program)) or not _may_be_cut(body):
        return None
    found = _Pieces(program, v).of(body)
    is_same = len(found) == 1 and found[0] is body
    if is_same or not all(is_sound(b, program) for b in found):
        return None
    return tuple(found)


def line_of(body: Body) -> Symbol | None:
    """The loop along which everything that is stored lies side by side."""
    stores = list(body.stores())
    if not stores or any(mode != "plain" for _, _, mode, _ in stores):
        return None
    for v in reversed(body.domain.vars):
        steps = [coefficient(index, v) for _, index, _, _ in stores]
        if all(step is not None and step.value == 1 for step in steps):
            return v
    return None


def _may_be_cut(body: Body) -> bool:
    """Whether nothing stops at a point, so that their order does not show."""
    facts = MaskFacts(body)
    return not any(at.stmt.op in STOPPING or facts.may_stop(at.stmt) for at in body.walk())


def is_sound(body: Body, program: Program) -> bool:
    """Whether accesses are inside their storage or not to be proved so, and stores meet nothing."""
    facts = MaskFacts(body)
    for top in body.stmts:
        for one, masks in with_regions(top):
            if one.op not in ("load", "store") or one.attr("unproven"):
                continue
            limit = storage_limit(program.by_name[one.buffer], program)
            if not masks and not facts.within(one.address, limit, ()):
                return False
    # Stores beside each other must be seen to be apart by those who check what is written here.
    return next(stores_cannot_race(body, program), None) is None


def _is_uneven(body: Body, v: Symbol) -> bool:
    """Whether along a loop an index is no sum, or a mask changes."""
    return next(_periods(body, v), 0) > 0 or next(_changes(body, v), None) is not None


@dataclass(frozen=True)
class _Pieces:
    """The pieces of one nest along one of its loops."""

    program: Program
    loop: Symbol

    def of(self, body: Body) -> list[Body]:
        """The bodies; the one that was given if nothing is gained."""
        n = body.domain.extent(self.loop)
        copies = lcm(*_periods(body, self.loop))
        found = [body]
        if copies > 1 and self._may_repeat(body, copies):
            found = self._repeated(body, copies)
        elif copies >= LEAST_STEPS and n.value is not None and n.value % copies == 0:
            found = [self._in_groups(body, copies)]
            if found[0] is not body:
                return found
        done: list[Body] = []
        while found:
            one = found.pop(0)
            halves = self._halves(one)
            if halves is None:
                done.append(one)
            else:
                found = [*halves, *found]
            if len(done) + len(found) > MOST_PIECES:
                return [body]
        if n.value is not None and n.value < SHORTEST * len(done):
            return [body]
        if sum(len(b.stmts) for b in done) > max(LONGEST, len(body.stmts)):
            return [body]
        return done

    def _may_repeat(self, body: Body, copies: int) -> bool:
        """Whether steps may be written out: no storage is read and written, there are enough."""
        n = body.domain.extent(self.loop).value
        loaded = {self.program.storage_of(name) for name, _, _ in body.loads()}
        stored = {self.program.storage_of(name) for name, _, _, _ in body.stores()}
        is_enough = n is not None and n >= SHORTEST * copies
        return copies <= MOST_COPIES and is_enough and loaded.isdisjoint(stored)

    def _repeated(self, body: Body, copies: int) -> list[Body]:
        """The body with several steps at once, and what is left at the end."""
        n, v = body.domain.extent(self.loop).value, self.loop
        assert n is not None, "steps are written out where they can be counted"
        steps = [{v: v * copies + k} for k in range(copies)]
        domain = _with_extent(body.domain, v, as_expr(n // copies))
        found = [over_parts(body, domain, steps, self.program.by_name)]
        if next(_periods(found[0], v), 0):
            return [body]  # something else is uneven
        if n % copies:
            rest = _with_extent(body.domain, v, as_expr(n % copies))
            done = n - n % copies
            found.append(over_parts(body, rest, [{v: v + done}], self.program.by_name))
        return found

    def _in_groups(self, body: Body, steps: int) -> Body:
        """The body with a loop over so many steps within the loop, if that leaves sums only."""
        v = self.loop
        taken = {w.name for w in body.space.vars}
        names = (f"{v.name}_{k}" for k in count(1))
        inner = Symbol(next(name for name in names if name not in taken), v.kind)
        groups = _with_extent(body.domain, v, floordiv(body.domain.extent(v), steps))
        domain = groups + Domain([(inner, as_expr(steps))])
        found = over_parts(body, domain, [{v: v * steps + inner}], self.program.by_name)
        is_even = not any(next(_periods(found, w), 0) for w in (v, inner))
        return found if is_even else body

    def _halves(self, body: Body) -> list[Body] | None:
        """The body cut in two where something changes; None if nothing does, or none can tell."""
        v, facts = self.loop, body.domain.facts
        n = body.domain.extent(v)
        for difference in _changes(body, v):
            at = _first_after_change(difference, v)
            if not facts.less(as_expr(0), at) or not facts.less(at, n):
                continue
            parts = [(as_expr(0), at), (at, n - at)]
            known = self.program.by_name
            return [
                over_parts(body, _with_extent(body.domain, v, extent), [{v: v + start}], known)
                for start, extent in parts
            ]
        return None


def _with_extent(domain: Domain, v: Symbol, extent: Expr) -> Domain:
    return Domain([(w, extent if w is v else n) for w, n in domain.items()])


# ------------------------------------------------------------------------------- what is uneven


def indices_of(body: Body) -> Iterator[Expr]:
    """The indices in a body."""
    for at in body.walk():
        if at.stmt.op in ("load", "store", "index"):
            yield from (e for e in at.stmt.attrs if isinstance(e, Expr))


def index_parts(e: Expr, v: Symbol) -> Iterator[Expr]:
    """Quotients, remainders, minima and maxima in an index that vary along a loop, inner first."""
    for base, _ in e.terms:
        if isinstance(base, Symbol) or v not in base.free:
            continue
        for inner in base.children:
            yield from index_parts(inner, v)
        if isinstance(base, FloorDiv | Mod | Min | Max):
            yield base


def _periods(body: Body, v: Symbol) -> Iterator[int]:
    """After how many steps quotients and remainders by small numbers come again."""
    n = body.domain.extent(v).value
    for e in indices_of(body):
        for part in index_parts(e, v):
            if not isinstance(part, FloorDiv | Mod) or part.den.value is None:
                continue
            step = coefficient(part.num, v)
            if step is None or step.value is None or part.den.value <= 0:
                continue
            period = part.den.value // gcd(step.value, part.den.value)
            if period > 1 and (n is None or n >= 2 * period):
                yield period


def _changes(body: Body, v: Symbol) -> Iterator[Expr]:
    """Sums, at least 0 on one side of a place along the loop and less on the other."""
    seen: set[Expr] = set()
    for one in _differences(body, v):
        step = coefficient(one, v)
        if one in seen or step is None or not step.value:
            continue
        seen.add(one)
        rest = one - step * v
        if all(s.kind is Kind.SIZE for s in rest.free):
            first, last = one - step * v, one + (body.domain.extent(v) - 1 - v) * step
            facts = body.domain.facts
            ends = (first, last) if step.value > 0 else (last, first)
            if not facts.nonnegative(ends[0]) and not facts.less(ends[1], 0):
                yield one


def _differences(body: Body, v: Symbol) -> Iterator[Expr]:
    facts = MaskFacts(body)
    for at in body.walk():
        if at.stmt.op in COMPARISONS and at.stmt.op != "eq":
            a, b = (whole_number(facts.made_by(n), facts.facts) for n in at.stmt.args)
            if a is not None and b is not None:
                yield from is_at_least_zero(at.stmt.op, a, b)
    for e in indices_of(body):
        for part in index_parts(e, v):
            if isinstance(part, Min | Max):
                yield from (a - b for a, b in combinations(part.children, 2))
            elif isinstance(part, FloorDiv | Mod):
                low, _ = facts.facts.interval(part.num)
                if low is not None and part.den.value:
                    # The first multiple that is passed; what is left may pass others.
                    yield part.num - (low // part.den.value + 1) * part.den.value


def _first_after_change(difference: Expr, v: Symbol) -> Expr:
    """The first place at which a sum is on the other side of zero than at the beginning."""
    step = coefficient(difference, v)
    assert step is not None, "a change is found in a sum"
    assert step.value, "a change is found in what varies"
    rest = difference - step * v
    if step.value > 0:
        return -floordiv(rest, step.value)
    return floordiv(rest, -step.value) + 1
