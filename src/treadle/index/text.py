"""Index expressions as text, both ways, in two dialects.

    ours    256*i + j - 1     (i // 4)    (i % 4)    min(i, 3)    s0*s1
    sympy   256*p0 + p1 - 1   ((p0//4))   ModularIndexing(p0, 1, 4)   Min(3, p0)

The sympy dialect is the one of TorchInductor's dumps: sums in sympy's term order, floor division
in parentheses (twice when it stands inside a sum or product), remainders as `ModularIndexing`.
Parsing accepts the union of both, never evaluates anything, and reports the column of an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from treadle.index.expr import (
    Const,
    Expr,
    FloorDiv,
    Kind,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Symbol,
    add,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
)

# ---------------------------------------------------------------------------------- printing


def show(e: Expr) -> str:
    """The expression in Treadle's own text."""
    return _show_sum(e, _own_base, e.terms)


def show_sympy(e: Expr) -> str:
    """The expression as sympy prints it in Inductor's dumps."""
    return _show_sum(e, _sympy_base, _sympy_term_order(e))


def _show_sum(
    e: Expr, show_base: Callable[[Expr], str], terms: tuple[tuple[Expr, int], ...]
) -> str:
    if not terms:
        return str(e.const)
    out: list[str] = []
    for base, c in terms:
        body = base.name if isinstance(base, Symbol) else show_base(base)
        magnitude = abs(c)
        if magnitude != 1:
            body = f"{magnitude}*{body}"
        if out:
            out.append(f" - {body}" if c < 0 else f" + {body}")
        else:
            out.append(f"-{body}" if c < 0 else body)
    if e.const:
        out.append(f" + {e.const}" if e.const > 0 else f" - {-e.const}")
    return "".join(out)


def _own_base(base: Expr) -> str:
    if isinstance(base, Symbol):
        return base.name
    if isinstance(base, Product):
        return "*".join([_own_base(f) for f in base.factors])
    if isinstance(base, FloorDiv):
        return f"({_own_operand(base.num)} // {_own_operand(base.den)})"
    if isinstance(base, Mod):
        return f"({_own_operand(base.num)} % {_own_operand(base.den)})"
    name = "min" if isinstance(base, Min) else "max"
    return f"{name}({', '.join([show(a) for a in base.children])})"


def _own_operand(e: Expr) -> str:
    simple = isinstance(e, Symbol | FloorDiv | Mod | Min | Max) or (
        isinstance(e, Const) and e.number >= 0
    )
    return show(e) if simple else f"({show(e)})"


def _sympy_rank(e: Expr) -> tuple[Any, ...]:
    """Sympy's default order of arguments: numbers, symbols, products, sums, functions, min/max."""
    if isinstance(e, Const):
        return (1, 0, e.number)
    if isinstance(e, Symbol):
        return (2, 0, e.name)
    if isinstance(e, Product):
        return (3, 0, tuple([_sympy_rank(f) for f in e.factors]))
    if isinstance(e, Sum):
        if len(e.terms) == 1 and not e.const:
            # A scaled base sorts like the base itself; the coefficient only breaks ties.
            return (*_sympy_rank(e.terms[0][0]), e.terms[0][1])
        return (3, 1, len(e.terms), tuple([_sympy_rank(b) for b, _ in _sympy_term_order(e)]))
    if isinstance(e, FloorDiv):
        return (4, 0, "FloorDiv", tuple([_sympy_rank(a) for a in e.children]))
    if isinstance(e, Mod):
        return (4, 1, "ModularIndexing", tuple([_sympy_rank(a) for a in e.children]))
    name = type(e).__name__
    return (5, 0, name, tuple([_sympy_rank(a) for a in e.children]))


class _RankKey:
    """Compares ranks that may differ in shape by falling back to their text."""

    __slots__ = ("rank",)

    def __init__(self, e: Expr) -> None:
        self.rank = _sympy_rank(e)

    def __lt__(self, other: _RankKey) -> bool:
        try:
            return self.rank < other.rank
        except TypeError:
            return str(self.rank) < str(other.rank)


