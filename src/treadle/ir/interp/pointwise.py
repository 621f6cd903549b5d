"""Pointwise operations: the table of names, and how operand types are brought together.

    add bf16, i32    both operands become bf16, both widen to f32, f32 addition, rounded to bf16

Operands are converted to their promoted type (`float` rows: integers become f32), widened to the
type arithmetic is done in, computed, and rounded to the type of the result, after every operation.
Rows of `WIDE` go through f64 on the way. Rows of `OWN` do their conversions themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from treadle.ir.interp import arithmetic
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array, compute_type, convert, widened
from treadle.ir.interp.special import WIDE
from treadle.ir.ops import POINTWISE
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, as_float, promote_all

Operands: TypeAlias = Sequence[Array]
Types: TypeAlias = Sequence[DType]
Own: TypeAlias = "Callable[[Operands, Types, ValueType], Array | tuple[Array, ...]]"

NATIVE: Mapping[str, Callable[..., Array]] = {
    "identity": lambda x: x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": arithmetic.fused_multiply_add,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": np.negative,
    "abs": np.absolute,
    "square": lambda x: x * x,
    "relu": arithmetic.relu,
    "sign": arithmetic.sign,
    "truediv": np.divide,
    "int_truediv": np.divide,
    "floordiv": arithmetic.floor_divide,
    "truncdiv": arithmetic.truncate_divide,
    "fmod": np.fmod,
    "remainder": arithmetic.remainder,
    "pow": arithmetic.power,
    "reciprocal": lambda x: np.ones((), x.dtype) / x,
    "floor": arithmetic.floor,
    "ceil": arithmetic.ceil,
    "trunc": arithmetic.trunc,
    "round": arithmetic.rint,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": arithmetic.is_nan,
    "isinf": arithmetic.is_infinite,
    "isfinite": arithmetic.is_finite,
    "signbit": arithmetic.sign_bit,
    "logical_and": lambda a, b: arithmetic.nonzero(a) & arithmetic.nonzero(b),
    "logical_or": lambda a, b: arithmetic.nonzero(a) | arithmetic.nonzero(b),
    "logical_xor": lambda a, b: arithmetic.nonzero(a) ^ arithmetic.nonzero(b),
    "logical_not": lambda x: ~arithmetic.nonzero(x),
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "bitwise_left_shift": arithmetic.shift_left,
    "bitwise_right_shift": arithmetic.shift_right,
    "gcd": arithmetic.common_divisor,
    "sqrt": np.sqrt,
    "copysign": np.copysign,
}


def _where(values: Operands, types: Types, result: ValueType) -> Array:
    assert isinstance(result, DType)
    return np.where(values[0], convert(values[1], result), convert(values[2], result))


def _nextafter(values: Operands, types: Types, result: ValueType) -> Array:
    # The neighbour in the type itself: in f32 it would round back to where it came from.
    assert isinstance(result, DType)
    start, goal = convert(values[0], result), convert(values[1], result)
    return np.where(start == goal, goal, np.nextafter(start, goal))


def _ldexp(values: Operands, types: Types, result: ValueType) -> Array:
    assert isinstance(result, DType)
    x, power = (v.astype(np.float64) for v in values)
    is_whole = (power == np.trunc(power)) & (np.abs(power) < 1e6)
    steps = np.where(is_whole, power, 0).astype(np.int32)
    return convert(np.where(is_whole, np.ldexp(x, steps), x * np.exp2(power)), result)


def _frexp(values: Operands, types: Types, result: ValueType) -> tuple[Array, ...]:
    mantissa, exponent = np.frexp(widened(values[0], types[0]))
    # The exponent of infinity and NaN is left open by C; 0 is what its libraries give.
    exponent = np.where(np.isfinite(mantissa), exponent, 0)
    return convert(np.asarray(mantissa), types[0]), exponent.astype(np.int32)


OWN: Mapping[str, Own] = {
    "where": _where,
    "nextafter": _nextafter,
    "ldexp": _ldexp,
    "frexp": _frexp,
}


def apply(
    name: str, values: Operands, types: Types, result: ValueType
) -> Array | tuple[Array, ...]:
    """The operation `name` on `values` of the given types, as the type inference says."""
    if name in OWN:
        return OWN[name](values, types, result)
    assert isinstance(result, DType)
    common = promote_all(list(types))
    if POINTWISE[name].result == "float":
        common = as_float(common)
    operands = [convert(v, common) for v in values]
    if name in WIDE:
        computed = WIDE[name](*[v.astype(np.float64) for v in operands])
    else:
        computed = NATIVE[name](*[v.astype(compute_type(common), copy=False) for v in operands])
    if result.is_low_precision:
        return convert(computed, result)
    return np.asarray(computed).astype(NUMPY_TYPES[result], copy=False)
