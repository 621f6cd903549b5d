"""Fit the coefficients of the functions in src/treadle/codegen/c/fast.h and triton/functions.py.

  python bench/fit_functions.py

Each function is written as a polynomial or a quotient of two on an interval to which its argument
is brought first; the largest relative error of the whole function on that interval is made small:

  exp    exp(r)   = 1 + r + r^2 P(r)             |r| up to log(2)/2
  log    log(1+f) = f - f^2/2 + f^3 P(f)         1+f from sqrt(1/2) to sqrt(2)
  tanh   tanh(x)  = x P(x^2) / Q(x^2)            |x| up to 9.02
  erf    erf(x)   = x P(x^2) / Q(x^2)            |x| up to 3.93
  gelu_tilt       = x P(x^2) / Q(x^2)            |x| up to 5.8
  gelu_gate       = 1 / (1 + 2^(x P(x^2)))       |x| up to 6.2: its absolute error (Triton)
  erfinv          = x P(s) / Q(s)                s = sqrt(-log(1 - x^2)) up to 6.2 (library.h)

Prints the coefficients from the constant up, and that error. It counts no roundings: the error of
the C function in units of the last place is measured by the tests, over all floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Function = Callable[[float], float]
LOG2_E = 1 / math.log(2)
POINTS = 4000
"""Where the error is looked at: as many points, denser at both ends."""
POLYNOMIAL_ROUNDS, QUOTIENT_ROUNDS = 200, 300
LEAST_WEIGHT = 1e-3
"""What is left, as a share of the largest, of the weight of a point without error."""


@dataclass(frozen=True)
class Fit:
    """Coefficients from the constant up; the denominator's constant is 1 and is not listed."""

    error: float
    numerator: tuple[float, ...]
    denominator: tuple[float, ...] = ()


def points_between(low: float, high: float) -> Any:
    """Points that are dense at both ends, where polynomials err most."""
    angles = np.pi * (np.arange(POINTS) + 0.5) / POINTS
    return 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles)


def fit_polynomial(f: Function, low: float, high: float, degree: int, weight: Function) -> Fit:
    """The polynomial whose largest weighted error is least, by Lawson's iteration.

    Least squares again and again: a point counts the more, the larger its error was before.
    """
    x = points_between(low, high)
    y, scale = np.array([f(t) for t in x]), np.array([weight(t) for t in x])
    powers = np.vander(x, degree + 1, increasing=True)
    counts = np.full(len(x), 1.0 / len(x))
    best = Fit(math.inf, ())
    for _ in range(POLYNOMIAL_ROUNDS):
        by = np.sqrt(counts) * scale
        found, *_ = np.linalg.lstsq(powers * by[:, None], y * by, rcond=None)
        errors = np.abs((powers @ found - y) * scale)
        if errors.max() < best.error:
            best = Fit(float(errors.max()), tuple(map(float, found)))
        counts = counts * errors
        counts /= counts.sum()
    return best


def fit_quotient(
    f: Function, low: float, high: float, degrees: tuple[int, int], weight: Function
) -> Fit:
    """The quotient of two polynomials whose largest weighted error is least.

    P - f Q is linear in all coefficients. Divided by the Q of the round before it comes to the
    error of P / Q, and Lawson's iteration does the rest.
    """
    x = points_between(low, high)
    y, scale = np.array([f(t) for t in x]), np.array([weight(t) for t in x])
    above = np.vander(x, degrees[0] + 1, increasing=True)
    below = np.vander(x, degrees[1] + 1, increasing=True)[:, 1:]
    columns = np.hstack([above, -y[:, None] * below])
    counts, q = np.full(len(x), 1.0 / len(x)), np.ones(len(x))
    best = Fit(math.inf, ())
    for _ in range(QUOTIENT_ROUNDS):
        by = np.sqrt(counts) * scale / np.abs(q)
        found, *_ = np.linalg.lstsq(columns * by[:, None], y * by, rcond=None)
        numerator, denominator = found[: degrees[0] + 1], found[degrees[0] + 1 :]
        q = 1.0 + below @ denominator
        errors = np.abs((above @ numerator / q - y) * scale)
        if (q > 0).all() and errors.max() < best.error:
            best = Fit(float(errors.max()), tuple(map(float, numerator)), tuple(denominator))
        counts = counts * (errors + LEAST_WEIGHT * errors.max())
        counts /= counts.sum()
    return best


# ------------------------------------------------------------------------------- the functions


def exp_rest(r: float) -> float:
    """(exp(r) - 1 - r) / r^2."""
    return (math.expm1(r) - r) / (r * r) if abs(r) > 1e-4 else 0.5 + r / 6 + r * r / 24


def log_rest(f: float) -> float:
    """(log(1+f) - f + f^2/2) / f^3."""
    if abs(f) < 1e-3:
        return 1 / 3 - f / 4 + f * f / 5 - f**3 / 6
    return (math.log1p(f) - f + f * f / 2) / f**3


def tanh_share(u: float) -> float:
    """tanh(x) / x where x^2 = u."""
    x = math.sqrt(u)
    return math.tanh(x) / x if u > 1e-12 else 1 - u / 3


