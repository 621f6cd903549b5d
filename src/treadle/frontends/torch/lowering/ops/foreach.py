"""Operators over lists of tensors: the same formula for each tensor of the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.frontends.torch.lowering.node import Node
from treadle.frontends.torch.lowering.ops.pointwise import check_power, times
from treadle.frontends.torch.lowering.promotion import DEFAULT, INT_TO_FLOAT
from treadle.frontends.torch.lowering.registry import Lowering, lowers
from treadle.frontends.torch.lowering.values import LoopWriter, Tensor
from treadle.ir.build_body import Value

UNARY: Mapping[str, str] = {
    DEFAULT: "abs ceil floor neg round sign trunc",
    INT_TO_FLOAT: "acos asin atan cos cosh erf erfc exp expm1 lgamma log log10 log1p log2 "
    "reciprocal rsqrt sigmoid sin sinh sqrt tan tanh",
}
BINARY: Mapping[str, Callable[[LoopWriter, Value, Value], Value]] = {
    "mul": lambda k, a, b: a * b,
    "maximum": lambda k, a, b: k.maximum(a, b),
    "minimum": lambda k, a, b: k.minimum(a, b),
    "clamp_min": lambda k, a, b: k.maximum(a, b),
    "clamp_max": lambda k, a, b: k.minimum(a, b),
}
OVERLOADS = ("List", "Scalar", "ScalarList", "Tensor")
"""What the second operand is: a tensor or number for each, or one for all."""


def each(c: Node, fn: Callable[..., Value], *operands: Any, kind: str = DEFAULT) -> list[Tensor]:
    """The formula for every tensor of the first list; what is no list is there for all."""
    count = len(operands[0])
    return [
        c.pointwise(
            fn,
            *[x[i] if isinstance(x, list) else x for x in operands],
            kind=kind,
            sizes=c.sizes_of(i),
            dtype=c.dtype_of(i),
        )
        for i in range(count)
    ]


def _unary(op: str, kind: str) -> Lowering:
    def lower(c: Node, self: list[Tensor]) -> list[Tensor]:
        return each(c, lambda k, x: k.op(op, x), self, kind=kind)

    return lower


def _binary(fn: Callable[[LoopWriter, Value, Value], Value]) -> Lowering:
    def lower(c: Node, self: list[Tensor], other: Any) -> list[Tensor]:
        return each(c, fn, self, other)

    return lower


ROWS: Mapping[str, Lowering] = {
    **{
        f"aten._foreach_{name}.default": _unary(name, kind)
        for kind, names in UNARY.items()
        for name in names.split()
    },
    **{
        f"aten._foreach_{name}.{overload}": _binary(fn)
        for name, fn in BINARY.items()
        for overload in OVERLOADS
    },
}


@lowers(*[f"aten._foreach_add.{overload}" for overload in OVERLOADS])
def add(c: Node, self: list[Tensor], other: Any, *, alpha: Any = 1) -> list[Tensor]:
    """self + alpha * other."""
    return each(c, lambda k, a, b: a + times(k, b, alpha), self, other)


@lowers(*[f"aten._foreach_sub.{overload}" for overload in OVERLOADS[:3]])
def sub(c: Node, self: list[Tensor], other: Any, *, alpha: Any = 1) -> list[Tensor]:
    """self - alpha * other."""
    return each(c, lambda k, a, b: a - times(k, b, alpha), self, other)


@lowers(*[f"aten._foreach_div.{overload}" for overload in OVERLOADS])
def div(c: Node, self: list[Tensor], other: Any) -> list[Tensor]:
    """self / other."""
    return each(c, lambda k, a, b: a / b, self, other, kind=INT_TO_FLOAT)


@lowers("aten._foreach_addcmul.Scalar", "aten._foreach_addcmul.ScalarList")
def addcmul(
    c: Node, self: list[Tensor], tensor1: Any, tensor2: Any, value: Any = 1
) -> list[Tensor]:
    """self + value * tensor1 * tensor2."""
    return each(c, lambda k, x, a, b, v: x + v * a * b, self, tensor1, tensor2, value)


@lowers("aten._foreach_addcdiv.Scalar", "aten._foreach_addcdiv.ScalarList")
def addcdiv(
    c: Node, self: list[Tensor], tensor1: Any, tensor2: Any, value: Any = 1
) -> list[Tensor]:
    """self + value * tensor1 / tensor2."""
    return each(c, lambda k, x, a, b, v: x + v * a / b, self, tensor1, tensor2, value)


@lowers("aten._foreach_lerp.List", "aten._foreach_lerp.Scalar", "aten._foreach_lerp.ScalarList")
def lerp(c: Node, self: list[Tensor], tensors1: list[Tensor], weight: Any) -> list[Tensor]:
    """The point between two tensors that the weight says, exact at both ends."""

    def fn(k: LoopWriter, a: Value, b: Value, w: Value) -> Value:
        one, half = k.constant(1.0, w.dtype), k.constant(0.5, w.dtype)
        return k.where(abs(w) < half, a + w * (b - a), b - (b - a) * (one - w))

    return each(c, fn, self, tensors1, weight)


@lowers("aten._foreach_pow.Scalar", "aten._foreach_pow.ScalarList", "aten._foreach_pow.List")
def power(c: Node, self: list[Tensor], exponent: Any) -> list[Tensor]:
    """self to the power of exponent."""
    for x in self:
        for one in exponent if isinstance(exponent, list) else [exponent]:
            check_power(x.dtype, one)
    if exponent == 2:
        return each(c, lambda k, a, b: a * a, self, exponent)
    return each(c, lambda k, a, b: k.pow(a, b), self, exponent)


@lowers("aten._foreach_zero.default")
def zero(c: Node, self: list[Tensor]) -> list[Tensor]:
    """Zeros."""
    return each(c, lambda k, x: k.constant(0, x.dtype), self)


@lowers("aten._foreach_clone.default")
def clone(c: Node, self: list[Tensor], **unused: Any) -> list[Tensor]:
    """Copies."""
    return each(c, lambda k, x: x, self)
