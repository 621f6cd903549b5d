"""simplify: rewrite an index expression with the help of the extents of its loops.

before   (256*i + j) // 256     with j in 0..256      after   i
before   (16*i + j) % 32        with j in 0..16       after   16*(i % 2) + j
before   min(i, 4*n)            with i in 0..n        after   i

Each rule is a function `(node, facts) -> Expr | None`; the table is tried in order until nothing
changes. Rules only fire on proofs, so the result has the same value at every point of the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import cast

from treadle.index.bounds import Facts
from treadle.index.divide import exact_quotient
from treadle.index.expr import (
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Sum,
    Symbol,
    add,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    sum_of,
)
from treadle.index.rewrite import map_bases, rebuild

Rule = Callable[[Expr, Facts], Expr | None]


def simplify(e: Expr, facts: Facts) -> Expr:
    """`e` in the simplest form the rules reach under `facts`."""
    kind = type(e)
    if kind is Const:
        return e
    if kind is Symbol:
        return _pinned(e, facts)
    if kind is Sum and cast("Sum", e).plain and facts.pinned.isdisjoint(e.children):
        return e  # nothing to divide and no loop that runs once: the common case
    known = facts._simple.get(e)
    if known is None:
        known = map_bases(e, lambda base: _simple_base(base, facts))
        if known is not e:
            known = simplify(known, facts)
        facts._simple[e] = facts._simple[known] = known
    return known


def _pinned(e: Expr, facts: Facts) -> Expr:
    """A symbol that can take one value only is that value."""
    if e in facts.pinned:
        lo = facts.interval(e).lo
        assert lo is not None, "a symbol is pinned to a number"
        return Const(lo)
    return e


def _simple_base(base: Expr, facts: Facts) -> Expr:
    if isinstance(base, Symbol):
        return _pinned(base, facts)
    known = facts._simple.get(base)
    if known is None:
        known = facts._simple[base] = _rewritten(base, facts)
    return known


def _rewritten(base: Expr, facts: Facts) -> Expr:
    args = tuple([simplify(a, facts) for a in base.children])
    if any(n is not o for n, o in zip(args, base.children, strict=True)):
        return rebuild(base, args)
    for rule in RULES.get(type(base), ()):
        new = rule(base, facts)
        if new is not None and new is not base:
            return new
    return base


def _one_quotient(e: Expr, facts: Facts) -> Expr | None:
    """n // d and n % d where n stays inside one multiple of d."""
    assert isinstance(e, FloorDiv | Mod)
    num, den = e.num, e.den
    if facts.within(num, den):
        return Const(0) if isinstance(e, FloorDiv) else num
    if num.const < 0 and type(den) is not Const and facts.within(num + den, den):
        # counted from the end, as flips do
        return Const(-1) if isinstance(e, FloorDiv) else num + den
    lo, hi = facts.interval(num)
    if lo is None or hi is None or type(den) is not Const:
        return None
    k = lo // den.number
    if hi // den.number == k:
        return Const(k) if isinstance(e, FloorDiv) else num - k * den.number
    return None


def _common_steps(num: Expr, den: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Pairs (g, num_multiple) with g a divisor of den and num_multiple the terms g divides."""
    if type(den) is Const:
        seen: set[int] = set()
        for _, c in sorted(num.terms, key=lambda t: (-abs(t[1]), t[0].order)):
            step = gcd(c, den.number)
            if step > 1 and step not in seen:
                seen.add(step)
                yield Const(step), sum_of([mul(b, k) for b, k in num.terms if k % step == 0])
        return
    if den.const or len(den.terms) != 1:
        return
    base, scale = den.terms[0]
    for g in [*([base] if scale != 1 else []), *(base.factors if len(base.factors) > 1 else ())]:
        multiple = [mul(b, k) for b, k in num.terms if exact_quotient(b, k, g) is not None]
        if multiple:
            yield g, sum_of(multiple)


def _drop_small_part(e: Expr, facts: Facts) -> Expr | None:
    """(g*a + b) // (g*d) == a // d and (g*a + b) % (g*d) == g*(a % d) + b, where 0 <= b < g."""
    assert isinstance(e, FloorDiv | Mod)
    for g, multiple in _common_steps(e.num, e.den):
        small = e.num - multiple
        if type(g) is Const:
            # The constant may straddle: give the multiple of g in it to the large part.
            whole = (small.const // g.number) * g.number
            small, multiple = small - whole, multiple + whole
        if not facts.interval(g).positive or not facts.within(small, g):
            continue
        a, d = floordiv(multiple, g), floordiv(e.den, g)
        if isinstance(e, FloorDiv):
            return floordiv(a, d)
        return add(mul(g, mod(a, d)), small)
    return None


def _drop_beaten(e: Expr, facts: Facts) -> Expr | None:
    """min and max without the arguments another one always beats."""
    least = isinstance(e, Min)
    kept = list(e.children)
    for a in e.children:
        rivals = [b for b in kept if b is not a]
        beaten = any(facts.at_most(b, a) if least else facts.at_most(a, b) for b in rivals)
        if beaten and len(kept) > 1:
            kept.remove(a)
    if len(kept) == len(e.children):
        return None
    return minimum(*kept) if least else maximum(*kept)


RULES: dict[type[Expr], tuple[Rule, ...]] = {
    FloorDiv: (_one_quotient, _drop_small_part),
    Mod: (_one_quotient, _drop_small_part),
    Min: (_drop_beaten,),
    Max: (_drop_beaten,),
}
