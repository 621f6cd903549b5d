"""Rows that several passes read go through a tile where memory has their columns."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

TEXT = """treadle 1
program p
inputs x, g
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : {kind}[3, {n}, {m}] on cpu
buffer g : f32[3, {m}, {n}] on cpu
buffer y : f32[3, {m}, {n}] on cpu

loop y_ on cpu for i in 3, j in {m} reduce r in {n} {{
  %0 = load x[{m}*{n}*i + {place} + {m}*r]
  %1 = load g[{m}*{n}*i + {n}*j + r]
  %2 = mul %0, %1
  %3 = reduce sum %2
  %4 = sub %0, %3
  %5 = mul %4, %1
  store y[{m}*{n}*i + {n}*j + r] = %5
}}
"""


def built_text(kind: str, n: int, m: int, place: str, x: np.ndarray, g: np.ndarray) -> str:
    """The C text of the loop, whose result is compared on the way."""
    text = TEXT.format(kind=kind, n=n, m=m, place=place)
    program = parse_program(text)
    options = Options(check=2)
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, options=options, optimise=2)
    found = compiled.run({"x": x, "g": g}).read("y")
    rows = x.swapaxes(1, 2).astype(np.float64)
    rows = rows if place == "j" else rows[:, ::-1]
    wanted = (rows - (rows * g).sum(-1, keepdims=True)) * g
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    return compiled.unit.text


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
@pytest.mark.parametrize(
    ("kind", "n", "m", "place", "is_turned"),
    [
        ("f32", 16, 16, "j", True),
        ("f32", 64, 48, "j", True),
        ("f32", 512, 32, "j", True),
        ("f32", 528, 32, "j", False),  # no room in the first cache
        ("f32", 40, 32, "j", False),
        ("f32", 64, 40, "j", False),
        ("f32", 64, 48, "47 - j", False),  # the other way round
        ("f64", 64, 48, "j", False),
    ],
)
def test_rows_are_turned_sixteen_at_a_time(
    kind: str, n: int, m: int, place: str, is_turned: bool
) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, n, m)).astype(np.float32 if kind == "f32" else np.float64)
    g = rng.standard_normal((3, m, n)).astype(np.float32)
    text = built_text(kind, n, m, place, x, g)
    assert ("tr_turn(p0_x" in text) == is_turned
