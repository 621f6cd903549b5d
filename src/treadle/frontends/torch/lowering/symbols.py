"""Sizes of torch as index expressions: SymPy at the border, our own algebra inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from treadle.frontends.torch.lowering.values import NotLowered
from treadle.index import Expr, Facts, Symbol, as_expr, floordiv, maximum, minimum, mod, size

BIG = 2**62
EXACT = 2**12
"""Numerators below this, times any size of a tensor, are exact in an f64."""


class GraphSizes:
    """The run-time sizes of one graph: each free symbol of its shapes, declared once."""

    def __init__(self, shape_env: Any = None, shown: frozenset[str] | None = None) -> None:
        self.shape_env, self.shown = shape_env, shown
        self.declared: dict[str, Symbol] = {}
        self._memo: dict[Any, Expr] = {}

    def expr(self, value: Any) -> Expr:
        """A torch size (int, SymInt or SymPy expression) as an index expression."""
        if isinstance(value, int) and not isinstance(value, bool):
            return as_expr(value)
        node = getattr(value, "node", None)
        return self.of_sympy(node.expr if node is not None else value)

    def exprs(self, values: Any) -> tuple[Expr, ...]:
        """Several sizes."""
        return tuple([self.expr(v) for v in values])

    def of_sympy(self, e: Any) -> Expr:
        """A SymPy expression as an index expression, or NotLowered."""
        known = self._memo.get(e)
        if known is None:
            known = self._memo[e] = self._convert(e)
        return known

    def _convert(self, e: Any) -> Expr:
        if e.is_Integer:
            return as_expr(int(e))
        if e.is_Symbol:
            return self._symbol(e)
        convert = CONVERSIONS.get(type(e).__name__)
        if convert is None:
            raise NotLowered(f"the size {e} is not an index expression")
        return convert(self, e.args)

    def _symbol(self, s: Any) -> Expr:
        if is_unbacked(s):
            raise NotLowered(f"the size {s} is known only after an operation has run")
        if self.shown is not None and s.name not in self.shown:
            raise NotLowered(f"no input shows the size {s}")
        if s.name not in self.declared:
            low, high, likely = self._facts(s)
            self.declared[s.name] = size(s.name, low, high, 1, likely)
        return self.declared[s.name]

    def _facts(self, s: Any) -> tuple[int | None, int | None, int | None]:
        """Bounds and a likely value, from torch's own record of the symbol.

        A dimension is never negative and torch says so; a number given as an argument may be.
        """
        from treadle.frontends.torch import compat

        low, high = compat.symbol_range(self.shape_env, s)
        high = high if high is not None and high < BIG else None
        likely = compat.symbol_hint(self.shape_env, s)
        if likely is not None:
            likely = likely if high is None else min(likely, high)
            likely = likely if low is None else max(likely, low)
        return low, high, likely


def shown_sizes(graph: Any) -> frozenset[str]:
    """The sizes that a graph's inputs tell: as a number, or as a dimension of a tensor."""
    vals = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
    given = [s for val in vals for s in (getattr(val, "shape", None) or (val,))]
    exprs = [s.node.expr for s in given if hasattr(s, "node") and hasattr(s.node, "expr")]
    return frozenset([e.name for e in exprs if e.is_Symbol])


def is_unbacked(s: Any) -> bool:
    """Whether a symbol stands for a size that data decides."""
    return str(s.name).startswith("u")


def _product(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    result = as_expr(1)
    for a in args:
        result = result * sizes.of_sympy(a)
    return result


def _sum(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    result = as_expr(0)
    for a in args:
        result = result + sizes.of_sympy(a)
    return result


def _power(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    base, exponent = args
    if not exponent.is_Integer or int(exponent) < 0:
        raise NotLowered(f"the size {base}**{exponent} is not an index expression")
    return _product(sizes, (base,) * int(exponent))


def _quotient(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    return floordiv(sizes.of_sympy(args[0]), sizes.of_sympy(args[1]))


def _remainder(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    return mod(sizes.of_sympy(args[0]), sizes.of_sympy(args[1]))


def _modular(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    base, divisor, modulus = (sizes.of_sympy(a) for a in args)
    return mod(floordiv(base, divisor), modulus)


def _whole_part(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
    """The whole part of a size times a fraction such as 1.5, whose products are exact."""
    factors = args[0].args if type(args[0]).__name__ == "Mul" else (args[0],)
    fraction, whole = Fraction(1), as_expr(1)
    for f in factors:
        if f.is_Float or f.is_Integer:
            fraction *= Fraction(float(f))
        elif type(f).__name__ == "ToFloat":
            whole = whole * sizes.of_sympy(f.args[0])
        else:
            raise NotLowered(f"the size {args[0]} is not an index expression")
    is_exact = 0 < fraction.numerator < EXACT and fraction.denominator < EXACT
    if not is_exact or not Facts().interval(whole).nonnegative:
        raise NotLowered(f"the size {args[0]} is not an index expression")
    return floordiv(whole * fraction.numerator, as_expr(fraction.denominator))


def _extreme(pick: Callable[..., Expr]) -> Callable[[GraphSizes, tuple[Any, ...]], Expr]:
    def convert(sizes: GraphSizes, args: tuple[Any, ...]) -> Expr:
        first, *rest = [sizes.of_sympy(a) for a in args]
        for other in rest:
            first = pick(first, other)
        return Facts().simplify(first)

    return convert


CONVERSIONS: Mapping[str, Callable[[GraphSizes, tuple[Any, ...]], Expr]] = {
    "Add": _sum,
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _quotient,
    "CleanDiv": _quotient,
    "Mod": _remainder,
    "PythonMod": _remainder,
    "ModularIndexing": _modular,
    "TruncToInt": _whole_part,
    "FloorToInt": _whole_part,
    "Min": _extreme(minimum),
    "Max": _extreme(maximum),
}
