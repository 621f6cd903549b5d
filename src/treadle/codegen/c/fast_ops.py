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
    "exp": ("{f}({a})", 1.1),
    "log": ("{f}({a})", 1.0),
    "tanh": ("{f}({a})", 5.5),
    "erf": ("{f}({a})", 6.0),
    "sigmoid": ("{f}({a})", 2.6),
    "rsqrt": ("(1.0f / sqrtf({a}))", 1.5),
}
"""Operation -> how it is written in float, and its largest error in ulp."""
VECTOR = "vector_"
"""How the helpers are called that give a function of fast.h its forms on vectors (vectors.h)."""


def fast_call(function: str, helpers: set[str] | None) -> str:
    """The name of a function of fast.h: on vectors if helpers can be asked for, else of one."""
    if helpers is None:
        return f"tr_fast_{function}"
    helpers.add(f"{VECTOR}{function}")
    return f"tr_vector_{function}"


def fast_pointwise(
    op: str,
    values: Sequence[str],
    types: Sequence[DType],
    result: ValueType,
    numerics: Numerics,
    helpers: set[str] | None = None,
) -> tuple[str, ...]:
    """C expressions for the results of an operation, as exact as the numerics ask for.

    Where a loop that runs on vectors calls unconditionally, `helpers` notes what it calls.
    """
    text, error = FAST.get(op, ("", 0.0))
    common = as_float(promote_all(list(types)))
    if not text or error > numerics.function_ulps or common is DType.F64:
        return pointwise(op, values, types, result)
    assert isinstance(result, DType), f"{op} has one result"
    operands = [converted(v, t, common) for v, t in zip(values, types, strict=True)]
    fits = [o if o.isidentifier() else f"({o})" for o in operands]
    function = fast_call(op, helpers) if "{f}" in text else ""
    return (rounded(text.format(f=function, **dict(zip("abc", fits, strict=False))), result),)
