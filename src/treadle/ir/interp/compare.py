"""Comparing two programs by running them: random inputs, results side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from treadle.index import Symbol
from treadle.ir.interp.bindings import number
from treadle.ir.interp.calls import ExternFn
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.interp.machine import run
from treadle.ir.program import Program
from treadle.ir.types import Buffer, DType


def small_sizes(program: Program) -> dict[str, int]:
    """A value for every run-time size: its hint, else the least it allows."""
    return {s.name: _likely(s) for s in program.sizes}


def _likely(s: Symbol) -> int:
    if s.hint is not None:
        return s.hint
    least = s.lo if s.lo is not None else 1
    return math.ceil(max(least, 1) / s.divisor) * s.divisor


def random_inputs(
    program: Program, seed: int = 0, sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Random arrays for the inputs: moderate floats, small whole numbers that can be indices."""
    rng = np.random.default_rng(seed)
    known = {**small_sizes(program), **(sizes or {})}
    values = {s: known[s.name] for s in program.sizes}
    return {n: _random(rng, program.by_name[n], values) for n in program.inputs}


def _random(rng: np.random.Generator, b: Buffer, sizes: Mapping[Symbol, int]) -> Array:
    shape = tuple(number(n, sizes, f"buffer '{b.name}'") for n in b.layout.sizes)
    if b.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if b.dtype.is_int:
        return rng.integers(0, 4, shape).astype(NUMPY_TYPES[b.dtype])
    return rng.standard_normal(shape).astype(np.float32).astype(NUMPY_TYPES[b.dtype])


def differing_results(
    before: Program,
    after: Program,
    seed: int = 0,
    externs: Mapping[str, ExternFn] | None = None,
    allowed: float = 0.0,
) -> list[tuple[str, str]]:
    """Outputs and inputs that end up different, with what differs; empty if all are the same.

    Bit for bit, except that a NaN equals any NaN: passes do not change arithmetic. What is
    `allowed` all the same is relative to the largest element of each result.
    """
    inputs, sizes = random_inputs(before, seed), small_sizes(before)
    results = [run(p, inputs, sizes=sizes, externs=externs) for p in (before, after)]
    found = []
    for name in dict.fromkeys((*before.outputs, *before.inputs)):
        one, other = (r.read(name) for r in results)
        if one.shape != other.shape:
            found.append((name, f"shape {one.shape} became {other.shape}"))
            continue
        wide = [x.astype(np.float64) for x in (one, other)]
        wrong = ~((wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1])))
        if allowed and wrong.any():
            finite = wide[0][np.isfinite(wide[0])]
            near = allowed * np.abs(finite).max(initial=0.0)
            with np.errstate(invalid="ignore"):
                wrong &= ~(np.abs(wide[0] - wide[1]) <= near)
        if wrong.any():
            first = np.argwhere(wrong)[0].tolist()
            at = tuple(first)
            found.append((name, f"{wrong.sum()} elements, {one[at]} became {other[at]} at {first}"))
    return found
