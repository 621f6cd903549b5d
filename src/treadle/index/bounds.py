"""What is known about symbols in one place: ranges, signs, divisors, and proofs from them.

`Facts` holds the extents of the loops an expression stands in (sizes carry their own range) and
answers with certainty or not at all: an interval is never too small, a proof never wrong, and
"cannot prove" is not "false". Answers are memoised per object, which is immutable to its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

from treadle.index.expr import (
    Const,
    Expr,
    FloorDiv,
    IntLike,
    Kind,
    Max,
    Min,
    Mod,
    Product,
    Symbol,
    as_expr,
    floordiv,
    mul,
    product_of,
    sum_of,
)
from treadle.index.rewrite import coefficient, substitute


class Interval(NamedTuple):
    """The integers lo..hi, both included; None stands for no bound on that side."""

    lo: int | None
    hi: int | None

    def __add__(self, other: Interval) -> Interval:  # type: ignore[override]
        return Interval(_plus(self.lo, other.lo), _plus(self.hi, other.hi))

    def scaled(self, k: int) -> Interval:
        """Each member times k."""
        lo = None if self.lo is None else self.lo * k
        hi = None if self.hi is None else self.hi * k
        return Interval(lo, hi) if k >= 0 else Interval(hi, lo)

    def times(self, other: Interval) -> Interval:
        """All products of a member of each."""
        if Interval(0, 0) in (self, other):
            return Interval(0, 0)
        if None not in self and None not in other:
            corners = [a * b for a in self for b in other]  # type: ignore[operator]
            return Interval(min(corners), max(corners))
        if self.nonnegative and other.nonnegative:
            assert self.lo is not None, "what is not negative has a lower end"
            assert other.lo is not None, "what is not negative has a lower end"
            return Interval(self.lo * other.lo, None)
        return EVERYTHING

    @property
    def nonnegative(self) -> bool:
        """Whether no member is below zero."""
        return self.lo is not None and self.lo >= 0

    @property
    def positive(self) -> bool:
        """Whether every member is above zero."""
        return self.lo is not None and self.lo > 0


EVERYTHING = Interval(None, None)


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _divide(num: Interval, den: Interval) -> Interval:
    """All floor quotients, for a divisor known to be positive."""
    assert den.lo is not None, "a divisor is known to be positive"
    dens = [den.lo] if den.hi is None else [den.lo, den.hi]
    lo = None if num.lo is None else min(num.lo // d for d in dens)
    hi = None if num.hi is None else max(num.hi // d for d in dens)
    if den.hi is None:
        # An unbounded divisor pulls quotients towards 0 (from above) or -1 (from below).
        lo = None if lo is None else min(lo, 0 if num.nonnegative else -1)
        hi = None if hi is None else max(hi, 0 if hi >= 0 else -1)
    return Interval(lo, hi)


class Facts:
    """The extents of the loops in view, and all that follows from them."""

    __slots__ = ("_intervals", "_proofs", "_simple", "_within", "extents", "pinned")

    def __init__(self, extents: Mapping[Symbol, IntLike] | None = None) -> None:
        self.extents: dict[Symbol, Expr] = {v: as_expr(n) for v, n in (extents or {}).items()}
        self._intervals: dict[Expr, Interval] = {}
        self._simple: dict[Expr, Expr] = {}
        self._proofs: dict[tuple[Expr, int], bool] = {}
        self._within: dict[tuple[Expr, IntLike], bool] = {}
        self.pinned = frozenset([v for v, n in self.extents.items() if n.value in (0, 1)])
        """Symbols that can take one value only."""

    # -- ranges ----------------------------------------------------------------------------
    def interval(self, e: Expr) -> Interval:
        """An interval that holds every value `e` can take here."""
        known = self._intervals.get(e)
        if known is None:
            known = Interval(e.const, e.const)
            for base, c in e.terms:
                known = known + self._of_base(base).scaled(c)
            self._intervals[e] = known
        return known

    def _of_base(self, base: Expr) -> Interval:
        if isinstance(base, Symbol):
            return self._of_symbol(base)
        args = [self.interval(a) for a in base.children]
        if isinstance(base, Product):
            result = args[0]
            for a in args[1:]:
                result = result.times(a)
            return result
        if isinstance(base, FloorDiv):
            return _divide(*args) if args[1].positive else EVERYTHING
        if isinstance(base, Mod):
            return self._of_mod(*args)
        los, his = [a.lo for a in args], [a.hi for a in args]
        total = sum_of(base.children).value if len(args) == 2 else None
        if isinstance(base, Min):
            # Of two that add up to a number the smaller is at most half of it.
            known_his = [h for h in (*his, total and total // 2) if h is not None]
            lo = None if None in los else min(los)  # type: ignore[type-var]
            return Interval(lo, min(known_his) if known_his else None)
        known_los = [x for x in (*los, total and -(-total // 2)) if x is not None]
        hi = None if None in his else max(his)  # type: ignore[type-var]
        return Interval(max(known_los) if known_los else None, hi)

    def _of_symbol(self, s: Symbol) -> Interval:
        extent = self.extents.get(s)
        if extent is None:
            return Interval(s.lo, s.hi)
        top = self.interval(extent).hi
        # A loop that may be empty binds its variable to nothing; 0 keeps the interval sane.
        return Interval(0, None if top is None else max(top - 1, 0))

    @staticmethod
    def _of_mod(num: Interval, den: Interval) -> Interval:
        if not den.positive:
            return EVERYTHING
        top = None if den.hi is None else den.hi - 1
        if num.nonnegative:
            assert den.lo is not None, "a divisor is known to be positive"
            if num.hi is not None and num.hi < den.lo:
                return num
            if num.hi is not None and (top is None or num.hi < top):
                top = num.hi
        return Interval(0, top)

    # -- proofs ----------------------------------------------------------------------------
    def nonnegative(self, e: Expr, splits: int = 2) -> bool:
        """Whether `e` is provably at least 0 everywhere in these loops.

        `splits` says how many minima and maxima may be taken apart on the way.
        """
        if self.interval(e).nonnegative:
            return True
        if e.value is not None:
            return False
        known = self._proofs.get((e, splits))
        if known is None:
            known = self._proofs[e, splits] = self._prove_nonnegative(e, splits)
        return known

    def _prove_nonnegative(self, e: Expr, splits: int) -> bool:
        floor = self._extreme(e, lowest=True)
        if floor is not None:
            if _nonnegative_over_sizes(floor):
                return True
            # Sizes in a narrow range make quotients plain numbers, on one side only so far.
            simple = self.simplify(floor)
            if simple is not floor and _nonnegative_over_sizes(simple):
                return True
        return splits > 0 and self._nonnegative_by_cases(e, splits - 1)

    def _nonnegative_by_cases(self, e: Expr, splits: int) -> bool:
        """With a minimum or maximum replaced by its arguments: one will do, or all must."""
        for base, c in e.terms:
            if not isinstance(base, Min | Max):
                continue
            rest = e - base * c
            cases = [self.nonnegative(rest + arg * c, splits) for arg in base.children]
            # e.g. x - min(a, b) >= x - a: a bound for one argument is enough.
            return any(cases) if isinstance(base, Max) == (c > 0) else all(cases)
        return False

    def at_most(self, a: Expr, b: IntLike) -> bool:
        """Whether a <= b provably."""
        return self.nonnegative(as_expr(b) - a)

    def less(self, a: Expr, b: IntLike) -> bool:
        """Whether a < b provably."""
        b = as_expr(b)
        if isinstance(a, FloorDiv) and self.interval(a.den).positive:
            return self.nonnegative(mul(b, a.den) - a.num - 1)  # n // d < b  <=>  n < b*d
        return self.nonnegative(b - a - 1)

    def within(self, e: Expr, n: IntLike) -> bool:
        """Whether 0 <= e < n provably."""
        known = self._within.get((e, n))
        if known is None:
            known = self._within[e, n] = self._prove_within(e, n)
        return known

    def _prove_within(self, e: Expr, n: IntLike) -> bool:
        if self.nonnegative(e) and self.less(e, n):
            return True
        simple = self.simplify(e)
        if simple is not e and self.nonnegative(simple) and self.less(simple, n):
            return True
        return self._within_after_cuts(simple, as_expr(n))

    def _within_after_cuts(self, e: Expr, n: Expr) -> bool:
        """`within` with loops cut into digits: s*(i % u) + i//u for i in 0..s*u is a transpose."""
        from treadle.index.domain import Domain
        from treadle.index.maps import refine

        loops = [(v, x) for v, x in self.extents.items() if v in e.free and v.kind is Kind.LOOP]
        if not any(isinstance(base, FloorDiv | Mod) for base, _ in e.terms) or not loops:
            return False
        domain, (cut,) = refine(Domain(loops), [e])
        if cut is e:
            return False
        rest = {v: x for v, x in self.extents.items() if v.kind is not Kind.LOOP}
        fine = Facts({**rest, **dict(domain.items())})
        return fine.nonnegative(cut) and fine.less(cut, n)

    def _extreme(self, e: Expr, lowest: bool) -> Expr | None:
        """A bound of `e` that is free of loop variables, on the side asked for."""
        parts: list[IntLike] = []
        for v in sorted((s for s in e.free if s in self.extents), key=lambda s: s.order):
            # The whole stride at once, so that s0*i - i counts as (s0 - 1)*i.
            stride = coefficient(e, v)
            if stride is None or any(s in self.extents for s in stride.free):
                continue
            sign = self.interval(stride)
            if not sign.nonnegative and (sign.hi is None or sign.hi > 0):
                return None
            e = substitute(e, {v: 0})
            if lowest != sign.nonnegative:
                parts.append(mul(stride, self.extents[v] - 1))
        parts.append(e.const)
        for base, c in e.terms:
            bound = self._extreme_of_base(base, lowest == (c > 0))
            if bound is None:
                return None
            parts.append(mul(bound, c))
        return sum_of(parts)

    def _extreme_of_base(self, base: Expr, lowest: bool) -> Expr | None:
        if not any(s in self.extents or s.kind is not Kind.SIZE for s in base.free):
            return base
        if isinstance(base, Mod) and self.interval(base.den).positive:
            if lowest:
                return Const(0)
            return self._extreme(base.den - 1, lowest=False)
        if isinstance(base, FloorDiv) and type(base.den) is Const and base.den.number > 0:
            inner = self._extreme(base.num, lowest)
            return None if inner is None else floordiv(inner, base.den)
        edge = self.interval(base)
        number = edge.lo if lowest else edge.hi
        return None if number is None else Const(number)

    # -- divisors --------------------------------------------------------------------------
    def divisor(self, e: Expr) -> int:
        """A number that divides every value of `e` (0 if `e` is zero)."""
        common = e.const
        for base, c in e.terms:
            factor = c
            for f in base.factors:
                if isinstance(f, Symbol):
                    factor *= f.divisor
            common = gcd(common, factor)
        return abs(common)

    def multiple_of(self, e: Expr, n: int) -> bool:
        """Whether n provably divides every value of `e`."""
        return self.divisor(e) % n == 0

    def simplify(self, e: Expr) -> Expr:
        """`e` in its simplest form given these extents."""
        from treadle.index.simplify import simplify

        return simplify(e, self)


