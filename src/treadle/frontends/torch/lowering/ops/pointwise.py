"""Element-wise operators that are one body operation, as tables, and arithmetic by hand.

Every operator computes in the type torch computes it in and rounds once, at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from treadle.frontends.torch.lowering.node import Node, number
from treadle.frontends.torch.lowering.promotion import (
    ALWAYS_BOOL,
    DEFAULT,
    INT_TO_FLOAT,
)
from treadle.frontends.torch.lowering.registry import Lowering, lowers
from treadle.frontends.torch.lowering.run_numbers import ANY
from treadle.frontends.torch.lowering.values import LoopWriter, NotLowered, Number, Tensor
from treadle.index import Expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType
from treadle.runtime.hosts.torch_tensors import TORCH_TYPES

# aten name = body operation (the same name if left out), one result per element
UNARY: Mapping[str, str] = {
    DEFAULT: "neg abs sign sgn=sign floor ceil trunc round relu square bitwise_not "
    "positive=identity real=identity conj_physical=identity",
    INT_TO_FLOAT: "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh reciprocal sigmoid erf erfc erfinv lgamma digamma i0 "
    "special_erfcx=erfcx special_ndtri=ndtri special_log_ndtr=log_ndtr special_ndtr=ndtr "
    "special_i0e=i0e special_i1=i1 special_i1e=i1e special_bessel_j0=bessel_j0 "
    "special_bessel_j1=bessel_j1 special_bessel_y0=bessel_y0 special_bessel_y1=bessel_y1 "
    "special_modified_bessel_i0=modified_bessel_i0 special_modified_bessel_i1=modified_bessel_i1 "
    "special_modified_bessel_k0=modified_bessel_k0 special_modified_bessel_k1=modified_bessel_k1 "
    "special_scaled_modified_bessel_k0=scaled_modified_bessel_k0 "
    "special_scaled_modified_bessel_k1=scaled_modified_bessel_k1 "
    "special_spherical_bessel_j0=spherical_bessel_j0 special_airy_ai=airy_ai",
    ALWAYS_BOOL: "isnan isinf isfinite signbit logical_not",
}
BINARY: Mapping[str, str] = {
    DEFAULT: "maximum minimum bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift __lshift__=bitwise_left_shift "
    "__rshift__=bitwise_right_shift nextafter gcd",
    INT_TO_FLOAT: "atan2 hypot copysign special_zeta=zeta igamma=gammainc igammac=gammaincc "
    "special_chebyshev_polynomial_t=chebyshev_polynomial_t "
    "special_chebyshev_polynomial_u=chebyshev_polynomial_u "
    "special_chebyshev_polynomial_v=chebyshev_polynomial_v "
    "special_chebyshev_polynomial_w=chebyshev_polynomial_w "
    "special_shifted_chebyshev_polynomial_t=shifted_chebyshev_polynomial_t "
    "special_shifted_chebyshev_polynomial_u=shifted_chebyshev_polynomial_u "
    "special_shifted_chebyshev_polynomial_v=shifted_chebyshev_polynomial_v "
    "special_shifted_chebyshev_polynomial_w=shifted_chebyshev_polynomial_w "
    "special_hermite_polynomial_h=hermite_polynomial_h "
    "special_hermite_polynomial_he=hermite_polynomial_he "
    "special_laguerre_polynomial_l=laguerre_polynomial_l "
    "special_legendre_polynomial_p=legendre_polynomial_p",
    ALWAYS_BOOL: "eq ne lt le gt ge logical_and logical_or logical_xor",
}
OVERLOADS = (
    "default", "Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor", "x_scalar", "n_scalar",
    "other_scalar", "self_scalar",
)  # fmt: skip
"""The overloads of a binary operator: which of the two is a number does not matter here."""


def _unary(op: str, kind: str) -> Lowering:
    def lower(c: Node, self: Tensor) -> Tensor:
        return c.pointwise(lambda k, x: k.op(op, x), self, kind=kind)

    return lower


def _binary(op: str, kind: str) -> Lowering:
    def lower(c: Node, a: Any, b: Any) -> Tensor:
        return c.pointwise(lambda k, x, y: k.op(op, x, y), a, b, kind=kind)

    return lower


def _pairs(words: str) -> list[tuple[str, str]]:
    cells = [word.partition("=") for word in words.split()]
    return [(name, op or name) for name, _, op in cells]


ROWS: Mapping[str, Lowering] = {
    **{
        f"aten.{name}.default": _unary(op, kind)
        for kind, words in UNARY.items()
        for name, op in _pairs(words)
    },
    **{
        f"aten.{name}.{overload}": _binary(op, kind)
        for kind, words in BINARY.items()
        for name, op in _pairs(words)
        for overload in OVERLOADS
    },
}


def elementwise(
    overloads: str, fn: Callable[..., Value], kind: str = DEFAULT
) -> Mapping[str, Lowering]:
    """Rows for operators whose arguments are all operands."""

    def lower(c: Node, *operands: Any) -> Tensor:
        return c.pointwise(fn, *operands, kind=kind)

    return {f"aten.{name}": lower for name in overloads.split()}


# ------------------------------------------------------------------------------- arithmetic


@lowers("aten.add.Tensor", "aten.add.Scalar")
def add(c: Node, self: Any, other: Any, alpha: Any = 1) -> Tensor:
    """self + alpha * other."""
    self, other = rounded(c, self), rounded(c, other)
    if alpha == 1 and alpha is not True:
        return c.pointwise(lambda k, a, b: a + b, self, other)
    alpha = rounded(c, alpha)
    return c.pointwise(lambda k, a, b: a + times(k, b, alpha), self, other)


@lowers("aten.sub.Tensor", "aten.sub.Scalar")
def sub(c: Node, self: Any, other: Any, alpha: Any = 1) -> Tensor:
    """self - alpha * other."""
    self, other, alpha = rounded(c, self), rounded(c, other), rounded(c, alpha)
    return c.pointwise(lambda k, a, b: a - times(k, b, alpha), self, other)


@lowers("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(c: Node, self: Any, other: Any, alpha: Any = 1) -> Tensor:
    """other - alpha * self."""
    self, other, alpha = rounded(c, self), rounded(c, other), rounded(c, alpha)
    return c.pointwise(lambda k, a, b: b - times(k, a, alpha), self, other)


def rounded(c: Node, x: Any) -> Any:
    """A Python number as an element of the result's type: so eager mode adds narrow floats, raises
    them to powers and takes remainders; it multiplies and divides by the number itself."""
    if type(x) in (int, float) and c.dtype.is_low_precision:
        return torch.tensor(x, dtype=TORCH_TYPES[c.dtype]).item()
    if isinstance(x, Expr | Number) and c.dtype.is_low_precision:
        narrow = c.dtype
        return Number(c.node, lambda k: number(k, x, narrow).to(DType.F64), ANY)
    return x


def times(k: LoopWriter, x: Value, factor: Any) -> Value:
    """A value times a Python number."""
    if factor == 1 and factor is not True:
        return x
    return x * number(k, factor, x.dtype)


@lowers("aten.mul.Tensor", "aten.mul.Scalar")
def mul(c: Node, self: Any, other: Any) -> Tensor:
    """self * other."""
    return c.pointwise(lambda k, a, b: a * b, self, other)


@lowers("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(c: Node, self: Any, other: Any) -> Tensor:
    """self / other."""
    return c.pointwise(lambda k, a, b: a / b, self, other, kind=INT_TO_FLOAT)


DIVISIONS: Mapping[str, str] = {"floor": "floordiv", "trunc": "truncdiv"}


def divided(c: Node, op: str, self: Any, other: Any) -> Tensor:
    """One of the divisions without fractions; of whole numbers by zero, an error as in eager."""
    is_known = isinstance(other, int | float) and other != 0

    def divide(k: LoopWriter, a: Value, b: Value) -> Value:
        if not is_known and not b.dtype.is_float:
            k.check(k.op("ne", b, k.constant(0, b.dtype)), "ZeroDivisionError")
        return k.op(op, a, b)

    return c.pointwise(divide, self, other)


@lowers(*[f"aten.fmod.{overload}" for overload in OVERLOADS])
def fmod(c: Node, self: Any, other: Any) -> Tensor:
    """What is left of self, with its sign, when other is taken off as often as it goes."""
    return divided(c, "fmod", rounded(c, self), rounded(c, other))


@lowers(*[f"aten.remainder.{overload}" for overload in OVERLOADS])
def remainder(c: Node, self: Any, other: Any) -> Tensor:
    """What is left of self after division rounded down: it has the sign of other."""
    return divided(c, "remainder", rounded(c, self), rounded(c, other))


@lowers("prims.div.default")
def plain_div(c: Node, a: Any, b: Any) -> Tensor:
    """a / b in their own type, towards zero for whole numbers."""
    return div(c, a, b) if c.dtype.is_float else divided(c, "truncdiv", a, b)


@lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(c: Node, self: Any, other: Any, *, rounding_mode: str | None) -> Tensor:
    """self / other, rounded down or towards zero if asked to."""
    if rounding_mode is None:
        return div(c, self, other)
    return divided(c, DIVISIONS[rounding_mode], self, other)


@lowers("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(c: Node, self: Any, other: Any) -> Tensor:
    """self / other rounded down."""
    return divided(c, "floordiv", self, other)


POWERS: Mapping[float, Callable[[LoopWriter, Value], Value]] = {
    0.5: lambda k, x: k.sqrt(x),
    1.0: lambda k, x: x,
    2.0: lambda k, x: x * x,
    3.0: lambda k, x: x * x * x,
    -0.5: lambda k, x: k.rsqrt(x),
    -1.0: lambda k, x: k.reciprocal(x),
    -2.0: lambda k, x: k.reciprocal(x * x),
}
"""Powers eager computes without `pow`."""


def check_power(dtype: DType, exponent: Any) -> None:
    """NotLowered for what eager refuses: the operator says so, in a call."""
    if not dtype.is_float and isinstance(exponent, int) and exponent < 0:
        raise NotLowered("whole numbers have no negative powers")


@lowers("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(c: Node, self: Any, exponent: Any) -> Tensor:
    """self to the power of exponent."""
    check_power(c.dtype, exponent)
    is_float = c.dtype.is_float
    if isinstance(exponent, int | float) and is_float and float(exponent) in POWERS:
        fn = POWERS[float(exponent)]
        # Promoted with the number, although the number itself is not computed with.
        return c.pointwise(lambda k, a, b: fn(k, a), self, exponent)
    if isinstance(exponent, int) and exponent == 2 and c.dtype.text != "bool":
        return c.pointwise(lambda k, a, b: a * a, self, exponent)
    self, exponent = rounded(c, self), rounded(c, exponent)
    return c.pointwise(lambda k, a, b: k.pow(a, b), self, exponent)
