"""A double that becomes a float and a double again is rounded, in loops of few points too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.numerics import TORCH
from treadle.ir.text import parse_program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

TEXT = """treadle 1
program straight
inputs x, z
outputs y, x

buffer x : f64[4] on cpu
buffer z : f32[] on cpu
buffer y : f64[4] on cpu

loop body on cpu reduce r in 4 {
  %0 = load x[r]
  %1 = load z[0]
  %2 = cast f32 %0
  %3 = cast f64 %2
  store x[r] = %3
  %4 = sort %1, %1 descending stable
  %5 = get 1 %4
  %6 = constant 0 f32
  %7 = gt %2, %6
  %8 = where %7, %2, %5
  %9 = load x[r]
  %10 = add %8, %9
  store y[r] = %10
}
"""
GIVEN = np.array([1.0582934050165091, 2.1, 0.3, -0.7])


def test_both_roundings_stay() -> None:
    program = replace(parse_program(TEXT), numerics=TORCH)
    ctx = Ctx(Options(), Roofline(program), Journal())
    compiled = compile_program(run_pipeline(program, ctx, KERNELS))
    assert compiled.is_compiled
    y = compiled.run({"x": GIVEN.copy(), "z": np.float32(0.5).reshape(())})["y"]
    rounded = GIVEN.astype(np.float32).astype(np.float64)
    assert np.array_equal(y, np.where(rounded > 0, rounded, 0.5) + rounded)