def _sympy_term_order(e: Expr) -> tuple[tuple[Expr, int], ...]:
    """Terms in descending lexicographic order of their powers over the sorted generators."""
    terms = e.terms
    if len(terms) <= 1:
        return terms
    if all(isinstance(b, Symbol) for b, _ in terms):
        return terms  # already sorted by name
    generators = sorted({f for b, _ in terms for f in b.factors}, key=_RankKey)
    place = {g: i for i, g in enumerate(generators)}

    def powers(term: tuple[Expr, int]) -> list[int]:
        row = [0] * len(generators)
        for f in term[0].factors:
            row[place[f]] -= 1
        return row

    return tuple(sorted(terms, key=powers))


def _sympy_base(base: Expr) -> str:
    if isinstance(base, Symbol):
        return base.name
    if isinstance(base, Product):
        return _sympy_product(base)
    if isinstance(base, FloorDiv):
        return f"(({_sympy_operand(base.num)}//{_sympy_operand(base.den)}))"
    if isinstance(base, Mod):
        inner = base.num
        num, divisor = inner.children if isinstance(inner, FloorDiv) else (inner, Const(1))
        return f"ModularIndexing({show_sympy(num)}, {show_sympy(divisor)}, {show_sympy(base.den)})"
    name = "Min" if isinstance(base, Min) else "Max"
    args = sorted(base.children, key=_RankKey)
    return f"{name}({', '.join([_sympy_argument(a) for a in args])})"


def _sympy_product(base: Product) -> str:
    counted: dict[Expr, int] = {}
    for f in sorted(base.factors, key=_RankKey):
        counted[f] = counted.get(f, 0) + 1
    return "*".join([_sympy_base(f) + (f"**{n}" if n > 1 else "") for f, n in counted.items()])


def _sympy_operand(e: Expr) -> str:
    if isinstance(e, Symbol | Min | Max | Mod) or (isinstance(e, Const) and e.number >= 0):
        return show_sympy(e)
    return f"({show_sympy(e)})" if not isinstance(e, FloorDiv) else _sympy_base(e)


def _sympy_argument(e: Expr) -> str:
    """A whole function argument: a floor division needs only its own pair of parentheses."""
    return _sympy_base(e)[1:-1] if isinstance(e, FloorDiv) else show_sympy(e)


def show_sympy_whole(e: Expr) -> str:
    """Like `show_sympy`, for an expression that stands alone: `(a//b)` is not doubled then."""
    return _sympy_argument(e)


# ----------------------------------------------------------------------------------- parsing


class IndexSyntaxError(ValueError):
    """The text is not an index expression; `column` (from 0) and `expected` say where and why."""

    def __init__(self, text: str, column: int, expected: str) -> None:
        found = f"'{text[column : column + 12]}'" if column < len(text) else "end of text"
        super().__init__(f"column {column + 1}: expected {expected}, found {found}")
        self.text, self.column, self.expected, self.found = text, column, expected, found


_NAME = r"[A-Za-z_][A-Za-z_0-9.]*"
# `%3` is a value where an operand may stand, and `% 3` a remainder after one.
_OPERAND = re.compile(rf"\s*(?:([0-9]+)|(\*\*|//|[-+*(),])|({_NAME}|%[0-9]+))")
_AFTER_OPERAND = re.compile(rf"\s*(?:([0-9]+)|(\*\*|//|<=|>=|[-+*%(),<>])|({_NAME}))")
# No text may make an expression that is hard to work with, however short the text is.
MAX_DEPTH = 60  # five Python frames each: well below the recursion limit
MAX_POWER = 16
MAX_TERMS = 500
MAX_FACTORS = 64
MAX_ARGUMENTS = 64
MAX_BITS = 256

