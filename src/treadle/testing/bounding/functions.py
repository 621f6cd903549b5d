"""Errors of functions: what an uncertain argument does to them, and what they add of their own.

A rule gives how far f(x') can be from f(x) where x' is within `error` of x. Monotone functions are
looked at in the ends of that interval; the others have a derivative that is known to be bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from scipy import special

from treadle.ir.interp.arithmetic import power
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.polynomials import POLYNOMIALS
from treadle.ir.interp.special import WIDE
from treadle.ir.numerics import ROUNDED_ONCE, Numerics
from treadle.ir.types import DType
from treadle.testing.bounding.rounding import ends, farthest, ulp, undecided

Moved: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], Array]
"""How far a function of some values can move, given how far each of them can."""

MONOTONE = (
    "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "asin", "acos", "atan",
    "sinh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfcx", "erfinv", "ndtr",
    "gelu_gate", "ndtri", "log_ndtr", "i1", "modified_bessel_i1", "gammainc", "gammaincc",
)  # fmt: skip
"""Monotone in each argument wherever they have a value; outside they give NaN or infinity."""
MONOTONE_ABOVE_ZERO = (
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
)  # fmt: skip
MONOTONE_IN_SIZE = ("cosh", "i0", "i0e", "modified_bessel_i0")
STEEPEST: Mapping[str, float] = {
    "sin": 1.0,
    "cos": 1.0,
    "bessel_j0": 0.6,
    "bessel_j1": 0.5,
    "i1e": 0.5,
    "spherical_bessel_j0": 0.45,
    "gelu_tilt": 0.8,
    "gelu_slope": 0.8,
}
"""Functions between -1 and 1 with the largest size of their derivative, rounded up."""
ROUGH_ULPS, ROUGH_ERROR = 4096, 1e-12
"""How far the reference itself may be from a special function: ulp of f64, and next to zeros."""
CLOSE_ULPS = 4
"""How far f64 libraries are from each other for the elementary functions."""
ELEMENTARY = frozenset({
    "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "atan2", "hypot", "sigmoid",
    "erf", "erfc", "gelu_tilt", "gelu_gate", "gelu_slope", "pow", "ldexp",
})  # fmt: skip
OF_ONE = frozenset({"gelu_gate", "gelu_slope"})
"""Functions between 0 and 1, or little beyond: they may be off by ulp of 1 where they are small."""
QUOTIENTS = frozenset({"truediv", "int_truediv", "reciprocal", "sqrt"})
"""Rounded correctly, unless the result is rounded to a narrow type next."""


def own_error(
    name: str, wide: Array, dtype: DType, numerics: Numerics, narrow: DType | None
) -> Array:
    """What computing a function adds, whatever its arguments."""
    found = np.zeros(wide.shape)
    if name in FUNCTIONS:
        near, floor = (CLOSE_ULPS, 0.0) if name in ELEMENTARY else (ROUGH_ULPS, ROUGH_ERROR)
        found = near * ulp(wide, DType.F64) + np.where(np.isfinite(wide), floor, 0.0)
        if dtype is DType.F64:
            found = np.maximum(found, numerics.function_ulps * ulp(wide, DType.F64))
        elif numerics.function_ulps > ROUNDED_ONCE:
            found = np.maximum(found, numerics.function_ulps * ulp(wide, DType.F32))
        if name in OF_ONE:
            found = np.maximum(found, _of_one(dtype, numerics))
    if numerics.as_result and (name in FUNCTIONS or name in QUOTIENTS):
        target = dtype if dtype.is_low_precision else narrow
        if target is not None:
            found = np.maximum(found, 0.5 * ulp(wide, target))
    return found


def _of_one(dtype: DType, numerics: Numerics) -> float:
    """What a function may be off by wherever its value is below 1."""
    if dtype is not DType.F64 and numerics.function_ulps > ROUNDED_ONCE:
        return numerics.function_ulps * 2.0**-24
    return max(numerics.function_ulps, CLOSE_ULPS) * 2.0**-53


# ------------------------------------------------------------------------- of one argument


def at_corners(function: Callable[..., Array]) -> Moved:
    """A function that is monotone in each argument: the corners of the box are the extremes."""

    def moved(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        corners: list[list[Array]] = [[]]
        for x, e in zip(xs, errors, strict=True):
            sides = ends(x, e) if e.any() else (x,)
            corners = [[*c, side] for c in corners for side in sides]
        return farthest(function(*xs), *[function(*c) for c in corners])

    return moved


def in_size(function: Callable[[Array], Array]) -> Moved:
    """A function that is monotone in the size of its argument: zero may be an extreme too."""

    def moved(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        (x,), (e,) = xs, errors
        low, high = ends(x, e)
        middle = np.where((low < 0) & (high > 0), 0.0, x)
        return farthest(function(x), function(low), function(high), function(middle))

    return moved


def _above_zero(function: Callable[[Array], Array]) -> Moved:
    corners = at_corners(function)

    def moved(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        low, _ = ends(xs[0], errors[0])
        return np.where((low <= 0) & (errors[0] > 0), np.inf, corners(xs, errors))

    return moved


def _steep(largest: float) -> Moved:
    return lambda xs, errors: np.minimum(largest * errors[0], 2.0)


def _between_poles(function: Callable[[Array], Array], period: float, first: float) -> Moved:
    """A function that rises from pole to pole."""
    corners = at_corners(function)

    def moved(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        low, high = ends(xs[0], errors[0])
        crosses = np.floor((low - first) / period) != np.floor((high - first) / period)
        return np.where(crosses & (errors[0] > 0), np.inf, corners(xs, errors))

    return moved


def _digamma(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    """There are poles at 0, -1, -2, ... only."""
    left = _between_poles(special.psi, 1.0, 0.0)(xs, errors)
    return np.where(xs[0] - errors[0] > 0, at_corners(special.psi)(xs, errors), left)


def _lgamma(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Convex between poles: up as far as in the ends, down as far as the tangent says."""
    (x,), (e,) = xs, errors
    low, _ = ends(x, e)
    poles = (low <= 0) & (np.floor(low) != np.floor(x + e))
    up = at_corners(WIDE["lgamma"])(xs, errors)
    down = np.where(e > 0, np.abs(special.psi(x)) * e, 0.0)
    return np.where(poles & (e > 0), np.inf, np.maximum(up, down))


