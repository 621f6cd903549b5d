"""Operators that need no file of their own: gradients of shrinking, powers of two, selections."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.frontends.torch.lowering.node import Node, converted
from treadle.frontends.torch.lowering.ops.pointwise import elementwise
from treadle.frontends.torch.lowering.ops.reduce import dims_of, reduced
from treadle.frontends.torch.lowering.promotion import INT_TO_FLOAT
from treadle.frontends.torch.lowering.registry import Lowering, lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Tensor
from treadle.index import as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType


def _shrink_backward(k: LoopWriter, grad: Value, x: Value, width: Value) -> Value:
    is_inside = k.logical_and(x >= -width, x <= width)
    return k.where(is_inside, k.constant(0.0, grad.dtype), grad)


def _add_relu(k: LoopWriter, a: Value, b: Value) -> Value:
    return k.relu(a + b)


ROWS: Mapping[str, Lowering] = {
    **elementwise("hardshrink_backward.default softshrink_backward.default", _shrink_backward),
    **elementwise("_add_relu.Tensor _add_relu.Scalar", _add_relu),
    **elementwise("ldexp.Tensor", lambda k, a, b: a * k.exp2(b), INT_TO_FLOAT),
}


@lowers("aten.frexp.Tensor")
def frexp(c: Node, self: Tensor) -> tuple[Tensor, ...]:
    """The mantissa between a half and one, and the power of two."""

    def part(position: int, to: DType) -> Tensor:
        def inner(k: LoopWriter, at: Index) -> Value:
            return converted(k.frexp(self.load(k, at))[position], to)

        return c.lazy(c.sizes, to, inner, [self])

    return part(0, c.dtype_of(0)), part(1, c.dtype_of(1))


@lowers("aten._is_any_true.default")
def is_any_true(c: Node, self: Tensor) -> Tensor:
    """Whether any is true."""
    return reduced(c, self, dims_of(self, None), lambda k, v: [k.any(v)])[0]


@lowers("aten._is_all_true.default")
def is_all_true(c: Node, self: Tensor) -> Tensor:
    """Whether all are true."""
    return reduced(c, self, dims_of(self, None), lambda k, v: [k.all(v)])[0]


@lowers("aten.log_sigmoid_forward.default")
def log_sigmoid(c: Node, self: Tensor) -> tuple[Tensor, ...]:
    """The logarithm of the sigmoid, and what its gradient needs."""
    if tuple(c.sizes_of(1)) != tuple(c.sizes):
        raise NotLowered("another device keeps nothing for the gradient")

    def value(k: LoopWriter, x: Value) -> Value:
        zero = k.constant(0.0, x.dtype)
        return k.minimum(x, zero) - k.log1p(k.exp(-abs(x)))

    kept = c.pointwise(lambda k, x: k.exp(-abs(x)), self, dtype=c.dtype_of(1))
    return c.pointwise(value, self), kept


@lowers("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(c: Node, self: Tensor, assert_msg: str = "") -> None:
    """Stop where a tensor of one element is zero: a kernel of a CPU says so."""
    if c.graph.device != "cpu" or self.dtype is not DType.BOOL:
        raise NotLowered("only conditions on a CPU are looked at by a kernel")
    if any(n.value != 1 for n in self.sizes):
        raise NotLowered("not one condition")
    with c.loop(()) as k:
        at = (as_expr(0),) * len(self.sizes)
        k.check(self.load(k, at), assert_msg or "a condition does not hold")
