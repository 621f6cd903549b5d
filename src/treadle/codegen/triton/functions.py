"""Functions of generated Triton: exact enough for f32, cheap enough not to hide memory.

Each is a text of its own, and a module has those that its kernels use. They stand on what Triton
itself offers, so that they run on every device and in its interpreter.

What is divided by is at least 1 in most of them. The square of `rsqrt` is then as exact as the
division of a GPU (2.1 ulp; that one: 2), which takes four times as many instructions, for it looks
at what is very large or very small. Where every place counts, one step of Newton's method follows
the square: erf of f32 was 8.1 ulp off on an H200 without it. Powers of 2 are one instruction.
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
    "tr_atan": '''
@triton.jit
def tr_atan(x):
    """atan of f32, 5 ulp with the division of a GPU."""
    size = tl.abs(x)
    p = tr_atan_of_fraction(tl.where(size > 1.0, 1.0 / size, size))
    return tr_copysign(tl.where(size > 1.0, 1.5707963267948966 - p, p), x)
''',
    "tr_atan_of_fraction": '''
@triton.jit
def tr_atan_of_fraction(t):
    """atan of f32 between 0 and 1, 2 ulp."""
    u = t * t
    p = 0.002920681145042181 * u - 0.01636788435280323
    p = p * u + 0.043211787939071655
    p = p * u - 0.07552208006381989
    p = p * u + 0.10666001588106155
    p = p * u - 0.14211054146289825
    p = p * u + 0.19993773102760315
    p = p * u - 0.33333152532577515
    return p * u * t + t
''',
    "tr_atan2": '''
@triton.jit
def tr_atan2(a, b):
    """The angle of the point (b, a) of f32, 6 ulp with the division of a GPU."""
    x, y = tl.abs(b), tl.abs(a)
    top, low = tl.maximum(x, y), tl.minimum(x, y)
    t = tl.where(low == top, tl.where(top == 0, 0.0, 1.0), low / top)
    p = tr_atan_of_fraction(t)
    p = tl.where(y > x, 1.5707963267948966 - p, p)
    p = tl.where(tr_signbit(b), 3.141592653589793 - p, p)
    return tl.where((a != a) | (b != b), a + b, tr_copysign(p, a))
''',
    "tr_copysign": '''
@triton.jit
def tr_copysign(a, b):
    """The size of a with the sign of b, of f32 and f64: also of zeros."""
    if a.dtype == tl.float64:
        size = a.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        sign = b.to(tl.int64, bitcast=True) & -0x8000000000000000
    else:
        size = a.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        sign = b.to(tl.int32, bitcast=True) & -0x80000000
    return (size | sign).to(a.dtype, bitcast=True)
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
    """The nearest whole number, halves to even, with the sign of x."""
    if x.dtype == tl.float64:
        y = (x + 6755399441055744.0) - 6755399441055744.0
        has_part = tl.abs(x) < 2251799813685248.0
    else:
        y = (x + 12582912.0) - 12582912.0
        has_part = tl.abs(x) < 4194304.0
    return tl.where(has_part, tr_copysign(y, x), x)
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
    """erf, 8 ulp, 1 from 3.93 on."""
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
    r = tl.rsqrt(q)
    r = r * r
    r = r + r * (1.0 - q * r)
    y = tl.minimum(tl.maximum(t * p * r, -1.0), 1.0)
    end = tl.where(x < 0, -1.0, 1.0)
    return tl.where(x == t, y, tl.where(x != x, x, end))
''',
    "tr_gelu_tilt": '''
@triton.jit
def tr_gelu_tilt(x):
    """The derivative of gelu less a half, 8 ulp."""
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
    r = tl.rsqrt(q)
    r = r * r
    r = r + r * (1.0 - q * r)
    half = tl.where(x < 0, -0.5, 0.5) + (x - x)
    return tl.where(x == t, t * p * r, half)
''',
    "tr_gelu_gate": '''
@triton.jit
def tr_gelu_gate(x):
    """The share of a normal distribution below x, off by less than 5e-7."""
    u = x * x
    p = -5.067246178214191e-09 * u + 3.8163159388204804e-07
    p = p * u - 1.1439837180660106e-05
    p = p * u + 0.00015957995492499322
    p = p * u + 9.404918819200248e-05
    p = p * u - 0.10483512282371521
    p = p * u - 2.3022093772888184
    r = tl.rsqrt(1.0 + tl.exp2(p * x))
    return r * r
''',
    "tr_gelu_slope": '''
@triton.jit
def tr_gelu_slope(x):
    """The derivative of gelu, off by less than 5e-7: its gate and x times its bell."""
    bell = tl.exp2((x * x) * -0.7213475204444817)
    return (x * 0.3989422804014327) * bell + tr_gelu_gate(x)
''',
    "tr_max": '''
@triton.jit
def tr_max(a, b):
    """The larger of two; a NaN is larger than all."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "tr_sqrt": '''
