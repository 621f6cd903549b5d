"""Index expressions as C, outside of loops: exact in 64 bits, or roughly in double."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.index import Expr, FloorDiv, Max, Min, Mod, Product, Symbol


@dataclass(frozen=True)
class CExpressions:
    """Writes expressions of sizes, which are known by their text."""

    sizes: Mapping[Symbol, str]
    is_rough: bool = False
    """In double: how large something is, without a limit to what can be counted."""

    def write(self, e: Expr) -> str:
        """A C expression, in parentheses where that matters."""
        if e.value is not None:
            return self._number(e.value)
        parts = [f"{self._number(c)} * {self._base(base)}" for base, c in e.terms]
        if e.const:
            parts.append(self._number(e.const))
        return f"({' + '.join(parts)})"

    def _number(self, n: int) -> str:
        if self.is_rough:
            return f"({float(n)!r})"
        return f"(int64_t){n}LL" if n >= 0 else f"(int64_t)({n}LL)"

    def _base(self, base: Expr) -> str:
        if isinstance(base, Symbol):
            return f"(double){self.sizes[base]}" if self.is_rough else self.sizes[base]
        if isinstance(base, Product):
            return "(" + " * ".join([self._base(f) for f in base.factors]) + ")"
        kind = "rough" if self.is_rough else "whole"
        first, *rest = [self.write(a) for a in base.children]
        for other in rest:
            first = f"{kind}_{OPERATIONS[type(base)]}({first}, {other})"
        return first


OPERATIONS: Mapping[type[Expr], str] = {
    FloorDiv: "quotient",
    Mod: "remainder",
    Min: "least",
    Max: "most",
}
"""What the functions of HELPERS are called."""

HELPERS = """
static inline int64_t whole_quotient(int64_t a, int64_t b)
{
    int64_t q = b ? a / b : 0;
    return b && a % b && (a < 0) != (b < 0) ? q - 1 : q;
}
static inline int64_t whole_remainder(int64_t a, int64_t b) { return a - whole_quotient(a, b) * b; }
static inline int64_t whole_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t whole_most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline double rough_quotient(double a, double b) { return b != 0 ? a / b : 0; }
static inline double rough_remainder(double a, double b) { (void)a; return b; }
static inline double rough_least(double a, double b) { return a < b ? a : b; }
static inline double rough_most(double a, double b) { return a > b ? a : b; }
"""
