"""Functions of generated Triton: exact enough for f32, cheap enough not to hide memory.

Each is a text of its own, and a module has those that its kernels use. They stand on what Triton
itself offers, so that they run on every device and in its interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FUNCTIONS: Mapping[str, str] = {
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


def source_of(names: Iterable[str]) -> str:
    """The text of the functions asked for."""
    return "\n".join([FUNCTIONS[name] for name in sorted(set(names))])
