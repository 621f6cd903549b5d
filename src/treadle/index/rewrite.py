"""Walks over expressions: substitute, evaluate, rebuild. Shared parts are visited once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.index.expr import (
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
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    product_of,
    sum_of,
)

_REBUILD: Mapping[type[Expr], Callable[..., Expr]] = {
    Product: lambda *factors: product_of(factors),
    FloorDiv: floordiv,
    Mod: mod,
    Min: minimum,
    Max: maximum,
}


def rebuild(base: Expr, args: tuple[Expr, ...]) -> Expr:
    """A node of the same kind as `base` over new arguments, canonical."""
    return _REBUILD[type(base)](*args)


def map_bases(e: Expr, change: Callable[[Expr], IntLike]) -> Expr:
    """The sum with each base replaced by `change(base)`; `e` itself if nothing changed."""
    if type(e) is Const:
        return e
    terms = e.terms
    new = [change(base) for base, _ in terms]
    if all(n is b for n, (b, _) in zip(new, terms, strict=True)):
        return e
    return add(sum_of([mul(n, c) for n, (_, c) in zip(new, terms, strict=True)]), e.const)


def substitute(e: Expr, values: Mapping[Symbol, IntLike]) -> Expr:
    """`e` with every symbol in `values` replaced, all at once."""
    if not values or values.keys().isdisjoint(e.free):
        return e
    done: dict[Expr, Expr] = {}

    def change(base: Expr) -> Expr:
        if isinstance(base, Symbol):
            return as_expr(values.get(base, base))
        known = done.get(base)
        if known is None:
            args = tuple([map_bases(a, change) for a in base.children])
            same = all(n is o for n, o in zip(args, base.children, strict=True))
            known = done[base] = base if same else rebuild(base, args)
        return known

    return map_bases(e, change)


def _fold(smaller: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for v in values[1:]:
        result = smaller(result, v)
    return result


def evaluate(
    e: Expr,
    values: Mapping[Symbol, Any],
    least: Callable[[Any, Any], Any] = min,
    greatest: Callable[[Any, Any], Any] = max,
) -> Any:
    """The number `e` stands for; `values` may also hold arrays, given array `least`/`greatest`."""

    def of(x: Expr) -> Any:
        total: Any = x.const
        for base, c in x.terms:
            total = total + (of_base(base) if c == 1 else c * of_base(base))
        return total

    def of_base(base: Expr) -> Any:
        if isinstance(base, Symbol):
            return values[base]
        args = [of(a) for a in base.children]
        if isinstance(base, FloorDiv):
            return args[0] // args[1]
        if isinstance(base, Mod):
            return args[0] % args[1]
        if isinstance(base, Min):
            return _fold(least, args)
        if isinstance(base, Max):
            return _fold(greatest, args)
        result: Any = 1
        for a in args:
            result = result * a
        return result

    return of(e)


def coefficient(e: Expr, symbol: Symbol) -> Expr | None:
    """The stride of `symbol`: c with e == c*symbol + rest, rest free of it; None if not linear."""
    if symbol not in e.free:
        return Const(0)
    parts: list[Expr] = []
    for base, c in e.terms:
        if symbol not in base.free:
            continue
        factors = list(base.factors)
        if symbol not in factors:
            return None
        factors.remove(symbol)
        rest = product_of(factors)
        if symbol in rest.free:
            return None
        parts.append(mul(rest, c))
    return sum_of(parts)


def without(e: Expr, symbol: Symbol) -> Expr:
    """The terms of `e` in which `symbol` does not occur."""
    return add(sum_of([mul(b, c) for b, c in e.terms if symbol not in b.free]), e.const)
