"""Element types in Triton: what lies in memory, what is computed with, conversions between them.

A value of a narrow float type is held as the f32 it equals, as in C and in the interpreter; it is
rounded where the interpreter rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from treadle.ir.types import DType

STORED: Mapping[DType, str] = {
    DType.BOOL: "tl.int8",
    DType.I8: "tl.int8",
    DType.I16: "tl.int16",
    DType.I32: "tl.int32",
    DType.I64: "tl.int64",
    DType.U8: "tl.uint8",
    DType.U16: "tl.uint16",
    DType.U32: "tl.uint32",
    DType.U64: "tl.uint64",
    DType.F8E4M3: "tl.float8e4nv",
    DType.F8E5M2: "tl.float8e5",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.F32: "tl.float32",
    DType.F64: "tl.float64",
}
"""The type of an element in memory."""


def held(dtype: DType) -> str:
    """The type of a value."""
    if dtype is DType.BOOL:
        return "tl.int1"
    return "tl.float32" if dtype.is_low_precision else STORED[dtype]


def loaded(dtype: DType, text: str) -> str:
    """The value of what a load gives."""
    if dtype is DType.BOOL:
        return f"({text} != 0)"
    return f"{text}.to(tl.float32)" if dtype.is_low_precision else text


def stored(dtype: DType, value: str) -> str:
    """What is written for a value of type `dtype`."""
    if dtype is DType.BOOL or dtype.is_low_precision:
        return f"({value}).to({STORED[dtype]})"
    return value


def converted(value: str, given: DType, to: DType) -> str:
    """`value` of type `given` as a value of type `to`."""
    if given is to:
        return value
    if to is DType.BOOL:
        return f"({value} != 0)"
    if to.is_low_precision:
        wide = value if held(given) == "tl.float32" else f"({value}).to(tl.float32)"
        return rounded(wide, to)
    if given.is_float and to.cls == "uint" and to.bits < 64:
        return f"({value}).to(tl.int64).to({held(to)})"  # what is negative wraps, as in eager mode
    return value if held(given) == held(to) else f"({value}).to({held(to)})"


def rounded(value: str, dtype: DType) -> str:
    """An f32 value rounded to a narrow type; other types need nothing."""
    if not dtype.is_low_precision:
        return value
    return f"({value}).to({STORED[dtype]}).to(tl.float32)"


def literal(value: object, dtype: DType) -> str:
    """A constant as a scalar of the type values of `dtype` are held in."""
    if isinstance(value, str):
        value = float(value)
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if dtype is DType.BOOL:
        return f"tl.full([], {int(value != 0)}, tl.int1)"
    if dtype.is_int:
        whole = int(value) if math.isfinite(value) else -(2**63)
        whole &= (1 << dtype.bits) - 1
        if dtype.cls == "int" and whole >> (dtype.bits - 1):
            whole -= 1 << dtype.bits
        return f"tl.full([], {whole}, {held(dtype)})"
    number = float(value)
    if math.isnan(number):
        text = 'float("nan")'
    elif math.isinf(number):
        text = 'float("inf")' if number > 0 else 'float("-inf")'
    else:
        text = repr(number)
    return rounded(f"tl.full([], {text}, {held(dtype)})", dtype)