@triton.jit
def tr_sqrt(x):
    """The square root, within 2 ulp: of the smallest floats too, which a GPU's takes for zero."""
    if x.dtype == tl.float64:
        found = tl.sqrt(x)
    else:
        tiny = x < 1.1754943508222875e-38
        r = tl.sqrt(tl.where(tiny, x * 16777216.0, x))
        found = tl.where(tiny, r * 0.000244140625, r)
    return found
''',
    "tr_rsqrt": '''
@triton.jit
def tr_rsqrt(x):
    """1 / sqrt(x), within 2 ulp: of the smallest floats too, which a GPU's takes for zero."""
    if x.dtype == tl.float64:
        found = 1.0 / tl.sqrt(x)
    else:
        tiny = x < 1.1754943508222875e-38
        r = tl.rsqrt(tl.where(tiny, x * 16777216.0, x))
        found = tl.where(tiny, r * 4096.0, r)
    return found
''',
    "tr_tanh": '''
@triton.jit
def tr_tanh(x):
    """tanh, 8 ulp, never beyond 1."""
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
    r = tl.rsqrt(q)
    r = r * r
    r = r + r * (1.0 - q * r)
    y = tl.minimum(tl.maximum(t * p * r, -1.0), 1.0)
    return tl.where(x != x, x, y)
''',
    "tr_tanh_short": '''
@triton.jit
def tr_tanh_short(x):
    """tanh, off by less than 7e-5 of it and by 1e-6: for what is rounded to 16 bits in the end."""
    r = tl.rsqrt(1.0 + tl.exp2(x * 2.8853900817779268))
    return tl.where(tl.abs(x) < 0.0125, x, 1.0 - 2.0 * (r * r))
''',
    "tr_sigmoid": '''
@triton.jit
def tr_sigmoid(x):
    """1 / (1 + exp(-x)), of f32 within 5 ulp."""
    if x.dtype == tl.float64:
        found = 1.0 / (1.0 + tl.exp(-x))
    else:
        r = tl.rsqrt(1.0 + tl.exp2(x * -1.4426950408889634))
        found = r * r
    return found
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
    "tr_log2_wide": '''
@triton.jit
def tr_log2_wide(x):
    """log2 of what is above zero in f32, as an f64 that is off by less than 2e-9 of it.

    x = 2**e * m; s = (m - 1) / (m + 1) is found in f32 and mended in f64, the rest of the series is
    small enough for f32.
    """
    is_tiny = x < 1.1754943508222875e-38
    bits = tl.where(is_tiny, x * 16777216.0, x).to(tl.int32, bitcast=True)
    e = (bits - 0x3F3504F3) >> 23
    m = (bits - (e << 23)).to(tl.float32, bitcast=True)
    r = 1.0 / (m + 1.0)
    s = (m - 1.0) * r
    wide = m.to(tl.float64)
    left = (wide - 1.0) - s.to(tl.float64) * (wide + 1.0)
    less = left.to(tl.float32) * r
    u = s * s
    p = 0.2623081612586975 * u + 0.3205988705158234
    p = p * u + 0.4121985733509064
    p = p * u + 0.5770779848098755
    p = p * u + 0.9617966413497925
    p = p * u * s + less * 2.8853900817779268
    e = tl.where(is_tiny, e - 24, e)
    return s.to(tl.float64) * 2.8853900817779268 + (p.to(tl.float64) + e.to(tl.float64))
''',
    "tr_pow": '''
@triton.jit
def tr_pow(a, b):
    """a to the power b, 5 ulp: only its logarithm in f64; of what is negative where b is whole."""
    b = tl.where(a == a, b, b)  # as many as there are of a
    x = tl.abs(a)
    y = b.to(tl.float64) * tr_log2_wide(x)
    y = tl.minimum(tl.maximum(y, -250.0), 250.0)
    n = tl.floor(y.to(tl.float32) + 0.5)
    part = (y - n.to(tl.float64)).to(tl.float32)
    half = n.to(tl.int32) >> 1
    low = ((half + 127) << 23).to(tl.float32, bitcast=True)
    high = ((n.to(tl.int32) - half + 127) << 23).to(tl.float32, bitcast=True)
    y = tl.exp2(part) * low * high
    is_end = (x == 0) | (x == float("inf"))
    y = tl.where(is_end, tl.where((b > 0) == (x == 0), 0.0, float("inf")), y)
    whole = tl.floor(b) == b
    odd = whole & (tl.floor(b * 0.5) * 2.0 != b)
    y = tl.where(odd, tr_copysign(y, a), y)
    y = tl.where((a < 0) & ~whole & (x < float("inf")), float("nan"), y)
    y = tl.where((a != a) | (b != b), a + b, y)
    is_one = (b == 0) | (a == 1) | ((a == -1) & (tl.abs(b) == float("inf")))
    return tl.where(is_one, 1.0, y)
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
