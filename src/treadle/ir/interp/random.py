"""Random numbers from (seed, offset): Philox 4x32 with ten rounds, the same on every machine.

A block of four 32-bit words is computed from a counter of four words and a key of two:

    counter = (offset low, offset high, 0, 0)        key = (seed low, seed high)
    one round: with (hi0, lo0) = 0xD2511F53 * c0 and (hi1, lo1) = 0xCD9E8D57 * c2 in 64 bits,
               counter = (hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0)
    before each round but the first: key = (k0 + 0x9E3779B9, k1 + 0xBB67AE85) modulo 2**32

seed and offset are taken as 64-bit two's complement. From the words w0, w1, w2, w3:

    rand      u(w0), where u reads the word as signed, turns a negative n into -n-1, converts to
              f32 and multiplies by 4.6566127342e-10 in f32: uniform in [0, 1), as tl.rand does
    randn     sqrt(-2 log max(u(w0), 1e-7)) * cos(2 pi u(w1)), computed in f64, rounded to f32
    randint   low + (w0 + 2**32 * w1) modulo (high - low), all in 64 bits; low if high == low

rand and randn are then converted from f32 to the type asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from treadle.ir.interp.dtypes import Array, convert
from treadle.ir.types import DType

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
UNIFORM_SCALE = np.float32(4.6566127342e-10)
SMALLEST_UNIFORM = np.float32(1e-7)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counter: Sequence[Array], key: Sequence[Array]) -> tuple[Array, ...]:
    """The four output words (as u64 below 2**32) for four counter words and two key words."""
    c0, c1, c2, c3 = (np.asarray(c).astype(np.uint64) for c in counter)
    k0, k1 = (np.asarray(k).astype(np.uint64) for k in key)
    for step in range(ROUNDS):
        if step:
            k0, k1 = ((k + np.uint64(s)) & _LOW for k, s in zip((k0, k1), KEY_STEPS, strict=True))
        product0, product1 = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c2 = (product1 >> _HALF) ^ c1 ^ k0, (product0 >> _HALF) ^ c3 ^ k1
        c1, c3 = product1 & _LOW, product0 & _LOW
    return c0, c1, c2, c3


def words(seed: Array, offset: Array) -> tuple[Array, ...]:
    """The block of four words that belongs to a seed and an offset."""
    zero = np.zeros((), np.uint64)
    s, o = (convert(x, DType.I64).view(np.uint64) for x in (seed, offset))
    return philox((o & _LOW, o >> _HALF, zero, zero), (s & _LOW, s >> _HALF))


def uniform(word: Array) -> Array:
    """A 32-bit word as f32 in [0, 1)."""
    signed = word.astype(np.uint32).view(np.int32).astype(np.int64)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * UNIFORM_SCALE


def _rand(operands: Sequence[Array], to: DType) -> Array:
    return convert(uniform(words(*operands)[0]), to)


def _randn(operands: Sequence[Array], to: DType) -> Array:
    first, second, _, _ = words(*operands)
    radius = np.sqrt(-2 * np.log(np.maximum(uniform(first), SMALLEST_UNIFORM).astype(np.float64)))
    angle = 2 * np.pi * uniform(second).astype(np.float64)
    return convert((radius * np.cos(angle)).astype(np.float32), to)


def _randint(operands: Sequence[Array], to: DType) -> Array:
    seed, offset, *limits = operands
    low, high = (convert(x, DType.I64).view(np.uint64) for x in limits)
    first, second, _, _ = words(seed, offset)
    count = high - low
    drawn = (first | (second << _HALF)) % np.where(count == 0, np.uint64(1), count)
    return convert((drawn + low).view(np.int64), to)


GENERATORS: Mapping[str, Callable[[Sequence[Array], DType], Array]] = {
    "rand": _rand,
    "randn": _randn,
    "randint": _randint,
}
