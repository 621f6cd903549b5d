"""Element-wise operators that are a formula: activations, selections, clamps, conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, operand_value
from treadle.frontends.torch.lowering.ops.pointwise import elementwise
from treadle.frontends.torch.lowering.ops.pool import kept_as_bytes
from treadle.frontends.torch.lowering.ops.views import broadcast_to
from treadle.frontends.torch.lowering.promotion import DEFAULT, INT_TO_FLOAT, common_types
from treadle.frontends.torch.lowering.registry import Lowering, lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.ir.build_body import Value
from treadle.ir.types import DType


def _fmax(k: LoopWriter, a: Value, b: Value) -> Value:
    return k.where(k.isnan(a), b, k.where(k.isnan(b), a, k.maximum(a, b)))


def _fmin(k: LoopWriter, a: Value, b: Value) -> Value:
    return k.where(k.isnan(a), b, k.where(k.isnan(b), a, k.minimum(a, b)))


def _silu(k: LoopWriter, x: Value) -> Value:
    return x / (1.0 + k.exp(-x))


def _sigmoid_backward(k: LoopWriter, grad: Value, y: Value) -> Value:
    return grad * (1.0 - y) * y


def _tanh_backward(k: LoopWriter, grad: Value, y: Value) -> Value:
    return grad * (1.0 - y * y)


def _silu_backward(k: LoopWriter, grad: Value, x: Value) -> Value:
    s = 1.0 / (1.0 + k.exp(-x))
    return grad * s * (1.0 + x * (1.0 - s))


def _hardsigmoid(k: LoopWriter, x: Value) -> Value:
    return k.minimum(k.maximum(x + 3.0, k.constant(0.0, x.dtype)), k.constant(6.0, x.dtype)) / 6.0


def _hardswish(k: LoopWriter, x: Value) -> Value:
    clipped = k.minimum(k.maximum(x + 3.0, k.constant(0.0, x.dtype)), k.constant(6.0, x.dtype))
    return x * clipped / 6.0


def _logaddexp(k: LoopWriter, a: Value, b: Value) -> Value:
    high, low = k.maximum(a, b), k.minimum(a, b)
    same = k.logical_and(k.isinf(a), a == b)
    return k.where(same, a, high + k.log1p(k.exp(low - high)))


def _logaddexp2(k: LoopWriter, a: Value, b: Value) -> Value:
    high, low = k.maximum(a, b), k.minimum(a, b)
    same = k.logical_and(k.isinf(a), a == b)
    return k.where(same, a, high + k.log1p(k.exp2(low - high)) * (1.0 / math.log(2.0)))


def _xlogy(k: LoopWriter, x: Value, y: Value) -> Value:
    zero = k.constant(0.0, x.dtype)
    return k.where(k.isnan(y), y, k.where(x == zero, zero, x * k.log(y)))


def _xlog1py(k: LoopWriter, x: Value, y: Value) -> Value:
    zero = k.constant(0.0, x.dtype)
    return k.where(k.isnan(y), y, k.where(x == zero, zero, x * k.log1p(y)))


def _frac(k: LoopWriter, x: Value) -> Value:
    return x - k.trunc(x)


def _sinc(k: LoopWriter, x: Value) -> Value:
    angle = x * math.pi
    return k.where(x == 0.0, k.constant(1.0, x.dtype), k.sin(angle) / angle)


def _entr(k: LoopWriter, x: Value) -> Value:
    below = k.constant(-math.inf, x.dtype)
    inner = k.where(x == 0.0, k.constant(0.0, x.dtype), below)
    return k.where(k.isnan(x), x, k.where(x > 0.0, -x * k.log(x), inner))


def _heaviside(k: LoopWriter, x: Value, at_zero: Value) -> Value:
    zero, one = k.constant(0, x.dtype), k.constant(1, x.dtype)
    return k.where(x == zero, at_zero, k.where(x < zero, zero, k.where(x > zero, one, zero)))


ROWS: Mapping[str, Lowering] = {
    **elementwise("fmax.default", _fmax),
    **elementwise("fmin.default", _fmin),
    **elementwise("silu.default", _silu),
    **elementwise("sigmoid_backward.default", _sigmoid_backward),
    **elementwise("tanh_backward.default", _tanh_backward),
    **elementwise("silu_backward.default", _silu_backward),
    **elementwise("hardsigmoid.default", _hardsigmoid),
    **elementwise("hardswish.default", _hardswish),
    **elementwise("logaddexp.default", _logaddexp, INT_TO_FLOAT),
    **elementwise("logaddexp2.default", _logaddexp2, INT_TO_FLOAT),
    **elementwise("xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other", _xlogy, INT_TO_FLOAT),
    **elementwise(
        "special_xlog1py.default special_xlog1py.self_scalar special_xlog1py.other_scalar",
        _xlog1py,
        INT_TO_FLOAT,
    ),
    **elementwise("frac.default", _frac),
    **elementwise("sinc.default", _sinc, INT_TO_FLOAT),
    **elementwise("special_entr.default", _entr, INT_TO_FLOAT),
    **elementwise("heaviside.default", _heaviside),
    **elementwise("deg2rad.default", lambda k, x: x * (math.pi / 180.0), INT_TO_FLOAT),
    **elementwise("rad2deg.default", lambda k, x: x * (180.0 / math.pi), INT_TO_FLOAT),
    **elementwise("relu6.default", lambda k, x: _clip(k, x, 0.0, 6.0)),
}


def _clip(k: LoopWriter, x: Value, low: float, high: float) -> Value:
    return k.minimum(k.maximum(x, k.constant(low, x.dtype)), k.constant(high, x.dtype))


@lowers("aten.logit.default")
def logit(c: Node, self: Tensor, eps: Any = None) -> Tensor:
    """log(x / (1 - x)), x kept away from 0 and 1 by eps."""

    def fn(k: LoopWriter, x: Value) -> Value:
        kept = x
        if eps is not None:
            low, high = (k.constant(e, x.dtype) for e in (float(eps), 1.0 - float(eps)))
            # Not a clamp: above one half the bounds change sides, and the low one is asked first.
            kept = k.where(k.op("lt", x, low), low, k.minimum(x, high))
        return k.log(kept / (1.0 - kept))

    return c.pointwise(fn, self, kind=INT_TO_FLOAT)


@lowers("aten.gelu.default")
def gelu(c: Node, self: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function, exactly or by tanh.

    Lanes of a GPU have an instruction for powers of 2, from which all of it is made.
    """

    def exact(k: LoopWriter, x: Value) -> Value:
        if c.is_for_lanes:
            return x * k.op("gelu_gate", x)
        return x * 0.5 * (1.0 + k.erf(x * math.sqrt(0.5)))

    def by_tanh(k: LoopWriter, x: Value) -> Value:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))
        if c.is_for_lanes:
            return x * k.sigmoid(2.0 * inner)
        return 0.5 * x * (1.0 + k.tanh(inner))

    return c.pointwise(exact if approximate == "none" else by_tanh, self)


