"""Reductions over the last axis: every kind of `ops.REDUCTIONS`, one row each.

Operands are converted to the type of the result first (the `dtype` attribute names it, where
given). What a reduction adds or multiplies up is held in

    f64         for every float type, rounded once at the end; narrow floats are rounded to f32
                on the way, as if an f32 accumulator had made no error
    the type    for whole numbers, wrapping

so up to f32 the result does not depend on the order of the loop. (Sums of f64 do depend on it in
the last bits.) Over nothing a reduction gives its identity: sum 0, prod 1, any false, all true,
xor_sum 0, max the smallest and min the largest value there is, welford (0, 0, 0), online_softmax
(-inf, 0). There is no first element of nothing: argmax and argmin of it are an error.

online_softmax gives (max, sum of exp(x - max)). A row of only -inf gives (-inf, 0), like an empty
one: -inf is the element without weight. A row with +inf gives (inf, NaN), as the formula says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.arithmetic import nonzero
from treadle.ir.interp.dtypes import Array, convert, dtype_of, largest, smallest, widened
from treadle.ir.types import DType

Reduction: TypeAlias = "Callable[[Sequence[Array], DType], Array | tuple[Array, ...]]"


MOST_AT_ONCE = 1 << 17
"""How many products are made at once: what is made of them stays in the cache."""


def accumulator(array: Array, dtype: DType) -> Array:
    """Values of type `dtype` in the type they are added up in."""
    return array.astype(np.float64) if dtype.is_float else array


def _sum(operands: Sequence[Array], to: DType) -> Array:
    wide = accumulator(convert(operands[0], to), to)
    return convert(np.asarray(np.add.reduce(wide, axis=-1, dtype=wide.dtype)), to)


def _prod(operands: Sequence[Array], to: DType) -> Array:
    wide = accumulator(convert(operands[0], to), to)
    return convert(np.asarray(np.multiply.reduce(wide, axis=-1, dtype=wide.dtype)), to)


def _dot(operands: Sequence[Array], to: DType) -> Array:
    if operands[0].size > MOST_AT_ONCE and operands[0].ndim > 1:
        return np.stack([_dot(pair, to) for pair in zip(*operands, strict=True)])
    a, b = (accumulator(convert(x, to), to) for x in operands)
    return convert(np.asarray(np.add.reduce(a * b, axis=-1, dtype=a.dtype)), to)


def _max(operands: Sequence[Array], to: DType) -> Array:
    wide = widened(convert(operands[0], to), to)
    least = widened(smallest(to), to)
    return convert(np.asarray(np.maximum.reduce(wide, axis=-1, initial=least)), to)


def _min(operands: Sequence[Array], to: DType) -> Array:
    wide = widened(convert(operands[0], to), to)
    most = widened(largest(to), to)
    return convert(np.asarray(np.minimum.reduce(wide, axis=-1, initial=most)), to)


def _comparable(array: Array) -> Array:
    """The same order in a type numpy compares natively."""
    found = dtype_of(array)
    return array if found is None else widened(array, found)


def _welford(operands: Sequence[Array], to: DType) -> tuple[Array, ...]:
    x = accumulator(convert(operands[0], to), to)
    return _combined(x, np.zeros_like(x), np.ones_like(x), to)


def _welford_combine(operands: Sequence[Array], to: DType) -> tuple[Array, ...]:
    mean, m2, weight = (accumulator(convert(x, to), to) for x in operands)
    return _combined(mean, m2, weight, to)


def _combined(mean: Array, m2: Array, weight: Array, to: DType) -> tuple[Array, ...]:
    total = np.add.reduce(weight, axis=-1)
    safe = np.where(total == 0, 1.0, total)
    common = np.add.reduce(mean * weight, axis=-1) / safe
    apart = mean - common[..., None]
    spread = np.add.reduce(m2 + weight * apart * apart, axis=-1)
    return tuple(convert(np.asarray(x), to) for x in (common, spread, total))


def _online_softmax(operands: Sequence[Array], to: DType) -> tuple[Array, ...]:
    x = accumulator(convert(operands[0], to), to)
    top = np.maximum.reduce(x, axis=-1, initial=-np.inf)[..., None]
    weights = np.where(np.isneginf(x), 0.0, np.exp(x - top))
    total = np.add.reduce(np.where(np.isnan(top), np.nan, weights), axis=-1)
    return convert(top[..., 0], to), convert(np.asarray(total), to)


REDUCERS: Mapping[str, Reduction] = {
    "sum": _sum,
    "prod": _prod,
    "max": _max,
    "min": _min,
    "argmax": lambda xs, to: np.argmax(_comparable(xs[0]), axis=-1),
    "argmin": lambda xs, to: np.argmin(_comparable(xs[0]), axis=-1),
    "any": lambda xs, to: np.logical_or.reduce(nonzero(xs[0]), axis=-1),
    "all": lambda xs, to: np.logical_and.reduce(nonzero(xs[0]), axis=-1),
    "xor_sum": lambda xs, to: np.bitwise_xor.reduce(convert(xs[0], to), axis=-1),
    "dot": _dot,
    "welford": _welford,
    "welford_combine": _welford_combine,
    "online_softmax": _online_softmax,
}
NEEDS_AN_ELEMENT = frozenset({"argmax", "argmin"})
