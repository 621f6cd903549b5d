"""The body of a loop operation: statements in single-assignment form over an index domain.

Statements that produce a value are numbered 0, 1, 2 ... in the order they are written (a region's
statements after the statement that owns them), and refer to each other by number. Numbers instead
of names make equal computations equal objects.

    for i in 128 reduce j in 256         domain (i: 128), reduce (j: 256)
      %0 = load x[256*i + j]             varies over i and j
      %1 = reduce max %0                 varies over i only
      %2 = sub %0, %1                    mixes both: broadcasts
      store y[256*i + j] = %2
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from treadle.core.once import once
from treadle.index import Domain, Expr, Kind, Symbol, indirect
from treadle.ir.ops import OPS, OpDef

COMBINING = frozenset({"reduce", "reduce_part", "scan", "sort"})
"""Statements that look at more than one point of the inner loops."""
Scalar: TypeAlias = bool | int | float | str | None


class Literal:
    """A constant that equals another one only if type and every digit agree (0.0 is not -0.0)."""

    __slots__ = ("value",)
    value: Scalar

    def __init__(self, value: Scalar) -> None:
        if isinstance(value, float) and math.isnan(value):
            value = math.nan  # one NaN, so that printing and reading back gives an equal object
        object.__setattr__(self, "value", value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a literal cannot be changed")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal) or type(self.value) is not type(other.value):
            return False
        if isinstance(self.value, float):
            return repr(self.value) == repr(other.value)
        return self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Literal({self.value!r})"

    def __reduce__(self) -> tuple[type[Literal], tuple[Scalar]]:
        return Literal, (self.value,)


class Stmt(NamedTuple):
    """One statement: an operation of the table, operand numbers, attributes, a region."""

    op: str
    args: tuple[int, ...] = ()
    attrs: tuple[object, ...] = ()
    region: tuple[Stmt, ...] = ()

    @property
    def definition(self) -> OpDef:
        """The row of the table."""
        return OPS[self.op]

    def attr(self, name: str) -> object:
        """The attribute called `name` in the table of operations."""
        return self.attrs[OPS[self.op].position[name]]

    def with_attr(self, name: str, value: object) -> Stmt:
        """The statement with another value of one attribute."""
        at = OPS[self.op].position[name]
        attrs = (*self.attrs[:at], value, *self.attrs[at + 1 :])
        return Stmt(self.op, self.args, attrs, self.region)

    # Bodies are read mostly for what they touch, so these know their place in the table.
    @property
    def buffer(self) -> str:
        """The buffer that a load, a store or a bucketize touches."""
        name: str = self.attrs[0]  # type: ignore[assignment]
        return name

    @property
    def address(self) -> Expr:
        """The `index` of a load or a store."""
        index = self.attrs[1]
        assert isinstance(index, Expr)
        return index

    @property
    def mode(self) -> str:
        """How a store combines with what is there; loads are plain."""
        mode: str = self.attrs[2] if self.op == "store" else "plain"  # type: ignore[assignment]
        return mode


class Numbered(NamedTuple):
    """A statement with its value number (None if it produces nothing) and its nesting depth."""

    number: int | None
    stmt: Stmt
    depth: int


@dataclass(frozen=True)
class Body:
    """What is computed at each point of `domain`, with reductions running over `reduce`."""

    domain: Domain
    reduce: Domain
    stmts: tuple[Stmt, ...]

    @once
    def space(self) -> Domain:
        """All loops, reduction loops innermost."""
        return self.domain + self.reduce if len(self.reduce) else self.domain

    def walk(self) -> Iterator[Numbered]:
        """All statements with their numbers, regions included, in writing order."""
        return iter(self._numbered)

    @once
    def _numbered(self) -> tuple[Numbered, ...]:
        found: list[Numbered] = []
        counter = 0
        stack: list[Iterator[Stmt]] = [iter(self.stmts)]
        while stack:
            for stmt in stack[-1]:
                produces = OPS[stmt.op].produces if stmt.op in OPS else True
                found.append(Numbered(counter if produces else None, stmt, len(stack) - 1))
                counter += produces
                if stmt.region:
                    stack.append(iter(stmt.region))
                    break
            else:
                stack.pop()
        return tuple(found)

    def loads(self) -> Iterator[tuple[str, Expr, Numbered]]:
        """Each load as (buffer, index, statement)."""
        for at in self.walk():
            if at.stmt.op == "load":
                yield at.stmt.buffer, at.stmt.address, at

    def stores(self) -> Iterator[tuple[str, Expr, str, Numbered]]:
        """Each store as (buffer, index, mode, statement)."""
        for at in self.walk():
            if at.stmt.op == "store":
                stmt = at.stmt
                yield stmt.buffer, stmt.address, stmt.mode, at

    @property
    def has_reduction(self) -> bool:
        """Whether any statement combines values over the reduction loops."""
        return any(at.stmt.op in COMBINING for at in self.walk())


def operands_of(stmt: Stmt) -> set[int]:
    """Numbers of all values a statement uses, those in its indices and its region included."""
    found = set(stmt.args)
    for e in stmt.attrs:
        if isinstance(e, Expr):
            found |= {number_of(s) for s in e.free if s.kind is Kind.INDIRECT}
    for inner in stmt.region:
        found |= operands_of(inner)
    return found


def value_symbol(number: int) -> Symbol:
    """The symbol by which index expressions refer to the indirect value %number."""
    return indirect(f"%{number}")


def number_of(symbol: Symbol) -> int:
    """The value number behind a symbol made by `value_symbol`."""
    return int(symbol.name[1:])