def _bessel_y(order: int) -> Moved:
    """The envelope of oscillation falls, so its value at the low end bounds the derivative."""

    def moved(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        low, _ = ends(xs[0], errors[0])
        safe = np.where(low > 0, low, 1.0)
        envelopes = [np.hypot(special.jv(n, safe), special.yv(n, safe)) for n in (0, 1)]
        steep = envelopes[1] if order == 0 else envelopes[0] + envelopes[1] / safe
        found = np.where(low > 0, steep * errors[0], np.inf)
        return np.where(errors[0] > 0, found, 0.0)

    return moved


def _airy(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    return 0.6 * (1 + np.abs(xs[0]) + errors[0]) ** 0.25 * errors[0]


# ------------------------------------------------------------------------ of two arguments


def _falls_in_second(function: Callable[..., Array]) -> Moved:
    """A known order, and a second argument in which the function is monotone where positive."""

    def moved(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        low, high = ends(xs[1], errors[1])
        found = farthest(function(*xs), function(xs[0], low), function(xs[0], high))
        unknown = (errors[0] > 0) | ((low <= 0) & (errors[1] > 0))
        return np.where(unknown, np.inf, found)

    return moved


def _exact_only(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    return undecided(sum(errors, np.zeros(())) > 0)


def _power(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Monotone in each argument for a positive base; in its size for a whole exponent."""
    (a, b), (of_a, of_b) = xs, errors
    low, _ = ends(a, of_a)
    positive = at_corners(power)(xs, errors)
    whole = in_size(lambda x: power(x, b))([a], [of_a])
    at_zero = np.where((low <= 0) & (a + of_a >= 0), 0.0, a)
    whole = np.maximum(whole, farthest(power(a, b), power(at_zero, b)))
    is_exact = (of_a == 0) & (of_b == 0)
    unknown = (of_b > 0) | (b != np.trunc(b))
    other = np.where(unknown, np.inf, whole)
    return np.where(is_exact, 0.0, np.where(low > 0, positive, other))


def _angle(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    """As far as the point can move, over its least distance from the origin."""
    (a, b), (of_a, of_b) = xs, errors
    moves = of_a + of_b
    least = np.hypot(a, b) - moves
    across = (b - of_b <= 0) & (np.abs(a) <= of_a)
    found = np.where((least > 0) & ~across, 2 * moves / np.where(least > 0, least, 1.0), np.inf)
    return np.where(moves > 0, found, 0.0)


def _scaled(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    """ldexp: a known power of two."""
    found = np.where(errors[0] > 0, errors[0] * np.exp2(xs[1]), 0.0)
    return np.where(errors[1] > 0, np.inf, found)


MOVED: Mapping[str, Moved] = {
    **{name: at_corners(WIDE[name]) for name in MONOTONE},
    **{name: _above_zero(WIDE[name]) for name in MONOTONE_ABOVE_ZERO},
    **{name: in_size(WIDE[name]) for name in MONOTONE_IN_SIZE},
    **{name: _steep(largest) for name, largest in STEEPEST.items()},
    **dict.fromkeys(POLYNOMIALS, _exact_only),
    "tan": _between_poles(np.tan, np.pi, np.pi / 2),
    "digamma": _digamma,
    "lgamma": _lgamma,
    "bessel_y0": _bessel_y(0),
    "bessel_y1": _bessel_y(1),
    "airy_ai": _airy,
    "polygamma": _falls_in_second(WIDE["polygamma"]),
    "zeta": _falls_in_second(WIDE["zeta"]),
    "pow": _power,
    "atan2": _angle,
    "hypot": lambda xs, errors: errors[0] + errors[1],
    "ldexp": _scaled,
}
"""How far each function can move; where nothing is known, only exact arguments are bounded."""
FUNCTIONS = frozenset(MOVED)
VALUES: Mapping[str, Callable[..., Array]] = {
    **WIDE,
    "pow": power,
    "ldexp": lambda x, p: np.where(p == np.trunc(p), np.ldexp(x, _steps(p)), x * np.exp2(p)),
}
"""The functions themselves, in f64 and not rounded."""


def _steps(p: Array) -> Array:
    return np.where(np.isfinite(p), np.clip(p, -4000, 4000), 0).astype(np.int32)
