"""Element types in C: what is stored, what is computed with, and conversions between them.

A value of a narrow float type is held as the `float` it equals; rounding to the type happens where
the interpreter rounds. Bools are `uint8_t` with the value 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from treadle.ir.types import DType

STORED: Mapping[DType, str] = {
    DType.BOOL: "uint8_t",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
    DType.U64: "uint64_t",
    DType.F8E4M3: "uint8_t",
    DType.F8E5M2: "uint8_t",
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
    DType.F32: "float",
    DType.F64: "double",
}
"""The C type of an element in memory."""
ALIGNED = "__attribute__((aligned(64)))"
"""Behind the name of an array that vectors go through: none of them crosses a line of a cache."""


def held(dtype: DType) -> str:
    """The C type of a value in a variable."""
    return "float" if dtype.is_low_precision else STORED[dtype]


def wrapping(dtype: DType) -> str:
    """An unsigned type in which whole numbers of `dtype` wrap without C's promotion to int."""
    return "uint64_t" if dtype.bits == 64 else "uint32_t"


def suffix(dtype: DType) -> str:
    """The last part of the names of helpers for the type values of `dtype` are held in."""
    if dtype is DType.BOOL:
        return "u8"
    return "f32" if dtype.is_low_precision else dtype.text


def loaded(dtype: DType, element: str) -> str:
    """The value of an element."""
    if dtype.is_low_precision:
        return f"tr_decode_{dtype.text}({element})"
    return f"(uint8_t)({element} != 0)" if dtype is DType.BOOL else element


def stored(dtype: DType, value: str) -> str:
    """What is written for a value of type `dtype`."""
    return f"tr_encode_{dtype.text}({value})" if dtype.is_low_precision else value


def converted(value: str, given: DType, to: DType) -> str:
    """`value` of type `given` as a value of type `to`, by the rules of the interpreter."""
    if given is to:
        return value
    if to is DType.BOOL:
        return f"(uint8_t)({value} != 0)"
    if held(given) == "float" and to.is_int and to.bits == 8:
        return f"({STORED[to]})tr_to_8_bits({value})"
    if given.is_float and to.is_int:
        helper = "tr_to_u64" if to is DType.U64 else "tr_to_i64"
        return f"({STORED[to]}){helper}({value})"
    if to.is_low_precision:
        wide = value if held(given) == "float" else f"(float){value}"
        return f"tr_round_{to.text}({wide})"
    return value if held(given) == held(to) else f"({held(to)}){value}"


# --------------------------------------------------------------------------------- literals


def literal(value: object, dtype: DType) -> str:
    """A constant of the program as a C expression of the type values of `dtype` are held in."""
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, int) and dtype.is_int:
        return whole_literal(int(value), dtype)
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    number = float(value)
    if dtype is DType.BOOL:
        return "1" if number != 0 else "0"
    if dtype.is_int:
        return whole_literal(_truncated(number, dtype), dtype)
    return converted(float_literal(number), DType.F64, dtype)


def whole_literal(value: int, dtype: DType) -> str:
    """A whole number wrapped to its type."""
    value &= (1 << dtype.bits) - 1
    if dtype.cls == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    if value == -(2**63):
        return "INT64_MIN"
    return f"(({STORED[dtype]}){value}{'u' if dtype.cls == 'uint' else ''}{_long(dtype)})"


def _long(dtype: DType) -> str:
    return "LL" if dtype.bits == 64 else ""


def float_literal(number: float) -> str:
    """A double, exact to the bit."""
    if math.isnan(number):
        return "(double)NAN"
    if math.isinf(number):
        return "(double)INFINITY" if number > 0 else "(-(double)INFINITY)"
    text = number.hex()
    return f"({text})" if number < 0 or text.startswith("-") else text


def _truncated(number: float, dtype: DType) -> int:
    if math.isnan(number):
        return -(2**63)
    if dtype is DType.U64 and number >= 2.0**63:
        return int(number) if number < 2.0**64 else 0
    return int(number) if abs(number) < 2.0**63 else -(2**63)


def smallest(dtype: DType) -> str:
    """The value no other is below, as values of `dtype` are held."""
    if dtype is DType.BOOL:
        return "0"
    if dtype.is_float:
        return literal(-math.inf, dtype)
    return whole_literal(0 if dtype.cls == "uint" else -(1 << (dtype.bits - 1)), dtype)


def largest(dtype: DType) -> str:
    """The value no other is above."""
    if dtype is DType.BOOL:
        return "1"
    if dtype.is_float:
        return literal(math.inf, dtype)
    return whole_literal((1 << (dtype.bits - (dtype.cls == "int"))) - 1, dtype)
