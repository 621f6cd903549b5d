"""Index expressions in C: 64-bit arithmetic, floor division and remainder as Python has them.

Divisions, remainders, minima and maxima are named once, in the outermost loop that binds their
variables, and used by name from there on: expressions are hash-consed, so the same object is the
same name. Where numerator and divisor are provably not negative, C's own operators do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.codegen.c.block import Loops
from treadle.codegen.names import Names
from treadle.index import Expr, Facts, FloorDiv, Kind, Max, Min, Mod, Product, Symbol, mod


class IndexWriter:
    """Writes index expressions for the place in the loops where statements go now."""

    def __init__(
        self, loops: Loops, names: Names, facts: Facts, symbol: Callable[[Symbol], str]
    ) -> None:
        self.loops, self.names, self.facts = loops, names, facts
        self._symbol = symbol

    def write(self, e: Expr) -> str:
        """A C expression for `e`; parenthesised where it has several terms."""
        if e.value is not None:
            return _number(e.value)
        parts: list[str] = []
        for base, c in e.terms:
            text = self._base(base)
            if abs(c) != 1:
                text = f"{_number(abs(c))} * {text}"
            sign = "-" if c < 0 else ("+" if parts else "")
            parts.append(f" {sign} {text}" if parts else f"{sign}{text}")
        if e.const:
            parts.append(f" {'-' if e.const < 0 else '+'} {_number(abs(e.const))}")
        text = "".join(parts)
        return text if len(e.terms) == 1 and not e.const and e.terms[0][1] == 1 else f"({text})"

    def _base(self, base: Expr) -> str:
        if isinstance(base, Symbol):
            return self._symbol(base)
        if isinstance(base, Product):
            return "(" + " * ".join([self._base(f) for f in base.factors]) + ")"
        if any(s.kind is Kind.INDIRECT for s in base.free):
            return COMPOUND[type(base)](self, base)  # it is bound by a statement, not by a loop
        home = self.loops.home_of(base)
        if base not in home.known:
            text = COMPOUND[type(base)](self, base)
            home.known[base] = self.names.fresh("x")
            home.head.append(f"const int64_t {home.known[base]} = {text};")
        return home.known[base]

    def _remainder(self, base: Expr) -> str:
        """A loop that wraps around at an open size: where it does is found once, outside of it."""
        num, den = base.children
        for v, times in num.terms if den.value is None else ():
            if times == 1 and isinstance(v, Symbol) and self.facts.within(v, den):
                shift = num - v
                if v.kind is Kind.LOOP and v not in shift.free and v not in den.free:
                    return f"tr_wrapped({self.write(v + mod(shift, den))}, {self.write(den)})"
        return self._quotient(base, "%", "tr_mod")

    def _quotient(self, base: Expr, operator: str, helper: str) -> str:
        num, den = base.children
        plain = self.facts.nonnegative(num) and self.facts.interval(den).positive
        a, b = self.write(num), self.write(den)
        return f"({a} {operator} {b})" if plain else f"{helper}({a}, {b})"

    def _chain(self, base: Expr, helper: str) -> str:
        first, *rest = [self.write(a) for a in base.children]
        for other in rest:
            first = f"{helper}({first}, {other})"
        return first


COMPOUND: Mapping[type[Expr], Callable[[IndexWriter, Expr], str]] = {
    FloorDiv: lambda w, e: w._quotient(e, "/", "tr_floordiv"),
    Mod: lambda w, e: w._remainder(e),
    Min: lambda w, e: w._chain(e, "tr_min"),
    Max: lambda w, e: w._chain(e, "tr_max"),
}
"""How each expression that is neither a sum, a product nor a symbol is written."""


def _number(n: int) -> str:
    if n == -(2**63):
        return "INT64_MIN"
    if abs(n) < 2**31:
        return str(n) if n >= 0 else f"({n})"
    return f"INT64_C({n})" if n >= 0 else f"(-INT64_C({-n}))"
