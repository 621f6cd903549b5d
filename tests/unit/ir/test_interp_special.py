"""Special functions against arbitrary precision, where torch itself is short of digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from treadle.ir.interp.polynomials import LARGEST_DEGREE, POLYNOMIALS
from treadle.ir.interp.special import WIDE

mp = pytest.importorskip("mpmath")

CASES: dict[str, tuple[Callable[..., Any], list[tuple[float, ...]]]] = {
    "bessel_j0": (lambda x: mp.besselj(0, x), [(0.3,), (3.5,), (7.0,), (8.5,), (100.25,)]),
    "bessel_j1": (lambda x: mp.besselj(1, x), [(0.3,), (3.5,), (7.0,), (8.5,), (100.25,)]),
    "bessel_y0": (lambda x: mp.bessely(0, x), [(0.3,), (3.5,), (7.0,), (8.5,), (100.25,)]),
    "bessel_y1": (lambda x: mp.bessely(1, x), [(0.3,), (3.5,), (7.0,), (8.5,), (100.25,)]),
    "airy_ai": (mp.airyai, [(-20.3,), (-3.0,), (-2.5,), (0.0,), (1.5,), (12.75,)]),
    "ndtr": (mp.ncdf, [(-20.3,), (-3.0,), (0.1,), (2.5,)]),
    "log_ndtr": (lambda x: mp.log(mp.ncdf(x)), [(-20.3,), (-3.0,), (0.1,), (8.5,)]),
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), [(1e-310,), (0.5,), (1.5,), (-2.5,), (100.25,)]),
    "digamma": (mp.digamma, [(1.0,), (-0.5,), (1e10,), (-2.5,)]),
    "polygamma": (lambda n, x: mp.polygamma(int(n), x), [(1, 1.0), (2, 0.5), (3, -0.5), (1, 88.8)]),
    "zeta": (mp.zeta, [(3, 2.5), (1.5, 7.0), (7, 31.0)]),
    "gammainc": (
        lambda a, x: mp.gammainc(a, 0, x, regularized=True),
        [(0.5, 0.1), (100.25, 100.25), (3.0, 12.75)],
    ),
    "gammaincc": (
        lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
        [(0.5, 0.1), (100.25, 100.25), (3.0, 12.75)],
    ),
    "erfcx": (lambda x: mp.exp(mp.mpf(x) ** 2) * mp.erfc(x), [(0.5,), (-1.5,), (8.5,), (88.8,)]),
    "erfinv": (mp.erfinv, [(0.1,), (-0.9999,), (0.99999,)]),
    "i0": (lambda x: mp.besseli(0, x), [(0.1,), (12.75,)]),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), [(0.1,), (12.75,), (-3.5,)]),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), [(0.1,), (12.75,)]),
    "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), [(0.1,), (12.75,)]),
    "spherical_bessel_j0": (lambda x: mp.sin(x) / x, [(1e-7,), (3.5,), (100.25,)]),
    "chebyshev_polynomial_t": (lambda x, n: mp.chebyt(int(n), x), [(0.3, 7), (1.5, 12)]),
    "chebyshev_polynomial_u": (lambda x, n: mp.chebyu(int(n), x), [(0.3, 7), (1.5, 12)]),
    "hermite_polynomial_h": (lambda x, n: mp.hermite(int(n), x), [(0.3, 7), (1.5, 12)]),
    "laguerre_polynomial_l": (lambda x, n: mp.laguerre(int(n), 0, x), [(0.3, 7), (1.5, 12)]),
    "legendre_polynomial_p": (lambda x, n: mp.legendre(int(n), x), [(0.3, 7), (1.5, 12)]),
}


@pytest.mark.parametrize("name", CASES)
def test_thirteen_digits_are_right(name: str) -> None:
    exact, points = CASES[name]
    for point in points:
        with mp.workdps(40), np.errstate(all="ignore"):
            wanted = float(exact(*[mp.mpf(x) for x in point]))
            mine = float(WIDE[name](*[np.array([x], np.float64) for x in point])[0])
        assert mine == pytest.approx(wanted, rel=1e-13, abs=1e-300), point


def test_third_and_fourth_kind_follow_from_the_second() -> None:
    x, n = np.linspace(-1.2, 1.2, 9), np.full(9, 6.0)
    u, before = (POLYNOMIALS["chebyshev_polynomial_u"](x, n - k) for k in (0, 1))
    np.testing.assert_allclose(POLYNOMIALS["chebyshev_polynomial_v"](x, n), u - before, rtol=1e-12)
    np.testing.assert_allclose(POLYNOMIALS["chebyshev_polynomial_w"](x, n), u + before, rtol=1e-12)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_degrees_truncate_and_wild_ones_end(name: str) -> None:
    x = np.full(5, 0.25)
    degrees = np.array([2.9, 2.0, -1.0, LARGEST_DEGREE + 1, 1e300])
    found = POLYNOMIALS[name](x, degrees)
    assert found[0] == found[1]
    assert found[2] == 0
    assert np.isnan(found[3:]).all()


def test_corners_scipy_leaves_open_have_their_limits() -> None:
    inf = np.array([-np.inf, np.inf])
    assert WIDE["lgamma"](inf).tolist() == [np.inf, np.inf]
    assert WIDE["airy_ai"](np.array([1e308]))[0] == 0
    assert WIDE["spherical_bessel_j0"](np.array([0.0, np.inf])).tolist() == [1.0, 0.0]
    assert np.signbit(WIDE["erfinv"](np.array([-0.0])))[0]
