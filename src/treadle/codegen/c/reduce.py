"""Reductions in C: what is declared before a pass, done at each point, and made of it afterwards.

Floats are added and multiplied in double and rounded once at the end; whole numbers wrap in the
type of the result. welford and online_softmax go over the row twice, as the interpreter does: the
second pass knows the mean, or the maximum, of the whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.codegen.c.ops import native
from treadle.codegen.c.types import converted, held, largest, smallest
from treadle.ir.types import DType


@dataclass(frozen=True)
class Walk:
    """One pass of a reduction: lines before it, lines at each point, lines after it."""

    before: tuple[str, ...]
    at_point: tuple[str, ...]
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reduction:
    """The passes of a reduction and expressions for its results."""

    walks: tuple[Walk, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """What a row of REDUCERS is given: operands (names and types), result type, names to use."""

    values: Sequence[str]
    types: Sequence[DType]
    to: DType
    name: str
    """What the names of accumulators begin with."""
    position: str
    """The place in the row, counted over all reduction loops."""
    length: str = "0"
    """How many points the reduction goes over."""
    exp: str = "tr_fast_exp"
    """The exponential in float, where parts may be combined."""
    is_short: bool = False
    """Whether the row is known to be so short that a place in it has 32 bits."""

    def operand(self, k: int = 0) -> str:
        """Operand `k` converted to the type of the result."""
        return converted(self.values[k], self.types[k], self.to)

    def wide(self, k: int = 0) -> str:
        """Operand `k` as a double."""
        return f"(double)({self.operand(k)})"


def _accumulated(op: str, start: float) -> Callable[[Request], Reduction]:
    def reduction(r: Request) -> Reduction:
        if not r.to.is_float:
            first = f"{held(r.to)} {r.name} = {int(start)};"
            step = f"{r.name} = {native(op, [r.name, r.operand()], r.to)};"
            return Reduction((Walk((first,), (step,)),), (r.name,))
        sign = "+" if op == "add" else "*"
        walk = Walk((f"double {r.name} = {start};",), (f"{r.name} {sign}= {r.wide()};",))
        return Reduction((walk,), (converted(r.name, DType.F64, r.to),))

    return reduction


def _dot(r: Request) -> Reduction:
    if not r.to.is_float:
        product = native("mul", [r.operand(0), r.operand(1)], r.to)
        step = f"{r.name} = {native('add', [r.name, product], r.to)};"
        return Reduction((Walk((f"{held(r.to)} {r.name} = 0;",), (step,)),), (r.name,))
    walk = Walk((f"double {r.name} = 0.0;",), (f"{r.name} += {r.wide(0)} * {r.wide(1)};",))
    return Reduction((walk,), (converted(r.name, DType.F64, r.to),))


def _extreme(op: str, start: Callable[[DType], str]) -> Callable[[Request], Reduction]:
    def reduction(r: Request) -> Reduction:
        first = f"{held(r.to)} {r.name} = {start(r.to)};"
        x = f"{r.name}_x"
        steps = (
            f"const {held(r.to)} {x} = {r.operand()};",
            f"{r.name} = {native(op, [r.name, x], r.to)};",
        )
        return Reduction((Walk((first,), steps),), (r.name,))

    return reduction


def _position_of(is_better: str) -> Callable[[Request], Reduction]:
    def reduction(r: Request) -> Reduction:
        t, x, best = r.types[0], r.values[0], f"{r.name}_best"
        # A NaN wins over everything but an earlier NaN.
        nan = f" || ({x} != {x} && {best} == {best})" if t.is_float else ""
        better = f"{r.name} < 0 || {x} {is_better} {best}{nan}"
        lines = (f"if ({better}) {{ {best} = {x}; {r.name} = {r.position}; }}",)
        before = (f"{held(t)} {best} = 0;", f"int64_t {r.name} = -1;")
        return Reduction((Walk(before, lines),), (r.name,))

    return reduction


def _truth(start: int, operator: str) -> Callable[[Request], Reduction]:
    def reduction(r: Request) -> Reduction:
        step = f"{r.name} {operator}= {r.values[0]} != 0;"
        return Reduction((Walk((f"uint8_t {r.name} = {start};",), (step,)),), (r.name,))

    return reduction


def _xor_sum(r: Request) -> Reduction:
    step = f"{r.name} ^= {r.operand()};"
    return Reduction((Walk((f"{held(r.to)} {r.name} = 0;",), (step,)),), (r.name,))


def _spread(r: Request, mean: str, m2: str, weight: str) -> Reduction:
    """Mean and total weight first, then the squared deviations from that mean."""
    a = r.name
    first = Walk(
        (f"double {a}_sum = 0.0, {a}_weight = 0.0;",),
        (f"{a}_weight += {weight};", f"{a}_sum += {mean} * {weight};"),
        (f"const double {a}_mean = {a}_sum / ({a}_weight == 0 ? 1.0 : {a}_weight);",),
    )
    apart = f"{a}_apart"
    second = Walk(
        (f"double {a}_m2 = 0.0;",),
        (
            f"const double {apart} = {mean} - {a}_mean;",
            f"{a}_m2 += {m2} + {weight} * {apart} * {apart};",
        ),
    )
    parts = (f"{a}_mean", f"{a}_m2", f"{a}_weight")
    return Reduction((first, second), tuple(converted(p, DType.F64, r.to) for p in parts))


def _online_softmax(r: Request) -> Reduction:
    a, x = r.name, f"{r.name}_x"
    first = Walk(
        (f"double {a}_top = -(double)INFINITY;",),
        (f"{a}_top = tr_maximum_f64({a}_top, {r.wide()});",),
    )
    weight = f"{x} == -(double)INFINITY ? 0.0 : exp({x} - {a}_top)"
    second = Walk(
        (f"double {a}_total = 0.0;",),
        (f"const double {x} = {r.wide()};", f"{a}_total += {a}_top != {a}_top ? NAN : ({weight});"),
    )
    parts = (f"{a}_top", f"{a}_total")
    return Reduction((first, second), tuple(converted(p, DType.F64, r.to) for p in parts))


REDUCERS: Mapping[str, Callable[[Request], Reduction]] = {
    "sum": _accumulated("add", 0.0),
    "prod": _accumulated("mul", 1.0),
    "max": _extreme("maximum", smallest),
    "min": _extreme("minimum", largest),
    "argmax": _position_of(">"),
    "argmin": _position_of("<"),
    "any": _truth(0, "|"),
    "all": _truth(1, "&"),
    "xor_sum": _xor_sum,
    "dot": _dot,
    "welford": lambda r: _spread(r, r.wide(), "0.0", "1.0"),
    "welford_combine": lambda r: _spread(r, r.wide(0), r.wide(1), r.wide(2)),
    "online_softmax": _online_softmax,
}
