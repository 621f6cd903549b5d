"""Orthogonal polynomials by their three-term recurrences, computed in f64.

The degree is a value like any other: it is truncated to a whole number, a negative one gives 0.
Degrees above LARGEST_DEGREE give NaN, so that a wild value cannot make the reference run forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.dtypes import Array

LARGEST_DEGREE = 4096

First: TypeAlias = Callable[[Array], Array]
Step: TypeAlias = Callable[[int, Array, Array, Array], Array]
Polynomial: TypeAlias = Callable[[Array, Array], Array]


def _by_recurrence(first: First, step: Step) -> Polynomial:
    """p(0) = 1, p(1) = first(x), p(k+1) = step(k, x, p(k), p(k-1))."""

    def at(x: Array, degree: Array) -> Array:
        x, degree = np.broadcast_arrays(x.astype(np.float64), np.trunc(degree))
        result = np.where(degree < 0, 0.0, np.nan)
        previous, current = np.ones_like(x), first(x)
        result = np.where(degree == 0, previous, result)
        within = degree[(degree > 0) & (degree <= LARGEST_DEGREE)]
        top = int(within.max(initial=0))
        for k in range(1, top + 1):
            result = np.where(degree == k, current, result)
            previous, current = current, step(k, x, current, previous)
        return result

    return at


def _double(k: int, x: Array, current: Array, previous: Array) -> Array:
    return 2 * x * current - previous


CHEBYSHEV_T = _by_recurrence(lambda x: x, _double)
CHEBYSHEV_U = _by_recurrence(lambda x: 2 * x, _double)
CHEBYSHEV_V = _by_recurrence(lambda x: 2 * x - 1, _double)
CHEBYSHEV_W = _by_recurrence(lambda x: 2 * x + 1, _double)
HERMITE_H = _by_recurrence(lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q)
HERMITE_HE = _by_recurrence(lambda x: x, lambda k, x, p, q: x * p - k * q)
LAGUERRE_L = _by_recurrence(
    lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
)
LEGENDRE_P = _by_recurrence(lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1))


def _shifted(polynomial: Polynomial) -> Polynomial:
    return lambda x, degree: polynomial(2 * x.astype(np.float64) - 1, degree)


POLYNOMIALS: Mapping[str, Polynomial] = {
    "chebyshev_polynomial_t": CHEBYSHEV_T,
    "chebyshev_polynomial_u": CHEBYSHEV_U,
    "chebyshev_polynomial_v": CHEBYSHEV_V,
    "chebyshev_polynomial_w": CHEBYSHEV_W,
    "shifted_chebyshev_polynomial_t": _shifted(CHEBYSHEV_T),
    "shifted_chebyshev_polynomial_u": _shifted(CHEBYSHEV_U),
    "shifted_chebyshev_polynomial_v": _shifted(CHEBYSHEV_V),
    "shifted_chebyshev_polynomial_w": _shifted(CHEBYSHEV_W),
    "hermite_polynomial_h": HERMITE_H,
    "hermite_polynomial_he": HERMITE_HE,
    "laguerre_polynomial_l": LAGUERRE_L,
    "legendre_polynomial_p": LEGENDRE_P,
}
