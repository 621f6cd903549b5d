"""Floats and whole numbers of 8 bits on vectors: the same bits on every kind of machine."""

from __future__ import annotations

import platform
import shutil

import ml_dtypes
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

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or platform.machine() not in ("x86_64", "AMD64"),
    reason="needs gcc on a machine with vectors",
)
MACHINES = ("", "-mno-avx512f", "-mno-avx2")
"""Flags that leave vectors of 16 floats where there are any, of 8, and none written by us."""
KINDS = {"f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
machines = pytest.mark.parametrize("machine", MACHINES)
numerics = "numerics blocked 512, functions 6 ulp, as result, contract, reassociate"


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def run(text: str, machine: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    program = parse_program(text)
    options = Options(check=2, cc=f"gcc {machine}".strip())
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, options=options, optimise=2)
    assert "#ifdef TR_WHOLE" in compiled.unit.text
    found = compiled.run(inputs)
    return {name: found.read(name) for name in program.outputs}


ROUNDED = """treadle 1
program p
inputs x
outputs y, z
{numerics}

buffer x : f32[{n}] on cpu
buffer y : {to}[{n}] on cpu
buffer z : f32[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast {to} %0
  store y[i] = %1
  %2 = cast f32 %1
  %3 = neg %2
  store z[i] = %3
}}
"""


@machines
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [13, 5_003])
def test_floats_are_rounded_to_8_bits_once(machine: str, kind: str, n: int) -> None:
    dtype = KINDS[kind]
    most = np.float32(ml_dtypes.finfo(dtype).max)
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    rng = np.random.default_rng(n)
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    beside = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    special = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, most * 1.0625, most * 2])
    x = np.concatenate([special, values, middles, *beside, bits])[:n]
    with np.errstate(over="ignore", invalid="ignore"):
        # without an infinity what is too large becomes the largest
        held = np.clip(x, -most, most) if kind == "f8e4m3fn" else x
        wanted = held.astype(dtype)
    found = run(ROUNDED.format(n=n, to=kind, numerics=numerics), machine, x=x)
    is_number = ~np.isnan(x)
    codes = found["y"].view(np.uint8), wanted.view(np.uint8)
    np.testing.assert_array_equal(codes[0][is_number], codes[1][is_number])
    assert np.isnan(found["y"].astype(np.float32)[~is_number]).all()
    np.testing.assert_array_equal(found["z"], -wanted.astype(np.float32))


READ = """treadle 1
program p
inputs x, u, s
outputs y, b, c, t
{numerics}

buffer x : {kind}[{n}] on cpu
buffer u : u8[{n}] on cpu
buffer s : i8[{n}] on cpu
buffer y : f32[{n}] on cpu
buffer b : bf16[{n}] on cpu
buffer c : bf16[{n}] on cpu
buffer t : f32[1] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast f32 %0
  store y[i] = %1
  %2 = load u[i]
  %3 = cast bf16 %2
  store b[i] = %3
  %4 = load s[i]
  %5 = cast bf16 %4
  store c[i] = %5
}}

loop t_ on cpu for j in 1 reduce r in {n} {{
  %0 = load s[r]
  %1 = cast f32 %0
  %2 = reduce sum %1
  store t[j] = %2
}}
"""


@machines
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [11, 256, 1_003])
def test_all_of_8_bits_are_read_as_what_they_are(machine: str, kind: str, n: int) -> None:
    codes = np.resize(np.arange(256, dtype=np.uint8)[::-1], n)
    x = codes.view(KINDS[kind])
    found = run(
        READ.format(n=n, kind=kind, numerics=numerics), machine, x=x, u=codes, s=codes.view(np.int8)
    )
    wanted = x.astype(np.float32)
    np.testing.assert_array_equal(found["y"], wanted)
    is_number = ~np.isnan(wanted)
    assert (np.signbit(found["y"]) == np.signbit(wanted))[is_number].all()
    np.testing.assert_array_equal(found["b"].astype(np.float32), codes.astype(np.float32))
    np.testing.assert_array_equal(found["c"].astype(np.float32), codes.view(np.int8))
    assert found["t"][0] == codes.view(np.int8).sum(dtype=np.int64)
