"""Floor division, remainder, minimum and maximum, brought to canonical form.

Laws used here hold for all integers; those that need loop extents are in `simplify`.

    (12*i + j) // 4       ->  3*i + (j // 4)            multiples leave the division
    (8*i + 3) // 12       ->  (2*i) // 3                common factors are cancelled
    (i // 4) // 3         ->  i // 12                   divisions nest
    (i % 12) // 4         ->  (i // 4) % 3              remainders stand outside
    (7*i + 9) % 3         ->  i % 3                     coefficients are reduced
    min(i, i + 3, 5)      ->  min(5, i)                 beaten arguments go
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from treadle.index.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    FloorDiv,
    IntLike,
    Max,
    Min,
    Mod,
    Product,
    Symbol,
    add,
    as_expr,
    from_terms,
    mul,
    sum_of,
    sum_or_base,
)


def exact_quotient(base: Expr, coefficient: int, den: Expr) -> Expr | None:
    """`coefficient*base / den` where den is one monomial that divides it exactly, else None."""
    if type(den) is Const:
        return mul(base, coefficient // den.number) if coefficient % den.number == 0 else None
    if den.const or len(den.terms) != 1:
        return None
    den_base, den_coefficient = den.terms[0]
    if coefficient % den_coefficient:
        return None
    left = list(base.factors)
    for factor in den_base.factors:
        if factor not in left:
            return None
        left.remove(factor)
    scale = coefficient // den_coefficient
    if not left:
        return Const(scale)
    return mul(left[0] if len(left) == 1 else Product(*left), scale)


def split_multiple(num: Expr, den: Expr) -> tuple[Expr, Expr]:
    """(q, r) with num == den*q + r, where q gathers every term that den divides exactly."""
    quotients: list[Expr] = []
    rest: dict[Expr, int] = {}
    for base, c in num.terms:
        q = exact_quotient(base, c, den)
        if q is None:
            rest[base] = c
        else:
            quotients.append(q)
    constant = num.const
    if type(den) is Const:
        whole, constant = divmod(constant, den.number)
        quotients.append(Const(whole))
    elif not quotients and not den.const:
        return ZERO, num
    remainder = from_terms(constant, rest)
    if not quotients and remainder is den:
        return ONE, ZERO
    return sum_of(quotients), remainder


def floordiv(num: IntLike, den: IntLike) -> Expr:
    """num // den, rounding towards minus infinity."""
    num, den = as_expr(num), as_expr(den)
    if type(den) is Const:
        if den.number == 0:
            raise ZeroDivisionError(f"({num}) // 0")
        if den.number < 0:
            num, den = -num, Const(-den.number)
        if den is ONE:
            return num
    if num is den:
        return ONE
    quotient, rest = split_multiple(num, den)
    if rest is ZERO:
        return quotient
    return add(quotient, _floordiv_of_rest(rest, den))


def _floordiv_of_rest(num: Expr, den: Expr) -> Expr:
    """num // den where no term of num is a multiple of den."""
    if type(den) is Const:
        if type(num) is Const:
            return Const(num.number // den.number)
        common = _common_divisor(num, den.number)
        if common > 1:
            # floor((g*a + c) / (g*d)) == floor((a + c//g) / d), because a is an integer.
            return floordiv(_divided(num, common), den.number // common)
        if len(num.terms) == 1 and num.terms[0][1] == 1:
            base = num.terms[0][0]
            if type(base) is FloorDiv and _is_positive(base.den):
                # ((a // m) + c) // n == (a + c*m) // (m*n)
                return floordiv(add(base.num, mul(base.den, num.const)), mul(base.den, den))
            if type(base) is Mod and not num.const and type(base.den) is Const:
                # (a % (d*n)) // d == (a // d) % n
                n, left = divmod(base.den.number, den.number)
                if n > 0 and not left:
                    return mod(floordiv(base.num, den), n)
    return FloorDiv(num, den)


def _common_divisor(num: Expr, start: int) -> int:
    common = start
    for _, c in num.terms:
        common = gcd(common, c)
        if common == 1:
            break
    return common


def _divided(num: Expr, by: int) -> Expr:
    return sum_or_base(num.const // by, tuple([(b, c // by) for b, c in num.terms]))


def _is_positive(e: Expr) -> bool:
    if type(e) is Const:
        return e.number > 0
    return isinstance(e, Symbol) and e.lo is not None and e.lo > 0


def mod(num: IntLike, den: IntLike) -> Expr:
    """num % den, with the sign of den."""
    num, den = as_expr(num), as_expr(den)
    if type(den) is Const:
        if den.number == 0:
            raise ZeroDivisionError(f"({num}) % 0")
        if den.number < 0:
            return -mod(-num, -den.number)
        if den is ONE:
            return ZERO
        num = _reduced_modulo(num, den.number)
    _, rest = split_multiple(num, den)
    if rest is ZERO:
        return ZERO
    if type(den) is not Const:
        return Mod(rest, den)
    if type(rest) is Const:
        return Const(rest.number % den.number)
    common = _common_divisor(rest, den.number)
    if common > 1:
        # (g*a + c) % (g*d) == g * ((a + c//g) % d) + c % g
        inner = mod(_divided(rest, common), den.number // common)
        return add(mul(inner, common), rest.const % common)
    return Mod(rest, den)


def _reduced_modulo(num: Expr, d: int) -> Expr:
    """num with each coefficient the smallest of its residue class, and void remainders dropped."""
    if not any(2 * abs(c) >= d or type(b) is Mod or _divides(b, c, d) for b, c in num.terms):
        return num
    parts: list[IntLike] = [num.const]
    changed = False
    for base, c in num.terms:
        kept = 0 if _divides(base, c, d) else c % d
        kept = kept - d if 2 * kept > d else kept  # -i rather than 11*i modulo 12
        inner = base
        if type(base) is Mod and type(base.den) is Const and base.den.number * kept % d == 0:
            inner = base.num
        changed = changed or kept != c or inner is not base
        parts.append(mul(inner, kept))
    return _reduced_modulo(sum_of(parts), d) if changed else num


def _divides(base: Expr, coefficient: int, d: int) -> bool:
    """Whether d divides a term because a size in it is declared a multiple of something."""
    known = coefficient
    for factor in base.factors:
        if isinstance(factor, Symbol):
            known *= factor.divisor
    return known != coefficient and known % d == 0


def _extreme(cls: type[Min] | type[Max], args: Iterable[IntLike], sign: int) -> Expr:
    """Flattened, sorted, without arguments another one beats by a constant."""
    flat: dict[Expr, None] = {}
    for arg in args:
        e = as_expr(arg)
        for part in e.children if type(e) is cls else (e,):
            flat[part] = None
    if not flat:
        raise ValueError("min and max need at least one argument")
    best: dict[tuple[tuple[Expr, int], ...], Expr] = {}
    for e in flat:
        rival = best.get(e.terms)
        if rival is None or sign * e.const < sign * rival.const:
            best[e.terms] = e
    kept = sorted(best.values(), key=lambda e: e.order)
    return kept[0] if len(kept) == 1 else cls(*kept)


def minimum(*args: IntLike) -> Expr:
    """The smallest of the arguments."""
    return _extreme(Min, args, 1)


def maximum(*args: IntLike) -> Expr:
    """The largest of the arguments."""
    return _extreme(Max, args, -1)
