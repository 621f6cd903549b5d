"""Random arrays of several kinds: what programs are run on beside moderate numbers.

Whole numbers stay small where a program may use them as an index; elsewhere some are extreme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from treadle.index import Symbol
from treadle.ir.interp.bindings import number
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array, convert
from treadle.ir.program import Program
from treadle.ir.types import DType

Shape: TypeAlias = tuple[int, ...]
Floats: TypeAlias = Callable[[np.random.Generator, Shape], Array]
INDEX_RANGE = 4
"""Indices are whole numbers below this."""
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 1.0)


def _moderate(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.standard_normal(shape)


def _whole(rng: np.random.Generator, shape: Shape) -> Array:
    """Few different numbers: ties, zeros of both signs, exact sums."""
    return rng.integers(-2, 3, shape) * rng.choice([-0.5, 1.0], shape)


def _of_any_size(rng: np.random.Generator, shape: Shape) -> Array:
    return np.ldexp(rng.standard_normal(shape), rng.integers(-24, 25, shape))


def _special(rng: np.random.Generator, shape: Shape) -> Array:
    """Some are infinite, NaN, zeros, denormal, or next to the largest of f32."""
    some = rng.random(shape) < 0.15
    return np.where(some, rng.choice(SPECIAL, shape), rng.standard_normal(shape))


FLOATS: Mapping[str, Floats] = {
    "moderate": _moderate,
    "whole": _whole,
    "any size": _of_any_size,
    "special": _special,
}


def _integers(rng: np.random.Generator, kind: str, dtype: DType, shape: Shape) -> Array:
    made = NUMPY_TYPES[dtype]
    if kind == "special":
        limits = np.iinfo(made)
        ends = rng.choice(np.array([limits.min, limits.max, 0, 1], made), shape)
        return np.where(rng.random(shape) < 0.15, ends, rng.integers(0, 9, shape).astype(made))
    low = 0 if dtype.name.startswith("U") else -4
    return rng.integers(low, 9, shape).astype(made)


def arrays_of(
    kind: str,
    program: Program,
    sizes: Mapping[Symbol, int],
    rng: np.random.Generator,
    are_indices: bool,
) -> dict[str, Array]:
    """Arrays of a kind for the inputs of a program; whole numbers are legal indices if asked."""
    found = {}
    for name in program.inputs:
        b = program.by_name[name]
        shape = tuple(number(n, sizes, name) for n in b.layout.sizes)
        if b.dtype is DType.BOOL:
            found[name] = rng.integers(0, 2, shape).astype(bool)
        elif b.dtype.is_float:
            with np.errstate(all="ignore"):  # narrow types overflow
                found[name] = convert(np.asarray(FLOATS[kind](rng, shape), np.float64), b.dtype)
        elif are_indices:
            found[name] = rng.integers(0, INDEX_RANGE, shape).astype(NUMPY_TYPES[b.dtype])
        else:
            found[name] = _integers(rng, kind, b.dtype, shape)
    return found
