"""Pointwise functions in float, for loops that run on vectors: see fast.h and library.h.

The exact forms (`ops.WIDE`) go through double and call the C library, one element at a time. Where
the numerics of a program allow the error stated here, these stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.codegen.c.ops import pointwise, rounded
from treadle.codegen.c.remainders import F64, REMAINDERS
from treadle.codegen.c.types import converted
from treadle.ir.numerics import Numerics
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, as_float, promote_all

FAST: Mapping[str, tuple[str, float]] = {
    "exp": ("{f}({a})", 1.1),
    "log": ("{f}({a})", 1.0),
    "tanh": ("{f}({a})", 5.5),
    "erf": ("{f}({a})", 6.0),
    "gelu_tilt": ("{f}({a})", 3.6),
    "sigmoid": ("{f}({a})", 2.6),
    "rsqrt": ("(1.0f / sqrtf({a}))", 1.5),
}
"""Operation -> how it is written in float, and its largest error in ulp."""
LIBRARY: Mapping[str, float] = {
    "acos": 4.0,
    "acosh": 4.0,
    "asin": 4.0,
    "asinh": 4.0,
    "atan": 4.0,
    "atanh": 4.0,
    "atan2": 4.0,
    "cos": 4.0,
    "cosh": 4.0,
    "erfc": 4.0,
    "exp2": 4.0,
    "expm1": 4.0,
    "hypot": 4.0,
    "log10": 4.0,
    "log1p": 4.0,
    "log2": 4.0,
    "pow": 4.0,
    "sin": 4.0,
    "sinh": 4.0,
    "tan": 4.0,
}
"""Operation that the C library carries out on vectors (library.h) -> its largest error in ulp."""
LIBRARY_F64: Mapping[str, float] = {
    **LIBRARY,
    **dict.fromkeys(("exp", "log", "tanh", "erf"), 4.0),
    "erfinv": 6.0,
    "sigmoid": 6.0,
}
"""Operation that it carries out on vectors of doubles -> its largest error in ulp of that type."""
IN_DOUBLE = frozenset({"erfinv"})
"""Operations of floats that are carried out in double."""
OF_TWO = frozenset({"atan2", "hypot", "pow"})
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
    if op in LIBRARY and helpers is not None:
        text, error = "{f}({a}, {b})" if op in OF_TWO else "{f}({a})", LIBRARY[op]
    common = as_float(promote_all(list(types)))
    if helpers is not None and (found := _whole(op, values, types, result, numerics, helpers)):
        return found
    if not text or error > numerics.function_ulps or common is DType.F64:
        return pointwise(op, values, types, result)
    assert isinstance(result, DType), f"{op} has one result"
    if not result.is_float:
        return pointwise(op, values, types, result)  # a power of whole numbers
    operands = [converted(v, t, common) for v, t in zip(values, types, strict=True)]
    fits = [o if o.isidentifier() else f"({o})" for o in operands]
    function = fast_call(op, helpers) if "{f}" in text else ""
    return (rounded(text.format(f=function, **dict(zip("abc", fits, strict=False))), result),)


def _whole(
    op: str,
    values: Sequence[str],
    types: Sequence[DType],
    result: ValueType,
    numerics: Numerics,
    helpers: set[str],
) -> tuple[str, ...] | None:
    """A call of a function in double on vectors, or of an exact one of any floats; else None."""
    given = promote_all(list(types))
    common = as_float(given)
    wide = DType.F64 if op in IN_DOUBLE else common
    is_exact = op in REMAINDERS and given.is_float
    is_known = wide is DType.F64 and LIBRARY_F64.get(op, float("inf")) <= numerics.function_ulps
    if not isinstance(result, DType) or not result.is_float or not (is_exact or is_known):
        return None
    operands = [converted(v, t, wide) for v, t in zip(values, types, strict=True)]
    name = fast_call(f"{F64 if wide is DType.F64 else ''}{op}", helpers)
    call = f"{name}({', '.join(operands)})"
    return (rounded(call if wide is common else f"(float){call}", result),)
