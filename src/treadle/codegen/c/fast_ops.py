"""Pointwise functions in float, for loops that run on vectors: see fast.h.

The exact forms (`ops.WIDE`) go through double and call the C library, one element at a time. Where
the numerics of a program allow the error stated here, these stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.codegen.c.ops import pointwise, rounded
from treadle.codegen.c.types import converted
from treadle.ir.numerics import Numerics
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, as_float, promote_all

FAST: Mapping[str, tuple[str, float]] = {
    "exp": ("tr_fast_exp({a})", 1.1),
    "log": ("tr_fast_log({a})", 1.0),
    "tanh": ("tr_fast_tanh({a})", 5.5),
    "erf": ("tr_fast_erf({a})", 6.0),
    "sigmoid": ("tr_fast_sigmoid({a})", 2.6),
    "rsqrt": ("(1.0f / sqrtf({a}))", 1.5),
}
"""Operation -> how it is written in float, and its largest error in ulp."""


def fast_pointwise(
    op: str,
    values: Sequence[str],
    types: Sequence[DType],
    result: ValueType,
    numerics: Numerics,
) -> tuple[str, ...]:
    """C expressions for the results of an operation, as exact as the numerics ask for."""
    text, error = FAST.get(op, ("", 0.0))
    common = as_float(promote_all(list(types)))
    if not text or error > numerics.function_ulps or common is DType.F64:
        return pointwise(op, values, types, result)
    assert isinstance(result, DType), f"{op} has one result"
    operands = [converted(v, t, common) for v, t in zip(values, types, strict=True)]
    fits = [o if o.isidentifier() else f"({o})" for o in operands]
    return (rounded(text.format(**dict(zip("abc", fits, strict=False))), result),)
