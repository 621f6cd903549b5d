"""Arithmetic on numpy arrays, where numpy's own meaning is not the one of the table.

Operands have one common numpy type, the result has it too (or is bool). Whole numbers wrap.
Dividing a whole number by zero gives 0, for the quotient and for the remainder: a compiled kernel
may trap or give anything there, so no legal program depends on it, and a reference must not crash
on a point that a mask throws away later.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from treadle.ir.interp.dtypes import Array


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def _is_bool(x: Array) -> bool:
    return x.dtype.kind == "b"


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN gives 0, false and true stay."""
    return x if _is_bool(x) else np.where(x != x, np.zeros((), x.dtype), np.sign(x))


def relu(x: Array) -> Array:
    """max(x, 0); NaN and a negative zero stay."""
    return np.where(x < 0, np.zeros((), x.dtype), x)


# --------------------------------------------------------------------------------- division


def floor_divide(a: Array, b: Array) -> Array:
    """a / b rounded down; for floats the quotient that goes with `remainder`."""
    return np.floor_divide(a, b)


def truncate_divide(a: Array, b: Array) -> Array:
    """a / b rounded towards zero."""
    if _is_float(a):
        return np.trunc(np.divide(a, b))
    down = np.floor_divide(a, b)
    inexact = np.fmod(a, b) != 0
    return np.asarray(down + (inexact & (down < 0)).astype(a.dtype))


def remainder(a: Array, b: Array) -> Array:
    """What floor division leaves: it has the sign of b. A zero keeps the sign of a."""
    if not _is_float(a):
        return np.remainder(a, b)
    left = np.fmod(a, b)
    return np.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


# ------------------------------------------------------------------------------- rounding


def _rounded(how: Any) -> Any:
    def of(x: Array) -> Array:
        return np.asarray(how(x)) if _is_float(x) else x

    return of


floor, ceil, trunc, rint = (_rounded(f) for f in (np.floor, np.ceil, np.trunc, np.rint))

# --------------------------------------------------------------------------------- powers


def power(a: Array, b: Array) -> Array:
    """a to the power b. Whole: a negative power of 1 or -1 is 1 or -1, of anything else 0."""
    if _is_float(a):
        wide = np.power(a.astype(np.float64), b.astype(np.float64))
        return wide.astype(a.dtype)
    is_negative = b < 0
    up = _whole_power(a, np.where(is_negative, np.zeros((), b.dtype), b))
    if a.dtype.kind == "u":
        return up
    one = np.ones((), a.dtype)
    of_minus_one = np.where(b % 2 != 0, -one, one)
    down = np.where(a == 1, one, np.where(a == -1, of_minus_one, np.zeros((), a.dtype)))
    return np.where(is_negative, down, up)


def _whole_power(a: Array, b: Array) -> Array:
    """By squaring, so that wrapping is the one of repeated multiplication."""
    result = np.ones(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    factor, left = a, b
    while np.any(left > 0):
        result = np.where(left % 2 != 0, result * factor, result)
        factor = factor * factor
        left = left // 2
    return result


# ------------------------------------------------------------------- multiply and add, fused


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    if not _is_float(a):
        return a * b + c
    if a.dtype == np.float64:
        return np.asarray(_FMA_EXACT(a, b, c)).astype(np.float64)
    # The product is exact in f64. Rounding the sum to odd there makes the second rounding, to
    # f32, come out as if the sum had never been rounded.
    product = a.astype(np.float64) * b
    total = product + c
    lost = _lost_in_sum(product, c.astype(np.float64), total)
    bits = total.view(np.int64)
    is_even = (bits & 1) == 0
    away = (lost > 0) == (total > 0)
    odd = np.where(away, bits + 1, bits - 1).view(np.float64)
    inexact = np.isfinite(total) & (lost != 0) & is_even
    return np.where(inexact, odd, total).astype(np.float32)


def _lost_in_sum(a: Array, b: Array, total: Array) -> Array:
    """a + b - total, exactly."""
    b_seen = total - a
    a_seen = total - b_seen
    return np.asarray((a - a_seen) + (b - b_seen))


def _fma_of_one(a: float, b: float, c: float) -> float:
    plain = a * b + c
    if not (np.isfinite(a) and np.isfinite(b)):
        return plain
    if not np.isfinite(c):
        return c  # the exact product is finite, even where the rounded one is not
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain  # it knows the sign of zero
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


_FMA_EXACT = np.frompyfunc(_fma_of_one, 3, 1)

# ------------------------------------------------------------------------------------ bits


def shift_left(a: Array, b: Array) -> Array:
    """a shifted left by b bits; 0 if b is negative or not below the width."""
    stays = (b >= 0) & (b < a.dtype.itemsize * 8)
    return np.where(stays, np.left_shift(a, np.where(stays, b, np.zeros((), b.dtype))), 0).astype(
        a.dtype
    )


def shift_right(a: Array, b: Array) -> Array:
    """a shifted right by b bits, keeping the sign; all sign if b leaves the width."""
    width = a.dtype.itemsize * 8
    stays = (b >= 0) & (b < width)
    far = np.where(a < 0, -1, 0).astype(a.dtype)
    return np.where(stays, np.right_shift(a, np.where(stays, b, np.zeros((), b.dtype))), far)


# --------------------------------------------------------------------------------- questions


def is_nan(x: Array) -> Array:
    """Whether x is not a number; whole numbers always are."""
    return np.isnan(x) if _is_float(x) else np.zeros(x.shape, np.bool_)


def is_infinite(x: Array) -> Array:
    """Whether x is plus or minus infinity."""
    return np.isinf(x) if _is_float(x) else np.zeros(x.shape, np.bool_)


def is_finite(x: Array) -> Array:
    """Whether x is neither infinite nor NaN."""
    return np.isfinite(x) if _is_float(x) else np.ones(x.shape, np.bool_)


def sign_bit(x: Array) -> Array:
    """Whether the sign bit is set; never for bools and unsigned numbers."""
    if _is_float(x):
        return np.signbit(x)
    return np.zeros(x.shape, np.bool_) if x.dtype.kind in "bu" else np.asarray(x < 0)


def nonzero(x: Array) -> Array:
    """Whether x counts as true."""
    return np.asarray(x != np.zeros((), x.dtype))


def common_divisor(a: Array, b: Array) -> Array:
    """The greatest common divisor; that of the lowest value is what eager mode makes of it."""
    a, b = np.broadcast_arrays(np.abs(a), np.abs(b))
    while a.any():
        is_open = a != 0
        rest = np.where(is_open, np.fmod(b, np.where(is_open, a, 1)), 0).astype(b.dtype)
        a, b = rest, np.where(is_open, a, b)
    return b
