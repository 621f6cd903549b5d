"""Pointwise operations in C: one row per operation, one cell per class of element type.

Operands arrive in the common type of the operation, held as `types.held` says. A cell is looked up
by class: `bool`, `int`, `uint`, `float`, then `whole` (int or uint), then `any`. In a cell

    {a} {b} {c}   the operands           {T}   the C type of the common type
    {W}           an unsigned type in which it wraps        {n}   its bits
    {s}           the suffix of helpers (f32, f64)          {f}   `f` for float, nothing for double
    {i}           that of helpers for whole numbers: i64, or i32 if it is narrower

WIDE rows take doubles and give a double, whatever the type. Results are rounded afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.codegen.c.types import STORED, converted, held, suffix, wrapping
from treadle.ir.ops import POINTWISE
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, as_float, promote_all

Cells = Mapping[str, str]


def _wrapped(operator: str) -> str:
    return f"({{T}})(({{W}}){{a}} {operator} ({{W}}){{b}})"


def _compared(operator: str) -> Cells:
    return {"any": f"{{a}} {operator} {{b}}"}


SAME: Cells = {"any": "{a}"}
NATIVE: Mapping[str, Cells] = {
    "identity": SAME,
    "add": {"bool": "{a} | {b}", "whole": _wrapped("+"), "float": "{a} + {b}"},
    "sub": {"whole": _wrapped("-"), "float": "{a} - {b}"},
    "mul": {"bool": "{a} & {b}", "whole": _wrapped("*"), "float": "{a} * {b}"},
    "fma": {
        "whole": "({T})(({W}){a} * ({W}){b} + ({W}){c})",
        "float": "fma{f}({a}, {b}, {c})",
    },
    "maximum": {"float": "tr_maximum_{s}({a}, {b})", "any": "{a} > {b} ? {a} : {b}"},
    "minimum": {"float": "tr_minimum_{s}({a}, {b})", "any": "{a} < {b} ? {a} : {b}"},
    "neg": {"whole": "({T})(0 - ({W}){a})", "float": "-{a}"},
    "abs": {
        "bool": "{a}",
        "uint": "{a}",
        "int": "{a} < 0 ? ({T})(0 - ({W}){a}) : {a}",
        "float": "fabs{f}({a})",
    },
    "square": {"whole": "({T})(({W}){a} * ({W}){a})", "float": "{a} * {a}"},
    "relu": {"any": "{a} < 0 ? ({T})0 : {a}"},
    "sign": {
        "bool": "{a}",
        "uint": "({T})({a} != 0)",
        "int": "({T})(({a} > 0) - ({a} < 0))",
        "float": "tr_sign_{s}({a})",
    },
    "truediv": {"float": "{a} / {b}"},
    "int_truediv": {"float": "{a} / {b}"},
    "floordiv": {
        "int": "({T})tr_floordiv_{i}({a}, {b})",
        "uint": "({T})tr_div_u64({a}, {b})",
        "float": "tr_floordiv_{s}({a}, {b})",
    },
    "truncdiv": {
        "int": "({T})tr_truncdiv_{i}({a}, {b})",
        "uint": "({T})tr_div_u64({a}, {b})",
        "float": "trunc{f}({a} / {b})",
    },
    "fmod": {
        "int": "({T})tr_fmod_{i}({a}, {b})",
        "uint": "({T})tr_mod_u64({a}, {b})",
        "float": "fmod{f}({a}, {b})",
    },
    "remainder": {
        "int": "({T})tr_mod_{i}({a}, {b})",
        "uint": "({T})tr_mod_u64({a}, {b})",
        "float": "tr_remainder_{s}({a}, {b})",
    },
    "pow": {
        "int": "({T})tr_pow_i64({a}, {b})",
        "uint": "({T})tr_pow_u64({a}, {b})",
        "float": "({T})pow({a}, {b})",
    },
    "reciprocal": {"float": "({T})1 / {a}"},
    "floor": {"whole": "{a}", "float": "floor{f}({a})"},
    "ceil": {"whole": "{a}", "float": "ceil{f}({a})"},
    "trunc": {"whole": "{a}", "float": "trunc{f}({a})"},
    "round": {"whole": "{a}", "float": "nearbyint{f}({a})"},
    "eq": _compared("=="),
    "ne": _compared("!="),
    "lt": _compared("<"),
    "le": _compared("<="),
    "gt": _compared(">"),
    "ge": _compared(">="),
    "isnan": {"float": "{a} != {a}", "any": "0"},
    "isinf": {"float": "isinf({a}) != 0", "any": "0"},
    "isfinite": {"float": "isfinite({a}) != 0", "any": "1"},
    "signbit": {"float": "tr_signbit_{s}({a})", "int": "{a} < 0", "any": "0"},
    "logical_and": {"any": "{a} != 0 && {b} != 0"},
    "logical_or": {"any": "{a} != 0 || {b} != 0"},
    "logical_xor": {"any": "({a} != 0) != ({b} != 0)"},
    "logical_not": {"any": "{a} == 0"},
    "bitwise_and": {"any": "({T})({a} & {b})"},
    "bitwise_or": {"any": "({T})({a} | {b})"},
    "bitwise_xor": {"any": "({T})({a} ^ {b})"},
    "bitwise_not": {"bool": "!{a}", "whole": "({T})~{a}"},
    "bitwise_left_shift": {
        "int": "({T})tr_shl((uint64_t){a}, {b}, {n})",
        "uint": "{b} < {n}u ? ({T})tr_shl({a}, (int64_t){b}, {n}) : 0",
    },
    "bitwise_right_shift": {
        "int": "({T})tr_shr_i64({a}, {b}, {n})",
        "uint": "({T})tr_shr_u64({a}, {b}, {n})",
    },
    "gcd": {
        "int": "({T})tr_gcd(({T})tr_size({a}), ({T})tr_size({b}))",
        "uint": "({T})tr_gcd_u64({a}, {b})",
    },
    "sqrt": {"float": "sqrt{f}({a})"},
    "copysign": {"float": "copysign{f}({a}, {b})"},
}


def _named(names: str, prefix: str = "") -> dict[str, str]:
    return {name: f"{prefix}{name}" for name in names.split()}


WIDE: Mapping[str, str] = {
    "rsqrt": "1.0 / sqrt({a})",
    **{
        name: f"{function}({{a}})"
        for name, function in {
            **_named("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh"),
            **_named("tanh asinh acosh atanh erf erfc"),
            **_named("sigmoid gelu_tilt gelu_gate gelu_slope erfcx erfinv lgamma digamma", "tr_"),
            **_named("ndtr ndtri log_ndtr", "tr_"),
            **_named("i0 i0e i1 i1e airy_ai", "tr_"),
            "modified_bessel_i0": "tr_i0",
            "modified_bessel_i1": "tr_i1",
            "modified_bessel_k0": "tr_k0",
            "modified_bessel_k1": "tr_k1",
            "scaled_modified_bessel_k0": "tr_k0e",
            "scaled_modified_bessel_k1": "tr_k1e",
            "bessel_j0": "tr_j0",
            "bessel_j1": "tr_j1",
            "bessel_y0": "tr_y0",
            "bessel_y1": "tr_y1",
            "spherical_bessel_j0": "tr_spherical_j0",
        }.items()
    },
    **{
        name: f"{function}({{a}}, {{b}})"
        for name, function in {
            **_named("atan2 hypot"),
            **_named("polygamma zeta gammainc gammaincc", "tr_"),
            "chebyshev_polynomial_t": "tr_chebyshev_t",
            "chebyshev_polynomial_u": "tr_chebyshev_u",
            "chebyshev_polynomial_v": "tr_chebyshev_v",
            "chebyshev_polynomial_w": "tr_chebyshev_w",
            "hermite_polynomial_h": "tr_hermite_h",
            "hermite_polynomial_he": "tr_hermite_he",
            "laguerre_polynomial_l": "tr_laguerre_l",
            "legendre_polynomial_p": "tr_legendre_p",
        }.items()
    },
    "shifted_chebyshev_polynomial_t": "tr_chebyshev_t(2 * {a} - 1, {b})",
    "shifted_chebyshev_polynomial_u": "tr_chebyshev_u(2 * {a} - 1, {b})",
    "shifted_chebyshev_polynomial_v": "tr_chebyshev_v(2 * {a} - 1, {b})",
    "shifted_chebyshev_polynomial_w": "tr_chebyshev_w(2 * {a} - 1, {b})",
}
IN_PRELUDE = frozenset({"sigmoid", "gelu_tilt", "gelu_gate", "gelu_slope"})
NEEDS_SPECIAL = frozenset(n for n, cell in WIDE.items() if "tr_" in cell) - IN_PRELUDE
"""Operations whose helpers stand in special.h."""

OWN = frozenset({"where", "nextafter", "ldexp", "frexp"})
"""Operations that do not bring all operands to one type."""


def cell_of(name: str, dtype: DType) -> str | None:
    """The cell of the table for a common type; None where the operation does not accept it."""
    cells = NATIVE[name]
    wanted = [dtype.cls, *(["whole"] if dtype.is_int else []), "any"]
    return next((cells[w] for w in wanted if w in cells), None)


def pointwise(
    name: str, values: Sequence[str], types: Sequence[DType], result: ValueType
) -> tuple[str, ...]:
    """C expressions for the results of an operation on named values (one, but for frexp)."""
    if name in OWN:
        return _own(name, values, types, result)
    assert isinstance(result, DType)
    common = promote_all(list(types))
    if POINTWISE[name].result == "float":
        common = as_float(common)
    operands = [converted(v, t, common) for v, t in zip(values, types, strict=True)]
    if name in WIDE:
        doubles = [v if held(common) == "double" else f"(double)({v})" for v in operands]
        text = WIDE[name].format(**dict(zip("abc", doubles, strict=False)))
        return (converted(f"({text})", DType.F64, result),)
    text = native(name, operands, common)
    if POINTWISE[name].result == "bool":
        return (f"(uint8_t)({text})",)
    return (rounded(text, result),)


def native(name: str, operands: Sequence[str], common: DType) -> str:
    """A row of NATIVE on operands of one common type, not rounded."""
    cell = cell_of(name, common)
    assert cell is not None, f"{name} has no meaning for {common}"
    fits = [o if o.isidentifier() else f"({o})" for o in operands]
    return cell.format(
        **dict(zip("abc", fits, strict=False)),
        T=held(common),
        W=wrapping(common),
        n=common.bits,
        i="i64" if common.bits == 64 else "i32",
        s=suffix(common),
        f="" if common is DType.F64 else "f",
    )


def rounded(text: str, dtype: DType) -> str:
    """An f32 result rounded to a narrow type; other types need nothing."""
    return f"tr_round_{dtype.text}({text})" if dtype.is_low_precision else text


def _own(
    name: str, values: Sequence[str], types: Sequence[DType], result: ValueType
) -> tuple[str, ...]:
    if name == "frexp":
        (mantissa, exponent) = (
            f"tr_frexp_{part}({values[0]})" for part in ("mantissa", "exponent")
        )
        return converted(mantissa, DType.F64, types[0]), exponent
    assert isinstance(result, DType)
    if name == "where":
        chosen = [converted(v, t, result) for v, t in zip(values[1:], types[1:], strict=True)]
        return (f"{values[0]} ? {chosen[0]} : {chosen[1]}",)
    if name == "ldexp":
        return (converted(f"tr_ldexp({values[0]}, {values[1]})", DType.F64, result),)
    start, goal = (converted(v, t, result) for v, t in zip(values, types, strict=True))
    if result.is_low_precision:
        return (f"tr_nextafter_{result.text}({start}, {goal})",)
    return (f"nextafter{'' if result is DType.F64 else 'f'}({start}, {goal})",)


def to_int(how: str, value: str, given: DType, to: DType) -> str:
    """floor_to_int and its like: rounded first, then converted."""
    functions = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "nearbyint"}
    if given.is_float:
        value = f"{functions[how]}{'' if given is DType.F64 else 'f'}({value})"
    return converted(value, given, to)


def bitcast(value: str, given: DType, to: DType) -> str:
    """The bits of a value read as another type of the same width."""
    bits = stored_bits(value, given)
    if to is DType.BOOL:
        return f"(uint8_t)({bits} != 0)"
    if to.is_low_precision:
        return f"tr_decode_{to.text}({bits})"
    if to in (DType.F32, DType.F64):
        return f"tr_{to.text}_bits({bits})"
    return f"({STORED[to]})({bits})"


def stored_bits(value: str, dtype: DType) -> str:
    """The bits of a value as an unsigned number of its width."""
    if dtype.is_low_precision:
        return f"tr_encode_{dtype.text}({value})"
    if dtype.is_float:
        return f"tr_bits_{dtype.text}({value})"
    return f"(uint{dtype.bits}_t)({value})"