_FUNCTIONS: Mapping[str, tuple[int, int | None, Callable[..., Expr]]] = {
    "min": (1, None, minimum),
    "Min": (1, None, minimum),
    "max": (1, None, maximum),
    "Max": (1, None, maximum),
    "FloorDiv": (2, 2, floordiv),
    "CleanDiv": (2, 2, floordiv),
    "CeilDiv": (2, 2, lambda a, b: -floordiv(-a, b)),
    "Mod": (2, 2, mod),
    "PythonMod": (2, 2, mod),
    "ModularIndexing": (3, 3, lambda x, d, m: mod(floordiv(x, d), m)),
    "Identity": (1, 1, lambda x: x),
    "Abs": (1, 1, lambda x: maximum(x, -x)),
}


def loop_or_indirect(name: str) -> Symbol:
    """The default meaning of a name: `indirectK`, `tmpK` and `%K` come from data, others loop."""
    kind = Kind.INDIRECT if re.fullmatch(r"(?:indirect|tmp|%)[0-9]+", name) else Kind.LOOP
    return Symbol(name, kind)


def parse(
    text: str,
    scope: Mapping[str, Expr] | None = None,
    default: Callable[[str], Expr | None] = loop_or_indirect,
) -> Expr:
    """The expression `text` stands for; names are looked up in `scope`, then made by `default`."""
    return _Parser(text, scope or {}, default).whole()


def parse_prefix(
    text: str,
    start: int,
    scope: Mapping[str, Expr],
    default: Callable[[str], Expr | None] = loop_or_indirect,
) -> tuple[Expr, int]:
    """The expression that begins at `start`, and the position where what follows it begins."""
    parser = _Parser(text, scope, default, start, whole=False)
    result = parser.sum()
    return result, parser.start


