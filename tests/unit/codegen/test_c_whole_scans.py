"""Scans along rows on whole vectors: what one by one gives, on every kind of machine."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.unit.codegen.test_c_whole_vectors import (
    NUMERICS,
    compiled_code_stays_here,
    machines,
    needs_compiler,
    run,
)

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.whole_scans import write_scan
from treadle.codegen.c.whole_vectors import VectorLoop, types_within

__all__ = ["compiled_code_stays_here"]

SCANNED = """treadle 1
program p
inputs x
outputs y
{numerics}

buffer x : {type}[{rows}, {n}] on cpu
buffer y : {type}[{rows}, {n}] on cpu

loop y_ on cpu for i in {rows} reduce r in {n} {{
  %0 = load x[{place}]
  %1 = cast f32 %0
  %2 = scan {how} %1
  %3 = cast {type} %2
  store y[{n}*i + r] = %3
}}
"""
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def scanned(machine: str, how: str, x: np.ndarray, kind: str, turned: bool = False) -> np.ndarray:
    rows, n = x.shape
    place = f"{n}*i + {n - 1} - r" if turned else f"{n}*i + r"
    text = SCANNED.format(rows=rows, n=n, how=how, type=kind, place=place, numerics=NUMERICS)
    return run(text, machine, x=x)["y"]


def one_by_one(how: str, x: np.ndarray) -> np.ndarray:
    """What a scan is."""
    wide = x.astype(np.float64)
    two = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[how]
    with np.errstate(all="ignore"):
        return two.accumulate(wide, axis=1).astype(np.float32).astype(x.dtype)


@needs_compiler
@machines
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [8, 5])
@pytest.mark.parametrize("n", [9, 16, 64, 77])
def test_rows_are_scanned_as_one_by_one(machine: str, kind: str, rows: int, n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.uniform(0.5, 1.5, (rows, n)).astype(TYPES[kind])
    for how in ("add", "mul", "max", "min"):
        found = scanned(machine, how, x, kind).astype(np.float32)
        wanted = one_by_one(how, x).astype(np.float32)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=how)


@needs_compiler
@machines
@pytest.mark.parametrize("n", [16, 77])
def test_scans_keep_nans_infinities_and_zeros_in_their_places(machine: str, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((8, n)).astype(np.float32)
    x[0, 3], x[1, 0], x[2, 5], x[3, n - 1] = np.nan, np.nan, np.inf, -np.inf
    x[4, :] = -0.0
    x[5, ::2], x[5, 1::2] = -0.0, 0.0
    x[6, 2], x[6, 9] = np.inf, -np.inf
    for how in ("add", "max", "min"):
        found, wanted = scanned(machine, how, x, "f32"), one_by_one(how, x)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=how)
    for how in ("add", "mul"):
        signs = np.signbit(scanned(machine, how, x[4:5], "f32"))
        np.testing.assert_array_equal(signs, np.signbit(one_by_one(how, x[4:5])), how)
    for zero in (-0.0, 0.0):
        x[7, :], x[7, 0] = -1.0, zero
        for how, one in {"max": x[7:], "min": -x[7:]}.items():
            signs = np.signbit(scanned(machine, how, one, "f32"))
            np.testing.assert_array_equal(signs, np.signbit(one[0, 0]), how)


@needs_compiler
@machines
@pytest.mark.parametrize("n", [16, 77])
@pytest.mark.parametrize("rows", [8, 3])
def test_rows_are_scanned_from_their_ends(machine: str, n: int, rows: int) -> None:
    x = np.random.default_rng(n).uniform(0.5, 1.5, (rows, n)).astype(np.float32)
    found = scanned(machine, "add", x, "f32", turned=True)
    np.testing.assert_allclose(found, one_by_one("add", x[:, ::-1]), rtol=1e-6)


LINES = (
    "const float v0 = p0[(64 * i0 + r0)];",
    "c2 = (r0) == 0 ? (double)v0 : (c2 + ((double)v0));",
    "p0[(64 * i0 + r0)] = ((float)c2);",
)


def written(*lines: str) -> str:
    """The text of a loop that scans on whole vectors; nothing if it stays as it is."""
    top = CodeBlock()
    top.add("float *const p0 = (float *)a0;", "double *const p1 = (double *)a1;", "double c2;")
    block = top.open("for (int64_t r0 = 0; r0 < n1; ++r0)")
    block.add(*lines)
    is_whole = write_scan(VectorLoop(top, block, {}, 64), types_within(top), {})
    text = "\n".join(top.lines())
    assert is_whole == ("#ifdef TR_WHOLE" in text)
    return text.split("#else")[0] if is_whole else ""


def test_a_state_begins_with_what_changes_nothing() -> None:
    text = written(*LINES)
    assert "if (r0 == 0) c2 = -0.0; const tr_w c2_w = tr_w_scan_sum(&c2, v0);" in text
    assert "tr_w_store(p0 + (64 * i0 + r0), c2_w);" in text


def test_rows_side_by_side_stand_inside_of_the_loop_along_them() -> None:
    top = CodeBlock()
    top.add("float *const p0 = (float *)a0;", "double c2[4];")
    around = top.open("for (int64_t i0_b = 0; i0_b < n0; i0_b += 4)")
    along = around.open("for (int64_t r0 = 0; r0 < n1; ++r0)")
    block = along.open("for (int64_t i0_l = 0; i0_l < 4; ++i0_l)")
    block.head.append("const int64_t i0 = i0_b + i0_l;")
    block.add(*[line.replace("c2", "c2[i0_l]") for line in LINES])
    assert write_scan(VectorLoop(along, block, {}, 4, around), types_within(top), {})
    text = "\n".join(top.lines())
    assert text.index("r0 = r0_v;") < text.index("i0_l = 0;") < text.index("&c2[i0_l], v0")


@pytest.mark.parametrize(
    "lines",
    [
        LINES[:1],  # no scan
        (LINES[0], "c2 = (r1) == 0 ? (double)v0 : (c2 + ((double)v0));"),  # begins elsewhere
        (LINES[0], "c2 = (r0) == 0 ? (double)v0 : (c2 - ((double)v0));"),
        (LINES[0], "c2 = (r0) == 0 ? (double)v0 : (c2 + ((double)v1));"),
        (*LINES[:2], "p1[r0] = (c2);"),  # doubles are stored
        (*LINES[:2], "const double v3 = c2 * c2;"),
        (LINES[0], "const double v1 = (double)v0 * (double)v0;", *LINES[1:]),
        (LINES[2], *LINES[:2]),  # what it was before
    ],
)
def test_should_not_touch_other_loops(lines: tuple[str, ...]) -> None:
    assert written(*lines) == ""
