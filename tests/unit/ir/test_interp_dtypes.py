"""Conversions and whole-number arithmetic, where torch has no answer or gives several."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.interp.dtypes import (
    NUMPY_TYPES,
    POISON_BYTE,
    Array,
    convert,
    largest,
    poison,
    scalar,
    smallest,
)
from treadle.ir.interp.pointwise import apply
from treadle.ir.types import DType

INTS = [d for d in DType if d.is_int]
FLOATS = [d for d in DType if d.is_float]


def whole(op: str, dtype: DType, *operands: list[int]) -> list[int]:
    arrays = [np.array(x, NUMPY_TYPES[dtype]) for x in operands]
    with np.errstate(all="ignore"):
        result = apply(op, arrays, [dtype] * len(arrays), dtype)
    assert isinstance(result, np.ndarray)
    assert result.dtype == NUMPY_TYPES[dtype]
    return [int(v) for v in result]


def wrapped(value: int, dtype: DType) -> int:
    value %= 1 << dtype.bits
    return value - (1 << dtype.bits) if dtype.cls == "int" and value >> (dtype.bits - 1) else value


def floats(values: list[float], dtype: DType = DType.F32) -> Array:
    with np.errstate(all="ignore"):
        return convert(np.array(values, np.float64), dtype)


# ------------------------------------------------------------------------------- conversions

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    "to, given, wanted",
    [
        ("i64", [NAN, INF, -INF, 1e30, -1e30], [-(2**63)] * 5),
        ("i32", [NAN, INF, 3e9, -1.9, 2.0**40 + 5], [0, 0, 3 * 10**9 - 2**32, -1, 5]),
        ("i8", [300.7, -129.0, 127.9], [44, 127, 127]),
        ("u8", [300.7, -1.5, 255.9], [44, 255, 255]),
        ("u64", [2.0**63, 2.0**64 - 2.0**11, 2.0**64, INF], [2**63, 2**64 - 2**11, 0, 0]),
        ("u64", [NAN, -1.0, -INF], [2**63, 2**64 - 1, 2**63]),
        ("bool", [NAN, -0.0, 1e-300], [1, 0, 1]),
    ],
)
def test_float_to_whole_truncates_through_int64(
    to: str, given: list[float], wanted: list[int]
) -> None:
    dtype = next(d for d in DType if d.text == to)
    assert [int(v) for v in convert(np.array(given, np.float64), dtype)] == wanted


@pytest.mark.parametrize("given, to", list(itertools.product(INTS, INTS)), ids=str)
def test_whole_to_whole_wraps(given: DType, to: DType) -> None:
    limits = np.iinfo(NUMPY_TYPES[given])
    values = [limits.min, limits.max, 0, 1, limits.max // 2 + 1]
    converted = convert(np.array(values, NUMPY_TYPES[given]), to)
    assert [int(v) for v in converted] == [wrapped(int(v), to) for v in values]


def test_e4m3_stops_at_its_largest_value_and_e5m2_goes_to_infinity() -> None:
    assert [float(v) for v in floats([448, 464, 1e9, INF, -INF], DType.F8E4M3)] == [
        448, 448, 448, 448, -448,
    ]  # fmt: skip
    assert [float(v) for v in floats([57344, 61440, -INF], DType.F8E5M2)] == [57344, INF, -INF]
    assert np.isnan(floats([NAN], DType.F8E4M3).astype(np.float32)).all()


def test_wide_values_reach_narrow_types_through_f32() -> None:
    just_above_a_tie = 1 + 2.0**-11 + 2.0**-40  # in f32 the last bit is gone, and the tie is even
    assert float(floats([just_above_a_tie], DType.F16)[0]) == 1.0
    assert int(convert(np.array([2**31 + 2**22 + 1]), DType.BF16).astype(np.float64)[0]) == 2**31


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_literals_take_the_type_and_wrap(dtype: DType) -> None:
    assert scalar(True, dtype).astype(np.float64) == 1
    assert scalar(0, dtype).dtype == NUMPY_TYPES[dtype]
    if dtype.is_int:
        assert int(scalar(-1, dtype)) == wrapped(-1, dtype)
        assert int(scalar(2**64 + 3, dtype)) == 3
    if dtype.is_float:
        assert np.isnan(scalar("nan", dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_poison_is_recognisable(dtype: DType) -> None:
    found = poison(dtype)
    if dtype.is_float:
        assert found != found
    elif dtype is DType.BOOL:
        assert found
    else:
        assert found.tobytes() == bytes([POISON_BYTE]) * dtype.itemsize


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_no_value_lies_outside_of_smallest_and_largest(dtype: DType) -> None:
    low, high = (float(f(dtype).astype(np.float64)) for f in (smallest, largest))
    if dtype.is_float and dtype is not DType.F8E4M3:
        assert (low, high) == (-INF, INF)
    elif dtype is DType.F8E4M3:
        assert (low, high) == (-448, 448)
    else:
        assert low <= 0 < high


# ----------------------------------------------------------------------------- whole numbers


def python_answer(op: str, a: int, b: int) -> int:
    if b == 0:
        return 0
    if op == "floordiv":
        return a // b
    if op == "remainder":
        return a % b
    toward_zero = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return toward_zero if op == "truncdiv" else a - toward_zero * b


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", ["floordiv", "truncdiv", "fmod", "remainder"])
def test_division_is_pythons_with_zero_giving_zero(op: str, dtype: DType) -> None:
    limits = np.iinfo(NUMPY_TYPES[dtype])
    values = [
        limits.min,
        limits.min + 1,
        *range(max(-9, limits.min), 10),
        limits.max - 1,
        limits.max,
    ]
    pairs = list(itertools.product(values, values))
    mine = whole(op, dtype, [a for a, _ in pairs], [b for _, b in pairs])
    assert mine == [wrapped(python_answer(op, a, b), dtype) for a, b in pairs]


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_powers_wrap_and_negative_exponents_keep_units(dtype: DType) -> None:
    bases, exponents = ([-3, -1, 0, 1, 2, 7], [-3, -2, -1, 0, 1, 2, 5, 31, 64])
    if dtype.cls == "uint":
        bases, exponents = ([v for v in x if v >= 0] for x in (bases, exponents))
    pairs = list(itertools.product(bases, exponents))
    wanted = []
    for a, b in pairs:
        below = {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        wanted.append(wrapped(a**b if b >= 0 else below, dtype))
    assert whole("pow", dtype, [a for a, _ in pairs], [b for _, b in pairs]) == wanted


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_shifts_out_of_the_width_leave_nothing_but_the_sign(dtype: DType) -> None:
    limits = np.iinfo(NUMPY_TYPES[dtype])
    values = [limits.min, limits.max, 1, 5]
    shifts = [0, 1, dtype.bits - 1, dtype.bits, min(dtype.bits + 7, limits.max)]
    shifts += [-1] if dtype.cls == "int" else []
    pairs = list(itertools.product(values, shifts))
    left = [wrapped(a << b, dtype) if 0 <= b < dtype.bits else 0 for a, b in pairs]
    right = [a >> b if 0 <= b < dtype.bits else (-1 if a < 0 else 0) for a, b in pairs]
    operands = [a for a, _ in pairs], [b for _, b in pairs]
    assert whole("bitwise_left_shift", dtype, *operands) == left
    assert whole("bitwise_right_shift", dtype, *operands) == right


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum", "bitwise_xor"])
def test_the_upper_half_of_u64_is_exact(op: str) -> None:
    values = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    pairs = list(itertools.product(values, values))
    exact = {
        "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "maximum": max,
        "minimum": min, "bitwise_xor": int.__xor__,
    }[op]  # fmt: skip
    mine = whole(op, DType.U64, [a for a, _ in pairs], [b for _, b in pairs])
    assert mine == [wrapped(exact(a, b), DType.U64) for a, b in pairs]


# ------------------------------------------------------------------------------------ floats


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_fma_rounds_once(dtype: DType) -> None:
    rng = np.random.default_rng(7)
    kind = NUMPY_TYPES[dtype]
    bits = 24 if dtype is DType.F32 else 53
    a, b = (rng.normal(size=2000).astype(kind) for _ in range(2))
    # Cancel nearly all of the product, and add tails that only one rounding can tell apart.
    exact = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)]
    c = np.array([-float(e) for e in exact]).astype(kind)
    c[::3] = (c[::3] * kind.type(2.0 ** -(bits + 1))).astype(kind)
    c[1::3] = rng.normal(size=c[1::3].size).astype(kind) * kind.type(2.0**-bits)
    mine = apply("fma", [a, b, c], [dtype] * 3, dtype)
    assert isinstance(mine, np.ndarray)
    for got, e, z in zip(mine, exact, c, strict=True):
        assert got == rounded(e + Fraction(float(z)), bits), (got, e, z)


def test_fma_sees_what_lies_beyond_f64() -> None:
    # The product is halfway between two f32; a tail too small for f64 decides, on either side.
    a = floats([1 + 2.0**-12] * 2 + [1 + 2.0**-12 + 2.0**-23] * 2)
    tails = floats([2.0**-60, -(2.0**-60), 2.0**-70, -(2.0**-70)])
    b = floats([1 + 2.0**-12] * 2 + [1 + 2.0**-12] * 2)
    mine = apply("fma", [a, b, tails], [DType.F32] * 3, DType.F32)
    assert isinstance(mine, np.ndarray)
    for got, *exact in zip(mine, a, b, tails, strict=True):
        x, y, z = (Fraction(float(v)) for v in exact)
        assert got == rounded(x * y + z, 24)
    assert mine[0] != mine[1]


def rounded(exact: Fraction, bits: int) -> float:
    """`exact` to that many bits, to nearest even; far from the limits of the exponent."""
    if exact == 0:
        return 0.0
    e = exact.numerator.bit_length() - exact.denominator.bit_length()
    while abs(exact) >= Fraction(2) ** (e + 1):
        e += 1
    while abs(exact) < Fraction(2) ** e:
        e -= 1
    unit = Fraction(2) ** (e - bits + 1)
    return float(round(exact / unit) * unit)


def test_fma_of_specials_and_of_whole_numbers() -> None:
    rows = ([INF, 1e308, -0.0, 1], [0, 10, 1, 1], [1, -INF, -0.0, -1])
    a, b, c = (np.array(x, np.float64) for x in rows)
    with np.errstate(all="ignore"):
        mine = apply("fma", [a, b, c], [DType.F64] * 3, DType.F64)
    assert isinstance(mine, np.ndarray)
    assert np.isnan(mine[0])
    assert mine[1] == -INF
    assert np.signbit(mine[2])
    assert not np.signbit(mine[3])
    assert whole("fma", DType.I8, [100], [3], [7]) == [wrapped(307, DType.I8)]


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.bits <= 16], ids=str)
def test_nextafter_walks_through_every_value_of_a_narrow_type(dtype: DType) -> None:
    kind = NUMPY_TYPES[dtype]
    patterns = np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"u{dtype.itemsize}").view(kind)
    numbers = patterns[~np.isnan(patterns.astype(np.float32))]
    ascending = np.unique(numbers.astype(np.float32))
    start = ascending.astype(kind)
    goal = np.full(start.shape, largest(dtype))
    with np.errstate(all="ignore"):
        up = apply("nextafter", [start[:-1], goal[:-1]], [dtype] * 2, dtype)
    assert isinstance(up, np.ndarray)
    assert (up.astype(np.float32) == ascending[1:]).all()


def test_narrow_floats_are_rounded_after_every_operation() -> None:
    b = ProgramBuilder("steps")
    x = b.input("x", "bf16", [1])
    y = b.output("y", "bf16", [1])
    with b.loop("it", [1]) as k:
        v = k.load(x, *k.vars)
        k.store(y, k.vars, (v + 1.0) - 1.0)
    (found,) = run(b.build(), {"x": floats([2.0**-9], DType.BF16)}).outputs
    assert float(found[0]) == 0.0  # 1 + 2**-9 is no bf16


def test_bools_add_as_or_and_multiply_as_and() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for op, wanted in (("add", a | b), ("mul", a & b), ("maximum", a | b), ("minimum", a & b)):
        assert (apply(op, [a, b], [DType.BOOL] * 2, DType.BOOL) == wanted).all()


def test_relu_and_extremes_keep_nan() -> None:
    for op in ("relu", "maximum", "minimum"):
        operands = [floats([NAN])] * (1 if op == "relu" else 2)
        assert np.isnan(apply(op, operands, [DType.F32] * len(operands), DType.F32)).all()


def test_ldexp_reaches_where_the_power_alone_would_overflow() -> None:
    x, n = floats([1e-300, 3.0, 1.0], DType.F64), floats([1100, 0.5, -INF], DType.F64)
    with np.errstate(all="ignore"):
        mine = apply("ldexp", [x, n], [DType.F64] * 2, DType.F64)
    assert isinstance(mine, np.ndarray)
    assert mine.tolist() == [math.ldexp(1e-300, 1100), 3.0 * 2**0.5, 0.0]
