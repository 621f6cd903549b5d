"""Conversions of f16 in loops on vectors are those of IEEE 754, for every code and any float."""

from __future__ import annotations

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

PROGRAM = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : {given}[{n}] on cpu
buffer y : {to}[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast {to} %0
  store y[i] = %1
}}
"""


def converted(x: np.ndarray, given: str, to: str) -> tuple[np.ndarray, str]:
    """What scheduled code makes of the elements, and its text."""
    program = parse_program(PROGRAM.format(given=given, to=to, n=len(x)))
    ctx = Ctx(Options(check=2), Roofline(program), Journal())
    compiled = compile_program(run_pipeline(program, ctx, KERNELS), optimise=2)
    assert compiled.is_compiled
    return compiled.run({"x": x}).read("y"), compiled.unit.text


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def test_every_code_has_its_value() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for count in (len(codes), 65_531):  # with and without a rest that fills no vector
        found, text = converted(codes[:count], "f16", "f32")
        assert "tr_widen_f16(t0" in text
        np.testing.assert_array_equal(found, codes[:count].astype(np.float32))


def test_floats_are_rounded_to_the_nearest_ties_to_even() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.sort(codes[np.isfinite(codes)])
    halfway = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    near = [np.nextafter(halfway.astype(np.float32), np.float32(s)) for s in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_003, dtype=np.uint32).view(np.float32)
    x = np.concatenate([codes, halfway.astype(np.float32), *near, bits])
    found, text = converted(x, "f32", "f16")
    assert ", t1_2, " in text
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16))
    signs = np.signbit(found) == np.signbit(x)
    assert signs[~np.isnan(x)].all()


SHARED = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f16[127] on cpu
buffer y : f16[257, 127] on cpu

loop y_ on cpu for i in 127 reduce r in 257 {
  %0 = load x[i]
  %1 = cast f32 %0
  %2 = reduce sum %1
  %3 = truediv %1, %2
  %4 = cast f16 %3
  store y[127*r + i] = %4
}
"""


def test_what_all_rows_share_is_stored_where_it_is_not_made() -> None:
    program = parse_program(SHARED)
    ctx = Ctx(Options(check=2), Roofline(program), Journal())
    compiled = compile_program(run_pipeline(program, ctx, KERNELS), optimise=2)
    x = (np.arange(127) + 1).astype(np.float16)
    found = compiled.run({"x": x}).read("y")
    np.testing.assert_array_equal(found, np.full((257, 127), 1 / 257, np.float16))


TWICE = """treadle 1
program p
inputs x
outputs x, y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f16[3, 48] on cpu
buffer y : f16[3, 48] on cpu

loop y_ on cpu for i in 3, j in 48 {
  %0 = load x[48*i + j]
  %1 = add %0, %0
  store y[48*i + j] = %1
  store x[48*i + j] = %1
}
"""


def test_what_is_stored_where_it_is_read_has_no_row_for_another_store() -> None:
    program = parse_program(TWICE)
    ctx = Ctx(Options(check=2), Roofline(program), Journal())
    compiled = compile_program(run_pipeline(program, ctx, KERNELS), optimise=2)
    x = np.arange(144).reshape(3, 48).astype(np.float16)
    result = compiled.run({"x": x})
    for name in ("x", "y"):
        np.testing.assert_array_equal(result.read(name), 2 * x)
