"""A loop nest as data: ordered loop variables, each running from 0 to its extent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, cast

from treadle.index.bounds import Facts, product_hint
from treadle.index.expr import (
    Expr,
    IntLike,
    Symbol,
    as_expr,
    loop,
    product_of,
    recall,
    remember,
)


class Domain:
    """Loop variables with their extents, outermost first. Immutable, interned like expressions.

    Equal domains are one object, so what is proved in one loop nest is known in all like it.
    """

    __slots__ = ("__weakref__", "_facts", "_numel", "extents", "vars")

    vars: tuple[Symbol, ...]
    extents: tuple[Expr, ...]
    _facts: Facts | None
    _numel: Expr | None

    def __new__(cls, loops: Iterable[tuple[Symbol, IntLike]] = ()) -> Domain:
        pairs = tuple(loops)
        loop_vars = tuple([v for v, _ in pairs])
        extents = tuple([as_expr(n) for _, n in pairs])
        key = (Domain, loop_vars, extents)
        known = recall(key)
        if known is not None:
            return cast("Domain", known)
        _check(loop_vars, extents)
        domain = object.__new__(cls)
        domain.vars, domain.extents = loop_vars, extents
        domain._facts = domain._numel = None
        remember(key, domain)
        return domain

    @classmethod
    def of(cls, **loops: IntLike) -> Domain:
        """`Domain.of(i=128, j=256)`: loops i (outer) and j (inner)."""
        return cls([(loop(name), n) for name, n in loops.items()])

    @classmethod
    def fresh(cls, extents: Iterable[IntLike], prefix: str = "c") -> Domain:
        """Loops c0, c1, ... over `extents`."""
        return cls([(loop(f"{prefix}{k}"), n) for k, n in enumerate(extents)])

    @property
    def facts(self) -> Facts:
        """What these loops allow to prove (memoised)."""
        if self._facts is None:
            self._facts = Facts(dict(self.items()))
        return self._facts

    @property
    def numel(self) -> Expr:
        """How many points there are."""
        if self._numel is None:
            self._numel = product_of(self.extents)
        return self._numel

    @property
    def numel_hint(self) -> int:
        """How many points there are likely to be, with hints for run-time sizes."""
        return product_hint(self.extents)

    def items(self) -> Iterator[tuple[Symbol, Expr]]:
        """The (variable, extent) pairs, outermost first."""
        return iter(zip(self.vars, self.extents, strict=True))

    def extent(self, v: Symbol) -> Expr:
        """How far `v` runs."""
        return self.extents[self.vars.index(v)]

    def points(self) -> Iterator[dict[Symbol, int]]:
        """Every point in loop order; for static extents."""
        for values in product(*[range(_static(n)) for n in self.extents]):
            yield dict(zip(self.vars, values, strict=True))

    def __add__(self, other: Domain) -> Domain:
        return Domain([*self.items(), *other.items()])

    def __len__(self) -> int:
        return len(self.vars)

    def __str__(self) -> str:
        return "(" + ", ".join(f"{v.name}: {n}" for v, n in self.items()) + ")"

    def __repr__(self) -> str:
        return f"Domain{self}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Domain, (tuple(self.items()),)


def _check(loop_vars: tuple[Symbol, ...], extents: tuple[Expr, ...]) -> None:
    if len(set(loop_vars)) != len(loop_vars):
        names = ", ".join(v.name for v in loop_vars)
        raise ValueError(f"a loop variable may occur once in a domain: {names}")
    for v, n in zip(loop_vars, extents, strict=True):
        if n.value is not None and n.value < 0:
            raise ValueError(f"loop {v.name} has the negative extent {n.value}")


def _static(n: Expr) -> int:
    if n.value is None:
        raise ValueError(f"the extent {n} is not known before run time")
    return n.value
