"""Index expressions in Triton."""

from __future__ import annotations

from collections.abc import Callable

from treadle.index import Expr, Facts, FloorDiv, Max, Min, Mod, Product, Symbol


class TritonIndex:
    """Writes index expressions; floor division and remainder as Python has them."""

    def __init__(self, facts: Facts, symbol: Callable[[Symbol], str]) -> None:
        self.facts, self._symbol = facts, symbol

    def write(self, e: Expr) -> str:
        """An expression, parenthesised where it has several terms."""
        if e.value is not None:
            return str(e.value)
        parts: list[str] = []
        for base, c in e.terms:
            text = self._base(base)
            if abs(c) != 1:
                text = f"{abs(c)} * {text}"
            sign = "-" if c < 0 else ("+" if parts else "")
            parts.append(f" {sign} {text}" if parts else f"{sign}{text}")
        if e.const:
            parts.append(f" {'-' if e.const < 0 else '+'} {abs(e.const)}")
        text = "".join(parts)
        return text if len(e.terms) == 1 and not e.const and e.terms[0][1] == 1 else f"({text})"

    def behind(self, pointer: str, e: Expr) -> str:
        """The address of an element behind a pointer; the constant part of its index stands last.

        A compiler cannot tell that an index of 32 bits does not wrap. Outside of it, neighbours
        share one address and each has its distance in the load.
        """
        if not e.const or not e.free:
            return f"{pointer} + {self.write(e)}"
        apart = f"+ {e.const}" if e.const > 0 else f"- {-e.const}"
        return f"{pointer} + {self.write(e - e.const)} {apart}"

    def _base(self, base: Expr) -> str:
        if isinstance(base, Symbol):
            return self._symbol(base)
        if isinstance(base, Product):
            return "(" + " * ".join([self._base(f) for f in base.factors]) + ")"
        if isinstance(base, FloorDiv | Mod):
            num, den = base.children
            plain = self.facts.nonnegative(num) and self.facts.interval(den).positive
            a, b = self.write(num), self.write(den)
            sign, helper = ("//", "tr_floordiv") if isinstance(base, FloorDiv) else ("%", "tr_mod")
            return f"({a} {sign} {b})" if plain else f"{helper}({a}, {b})"
        assert isinstance(base, Min | Max), f"{base} is an expression of another kind"
        helper = "tl.minimum" if isinstance(base, Min) else "tl.maximum"
        first, *rest = [self.write(a) for a in base.children]
        for other in rest:
            first = f"{helper}({first}, {other})"
        return first