@lowers("aten.gelu_backward.default")
def gelu_backward(c: Node, grad: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """The gradient of gelu."""

    def exact(k: LoopWriter, g: Value, x: Value) -> Value:
        if c.is_for_lanes:
            return g * k.op("gelu_slope", x)
        return g * (0.5 + k.op("gelu_tilt", x))

    def by_tanh(k: LoopWriter, g: Value, x: Value) -> Value:
        scale = math.sqrt(2.0 / math.pi)
        outer = scale * (x + 0.044715 * (x * x * x))
        inner = scale * (1.0 + 3.0 * 0.044715 * (x * x))
        if c.is_for_lanes:
            s = k.sigmoid(2.0 * outer)
            return g * (s + 2.0 * x * s * (1.0 - s) * inner)
        t = k.tanh(outer)
        return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)

    return c.pointwise(exact if approximate == "none" else by_tanh, grad, self)


@lowers("aten.threshold_backward.default")
def threshold_backward(c: Node, grad: Tensor, self: Tensor, threshold: Any) -> Tensor:
    """The gradient where the input was above the threshold."""

    def fn(k: LoopWriter, g: Value, x: Value, t: Value) -> Value:
        return k.where(x <= t, k.constant(0, g.dtype), g)

    return c.pointwise(fn, grad, self, threshold)


@lowers("aten.threshold.default")
def threshold(c: Node, self: Tensor, threshold: Any, value: Any) -> Tensor:
    """x above the threshold, the value elsewhere."""
    return c.pointwise(lambda k, x, t, v: k.where(x <= t, v, x), self, threshold, value)


@lowers("aten.polygamma.default")
def polygamma(c: Node, n: int, self: Tensor) -> Tensor:
    """The derivative of order n of digamma."""
    return c.pointwise(
        lambda k, x: k.polygamma(k.constant(float(n), x.dtype), x), self, kind=INT_TO_FLOAT
    )


