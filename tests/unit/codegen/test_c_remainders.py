"""Remainders of floats on whole vectors are the C library's, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.codegen.c.remainders import REMAINDERS
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
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : {kind}[{n}] on cpu
buffer z : {kind}[{n}] on cpu
buffer y : {kind}[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = load z[i]
  %2 = {op} %0, %1
  store y[i] = %2
}}
"""
TYPES = {"f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}
MACHINES = {
    "this one": "",
    "one with vectors of 8": "-march=haswell",
    "one without": "-march=x86-64",
}


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def arguments(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with small, whole and huge quotients, any bits, and all that is special."""
    real, bits = TYPES[kind]
    rng = np.random.default_rng(0)
    small, by = rng.standard_normal((2, 5_000)) * 100
    whole = rng.integers(-1000, 1000, 5_000)
    times = 2.0 ** rng.integers(20, 70, 5_000)
    any_bits = rng.integers(0, np.iinfo(bits).max, (2, 5_003), dtype=bits).view(real)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, 5e-324, 3.4e38, 7], real)
    one, other = (m.ravel() for m in np.meshgrid(special, special))
    with np.errstate(over="ignore"):
        x = [small, whole * by, by * times, any_bits[0], one]
        z = [by, by, by, any_bits[1], other]
        return tuple(np.concatenate([v.astype(real) for v in part]) for part in (x, z))  # type: ignore[return-value]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("op", sorted(REMAINDERS))
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_remainders_are_exact(kind: str, op: str, machine: str) -> None:
    x, z = arguments(kind)
    program = parse_program(PROGRAM.format(kind=kind, op=op, n=len(x)))
    options = Options(check=2, cc=f"gcc {machine}".strip())
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, options=options, optimise=2)
    assert f"tr_vector_{'f64_' if kind == 'f64' else ''}{op}(" in compiled.unit.kernels[0].text
    found = compiled.run({"x": x, "z": z}).read("y")
    with np.errstate(all="ignore"):
        exact = np.fmod(x, z)
        if op == "remainder":
            exact = np.where((exact != 0) & ((exact < 0) != (z < 0)), exact + z, exact)
    np.testing.assert_array_equal(found, exact)
    there = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(exact)[there])


def test_where_one_of_two_doubles_is_taken_loops_stay_on_vectors() -> None:
    text = PROGRAM.format(kind="f64", op="pow", n=4096).replace(
        "%2 = pow %0, %1\n", "%3 = expm1 %0\n  %4 = gt %0, %1\n  %2 = where %4, %0, %3\n"
    )
    program = parse_program(
        text.replace("%2", "%5").replace("%3", "%2").replace("%4", "%3").replace("%5", "%4")
    )
    built = run_pipeline(program, Ctx(Options(check=2), Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, optimise=2)
    assert "tr_chosen_f64(" in compiled.unit.kernels[0].text
    x, z = np.random.default_rng(1).standard_normal((2, 4096))
    found = compiled.run({"x": x, "z": z}).read("y")
    np.testing.assert_allclose(found, np.where(x > z, x, np.expm1(x)), rtol=1e-14)
