"""Conversions in generated C that are written for vectors: to the bit what they should give."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from treadle.codegen.c.unit import FAST_FLAGS, FLAGS, LIBRARIES, prelude

LOOPS = """
void rounded(const float *x, float *y, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) y[i] = tr_round_f16(x[i]);
}
void encoded(const float *x, uint16_t *y, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) y[i] = tr_encode_f16(x[i]);
}
void decoded(const uint16_t *x, float *y, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) y[i] = tr_decode_f16(x[i]);
}
void in_8_bits(const float *x, int8_t *y, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) y[i] = (int8_t)tr_to_8_bits(x[i]);
}
void limited(const float *x, const float *y, float *z, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) z[i] = tr_minimum_f32(tr_maximum_f32(x[i], y[i]), y[i + 1]);
}
void limited_f64(const double *x, const double *y, double *z, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) z[i] = tr_minimum_f64(tr_maximum_f64(x[i], y[i]), y[i + 1]);
}
void in_f8(const float *x, uint8_t *y, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) y[i] = tr_encode_f8e5m2(tr_round_f8e5m2(x[i]));
}
void in_f8_fn(const float *x, uint8_t *y, long n)
{
    #pragma omp simd
    for (long i = 0; i < n; ++i) y[i] = tr_encode_f8e4m3fn(tr_round_f8e4m3fn(x[i]));
}
void by_64_bits(const float *x, int8_t *y, long n)
{
    for (long i = 0; i < n; ++i) y[i] = (int8_t)tr_to_i64(x[i]);
}
"""

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conversions")
    (folder / "conversions.c").write_text(prelude() + LOOPS, "utf-8")
    options = [*FLAGS, *FAST_FLAGS, "-O2", "-shared", "-fPIC"]
    target = folder / "conversions.so"
    command = ["cc", *options, str(folder / "conversions.c"), "-o", str(target), *LIBRARIES]
    subprocess.run(command, check=True)
    return target


def run(compiled: Path, name: str, x: np.ndarray, to: type) -> np.ndarray:
    y = np.empty(x.size, to)
    call = ctypes.CDLL(str(compiled))[name]
    call(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size))
    return y


def test_every_value_is_read_and_written_back(compiled: Path) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = run(compiled, "decoded", codes, np.float32)
    assert values.tobytes() == codes.view(np.float16).astype(np.float32).tobytes()
    assert (run(compiled, "encoded", values, np.uint16) == codes).all()


def test_floats_are_rounded_to_the_nearest(compiled: Path) -> None:
    """All values of the type, the middles between them, and the floats beside both."""
    values = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (values + np.append(values[1:], 65536.0)) / 2
    points = np.concatenate([values, middles]).astype(np.float32)
    beside = [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(0))]
    spread = np.arange(0, 0x7F80_0000, 65521, dtype=np.uint32).view(np.float32)
    x = np.concatenate([*beside, spread, np.float32([np.inf])])
    x = np.concatenate([x, -x])
    with np.errstate(over="ignore", under="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    assert run(compiled, "rounded", x, np.float32).tobytes() == expected.tobytes()


def test_what_is_no_number_stays_none(compiled: Path) -> None:
    codes = np.uint32([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF])
    x = np.resize(codes, 64).view(np.float32)
    assert np.isnan(run(compiled, "rounded", x, np.float32)).all()


def test_eight_bits_of_a_float_are_the_last_of_64(compiled: Path) -> None:
    x = np.arange(0, 1 << 32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    small = np.arange(-600, 600, 0.25, dtype=np.float32)
    borders = np.float32([2.0**k * s for k in range(24, 70) for s in (1, 1.0000001, -1, -1.5)])
    x = np.concatenate([x, small, borders, np.nextafter(borders, np.float32(0))])
    expected = run(compiled, "by_64_bits", x, np.int8)
    assert (run(compiled, "in_8_bits", x, np.int8) == expected).all()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86-64")
def test_loops_of_conversions_run_on_vectors(compiled: Path) -> None:
    disassembler = shutil.which("objdump")
    if disassembler is None:
        pytest.skip("needs a disassembler")
    text = subprocess.run(
        [disassembler, "-d", str(compiled)], check=True, capture_output=True, text=True
    ).stdout
    plain = ("rounded", "encoded", "decoded", "in_8_bits")
    for name in (*plain, "limited", "limited_f64", "in_f8", "in_f8_fn"):
        body = text.split(f"<{name}>:")[1].split("\n\n")[0]
        assert re.search(r"%[yz]mm", body), name