@lowers("aten.softplus.default")
def softplus(c: Node, self: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where that is large."""

    def fn(k: LoopWriter, x: Value, b: Value, t: Value) -> Value:
        return k.where(x * b > t, x, k.log1p(k.exp(x * b)) / b)

    return c.pointwise(fn, self, beta, threshold)


@lowers("aten.round.decimals")
def round_decimals(c: Node, self: Tensor, *, decimals: int) -> Tensor:
    """Rounded to a number of decimal places."""
    scale = 10.0 ** abs(decimals)
    if not self.dtype.is_float:
        raise NotLowered("whole numbers rounded to decimals")
    if decimals >= 0:
        return c.pointwise(lambda k, x: k.round(x * scale) / scale, self)
    return c.pointwise(lambda k, x: k.round(x / scale) * scale, self)


# ------------------------------------------------------------------------------- selections


@lowers("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(c: Node, condition: Tensor, self: Any, other: Any) -> Tensor:
    """self where the condition holds, other elsewhere."""
    chosen = common_types(DEFAULT, self, other)[1]
    out = c.sizes

    def inner(k: LoopWriter, at: Index) -> Value:
        test = operand_value(k, condition, at, out, DType.BOOL)
        a = operand_value(k, self, at, out, chosen)
        b = operand_value(k, other, at, out, chosen)
        return converted(k.where(test, a, b), c.dtype)

    return c.lazy(out, c.dtype, inner, [condition, self, other])


@lowers("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(c: Node, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The value where the mask holds, self elsewhere."""
    out = c.sizes

    def inner(k: LoopWriter, at: Index) -> Value:
        test = operand_value(k, mask, at, out, DType.BOOL)
        a = operand_value(k, value, at, out, c.dtype)
        return k.where(test, a, operand_value(k, self, at, out, c.dtype))

    return c.lazy(out, c.dtype, inner, [self, mask, value])


@lowers("aten.clamp.default", "aten.clamp.Tensor")
def clamp(c: Node, self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """self, not below min and not above max; NaN stays."""
    if min is None:
        return c.pointwise(lambda k, x, high: k.minimum(x, high), self, max)
    if max is None:
        return c.pointwise(lambda k, x, low: k.maximum(x, low), self, min)
    return c.pointwise(lambda k, x, low, high: k.minimum(k.maximum(x, low), high), self, min, max)


@lowers("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(c: Node, self: Tensor, min: Any) -> Tensor:
    """self, not below min."""
    return c.pointwise(lambda k, x, low: k.maximum(x, low), self, min)


@lowers("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(c: Node, self: Tensor, max: Any) -> Tensor:
    """self, not above max."""
    return c.pointwise(lambda k, x, high: k.minimum(x, high), self, max)


@lowers("aten.hardtanh.default")
def hardtanh(c: Node, self: Tensor, min_val: Any = -1, max_val: Any = 1) -> Tensor:
    """self between two bounds."""
    if not self.dtype.is_float:
        raise NotLowered("whole numbers")
    return clamp(c, self, min_val, max_val)


@lowers("aten.leaky_relu.default")
def leaky_relu(c: Node, self: Tensor, negative_slope: Any = 0.01) -> Tensor:
    """x where it is positive, a fraction of it elsewhere."""
    return c.pointwise(lambda k, x, n: k.where(x > 0, x, x * n), self, negative_slope)


@lowers("aten.elu.default")
def elu(c: Node, self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    """x where it is positive, alpha (exp(x) - 1) elsewhere."""

    def fn(k: LoopWriter, x: Value) -> Value:
        low = k.expm1(x * float(input_scale)) * float(alpha * scale)
        return k.where(x > 0.0, x * float(scale), low)

    return c.pointwise(fn, self)


# ------------------------------------------------------------------------- three operands


@lowers("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(c: Node, self: Tensor, end: Tensor, weight: Any) -> Tensor:
    """From self to end by weight; near the end it is counted from there, as eager does."""

    def fn(k: LoopWriter, a: Value, b: Value, w: Value) -> Value:
        step = b - a
        near = k.abs(w) < 0.5
        return k.where(near, a + w * step, b - step * (1.0 - w))

    return c.pointwise(fn, self, end, weight)


@lowers("aten.addcmul.default")
def addcmul(c: Node, self: Tensor, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """self + value * tensor1 * tensor2."""
    if value == 1:
        return c.pointwise(lambda k, x, a, b: x + a * b, self, tensor1, tensor2)
    return c.pointwise(lambda k, x, a, b, v: x + v * a * b, self, tensor1, tensor2, value)


@lowers("prims.fma.default")
def fma(c: Node, a: Any, b: Any, addend: Any) -> Tensor:
    """a * b + addend, rounded once."""
    return c.pointwise(lambda k, x, y, z: k.op("fma", x, y, z), a, b, addend)


@lowers("aten.addcdiv.default")
def addcdiv(c: Node, self: Tensor, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """self + value * tensor1 / tensor2."""
    if value == 1:
        return c.pointwise(lambda k, x, a, b: x + a / b, self, tensor1, tensor2)
    return c.pointwise(lambda k, x, a, b, v: x + v * a / b, self, tensor1, tensor2, value)


# ------------------------------------------------------------------------------ conversions


@lowers("aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default")
def to_copy(c: Node, self: Tensor, *unused: Any, **also_unused: Any) -> Tensor:
    """Converted to another type; the layout is torch's affair."""
    return kept_as_bytes(c.node) or as_type(c, self, c.dtype)


def as_type(c: Node, x: Tensor, dtype: DType) -> Tensor:
    """A new computation of the elements in another type."""
    return c.lazy(x.sizes, dtype, lambda k, at: converted(x.load(k, at), dtype), [x])


@lowers("aten.clone.default", "aten.contiguous.default")
def clone(c: Node, self: Tensor, *, memory_format: Any = None) -> Tensor:
    """The elements once more."""
    return as_type(c, self, self.dtype)


@lowers("aten.copy.default")
def copy(c: Node, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """src in the sizes and the type of self."""
    return as_type(c, broadcast_to(c, src, c.sizes), c.dtype)


@lowers("aten.copy_.default")
def copy_(c: Node, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """src written over self."""
    if not isinstance(self, Realised):
        raise NotLowered("what is written over is no memory")
    c.graph.overwrite(self, as_type(c, broadcast_to(c, src, c.sizes), c.dtype), c.node)
    c.graph.note_copy(self, c.node)
    return self