def _nonnegative_over_sizes(e: Expr) -> bool:
    """Whether a polynomial in sizes is nonnegative: shifted to its corner, no minus is left."""
    if Facts().interval(e).nonnegative:
        return True
    e = _without_floors(e)
    shift: dict[Symbol, IntLike] = {}
    for s in e.free:
        if s.lo is None:
            return False
        shift[s] = Symbol(s.name, Kind.SIZE, 0) + s.lo
    moved = substitute(e, shift)
    if moved.const < 0:
        return False
    return all(
        c > 0 and all(isinstance(f, Symbol) for f in base.factors) for base, c in moved.terms
    )


def _without_floors(e: Expr) -> Expr:
    """A lower bound of `e` in which whole multiples of a floor division are gone.

    n - (n//d)*d lies in 0..d, so k*d*(n//d) is at least k*(n - d + 1), or k*n where k is negative;
    likewise times what is not negative itself: s*(s//2)*2 is at most s*s.
    """
    for base, c in e.terms:
        floor, others = _one_floor(base)
        if floor is None or not all(Facts().interval(f).nonnegative for f in others):
            continue
        den = floor.den.value or 1
        k, left = divmod(c, den)
        if not left:
            slack = 0 if k < 0 else den - 1
            bound: Expr = (floor.num - slack) * k
            for f in others:
                bound = mul(bound, f)
            e = e - base * c + bound
    return e


def _one_floor(base: Expr) -> tuple[FloorDiv | None, list[Expr]]:
    """The one factor that is a quotient by a positive number, and the other factors."""
    floors = [f for f in base.factors if isinstance(f, FloorDiv) and (f.den.value or 0) > 0]
    if not floors:
        return None, []
    others = list(base.factors)
    others.remove(floors[0])
    return floors[0], others


def hint(e: Expr, fallback: int = 1) -> int:
    """A likely value of a size expression, from the hints of its symbols."""
    if e.value is not None:
        return e.value
    values = {
        s: s.hint if s.hint is not None else (s.lo if s.lo is not None else fallback)
        for s in e.free
    }
    result = substitute(e, values).value
    return fallback if result is None else result


def product_hint(parts: tuple[Expr, ...]) -> int:
    """A likely value of the product of `parts`."""
    return hint(product_of(parts))
