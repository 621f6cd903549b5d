"""What torch calls each pointwise operation, and how closely the reference must agree with it.

`EXACT` operations agree in every bit. `CLOSE` ones are compared with torch computing in f64,
rounded once to the type of the result: within one unit in the last place up to f32, and within
`ULPS_IN_F64` (or what the row says) in f64. `POINTS` leaves points out, always with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import special

ULPS_IN_F64 = 8

EXACT: dict[str, Callable[..., torch.Tensor]] = {
    "identity": torch.clone,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "neg": torch.neg,
    "abs": torch.abs,
    "square": torch.square,
    "relu": torch.relu,
    "sign": torch.sign,
    "truediv": torch.true_divide,
    "int_truediv": torch.true_divide,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "pow": torch.pow,  # of whole numbers
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "logical_not": torch.logical_not,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "bitwise_not": torch.bitwise_not,
    "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift,
    "gcd": torch.gcd,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "frexp": torch.frexp,
    "where": torch.where,
}

# In f16 and bf16 torch rounds between the steps of these; the table of operations rounds once.
ROUNDED_ONCE = {"floordiv", "truncdiv", "fmod", "remainder"}


@dataclass(frozen=True)
class Close:
    """A function of torch, and the error it may have in f64 against the reference."""

    function: Callable[..., torch.Tensor]
    ulps: int = ULPS_IN_F64
    absolute: float = 0.0


def polygamma(order: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    for n in order.unique().tolist():
        chosen = order == n
        result[chosen] = torch.polygamma(int(n), x[chosen])
    return result


# torch's Bessel and Airy functions are good to some 8 digits between their zeros and asymptotics;
# the unit tests compare the reference with arbitrary precision there.
FEW_DIGITS = 1e-6
# torch's trigamma and incomplete gamma functions, in f64.
NINE_DIGITS = 2e-9
# Closed forms in torch (cosines), the recurrence here: absolute errors of that size remain near 0.
NEAR_ZERO = 1e-12


def _gelu_tilt(x: torch.Tensor) -> torch.Tensor:
    """Gelu's derivative less a half; torch has none by itself that keeps small values."""
    t = x.clamp(-40.0, 40.0)
    bell = torch.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
    return (0.5 * torch.erf(t * math.sqrt(0.5)) + t * bell).where(~x.isinf(), math.nan)


