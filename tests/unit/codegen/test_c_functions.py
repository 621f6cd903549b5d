"""The functions of fast.h and library.h are as exact as they say, over all floats."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from treadle.codegen.c.fast_ops import FAST, LIBRARY
from treadle.codegen.c.unit import FAST_FLAGS, FLAGS, LIBRARIES, prelude

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TEXT = files("treadle.codegen.c").joinpath("fast.h").read_text("utf-8")
MACHINES = {
    "this one": (),
    "one with vectors of 8": ("-march=haswell",),
    "one without a fused multiply and add": ("-march=x86-64",),
}
FORMS = ("tr_fast_", "tr_vector_")
"""A function of one float, and the same where a loop on vectors calls it."""
DENSE = 1021
"""One float of so many is tried by default: all exponents, and no pattern in the last bits."""

machines = pytest.mark.parametrize(
    "machine",
    [m for m, flags in MACHINES.items() if not flags or platform.machine() in ("x86_64", "AMD64")],
)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Measured(NamedTuple):
    """The largest error of a function in ulp, where, and how many results are of another kind."""

    error: float
    at: str
    wrong: int


def measure(folder: Path, machine: str, first: int, step: int, form: str) -> dict[str, Measured]:
    source, program = folder / "errors.c", folder / "errors"
    text = (HERE / "function_errors.c").read_text("utf-8").replace("tr_fast_", form)
    helpers = {"fast", *[f"vector_{name}" for name in (*stated(), *LIBRARY)]}
    source.write_text(prelude(frozenset(helpers)) + text, "utf-8")
    flags = [*FLAGS, *FAST_FLAGS, *MACHINES[machine], "-O2"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), *LIBRARIES], check=True)
    ran = subprocess.run([program, str(first), str(step)], check=True, capture_output=True)
    found = {}
    for line in ran.stdout.decode().splitlines():
        name, error, at, wrong = line.split()
        found[name] = Measured(float(error), at, int(wrong))
    assert set(found) == {*FAST, *LIBRARY}
    return found


def stated() -> dict[str, float]:
    """The errors in the comments of fast.h."""
    return {n: float(e) for n, e in re.findall(r"^/\* (\w+): ([\d.]+) ulp", TEXT, re.MULTILINE)}


def check(found: dict[str, Measured]) -> None:
    for name, one in found.items():
        assert not one.wrong, (name, one)
        most = LIBRARY[name] if name in LIBRARY else stated().get(name, FAST[name][1])
        assert one.error <= most, (name, one)


def test_each_function_states_its_error() -> None:
    for name, error in stated().items():
        assert error <= FAST[name][1], f"{name} is said to be more exact than it is"
    assert set(FAST) - set(stated()) == {"rsqrt"}, "what is no function of ours"


@needs_compiler
@machines
@pytest.mark.parametrize("form", FORMS)
def test_errors_are_as_stated(machine: str, form: str, tmp_path: Path) -> None:
    check(measure(tmp_path, machine, 0, DENSE, form))


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="forms of x86-64")
def test_loops_that_choose_between_calls_run_on_vectors(tmp_path: Path) -> None:
    """A loop whose branch needs a function on one side only still calls it on whole vectors."""
    text = (
        prelude(frozenset({"fast", "vector_exp"}))
        + """
void each(const float *x, float *y, int64_t n)
{
    #pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        const float e = tr_vector_exp(x[i]);
        y[i] = tr_chosen_f32((uint8_t)(x[i] > 0.0f), e, x[i] * 0.5f);
    }
}
"""
    )
    source, made = tmp_path / "each.c", tmp_path / "each.s"
    source.write_text(text, "utf-8")
    flags = [*FLAGS, *FAST_FLAGS, "-march=haswell", "-O3", "-fPIC", "-S"]
    subprocess.run(["cc", *flags, str(source), "-o", str(made)], check=True)
    if "gcc" not in subprocess.run(["cc", "-v"], capture_output=True, text=True).stderr:
        pytest.skip("only gcc is told of functions on vectors")
    assert re.search(r"call\s+_ZGVdN8v_tr_vector_exp", made.read_text())


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="forms of x86-64")
def test_the_library_is_called_on_whole_vectors(tmp_path: Path) -> None:
    """Where glibc has functions on vectors, loops call them and not the one for a single float."""
    libc, version = platform.libc_ver()
    if libc != "glibc" or tuple(map(int, version.split("."))) < (2, 35):
        pytest.skip("the library has no functions on vectors")
    text = (
        prelude(frozenset({"fast", "vector_log1p", "vector_pow"}))
        + """
void each(const float *x, float *y, int64_t n)
{
    #pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = tr_vector_pow(tr_vector_log1p(x[i]), x[i]);
}
"""
    )
    source, made = tmp_path / "each.c", tmp_path / "each.s"
    source.write_text(text, "utf-8")
    flags = [*FLAGS, *FAST_FLAGS, "-march=haswell", "-O3", "-fPIC", "-S"]
    subprocess.run(["cc", *flags, str(source), "-o", str(made)], check=True)
    if "gcc" not in subprocess.run(["cc", "-v"], capture_output=True, text=True).stderr:
        pytest.skip("only gcc is told of functions on vectors")
    assert re.search(r"call\s+_ZGVdN8v_log1pf", made.read_text())
    assert re.search(r"call\s+_ZGVdN8vv_powf", made.read_text())


@needs_compiler
@pytest.mark.exhaustive
@machines
@pytest.mark.parametrize("form", FORMS)
def test_errors_are_as_stated_for_all_floats(machine: str, form: str, tmp_path: Path) -> None:
    check(measure(tmp_path, machine, 0, 1, form))


# ----------------------------------------------------------------------------------- fits


def coefficients(function: str, variable: str) -> list[float]:
    """The coefficients of a polynomial in fast.h from the constant up."""
    (text,) = re.findall(
        rf"TR_NAME\({function}\)\(TR_F x\)\n(.*?)^\}}", TEXT, re.DOTALL | re.MULTILINE
    )
    first = re.findall(rf"TR_F {variable} = TR_ALL\((\S+)f\);", text)
    others = re.findall(rf"{variable} = {variable} \* \w+ ([+-]) (\S+)f;", text)
    return [number(sign + word) for sign, word in reversed([("", *first), *others])]


def number(word: str) -> float:
    return float.fromhex(word) if "0x" in word else float(word)


def fit_of(function: str) -> Any:
    """What the fit in `bench` gives for a function."""
    spec = importlib.util.spec_from_file_location(
        "fit_functions", ROOT / "bench" / "fit_functions.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FITS[function]()


# Both kinds of fit; the others take long, and what their errors are is measured above.
LONG_FITS = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("erf", "gelu_tilt")]


@pytest.mark.parametrize("name", ["exp", "log", "tanh", *LONG_FITS])
def test_coefficients_are_those_of_the_fit(name: str) -> None:
    fit = fit_of(name)
    assert fit.error < 2.0**-25, f"{name} could not be exact to a rounding"
    pairs = [("p", fit.numerator)]
    if fit.denominator:
        pairs.append(("q", (1.0, *fit.denominator)))
    for variable, wanted in pairs:
        given = coefficients(name, variable)
        assert len(given) == len(wanted), (name, given)
        # To the digits that a float holds, nearly.
        np.testing.assert_allclose(given, wanted, rtol=1e-6, err_msg=f"{name}, {variable}")
