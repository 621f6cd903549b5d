"""Indices that floats compute from a loop, found to be sums, quotients and limits of it.

    trunc(0.5 * i)                               i // 2                  the nearest element
    min(floor(max(0.5 * i - 0.25, 0)) + 1, 31)   min((i + 1) // 2, 31)   the second of two around

torch writes an index as a tensor that nothing but its own place decides. Over a loop whose extent
is known it is a table; a formula that gives the very same table says more than the floats do: that
it stays inside, and where neighbours read neighbours.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import floor, gcd, isfinite, trunc
from typing import Any

from treadle.index import Domain, Expr, Kind, Symbol, evaluate, floordiv, maximum, minimum
from treadle.ir.body import Literal, Stmt
from treadle.ir.types import DType
from treadle.ir.typing import ValueType

LONGEST = 2048
"""Points of the longest loop that a table is made for."""
MOST_STATEMENTS = 40
STEEPEST, SLOWEST = 4, 8
"""Formulas are (a*i + b) // c with a and c up to these."""
WHOLE = {DType.I64: 1 << 63, DType.I32: 1 << 31}
FLOATS = (DType.F32, DType.F64)

POINTWISE: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "maximum": max,
    "minimum": min,
    "identity": lambda x: x,
    "floor": floor,
    "cast": trunc,
    "trunc_to_int": trunc,
    "floor_to_int": floor,
}
"""What is computed; floats are exact to the bit, for a result of f32 in f64 is rounded once."""


def known_index(
    made: Mapping[int, Stmt],
    types: Sequence[ValueType],
    number: int,
    space: Domain,
    size: Expr | None = None,
    wrap: bool = False,
) -> Expr | None:
    """A formula for a whole number that only one loop decides, in 0..size if that is said.

    Negative ones count from the end if they wrap. None if no formula fits.
    """
    n = None if size is None else size.value
    if size is not None and n is None:
        return None
    table = _Table(made, types, space).of(number)
    if table is None or table.loop is None or types[number] not in WHOLE:
        return None
    places = [t + n if n is not None and wrap and t < 0 else t for t in table.values]
    if n is not None and not all(0 <= t < n for t in places):
        return None
    return fitting(places, table.loop)


class _Column:
    """The values that a statement has along a loop; of no loop if there is just one."""

    def __init__(self, values: list[Any], loop: Symbol | None) -> None:
        self.values, self.loop = values, loop


class _Table:
    """Values of statements, computed as the interpreter would."""

    def __init__(self, made: Mapping[int, Stmt], types: Sequence[ValueType], space: Domain) -> None:
        self.made, self.types, self.space = made, types, space
        self.known: dict[int, _Column | None] = {}

    def of(self, number: int) -> _Column | None:
        """The column of a value; None if something else than one loop decides it."""
        if number not in self.known:
            self.known[number] = None
            if number in self.made and len(self.known) <= MOST_STATEMENTS:
                self.known[number] = self._of(self.made[number], self.types[number])
        return self.known[number]

    def _of(self, stmt: Stmt, dtype: ValueType) -> _Column | None:
        if not isinstance(dtype, DType) or (dtype not in WHOLE and dtype not in FLOATS):
            return None
        if stmt.op == "constant":
            literal = stmt.attr("value")
            value = literal.value if isinstance(literal, Literal) else None
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return _held([value], dtype, None) if is_number else None
        if stmt.op == "index":
            e = stmt.attr("expr")
            return self._of_index(e, dtype) if isinstance(e, Expr) else None
        if stmt.op not in POINTWISE:
            return None
        columns = [c for a in stmt.args if (c := self.of(a)) is not None]
        loops = {c.loop for c in columns if c.loop is not None}
        if len(columns) != len(stmt.args) or len(loops) > 1:
            return None
        compute = POINTWISE[stmt.op]
        if stmt.op == "cast" and dtype in FLOATS:
            compute = float
        length = max(len(c.values) for c in columns)
        rows = [c.values if c.loop is not None else c.values * length for c in columns]
        return _held([compute(*row) for row in zip(*rows, strict=True)], dtype, *loops)

    def _of_index(self, e: Expr, dtype: DType) -> _Column | None:
        loops = [s for s in e.free if s in self.space.vars]
        if len(loops) > 1 or any(s.kind is not Kind.LOOP for s in e.free):
            return None
        if not loops:
            return _held([evaluate(e, {})], dtype, None)
        n = self.space.extent(loops[0]).value
        if n is None or not 2 <= n <= LONGEST:
            return None
        return _held([evaluate(e, {loops[0]: i}) for i in range(n)], dtype, loops[0])


def _held(values: list[Any], dtype: DType, loop: Symbol | None = None) -> _Column | None:
    """Values as a type has them; None if one of them is not to be had."""
    if dtype in FLOATS:
        try:
            found = [float(v) for v in values]
            if dtype is DType.F32:
                found = [struct.unpack("f", struct.pack("f", v))[0] for v in found]
        except OverflowError:
            return None
        return _Column(found, loop) if all(map(isfinite, found)) else None
    limit = WHOLE[dtype]
    if not all(isinstance(v, int) and -limit <= v < limit for v in values):
        return None
    return _Column(values, loop)


# ------------------------------------------------------------------------------------ formulas


def fitting(table: Sequence[int], v: Symbol) -> Expr | None:
    """An expression of a loop that has the values of a table, in order; None if none was found."""
    step = table[1] - table[0]
    if all(t == table[0] + step * i for i, t in enumerate(table)):
        return v * step + table[0]
    if any(a > b for a, b in pairwise(table)):
        return None
    for c in range(1, SLOWEST + 1):
        for a in range(1, STEEPEST + 1):
            if gcd(a, c) != 1:
                continue
            for e in _candidates(table, v, a, c):
                if all(evaluate(e, {v: i}) == t for i, t in enumerate(table)):
                    return e
    return None


def _candidates(table: Sequence[int], v: Symbol, a: int, c: int) -> list[Expr]:
    """(a*v + b) // c that fit between the first and last values; then with limits at these."""
    first, last = table[0], table[-1]
    inner = [i for i, t in enumerate(table) if first < t < last]
    if not inner:
        return []
    points = [(i, table[i]) for i in range(inner[0] - 1, inner[-1] + 2)]
    low = max(c * t - a * i for i, t in points)
    high = min(c * t + c - 1 - a * i for i, t in points)
    plain = [floordiv(v * a + b, c) for b in range(low, high + 1)]
    above = [maximum(e, first) for e in plain]
    below = [minimum(e, last) for e in plain]
    return [*plain, *above, *below, *[minimum(e, last) for e in above]]