CLOSE: dict[str, Close] = {
    "pow": Close(torch.pow),
    "sqrt": Close(torch.sqrt, ulps=1),  # torch's f64 kernel does not always round correctly
    "rsqrt": Close(torch.rsqrt),
    "exp": Close(torch.exp),
    "exp2": Close(torch.exp2),
    "expm1": Close(torch.expm1),
    "log": Close(torch.log),
    "log2": Close(torch.log2),
    "log10": Close(torch.log10),
    "log1p": Close(torch.log1p),
    "sin": Close(torch.sin),
    "cos": Close(torch.cos),
    "tan": Close(torch.tan),
    "asin": Close(torch.asin),
    "acos": Close(torch.acos),
    "atan": Close(torch.atan),
    "sinh": Close(torch.sinh),
    "cosh": Close(torch.cosh),
    "tanh": Close(torch.tanh),
    "asinh": Close(torch.asinh),
    "acosh": Close(torch.acosh),
    "atanh": Close(torch.atanh),
    "atan2": Close(torch.atan2),
    "hypot": Close(torch.hypot),
    "ldexp": Close(torch.ldexp, ulps=0),
    "sigmoid": Close(torch.sigmoid),
    "erf": Close(torch.erf),
    "gelu_tilt": Close(_gelu_tilt),
    "gelu_gate": Close(torch.special.ndtr, absolute=1e-15),
    "gelu_slope": Close(lambda x: 0.5 + _gelu_tilt(x), absolute=1e-15),
    "erfc": Close(torch.erfc),
    "erfcx": Close(special.erfcx),
    "erfinv": Close(torch.erfinv),
    "lgamma": Close(torch.lgamma, absolute=1e-15),
    "digamma": Close(torch.digamma, absolute=1e-14),
    "polygamma": Close(polygamma, ulps=2**16, absolute=NINE_DIGITS),
    "zeta": Close(special.zeta, ulps=64),
    "gammainc": Close(special.gammainc, absolute=NINE_DIGITS),
    "gammaincc": Close(special.gammaincc, absolute=NINE_DIGITS),
    "ndtr": Close(special.ndtr, absolute=1e-15),
    "ndtri": Close(special.ndtri, ulps=64),
    "log_ndtr": Close(special.log_ndtr, ulps=64),
    "i0": Close(special.i0),
    "i0e": Close(special.i0e),
    "i1": Close(special.i1),
    "i1e": Close(special.i1e),
    "modified_bessel_i0": Close(special.modified_bessel_i0),
    "modified_bessel_i1": Close(special.modified_bessel_i1),
    "modified_bessel_k0": Close(special.modified_bessel_k0, ulps=32),
    "modified_bessel_k1": Close(special.modified_bessel_k1, ulps=32),
    "scaled_modified_bessel_k0": Close(special.scaled_modified_bessel_k0, ulps=32),
    "scaled_modified_bessel_k1": Close(special.scaled_modified_bessel_k1, ulps=32),
    "bessel_j0": Close(special.bessel_j0, absolute=FEW_DIGITS),
    "bessel_j1": Close(special.bessel_j1, absolute=FEW_DIGITS),
    "bessel_y0": Close(special.bessel_y0, absolute=FEW_DIGITS),
    "bessel_y1": Close(special.bessel_y1, absolute=FEW_DIGITS),
    "spherical_bessel_j0": Close(special.spherical_bessel_j0),
    "airy_ai": Close(special.airy_ai, absolute=FEW_DIGITS),
    **{
        name: Close(getattr(special, name), ulps=2**12, absolute=NEAR_ZERO)
        for name in (
            "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
            "chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t",
            "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
            "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
            "laguerre_polynomial_l", "legendre_polynomial_p",
        )
    },
}  # fmt: skip

# (operation, type) that torch cannot compute in any type with the same meaning.
NO_KERNEL = {
    ("nextafter", "f8e4m3fn"): "the neighbour in f32 is another number; unit tests walk all of fp8",
    ("nextafter", "f8e5m2"): "the neighbour in f32 is another number; unit tests walk all of fp8",
}

NOT_IN_TORCH = {"fma": "torch has no fused multiply-add of its own; compared with fractions"}

Points = Callable[..., np.ndarray]


def _quotient_is_moderate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ~np.isfinite(a) | ~np.isfinite(b) | (b == 0) | (np.abs(a) < np.abs(b) * 1e30)


# Operation -> (why, which points are compared); operands arrive as f64.
POINTS: dict[str, tuple[str, Points]] = {
    "fmod": ("torch's vector code gives NaN where a / b overflows", _quotient_is_moderate),
    "remainder": ("torch's vector code gives NaN where a / b overflows", _quotient_is_moderate),
    "airy_ai": ("torch gives NaN or noise far out", lambda x: np.isnan(x) | (np.abs(x) < 1e3)),
    "bessel_j0": ("torch loses the phase far out", lambda x: ~(np.abs(x) > 1e8)),
    "bessel_j1": ("torch loses the phase far out", lambda x: ~(np.abs(x) > 1e8)),
    "bessel_y0": ("torch loses the phase far out", lambda x: ~(np.abs(x) > 1e8)),
    "bessel_y1": ("torch loses the phase far out", lambda x: ~(np.abs(x) > 1e8)),
    "polygamma": (
        "torch gives noise at the poles and NaN at infinity",
        lambda n, x: np.isfinite(x) & ((x > 0) | (x != np.floor(x))) & (np.abs(x) < 1e30),
    ),
    "zeta": ("torch gives NaN at infinity", lambda x, q: (np.abs(x) < 1e3) & (np.abs(q) < 1e9)),
    "gammainc": (
        "torch answers for NaN and outside of the domain",
        lambda a, x: (a > 0) & (x >= 0) & (a < 1e6) & (x < 1e6),
    ),
    "gammaincc": (
        "torch answers for NaN and outside of the domain",
        lambda a, x: (a > 0) & (x >= 0) & (a < 1e6) & (x < 1e6),
    ),
}
