"""Pointwise operations in Triton: one row per operation, one cell per class of element type.

As in the C generator: operands arrive in the common type, cells are looked up by class (`bool`,
`int`, `uint`, `float`, then `whole`, then `any`). `{T}` is the held type of the common type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from treadle.codegen.triton.types import converted, held, rounded
from treadle.ir.body import Literal, Stmt
from treadle.ir.ops import POINTWISE
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, as_float, promote_all

Cells = Mapping[str, str]


def _infix(operator: str) -> Cells:
    return {"any": f"{{a}} {operator} {{b}}"}


NAN = "propagate_nan=tl.PropagateNan.ALL"
ROWS: Mapping[str, Cells] = {
    "identity": {"any": "{a}"},
    "add": {"bool": "{a} | {b}", "any": "{a} + {b}"},
    "sub": {"any": "{a} - {b}"},
    "mul": {"bool": "{a} & {b}", "any": "{a} * {b}"},
    "fma": {"any": "{a} * {b} + {c}"},
    "maximum": {
        "bool": "{a} | {b}",
        "float": f"tl.maximum({{a}}, {{b}}, {NAN})",
        "any": "tl.maximum({a}, {b})",
    },
    "minimum": {
        "bool": "{a} & {b}",
        "float": f"tl.minimum({{a}}, {{b}}, {NAN})",
        "any": "tl.minimum({a}, {b})",
    },
    "neg": {"float": "{a} * -1.0", "any": "-{a}"},  # Triton's own is 0 - a, which has no -0
    "abs": {"bool": "{a}", "uint": "{a}", "any": "tl.abs({a})"},
    "square": {"any": "{a} * {a}"},
    "relu": {
        "any": "tl.where({a} < 0, ({a} * 0).to({T}), {a})",
        "float": "tl.where({a} < 0, 0.0, {a})",
    },
    "sign": {
        "bool": "{a}",
        "uint": "({a} != 0).to({T})",
        "int": "({a} > 0).to({T}) - ({a} < 0).to({T})",
        "float": "tr_sign({a})",
    },
    "truediv": {"any": "{a} / {b}"},
    "int_truediv": {"any": "{a} / {b}"},
    "floordiv": {
        "int": "tr_floordiv({a}, {b})",
        "uint": "tr_floordiv({a}, {b})",
        "float": "tl.floor({a} / {b})",
    },
    "reciprocal": {"any": "1.0 / {a}"},
    "remainder": {"whole": "tr_mod({a}, {b})", "float": "{a} - tl.floor({a} / {b}) * {b}"},
    "truncdiv": {"whole": "tr_truncdiv({a}, {b})", "float": "tr_trunc({a} / {b})"},
    "fmod": {"whole": "tr_fmod({a}, {b})"},
    "trunc": {"whole": "{a}", "float": "tr_trunc({a})"},
    "round": {"whole": "{a}", "float": "tr_round({a})"},
    "signbit": {
        "bool": "{a} & False",
        "uint": "{a} != {a}",
        "int": "{a} < 0",
        "float": "tr_signbit({a})",
    },
    "copysign": {"float": "tr_copysign({a}, {b})"},
    "bitwise_left_shift": {"whole": "tr_shift_left({a}, {b}, {bits})"},
    "bitwise_right_shift": {"whole": "tr_shift_right({a}, {b}, {bits})"},
    "floor": {"whole": "{a}", "float": "tl.floor({a})"},
    "ceil": {"whole": "{a}", "float": "tl.ceil({a})"},
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "isnan": {"float": "{a} != {a}", "any": "({a} != {a})"},
    "isinf": {"float": 'tl.abs({a}) == float("inf")', "any": "({a} != {a})"},
    "isfinite": {"float": 'tl.abs({a}) < float("inf")', "any": "({a} == {a})"},
    "logical_and": {"any": "({a} != 0) & ({b} != 0)"},
    "logical_or": {"any": "({a} != 0) | ({b} != 0)"},
    "logical_xor": {"any": "({a} != 0) ^ ({b} != 0)"},
    "logical_not": {"any": "{a} == 0"},
    "bitwise_and": {"any": "{a} & {b}"},
    "bitwise_or": {"any": "{a} | {b}"},
    "bitwise_xor": {"any": "{a} ^ {b}"},
    "bitwise_not": {"bool": "{a} == 0", "whole": "~{a}"},
    "pow": {"float": "tr_pow({a}, {b})"},
    "sqrt": {"any": "tr_sqrt({a})"},
    "rsqrt": {"any": "tr_rsqrt({a})"},
    "exp": {"any": "tl.exp({a})"},
    "exp2": {"any": "tl.exp2({a})"},
    "log": {"any": "tl.log({a})"},
    "log2": {"any": "tl.log2({a})"},
    "expm1": {"any": "tr_expm1({a})"},
    "log1p": {"any": "tr_log1p({a})"},
    "sinh": {"any": "tr_sinh({a})"},
    "cosh": {"any": "tr_cosh({a})"},
    "tan": {"any": "tr_tan({a})"},
    "asin": {"any": "tr_atan2({a}, tl.sqrt((1.0 - {a}) * (1.0 + {a})))"},
    "acos": {"any": "tr_atan2(tl.sqrt((1.0 - {a}) * (1.0 + {a})), {a})"},
    "atan": {"any": "tr_atan({a})"},
    "atan2": {"any": "tr_atan2({a}, {b})"},
    "sin": {"any": "tl.sin({a})"},
    "cos": {"any": "tl.cos({a})"},
    "erf": {"any": "tr_erf({a})"},
    "gelu_tilt": {"any": "tr_gelu_tilt({a})"},
    "gelu_gate": {"any": "tr_gelu_gate({a})"},
    "gelu_slope": {"any": "tr_gelu_slope({a})"},
    "tanh": {"any": "tr_tanh({a})"},
    "sigmoid": {"any": "tr_sigmoid({a})"},
}
"""What can be written; the other operations have no form in Triton yet."""
SHORT: Mapping[str, str] = {
    "tanh": "tr_tanh_short({a})",
    "exp": "tl.exp2({a} * 1.4426950408889634)",
}
"""What is written of f32 if its value is rounded to 16 bits next, or fewer: off by less than half a
unit of f16 (numerics `as result`)."""
ONLY_F32 = frozenset({
    "erf", "gelu_tilt", "gelu_gate", "gelu_slope", "tanh", "sin", "cos", "pow", "expm1", "log1p",
    "sinh", "cosh", "tan", "asin", "acos", "atan", "atan2",
})  # fmt: skip
"""Functions that are not exact enough for f64."""
SMALLEST, LARGEST = 1e-30, 1e30
"""Sizes of divisors whose inverses are far from what f32 does not hold."""
HELPER = re.compile(r"\btr_\w+")


def can_write(name: str, types: Sequence[DType]) -> bool:
    """Whether there is a form for an operation on operands of these types."""
    if name == "where":
        return True
    if name not in ROWS:
        return False
    common = _common(name, types)
    if common is DType.F64 and name in ONLY_F32:
        return False
    return _cell(name, common) is not None


def _common(name: str, types: Sequence[DType]) -> DType:
    common = promote_all(list(types))
    return as_float(common) if POINTWISE[name].result == "float" else common


def _cell(name: str, dtype: DType) -> str | None:
    cells = ROWS[name]
    wanted = [dtype.cls, *(["whole"] if dtype.is_int else []), "any"]
    return next((cells[w] for w in wanted if w in cells), None)


def pointwise(
    name: str,
    values: Sequence[str],
    types: Sequence[DType],
    result: ValueType,
    *,
    is_short: bool = False,
) -> str:
    """The expression of an operation on named values.

    `is_short`: the value is rounded to 16 bits or fewer next, and need not be more exact.
    """
    assert isinstance(result, DType), f"{name} has one result"
    if name == "where":
        chosen = [converted(v, t, result) for v, t in zip(values[1:], types[1:], strict=True)]
        return f"tl.where({values[0]}, {chosen[0]}, {chosen[1]})"
    common = _common(name, types)
    cell = _cell(name, common)
    assert cell is not None, f"{name} has no meaning for {common}"
    if name in SHORT and held(common) == "tl.float32" and (is_short or common.is_low_precision):
        cell = SHORT[name]
    operands = [converted(v, t, common) for v, t in zip(values, types, strict=True)]
    fits = [o if o.isidentifier() else f"({o})" for o in operands]
    text = cell.format(**dict(zip("abc", fits, strict=False)), T=held(common), bits=common.bits)
    if POINTWISE[name].result == "bool":
        return text
    if common.is_int or common is DType.BOOL:
        return f"({text}).to({held(result)})"  # Triton widens small whole numbers
    return rounded(text, result)


def inverse_of(divisor: Stmt, *, is_short: bool) -> float | None:
    """What to multiply with instead of a division of f32 by a constant.

    A power of two gives the same number, others one that is as exact as a GPU's division, which
    itself is off by up to 2 ulp: enough where the value is rounded to 16 bits next.
    """
    literal = divisor.attr("value") if divisor.op == "constant" else None
    value = literal.value if isinstance(literal, Literal) else None
    if not isinstance(value, int | float) or not SMALLEST < abs(value) < LARGEST:
        return None
    is_power = abs(math.frexp(value)[0]) == 0.5
    return 1.0 / float(value) if is_power or is_short else None


def helpers_in(text: str) -> set[str]:
    """The functions of ours that a text calls."""
    return set(HELPER.findall(text))
