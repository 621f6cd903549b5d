"""Functions of doubles in loops on vectors are as exact as is said of them, on any bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.codegen.c.fast_ops import LIBRARY_F64
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

PROGRAM = """treadle 1
program p
inputs x, z
outputs y
numerics blocked 512, functions {ulps} ulp, as result, contract, reassociate

buffer x : f64[{n}] on cpu
buffer z : f64[{n}] on cpu
buffer y : f64[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = load z[i]
  %2 = {op} {arguments}
  store y[i] = %2
}}
"""


def sigmoid(x: Any) -> Any:
    """In as many digits as it is given."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


REFERENCES: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "hypot": np.hypot, "pow": np.power, "sigmoid": sigmoid,
}  # fmt: skip
"""In more digits than doubles have; of `erf`, `erfc` and `erfinv` there is no such function."""
WIDE = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def computed(op: str, x: np.ndarray, z: np.ndarray, ulps: float = 6) -> tuple[np.ndarray, str]:
    arguments = "%0, %1" if op in ("atan2", "hypot", "pow") else "%0"
    program = parse_program(PROGRAM.format(op=op, arguments=arguments, n=len(x), ulps=ulps))
    ctx = Ctx(Options(check=2), Roofline(program), Journal())
    compiled = compile_program(run_pipeline(program, ctx, KERNELS), optimise=2)
    return compiled.run({"x": x, "z": z}).read("y"), compiled.unit.kernels[0].text


def arguments() -> tuple[np.ndarray, np.ndarray]:
    """Numbers of usual sizes, any bits, and what is special; with a rest that fills no vector."""
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 1e308, 709.9, -745.2]
    usual = np.concatenate([rng.standard_normal(20_000), rng.standard_normal(20_000) * 100])
    bits = rng.integers(0, 1 << 63, 20_003, dtype=np.int64).view(np.float64)
    x = np.concatenate([special, usual, bits, -bits])
    return x, rng.permutation(x)


@pytest.mark.skipif(not WIDE, reason="there is no type with more digits")
@pytest.mark.parametrize("op", sorted(REFERENCES))
def test_errors_are_as_stated(op: str) -> None:
    x, z = arguments()
    found, text = computed(op, x, z)
    assert f"tr_vector_f64_{op}(" in text
    with np.errstate(all="ignore"):
        wide = [v.astype(np.longdouble) for v in (x, z)]
        exact = REFERENCES[op](*wide[: 2 if op in ("atan2", "hypot", "pow") else 1])
        rounded = exact.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    finite = np.isfinite(found) & np.isfinite(rounded)
    with np.errstate(all="ignore"):
        apart = np.abs(found.astype(np.longdouble) - exact) / np.spacing(np.abs(rounded))
    assert float(apart[finite].max()) <= LIBRARY_F64[op]
    rest = ~finite & ~np.isnan(rounded)
    # Where one of the two overflows, the other is the largest number there is.
    limit = np.finfo(np.float64).max
    same = (found == rounded) | ((np.abs(found) >= limit) & (np.abs(rounded) >= limit))
    assert same[rest].all()


def test_every_function_is_looked_at() -> None:
    assert set(REFERENCES) == LIBRARY_F64.keys() - {"erf", "erfc", "erfinv"}


@pytest.mark.parametrize("op", ["erf", "erfc"])
def test_error_functions_are_near_those_of_the_library(op: str) -> None:
    x, z = arguments()
    found, text = computed(op, x, z)
    assert f"tr_vector_f64_{op}(" in text
    near = np.array([getattr(math, op)(v) for v in x.tolist()])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(near))
    ok = ~np.isnan(near)
    assert (np.abs(found - near)[ok] <= 5 * np.spacing(np.abs(near[ok]))).all()


def test_the_inverse_of_the_error_function_is_between_its_neighbours() -> None:
    near_one = 1 - 10.0 ** -np.linspace(1, 15.9, 200)
    x = np.concatenate([np.linspace(0, 1, 301)[1:-1], near_one, 10.0 ** -np.linspace(1, 300, 200)])
    found, text = computed("erfinv", x, x)
    assert "tr_vector_f64_erfinv(" in text
    for given, y in zip(x.tolist(), found.tolist(), strict=True):
        # What is missing to 1 is exact, and tells more than the number itself.
        low, high = y * (1 - 8 * np.finfo(float).eps), y * (1 + 8 * np.finfo(float).eps)
        if given > 0.5:
            assert math.erfc(high) <= 1 - given <= math.erfc(low)
        else:
            assert math.erf(low) <= given <= math.erf(high)
    np.testing.assert_array_equal(computed("erfinv", -x, x)[0], -found)
    ends = np.array([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, np.nan, np.inf])
    found, _ = computed("erfinv", ends, ends)
    np.testing.assert_array_equal(found, [0.0, -0.0, np.inf, -np.inf, *[np.nan] * 4])
    assert np.signbit(found[1])


def test_exact_programs_call_the_function_for_one() -> None:
    x = np.linspace(-3.0, 3.0, 100)
    assert "tr_vector_f64" not in computed("exp", x, x, ulps=0.5)[1]
