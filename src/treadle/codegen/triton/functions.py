"""Functions of generated Triton: exact enough for f32, cheap enough not to hide memory.

Each is a text of its own, and a module has those that its kernels use. They stand on what Triton
itself offers, so that they run on every device and in its interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FUNCTIONS: Mapping[str, str] = {
    "tr_add": '''
@triton.jit
def tr_add(a, b):
    """How parts of a sum are combined."""
    return a + b
''',
    "tr_copysign": '''
@triton.jit
def tr_copysign(a, b):
    """The size of a with the sign of b."""
    size = tl.abs(a)
    return tl.where(tr_signbit(b), -size, size)
''',
    "tr_cosh": '''
@triton.jit
def tr_cosh(x):
    """cosh of f32, rounded once: through f64."""
    e = tl.exp(tl.abs(x).to(tl.float64))
    return (0.5 * e + 0.5 / e).to(tl.float32)
''',
    "tr_expm1": '''
@triton.jit
def tr_expm1(x):
    """exp(x) - 1 of f32, 8 ulp: near zero by its series."""
    p = 2.48015873e-5 * x + 1.98412698e-4
    p = p * x + 1.38888889e-3
    p = p * x + 8.33333333e-3
    p = p * x + 4.16666667e-2
    p = p * x + 1.66666667e-1
    p = p * x + 0.5
    return tl.where(tl.abs(x) < 0.5, p * (x * x) + x, tl.exp(x) - 1.0)
''',
    "tr_later_max": '''
@triton.jit
def tr_later_max(a, i, b, j):
    """The larger of two and where it is: of equals the later, a NaN before all."""
    later = (b != b) | ((a == a) & (b >= a))
    return tl.where(later, b, a), tl.where(later, j, i)
''',
    "tr_later_min": '''
@triton.jit
def tr_later_min(a, i, b, j):
    """The smaller of two and where it is: of equals the later, a NaN before all."""
    later = (b != b) | ((a == a) & (b <= a))
    return tl.where(later, b, a), tl.where(later, j, i)
''',
    "tr_log1p": '''
@triton.jit
def tr_log1p(x):
    """log(1 + x) of f32, 4 ulp: what the sum loses is added to its logarithm."""
    u = 1.0 + x
    lost = x - (u - 1.0)
    y = tl.log(u)
    y = tl.where(u - 1.0 == x, y, y + lost / u)  # nothing is lost at -1 and at infinity
    return tl.where(x == 0, x, y)
''',
    "tr_logaddexp": '''
@triton.jit
def tr_logaddexp(a, b):
    """log(exp(a) + exp(b)) of f32."""
    top = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    more = tr_log1p(tl.exp(low - top))
    return tl.where((tl.abs(top) == float("inf")) | (low == -float("inf")), top, top + more)
''',
    "tr_max_whole": '''
@triton.jit
def tr_max_whole(a, b):
    """The larger of two whole numbers."""
    return tl.maximum(a, b)
''',
    "tr_min": '''
@triton.jit
def tr_min(a, b):
    """The smaller of two; a NaN is smaller than all."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "tr_min_whole": '''
@triton.jit
def tr_min_whole(a, b):
    """The smaller of two whole numbers."""
    return tl.minimum(a, b)
''',
    "tr_round": '''
@triton.jit
def tr_round(x):
    """The nearest whole number, halves to even."""
    low = tl.floor(x)
    away = x - low
    odd = tl.floor(low * 0.5) * 2.0 != low
    y = tl.where((away > 0.5) | ((away == 0.5) & odd), low + 1.0, low)
    return tl.where(tl.abs(x) < float("inf"), y, x)
''',
    "tr_shift_left": '''
@triton.jit
def tr_shift_left(a, b, bits: tl.constexpr):
    """a shifted left by b bits; 0 if b leaves the width."""
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)
''',
    "tr_shift_right": '''
@triton.jit
def tr_shift_right(a, b, bits: tl.constexpr):
    """a shifted right by b bits, arithmetic; by more than its width, its sign."""
    inside = (b >= 0) & (b < bits)
    return a >> tl.where(inside, b, bits - 1)
''',
    "tr_signbit": '''
@triton.jit
def tr_signbit(x):
    """Whether the sign bit of an f32 or f64 is set."""
    if x.dtype == tl.float64:
        found = x.to(tl.int64, bitcast=True) < 0
    else:
        found = x.to(tl.int32, bitcast=True) < 0
    return found
''',
    "tr_sinh": '''
@triton.jit
def tr_sinh(x):
    """sinh of f32, rounded once: through f64, near zero by its series."""
    y = x.to(tl.float64)
    e = tl.exp(y)
    near = y * (1.0 + y * y * (0.16666666666666666 + y * y * 0.008333333333333333))
    return tl.where(tl.abs(y) < 1e-2, near, 0.5 * e - 0.5 / e).to(tl.float32)
''',
    "tr_tan": '''
@triton.jit
def tr_tan(x):
    """tan of f32, through f64."""
    y = x.to(tl.float64)
    return (tl.sin(y) / tl.cos(y)).to(tl.float32)
''',
    "tr_trunc": '''