def erf_share(u: float) -> float:
    """erf(x) / x where x^2 = u."""
    x = math.sqrt(u)
    return math.erf(x) / x if u > 1e-12 else 2 / math.sqrt(math.pi) * (1 - u / 3)


def gelu_tilt_share(u: float) -> float:
    """(erf(x / sqrt(2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)) / x where x^2 = u."""
    x, bell = math.sqrt(u), 1 / math.sqrt(2 * math.pi)
    if u < 1e-12:
        return bell * (2 - 2 * u / 3)
    return (math.erf(x * math.sqrt(0.5)) / 2 + x * math.exp(-u / 2) * bell) / x


def gate_odds(u: float) -> float:
    """log2((1 - p) / p) / x where x^2 = u and p is the share of a normal distribution below x."""
    x = math.sqrt(u)
    if u < 1e-8:
        return -math.sqrt(8 / math.pi) * LOG2_E
    above, below = math.erfc(x * math.sqrt(0.5)) / 2, math.erfc(-x * math.sqrt(0.5)) / 2
    return math.log2(above / below) / x


def gate_weight(u: float) -> float:
    """How much an error of `gate_odds` is of the share."""
    x = math.sqrt(u)
    p = math.erfc(x * math.sqrt(0.5)) / 2
    return p * (1 - p) * x / LOG2_E + 1e-12


def erfinv_share(s: float) -> float:
    """erfinv(x) / x where -log(1 - x^2) = s^2."""
    if s < 1e-4:
        return math.sqrt(math.pi) / 2 * (1 + math.pi / 12 * s * s)
    q = -math.expm1(-s * s)
    x = math.sqrt(q)
    rest = math.exp(-s * s) / (1 + x)  # 1 - x
    low, high = 0.0, 7.0
    for _ in range(200):
        y = (low + high) / 2
        below = math.erfc(y) > rest if x > 0.5 else math.erf(y) < x
        low, high = (y, high) if below else (low, y)
    return (low + high) / 2 / x


def log_weight(f: float) -> float:
    """How much an error of `log_rest` is relative to the logarithm."""
    return abs(f**3 / math.log1p(f)) if abs(f) > 1e-9 else 1e-12


def fit_gelu_tilt() -> Fit:
    """Fitted on 0 to 1: as many powers of the square itself are too far apart for f64."""
    most = 5.8**2
    fit = fit_quotient(
        lambda v: gelu_tilt_share(v * most),
        0.0,
        1.0,
        (6, 7),
        lambda v: 1 / gelu_tilt_share(v * most),
    )
    above = tuple([c / most**k for k, c in enumerate(fit.numerator)])
    below = tuple([c / most**k for k, c in enumerate(fit.denominator, 1)])
    return Fit(fit.error, above, below)


def fit_gelu_gate() -> Fit:
    """Fitted on 0 to 1, as above."""
    most = 6.2**2
    fit = fit_polynomial(
        lambda v: gate_odds(v * most), 0.0, 1.0, 6, lambda v: gate_weight(v * most)
    )
    return Fit(fit.error, tuple([c / most**k for k, c in enumerate(fit.numerator)]))


HALF, ROOT = math.log(2) / 2, math.sqrt(2)
FITS: dict[str, Callable[[], Fit]] = {
    "exp": lambda: fit_polynomial(exp_rest, -HALF, HALF, 4, lambda r: r * r / math.exp(r) + 1e-12),
    "log": lambda: fit_polynomial(log_rest, 1 / ROOT - 1, ROOT - 1, 7, log_weight),
    "tanh": lambda: fit_quotient(tanh_share, 0.0, 9.02**2, (4, 4), lambda u: 1 / tanh_share(u)),
    "erf": lambda: fit_quotient(erf_share, 0.0, 3.93**2, (5, 5), lambda u: 1 / erf_share(u)),
    "gelu_tilt": fit_gelu_tilt,
    "gelu_gate": fit_gelu_gate,
    "erfinv": lambda: fit_quotient(erfinv_share, 0.0, 6.2, (7, 6), lambda s: 1 / erfinv_share(s)),
}
"""How each function is fitted."""
OF_ONE = frozenset({"gelu_gate"})
"""Whose error is not counted relative to the value."""
IN_DOUBLE = frozenset({"erfinv"})
"""Where a computation in double begins."""


def shown(name: str, values: Sequence[float], *, is_wide: bool) -> str:
    """Coefficients as C writes them."""
    return f"  {name}: " + " ".join(f"{float(v if is_wide else np.float32(v))!r}" for v in values)


def main() -> None:
    """Print all fits."""
    for name, fitted in FITS.items():
        fit = fitted()
        kind = "absolute" if name in OF_ONE else "relative"
        print(f"{name}: largest {kind} error {fit.error:.3g}")
        wide, top = name in IN_DOUBLE, "numerator" if fit.denominator else "polynomial"
        print(shown(top, fit.numerator, is_wide=wide))
        if fit.denominator:
            print(shown("denominator (after 1)", fit.denominator, is_wide=wide))


if __name__ == "__main__":
    main()