class _Parser:
    """Recursive descent over `text`; depth and growth are bounded so no input can hang it."""

    __slots__ = (
        "at", "default", "depth", "heights", "name", "needs_whole", "number", "op", "scope",
        "start", "text",
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        scope: Mapping[str, Expr],
        default: Callable[[str], Expr | None],
        at: int = 0,
        whole: bool = True,
    ) -> None:
        self.text, self.scope, self.default = text, scope, default
        self.at, self.depth, self.start, self.needs_whole = at, 0, at, whole
        self.number = self.op = self.name = ""
        self.heights: dict[Expr, int] = {}
        self.advance()

    def advance(self) -> None:
        after_operand = self.number or self.name or self.op == ")"
        found = (_AFTER_OPERAND if after_operand else _OPERAND).match(self.text, self.at)
        if found is None:
            rest = self.text[self.at :]
            self.start = self.at + len(rest) - len(rest.lstrip())
            if rest.strip() and self.needs_whole:
                raise IndexSyntaxError(self.text, self.start, "a number, a name or an operator")
            self.number = self.op = self.name = ""
            return
        self.number, self.op, self.name = (g or "" for g in found.groups())
        self.start = found.start(found.lastindex or 0)
        self.at = found.end()

    def fail(self, expected: str) -> IndexSyntaxError:
        return IndexSyntaxError(self.text, self.start, expected)

    def whole(self) -> Expr:
        result = self.sum()
        if self.number or self.op or self.name:
            raise self.fail("an operator or the end")
        return result

    def sum(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(f"at most {MAX_DEPTH} nested parentheses")
        result = self.product()
        while self.op in ("+", "-"):
            sign = 1 if self.op == "+" else -1
            self.advance()
            result = self.bounded(add(result, mul(self.product(), sign)))
        self.depth -= 1
        return result

    def product(self) -> Expr:
        result = self.unary()
        while self.op in ("*", "//", "%"):
            op, column = self.op, self.start
            self.advance()
            right = self.unary()
            if op == "*":
                result = self.times(result, right)
                continue
            if right.value == 0:
                raise IndexSyntaxError(self.text, column, "a divisor that is not zero")
            result = self.bounded(floordiv(result, right) if op == "//" else mod(result, right))
        return result

    def unary(self) -> Expr:
        negative = False
        while self.op in ("-", "+"):
            negative ^= self.op == "-"
            self.advance()
        result = self.power()
        return -result if negative else result

    def power(self) -> Expr:
        base = self.atom()
        if self.op != "**":
            return base
        self.advance()
        if not self.number or len(self.number) > 9 or not 0 < int(self.number) <= MAX_POWER:
            raise self.fail(f"a power between 1 and {MAX_POWER}")
        result = base
        for _ in range(int(self.number) - 1):
            result = self.times(result, base)
        self.advance()
        return result

    def times(self, a: Expr, b: Expr) -> Expr:
        """The product, refused before it is made if it would have too many terms."""
        if len(a.terms) * len(b.terms) > MAX_TERMS:
            raise self.fail(f"an expression of at most {MAX_TERMS} terms")
        return self.bounded(mul(a, b))

    def bounded(self, e: Expr) -> Expr:
        """`e` itself, if it is of a size and height that can be worked with."""
        terms = e.terms
        if len(terms) > MAX_TERMS:
            raise self.fail(f"an expression of at most {MAX_TERMS} terms")
        if max([e.const, *[c for _, c in terms]], key=abs).bit_length() > MAX_BITS:
            raise self.fail(f"numbers of at most {MAX_BITS} bits")
        if e.plain:
            return e
        if any(len(base.factors) > MAX_FACTORS for base, _ in e.terms):
            raise self.fail(f"at most {MAX_FACTORS} factors")
        if self.height(e) > MAX_DEPTH:
            raise self.fail(f"at most {MAX_DEPTH} divisions inside each other")
        return e

    def height(self, e: Expr) -> int:
        """How deep divisions, minima and maxima stand inside each other."""
        known = self.heights.get(e)
        if known is None:
            # What an expression is made of was measured before, so this does not go deep.
            inner = [f for base, _ in e.terms for f in base.factors if f.children]
            parts = [self.height(part) for f in inner for part in f.children]
            known = self.heights[e] = max(parts, default=-1) + 1
        return known

    def atom(self) -> Expr:
        if self.number:
            if len(self.number) > 30:
                raise self.fail("a number of at most 30 digits")
            result: Expr = Const(int(self.number))
            self.advance()
            return result
        if self.op == "(":
            self.advance()
            result = self.sum()
            self.expect(")")
            return result
        if not self.name:
            raise self.fail("a number, a name or '('")
        name, column = self.name, self.start
        self.advance()
        if self.op == "(":
            return self.call(name, column)
        known = self.scope.get(name)
        if known is None:
            known = self.default(name)
        if known is None:
            raise IndexSyntaxError(self.text, column, "a declared name")
        return known

    def call(self, name: str, column: int) -> Expr:
        if name == "Where":
            return self.choice()
        if name not in _FUNCTIONS:
            known = ", ".join(sorted(_FUNCTIONS))
            raise IndexSyntaxError(self.text, column, f"one of the functions {known}")
        low, high, build = _FUNCTIONS[name]
        self.advance()
        args = [self.sum()]
        while self.op == ",":
            self.advance()
            args.append(self.sum())
            if len(args) > MAX_ARGUMENTS:
                raise self.fail(f"at most {MAX_ARGUMENTS} arguments")
        self.expect(")")
        if len(args) < low or (high is not None and len(args) > high):
            count = low if high == low else f"at least {low}"
            raise IndexSyntaxError(self.text, column, f"{count} argument(s) for {name}")
        try:
            return self.bounded(build(*args))
        except ZeroDivisionError:
            raise IndexSyntaxError(self.text, column, "a divisor that is not zero") from None

    def choice(self) -> Expr:
        """`Where(a < b, x, y)`: y + (x - y) times a whole number that is 1 where a < b, else 0."""
        self.advance()
        left, sign = self.sum(), self.op
        if sign not in ("<", "<=", ">", ">="):
            raise self.fail("a comparison such as a < b")
        self.advance()
        right = self.sum()
        self.expect(",")
        chosen = self.sum()
        self.expect(",")
        other = self.sum()
        self.expect(")")
        lead = right - left if sign[0] == "<" else left - right
        holds = minimum(1, maximum(0, lead + 1 if sign.endswith("=") else lead))
        return self.bounded(add(other, self.times(chosen - other, self.bounded(holds))))

    def expect(self, op: str) -> None:
        if self.op != op:
            raise self.fail(f"'{op}'")
        self.advance()