@triton.jit
def tr_trunc(x):
    """Rounded towards zero."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
''',
    "tr_truncdiv": '''
@triton.jit
def tr_truncdiv(a, b):
    """a / b rounded towards zero, of whole numbers; by zero: 0."""
    d = tl.where(b == 0, 1, b)
    q = a // d
    r = a - q * d
    q = tl.where((r != 0) & ((r < 0) != (a < 0)), q + 1, q)
    return tl.where(b == 0, 0, q)
''',
    "tr_fmod": '''
@triton.jit
def tr_fmod(a, b):
    """The remainder with the sign of a, of whole numbers; by zero: 0."""
    d = tl.where(b == 0, 1, b)
    r = a - tr_truncdiv(a, d) * d
    return tl.where(b == 0, 0, r)
''',
    "tr_erf": '''
@triton.jit
def tr_erf(x):
    """erf, 8 ulp with the division of a GPU, never beyond 1."""
    t = tl.minimum(tl.maximum(x, -3.93), 3.93)
    u = t * t
    p = 2.041963167036852e-06 * u + 0.0002848088061061937
    p = p * u + 0.0037796313175934245
    p = p * u + 0.05279035695993769
    p = p * u + 0.19078438048375965
    p = p * u + 1.128379145359693
    q = 3.8004005817888743e-05 * u + 0.001165217447844154
    q = q * u + 0.014997483264165497
    q = q * u + 0.11425774745498639
    q = q * u + 0.5024109745597057
    q = q * u + 1.0
    y = tl.minimum(tl.maximum(t * p / q, -1.0), 1.0)
    return tl.where(x != x, x, y)
''',
    "tr_gelu_tilt": '''
@triton.jit
def tr_gelu_tilt(x):
    """The derivative of gelu less a half, 8 ulp with the division of a GPU."""
    t = tl.minimum(tl.maximum(x, -5.8), 5.8)
    u = t * t
    p = 1.566165863664537e-08 * u + 7.353212367888773e-07
    p = p * u + 3.4084780054399744e-05
    p = p * u + 0.00013189500896260142
    p = p * u + 0.014011996798217297
    p = p * u - 0.026288507506251335
    p = p * u + 0.7978845834732056
    q = 1.2777658930929192e-09 * u + 2.876732878576149e-07
    q = q * u + 9.391897037858143e-06
    q = q * u + 0.00022763015294913203
    q = q * u + 0.003770600538700819
    q = q * u + 0.042690351605415344
    q = q * u + 0.3003854751586914
    q = q * u + 1.0
    half = tl.where(x < 0, -0.5, 0.5) + (x - x)
    return tl.where(x == t, t * p / q, half)
''',
    "tr_max": '''
@triton.jit
def tr_max(a, b):
    """The larger of two; a NaN is larger than all."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "tr_tanh": '''
@triton.jit
def tr_tanh(x):
    """tanh, 8 ulp with the division of a GPU, never beyond 1."""
    t = tl.minimum(tl.maximum(x, -9.02), 9.02)
    u = t * t
    p = 1.331909503872088e-08 * u + 2.0583500214618593e-05
    p = p * u + 0.003494035806776856
    p = p * u + 0.1337971902146037
    p = p * u + 0.99999997900761
    q = 7.762029576660145e-07 * u + 0.00032830948122616795
    q = q * u + 0.025871078040713633
    q = q * u + 0.4671303426254527
    q = q * u + 1.0
    y = tl.minimum(tl.maximum(t * p / q, -1.0), 1.0)
    return tl.where(x != x, x, y)
''',
    "tr_tanh_short": '''
@triton.jit
def tr_tanh_short(x):
    """tanh, off by less than 1e-6: for what is rounded to 16 bits in the end."""
    return 1.0 - 2.0 / (1.0 + tl.exp2(x * 2.8853900817779268))
''',
    "tr_sigmoid": '''
@triton.jit
def tr_sigmoid(x):
    """1 / (1 + exp(-x)), 3 ulp."""
    return 1.0 / (1.0 + tl.exp(-x))
''',
    "tr_floordiv": '''
@triton.jit
def tr_floordiv(a, b):
    """a / b rounded down, of whole numbers; by zero: 0."""
    d = tl.where(b == 0, 1, b)
    q = a // d
    r = a - q * d
    q = tl.where((r != 0) & ((r < 0) != (d < 0)), q - 1, q)
    return tl.where(b == 0, 0, q)
''',
    "tr_mod": '''
@triton.jit
def tr_mod(a, b):
    """The remainder with the sign of b, of whole numbers; by zero: 0."""
    d = tl.where(b == 0, 1, b)
    r = a % d
    r = tl.where((r != 0) & ((r < 0) != (d < 0)), r + d, r)
    return tl.where(b == 0, 0, r)
''',
    "tr_mul": '''
@triton.jit
def tr_mul(a, b):
    """How parts of a product are combined."""
    return a * b
''',
    "tr_pow": '''
@triton.jit
def tr_pow(a, b):
    """a to the power b, through f64; of what is negative where b is whole."""
    b = tl.where(a == a, b, b)  # as many as there are of a
    x = tl.abs(a).to(tl.float64)
    y = tl.exp2(b.to(tl.float64) * tl.log2(x))
    whole = tl.floor(b) == b
    odd = whole & (tl.floor(b * 0.5) * 2.0 != b)
    y = tl.where(x == 0, tl.where(b > 0, 0.0, float("inf")), y)
    y = tl.where((a < 0) & odd, -y, y)
    y = tl.where((a < 0) & ~whole, float("nan"), y)
    y = tl.where((b == 0) | (a == 1), 1.0, y)
    return y.to(tl.float32)
''',
    "tr_sign": '''
@triton.jit
def tr_sign(x):
    """-1, 0 or 1; 0 for NaN."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))
''',
}


CALLED = re.compile(r"\btr_\w+")


def source_of(names: Iterable[str]) -> str:
    """The text of the functions asked for, and of those they call."""
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += CALLED.findall(FUNCTIONS[name])
    return "\n".join([FUNCTIONS[name] for name in sorted(found)])
