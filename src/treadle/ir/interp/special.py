"""Functions computed in f64 and rounded once to the type of the result.

Every row takes and gives f64 arrays. numpy and scipy supply the functions; the few wrappers here
repair corners where scipy leaves the mathematical (and torch's) value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy import special

from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.polynomials import POLYNOMIALS

# So near to 0 scipy's lgamma overflows on the way, and -log|x| is right to the last bit.
_TINY = 1e-300
# Ai(x) underflows to 0 long before this, while scipy gives NaN for very large x.
_AIRY_IS_ZERO = 1e3


def _lgamma(x: Array) -> Array:
    near_zero = np.abs(x) < _TINY
    plain = special.gammaln(np.where(near_zero | np.isneginf(x), 1.0, x))
    result = np.where(near_zero, -np.log(np.abs(x)), plain)
    return np.where(np.isneginf(x), np.inf, result)


def _erfinv(x: Array) -> Array:
    return np.where(x == 0, x, special.erfinv(x))  # scipy forgets the sign of zero


def _polygamma(order: Array, x: Array) -> Array:
    """(-1)**(n+1) * n! * zeta(n + 1, x), and digamma for n = 0."""
    n = np.trunc(order)
    sign = np.where(n % 2 == 0, -1.0, 1.0)
    higher = sign * special.gamma(n + 1) * special.zeta(n + 1, x)
    return np.where(n == 0, special.psi(x), np.where(n < 0, np.nan, higher))


def _airy(x: Array) -> Array:
    far = x > _AIRY_IS_ZERO
    return np.where(far, 0.0, special.airy(np.where(far, 0.0, x))[0])


def _spherical_j0(x: Array) -> Array:
    smooth = np.where((x == 0) | np.isinf(x), 1.0, x)
    result = np.where(x == 0, 1.0, np.sin(smooth) / smooth)
    return np.where(np.isinf(x), 0.0, result)


def _gelu_tilt(x: Array) -> Array:
    near = np.clip(x, -40.0, 40.0)  # beyond, nothing is left of the bell
    bell = np.exp(-0.5 * near * near) / np.sqrt(2.0 * np.pi)
    tilt = 0.5 * special.erf(near * np.sqrt(0.5)) + near * bell
    return np.where(np.isinf(x), np.nan, tilt)  # an infinity times nothing


def _gelu_slope(x: Array) -> Array:
    return 0.5 + _gelu_tilt(x)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), from the side where exp does not overflow: small results are not lost."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


WIDE: Mapping[str, Callable[..., Array]] = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "sigmoid": _sigmoid,
    "erf": special.erf,
    "gelu_tilt": _gelu_tilt,
    "gelu_gate": special.ndtr,
    "gelu_slope": _gelu_slope,
    "erfc": special.erfc,
    "erfcx": special.erfcx,
    "erfinv": _erfinv,
    "lgamma": _lgamma,
    "digamma": special.psi,
    "polygamma": _polygamma,
    "zeta": special.zeta,
    "gammainc": special.gammainc,
    "gammaincc": special.gammaincc,
    "ndtr": special.ndtr,
    "ndtri": special.ndtri,
    "log_ndtr": special.log_ndtr,
    "i0": special.i0,
    "i0e": special.i0e,
    "i1": special.i1,
    "i1e": special.i1e,
    "modified_bessel_i0": special.i0,
    "modified_bessel_i1": special.i1,
    "modified_bessel_k0": special.k0,
    "modified_bessel_k1": special.k1,
    "scaled_modified_bessel_k0": special.k0e,
    "scaled_modified_bessel_k1": special.k1e,
    "bessel_j0": special.j0,
    "bessel_j1": special.j1,
    "bessel_y0": special.y0,
    "bessel_y1": special.y1,
    "spherical_bessel_j0": _spherical_j0,
    "airy_ai": _airy,
    **POLYNOMIALS,
}
