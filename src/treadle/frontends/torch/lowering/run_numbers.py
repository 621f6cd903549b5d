"""Fractions that sizes decide, such as `1 / math.sqrt(x.shape[-1])`: computed where they are used.

torch leaves the arithmetic in the graph as Python calls on sizes. A loop does the same arithmetic
in f64, as Python would, so that nothing around such a number has to become a call. Where Python
might raise (a division by zero, the root of a negative number) for some of the sizes torch
allows, the node stays a call, which raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.node import number
from treadle.frontends.torch.lowering.values import LoopWriter, NotLowered, Number
from treadle.index import Expr, Facts, floordiv, mod
from treadle.ir.build_body import Value
from treadle.ir.types import DType

if TYPE_CHECKING:
    from treadle.frontends.torch.lowering.graph import GraphLowering

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)


def run_number(graph: GraphLowering, node: Any) -> Number:
    """A fraction the graph computes, as something loops can compute; or NotLowered."""
    if node.target not in ARITHMETIC or node.kwargs:
        raise NotLowered("no lowering")
    op, range_of = ARITHMETIC[node.target]
    operands = [graph.value(a) if isinstance(a, torch.fx.Node) else a for a in node.args]
    if not all(isinstance(x, Number | Expr | int | float) for x in operands):
        raise NotLowered("an argument exists at run time only")

    def write(k: LoopWriter) -> Value:
        values = [number(k, x, DType.F64) for x in operands]
        return values[0] if op == "identity" else k.op(op, *values)

    return Number(node, write, range_of(*operands))


def _range(x: Any) -> Range:
    """Between which numbers an operand lies, for all the sizes torch allows."""
    if isinstance(x, Number):
        return x.range
    if isinstance(x, Expr):
        low, high = Facts().interval(x)
        return -math.inf if low is None else low, math.inf if high is None else high
    return float(x), float(x)


def _around(corners: Iterable[float]) -> Range:
    found = list(corners)
    return ANY if any(map(math.isnan, found)) else (min(found), max(found))


def _monotone(fn: Callable[..., float]) -> Callable[..., Range]:
    """The range of an operation that never turns between the ends of its operands' ranges."""

    def range_of(*operands: Any) -> Range:
        ranges = [_range(x) for x in operands]
        if len(ranges) == 1:
            return _around([fn(x) for x in ranges[0]])
        return _around([fn(x, y) for x in ranges[0] for y in ranges[1]])

    return range_of


def _quotient(a: Any, b: Any) -> Range:
    low, high = _range(b)
    if low <= 0 <= high:
        raise NotLowered("Python might divide by zero")
    if isinstance(a, Expr) and isinstance(b, Expr) and Facts().simplify(mod(a, b)).value == 0:
        return _range(Facts().simplify(floordiv(a, b)))
    return _around([x / y for x in _range(a) for y in (low, high)])


def _power(a: Any, b: Any) -> Range:
    low, high = _range(a)
    is_defined = low > 0 or (low == 0 and _range(b)[0] >= 0)
    if not is_defined:
        raise NotLowered("Python might be asked for a power that is no number")
    if not isinstance(b, int | float):
        return 0.0, math.inf
    least, most = (low, high) if b >= 0 else (high, low)
    try:
        return least**b, most**b
    except OverflowError:
        return 0.0, math.inf


def _root(a: Any) -> Range:
    low, high = _range(a)
    if low < 0:
        raise NotLowered("Python might be asked for the root of a negative number")
    return math.sqrt(low), math.sqrt(high)


ARITHMETIC: Mapping[Any, tuple[str, Callable[..., Range]]] = {
    torch.sym_float: ("identity", _range),
    operator.add: ("add", _monotone(operator.add)),
    operator.sub: ("sub", _monotone(operator.sub)),
    operator.mul: ("mul", _monotone(operator.mul)),
    operator.neg: ("neg", _monotone(operator.neg)),
    operator.truediv: ("truediv", _quotient),
    operator.pow: ("pow", _power),
    torch.sym_max: ("maximum", _monotone(max)),
    torch.sym_min: ("minimum", _monotone(min)),
    compat.SYM_SQRT: ("sqrt", _root),
}
"""What Python computes, the body operation that does the same, and the range of the result."""
