"""Integer index expressions: immutable, hash-consed, always in canonical form.

Every expression is a polynomial over *bases* with integer coefficients

    const + c1*base1 + c2*base2 + ...

where a base is a symbol, a product of several bases, a floor division, a remainder, a minimum or
a maximum. Because construction canonicalises and interns, equality is identity: `a is b` answers
"the same expression", hashing costs nothing and a rewrite that changes nothing returns its input.

    Const 7 | Symbol i | Product(i, s0) | FloorDiv(n, d) | Mod(n, d) | Min(..) | Max(..) | Sum

The intern table holds weak references only: it is a cache, not state, and forgets expressions
nobody uses any more. Laws that need to know the extent of loops live in `simplify` and `bounds`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from enum import Enum
from operator import index
from typing import Any, Final, TypeAlias, cast

IntLike: TypeAlias = "Expr | int"


class _Ref(weakref.ref[object]):
    """A weak reference that knows its key, so that the table entry goes when the node goes."""

    __slots__ = ("key",)
    key: object


_TABLE: Final[dict[object, _Ref]] = {}


def _forget(ref: _Ref) -> None:
    # The key may already belong to a newer node: only remove our own entry.
    if _TABLE.get(ref.key) is ref:
        del _TABLE[ref.key]


def recall(key: object) -> object | None:
    """The live object interned under `key`, if there is one."""
    ref = _TABLE.get(key)
    return None if ref is None else ref()


def remember(key: object, node: object) -> None:
    """Intern `node` under `key` for as long as someone holds it."""
    ref = _Ref(node, cast("Any", _forget))
    ref.key = key
    _TABLE[key] = ref


class Expr:
    """An integer expression in canonical form; equal expressions are the same object."""

    __slots__ = ("__weakref__", "_free", "order")

    plain: bool = False
    """Whether all bases are symbols: then adding can never join a division with its remainder."""
    order: tuple[Any, ...]
    """Structural sort key: independent of creation order and of hash seeds."""
    _free: frozenset[Symbol] | None

    # -- the polynomial view every node has -------------------------------------------------
    @property
    def const(self) -> int:
        """The constant term."""
        return 0

    @property
    def terms(self) -> tuple[tuple[Expr, int], ...]:
        """The (base, coefficient) pairs, sorted by base, without zero coefficients."""
        return ((self, 1),)

    @property
    def factors(self) -> tuple[Expr, ...]:
        """The bases multiplied together in this base (itself, unless it is a product)."""
        return (self,)

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions this node is made of, empty for leaves."""
        return ()

    @property
    def free(self) -> frozenset[Symbol]:
        """The symbols that occur anywhere in the expression."""
        if self._free is None:
            found: frozenset[Symbol] = frozenset()
            for child in self.children:
                found = found | child.free if found else child.free
            self._free = found
        return self._free

    @property
    def value(self) -> int | None:
        """The integer this expression is, or None if it is not constant."""
        return None

    # -- arithmetic ------------------------------------------------------------------------
    def __add__(self, other: IntLike) -> Expr:
        return add(self, other)

    def __radd__(self, other: int) -> Expr:
        return add(self, other)

    def __sub__(self, other: IntLike) -> Expr:
        return add(self, mul(other, -1))

    def __rsub__(self, other: int) -> Expr:
        return add(mul(self, -1), other)

    def __neg__(self) -> Expr:
        return mul(self, -1)

    def __mul__(self, other: IntLike) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: int) -> Expr:
        return mul(self, other)

    def __floordiv__(self, other: IntLike) -> Expr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Expr:
        return floordiv(other, self)

    def __mod__(self, other: IntLike) -> Expr:
        return mod(self, other)

    def __rmod__(self, other: int) -> Expr:
        return mod(other, self)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __str__(self) -> str:
        from treadle.index.text import show

        return show(self)


