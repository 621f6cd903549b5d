"""What is stored once goes past the caches where a nest touches more than they hold."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.codegen.c import streams
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program
from treadle.runtime import CompiledProgram, compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

NUMERICS = "numerics blocked 512, functions 6 ulp, as result, contract, reassociate"
POINTS = """treadle 1
program p
inputs x, z
outputs y
{numerics}

buffer x : f32[{rows}, {columns}] on cpu
buffer z : f32[{columns}] on cpu
buffer y : f32[{rows}, {wide}] on cpu

loop y_ on cpu for i in {rows}, j in {columns} {{
  %0 = load x[{columns}*i + j]
  %1 = load z[j]
  %2 = mul %0, %1
  %3 = add %2, %0
  store y[{wide}*i + j + {start}] = %3
}}
"""
MACHINES = {"vectors of 16": "", "vectors of 8": "-march=haswell", "none": "-march=x86-64"}


@pytest.fixture(autouse=True)
def small_nests_are_large(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
    monkeypatch.setattr(streams, "LEAST_BYTES", 1)


def compiled(text: str, cc: str) -> CompiledProgram:
    program, options = parse_program(text), Options(check=2, cc=f"gcc {cc}".strip())
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    return compile_program(built, options=options, optimise=2)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("cache", [0, 1, 1 << 40])
@pytest.mark.parametrize(
    ("rows", "columns", "wide", "start"), [(40, 64, 64, 0), (37, 53, 53, 0), (9, 100, 120, 3)]
)
def test_results_are_the_same_wherever_stores_go(
    rows: int, columns: int, wide: int, start: int, cache: int, machine: str
) -> None:
    text = POINTS.format(rows=rows, columns=columns, wide=wide, start=start, numerics=NUMERICS)
    unit = compiled(text, f"-DTR_LAST_CACHE={cache}L {machine}")
    assert "tr_w_stream(goes_past, " in unit.unit.text
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    z = np.arange(columns, dtype=np.float32)
    found = unit.run({"x": x, "z": z}).read("y")[:, start : start + columns]
    np.testing.assert_allclose(found, x * z + x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        ("f32", "f64"),  # whole vectors are of f32
        ("load x[", "load y["),  # what is read besides is in a cache already
        ("= %3", "= %3 mode atomic_add"),
    ],
)
def test_should_not_store_past_the_caches(was: str, instead: str) -> None:
    text = POINTS.format(rows=40, columns=64, wide=64, start=0, numerics=NUMERICS)
    given = text.replace(was, instead).replace("inputs x, z", "inputs x, z, y")
    assert "tr_w_stream(goes_past, " not in compiled(given, "").unit.text


def test_small_nests_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    text = POINTS.format(rows=40, columns=64, wide=64, start=0, numerics=NUMERICS)
    touched = 4 * (2 * 40 * 64 + 64)
    monkeypatch.setattr(streams, "LEAST_BYTES", touched + 1)
    assert "tr_w_stream(goes_past, " not in compiled(text, "").unit.text
    monkeypatch.setattr(streams, "LEAST_BYTES", touched)
    assert f"tr_goes_past({touched})" in compiled(text, "").unit.text