class Const(Expr):
    """An integer constant."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, number: int) -> Const:
        ref = _TABLE.get(number)
        if ref is not None and (known := ref()) is not None:
            return cast("Const", known)
        node = object.__new__(cls)
        node.number = number
        node.order = (0, number)
        node._free = frozenset()
        remember(number, node)
        return node

    @property
    def const(self) -> int:
        return self.number

    @property
    def terms(self) -> tuple[tuple[Expr, int], ...]:
        return ()

    @property
    def factors(self) -> tuple[Expr, ...]:
        return ()

    @property
    def value(self) -> int | None:
        return self.number

    def __reduce__(self) -> tuple[Any, ...]:
        return Const, (self.number,)


class Kind(Enum):
    """What a symbol stands for."""

    LOOP = "loop"
    """a loop variable, 0 <= v < extent of its domain"""
    SIZE = "size"
    """a size known only at run time, with a range, a divisor and a hint"""
    INDIRECT = "indirect"
    """a value computed inside a loop body and used as an index"""


class Symbol(Expr):
    """A named integer. Sizes carry what is known of them; loop variables get extents elsewhere."""

    __slots__ = ("divisor", "hi", "hint", "kind", "lo", "name")
    name: str
    kind: Kind
    lo: int | None
    hi: int | None
    divisor: int
    hint: int | None
    plain = True

    def __new__(
        cls,
        name: str,
        kind: Kind = Kind.LOOP,
        lo: int | None = None,
        hi: int | None = None,
        divisor: int = 1,
        hint: int | None = None,
    ) -> Symbol:
        key = (name, kind, lo, hi, divisor, hint)
        ref = _TABLE.get(key)
        if ref is not None and (known := ref()) is not None:
            return cast("Symbol", known)
        _check_facts(name, lo, hi, divisor, hint)
        node = object.__new__(cls)
        node.name, node.kind, node.lo, node.hi = name, kind, lo, hi
        node.divisor, node.hint = divisor, hint
        # Names decide; the rest only separates same-named symbols of different meaning.
        rest = (kind.value, -1 if lo is None else lo, -1 if hi is None else hi, divisor, hint or 0)
        node.order = (1, name, rest)
        node._free = None
        remember(key, node)
        return node

    @property
    def free(self) -> frozenset[Symbol]:
        # Not cached on the node: a set that holds its owner would be a reference cycle.
        return frozenset((self,))

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self.kind, self.lo, self.hi, self.divisor, self.hint)


def _check_facts(name: str, lo: int | None, hi: int | None, divisor: int, hint: int | None) -> None:
    if not name:
        raise ValueError("a symbol needs a name")
    if divisor < 1:
        raise ValueError(f"{name}: divisor must be at least 1, not {divisor}")
    if lo is not None and hi is not None and lo > hi:
        raise ValueError(f"{name}: empty range {lo}..{hi}")
    if lo is not None and hi is not None and -(-lo // divisor) * divisor > hi:
        raise ValueError(f"{name}: no multiple of {divisor} lies in {lo}..{hi}")
    if hint is None:
        return
    if (lo is not None and hint < lo) or (hi is not None and hint > hi) or hint % divisor:
        raise ValueError(f"{name}: hint {hint} is outside {lo}..{hi} divisor {divisor}")


class _Compound(Expr):
    """A node that is fully described by its kind and its children."""

    __slots__ = ("args",)
    args: tuple[Expr, ...]
    rank: int = 9

    def __new__(cls, *args: Expr) -> _Compound:
        key = (cls, args)
        ref = _TABLE.get(key)
        if ref is not None and (known := ref()) is not None:
            return cast("_Compound", known)
        node = object.__new__(cls)
        node.args = args
        node.order = (cls.rank, tuple([a.order for a in args]))
        node._free = None
        remember(key, node)
        return node

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class Product(_Compound):
    """Several bases multiplied together, sorted. Build with `mul`."""

    __slots__ = ()
    rank = 2

    @property
    def factors(self) -> tuple[Expr, ...]:
        return self.args


class FloorDiv(_Compound):
    """`num // den`, rounding towards minus infinity. Build with `floordiv`."""

    __slots__ = ()
    rank = 3

    @property
    def num(self) -> Expr:
        """The dividend."""
        return self.args[0]

    @property
    def den(self) -> Expr:
        """The divisor."""
        return self.args[1]


class Mod(_Compound):
    """`num % den`, with the sign of `den` as in Python. Build with `mod`."""

    __slots__ = ()
    rank = 4

    @property
    def num(self) -> Expr:
        """The dividend."""
        return self.args[0]

    @property
    def den(self) -> Expr:
        """The divisor."""
        return self.args[1]


class Min(_Compound):
    """The smallest of its arguments. Build with `minimum`."""

    __slots__ = ()
    rank = 5


class Max(_Compound):
    """The largest of its arguments. Build with `maximum`."""

    __slots__ = ()
    rank = 6


class Sum(Expr):
    """`const + c1*base1 + ...`. Build with `add` and `mul`."""

    __slots__ = ("_const", "_order", "_terms", "plain")
    _const: int
    _terms: tuple[tuple[Expr, int], ...]
    _order: tuple[Any, ...] | None
    plain: bool

    def __new__(cls, const: int, terms: tuple[tuple[Expr, int], ...]) -> Sum:
        key = (const, terms)
        ref = _TABLE.get(key)
        if ref is not None and (known := ref()) is not None:
            return cast("Sum", known)
        node = object.__new__(cls)
        node._const = const
        node._terms = terms
        node._order = None
        node._free = None
        for base, _ in terms:
            if type(base) is not Symbol:
                node.plain = False
                break
        else:
            node.plain = True
        remember(key, node)
        return node

    @property
    def order(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Computed when first asked for: most sums are never arguments of anything."""
        if self._order is None:
            self._order = (7, tuple([(b.order, c) for b, c in self._terms]), self._const)
        return self._order

    @property
    def const(self) -> int:
        return self._const

    @property
    def terms(self) -> tuple[tuple[Expr, int], ...]:
        return self._terms

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(base for base, _ in self._terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sum, (self._const, self._terms)


ZERO: Final = Const(0)
ONE: Final = Const(1)
MINUS_ONE: Final = Const(-1)
# Common numbers stay: making and forgetting them again and again would cost more than they do.
_SMALL: Final = tuple([Const(n) for n in range(-16, 1025)])


def const(number: int) -> Const:
    """The constant `number`."""
    return Const(number)


def loop(name: str) -> Symbol:
    """The loop variable called `name`."""
    return Symbol(name, Kind.LOOP)


def size(
    name: str,
    lo: int | None = 1,
    hi: int | None = None,
    divisor: int = 1,
    hint: int | None = None,
) -> Symbol:
    """A run-time size called `name`, known to lie in lo..hi and to be a multiple of `divisor`."""
    return Symbol(name, Kind.SIZE, lo, hi, divisor, hint)


def indirect(name: str, lo: int | None = None, hi: int | None = None) -> Symbol:
    """An index computed from data, called `name`, within lo..hi if that is known."""
    return Symbol(name, Kind.INDIRECT, lo, hi)


def as_expr(value: IntLike) -> Expr:
    """`value` as an expression; whole numbers of other libraries count too."""
    if isinstance(value, Expr):
        return value
    try:
        return Const(value if type(value) is int else index(value))
    except TypeError:
        raise TypeError(f"expected an index expression or a whole number, not {value!r}") from None


def _order_of(term: tuple[Expr, int]) -> tuple[Any, ...]:
    return term[0].order


def from_terms(constant: int, coefficients: Mapping[Expr, int]) -> Expr:
    """The sum of `constant` and each base times its coefficient, canonical."""
    terms = [(b, c) for b, c in coefficients.items() if c]
    if not terms:
        return Const(constant)
    if len(terms) > 1:
        if any(type(b) is Mod for b, _ in terms):
            rejoined = _rejoin_division(constant, dict(terms))
            if rejoined is not None:
                return rejoined
        terms.sort(key=_order_of)
    elif terms[0][1] == 1 and not constant:
        return terms[0][0]
    return Sum(constant, tuple(terms))


def _rejoin_division(constant: int, terms: dict[Expr, int]) -> Expr | None:
    """`k*(n % d) + k*d*(n // d)` -> `k*n`; None where no such pair stands in the sum."""
    for base in sorted((b for b in terms if type(b) is Mod), key=lambda b: b.order):
        num, den = base.children
        quotient = floordiv(num, den)
        k = terms[base]
        if type(den) is Const:
            wanted, partner = k * den.number, quotient
        else:
            product = mul(den, quotient)
            if len(product.terms) != 1 or product.const:
                continue
            (partner, scale) = product.terms[0]
            wanted = k * scale
        if terms.get(partner) != wanted:
            continue
        rest = {b: c for b, c in terms.items() if b is not base and b is not partner}
        return add(from_terms(constant, rest), mul(num, k))
    return None


def add(a: IntLike, b: IntLike) -> Expr:
    """a + b."""
    if isinstance(b, int):
        return Const(a + b) if isinstance(a, int) else _plus_number(a, b)
    if isinstance(a, int):
        return _plus_number(b, a)
    if type(b) is Const:
        return _plus_number(a, b.number)
    if type(a) is Const:
        return _plus_number(b, a.number)
    constant = a.const + b.const
    left, right = a.terms, b.terms
    # The usual way to write an index, outer loops first, needs no sorting at all.
    if left[-1][0].order < right[0][0].order and a.plain and b.plain:
        return Sum(constant, left + right)
    merged = dict(left)
    for base, c in right:
        merged[base] = merged.get(base, 0) + c
    return from_terms(constant, merged)


def _plus_number(a: Expr, n: int) -> Expr:
    if n == 0:
        return a
    terms = a.terms
    if not terms:
        return Const(a.const + n)
    return sum_or_base(a.const + n, terms)


def sum_of(parts: Iterable[IntLike]) -> Expr:
    """The sum of all `parts` (one pass, cheaper than repeated +)."""
    constant = 0
    merged: dict[Expr, int] = {}
    for part in parts:
        if isinstance(part, int):
            constant += part
            continue
        constant += part.const
        for base, c in part.terms:
            merged[base] = merged.get(base, 0) + c
    return from_terms(constant, merged)


def _multiply_bases(a: Expr, b: Expr) -> Expr:
    return Product(*sorted(a.factors + b.factors, key=lambda f: f.order))


def mul(a: IntLike, b: IntLike) -> Expr:
    """a * b, multiplied out."""
    if isinstance(a, int):
        a, b = b, a
    if type(b) is Const:
        b = b.number
    if isinstance(b, int):
        return _scaled(a, b)
    if type(a) is Const:
        return _scaled(b, a.number)
    assert not isinstance(a, int), "whole numbers were taken above"
    constant = a.const * b.const
    merged: dict[Expr, int] = {}
    for base, c in a.terms:
        if b.const:
            merged[base] = merged.get(base, 0) + c * b.const
        for other, k in b.terms:
            product = _multiply_bases(base, other)
            merged[product] = merged.get(product, 0) + c * k
    if a.const:
        for other, k in b.terms:
            merged[other] = merged.get(other, 0) + k * a.const
    return from_terms(constant, merged)


def _scaled(a: IntLike, k: int) -> Expr:
    if isinstance(a, int):
        return Const(a * k)
    if k == 1:
        return a
    if type(a) is Symbol and k:
        return Sum(0, ((a, k),))
    if k == 0 or not a.terms:
        return Const(a.const * k)
    return sum_or_base(a.const * k, tuple([(base, c * k) for base, c in a.terms]))


def sum_or_base(constant: int, terms: tuple[tuple[Expr, int], ...]) -> Expr:
    """A sum from sorted nonzero terms, or the base itself where it is one plain base."""
    if not constant and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return Sum(constant, terms)


def product_of(parts: Iterable[IntLike]) -> Expr:
    """The product of all `parts`, 1 if there are none."""
    result: Expr = ONE
    for part in parts:
        result = mul(result, part)
    return result


# Nodes and the laws of division need each other; importing last closes the circle.
from treadle.index.divide import floordiv, maximum, minimum, mod  # noqa: E402

__all__ = [
    "MINUS_ONE", "ONE", "ZERO", "Const", "Expr", "FloorDiv", "IntLike", "Kind", "Max", "Min", "Mod",
    "Product", "Sum", "Symbol", "add", "as_expr", "const", "floordiv", "from_terms", "indirect",
    "loop", "maximum", "minimum", "mod", "mul", "product_of", "recall", "remember", "size",
    "sum_of", "sum_or_base",
]  # fmt: skip
