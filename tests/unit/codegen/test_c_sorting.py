"""Rows of keys are put in order stably, by whichever way their length and type ask for."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.codegen.c.unit import EXACT_FLAGS, FLAGS, LIBRARIES, prelude

MACHINES = {
    "this one": (),
    "one with vectors of 4 keys": ("-march=haswell",),
    "one without vectors of keys": ("-march=x86-64",),
}
TYPES = {
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}
LENGTHS = (0, 1, 2, 3, 7, 8, 9, 31, 33, 64, 100, 255, 256, 257, 511, 513, 1000, 2048, 2049, 5000)

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.parametrize(
        "machine",
        [
            name
            for name, flags in MACHINES.items()
            if not flags or platform.machine() in ("x86_64", "AMD64")
        ],
    ),
]


@pytest.fixture
def sorting(machine: str, tmp_path: Path) -> ctypes.CDLL:
    """The functions, under names that a library shows."""
    lines = [prelude(frozenset({"sort"}))]
    for name in TYPES:
        lines.append(
            f"void sort_{name}(const void *k, int64_t *o, int64_t *s, int64_t n, int down)"
            f" {{ tr_sort_{name}(k, o, s, n, down); }}"
        )
    source, made = tmp_path / "sort.c", tmp_path / "sort.so"
    source.write_text("\n".join(lines), "utf-8")
    flags = [*FLAGS, *EXACT_FLAGS, *MACHINES[machine], "-O3", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(made), *LIBRARIES], check=True)
    return ctypes.CDLL(str(made))


def order(library: ctypes.CDLL, name: str, keys: Any, down: bool) -> Any:
    """Where each key stands after sorting; what lies behind the rows stays as it is."""
    n = len(keys)
    places, spare = np.full(n + 1, -7, np.int64), np.full(n + 1, -7, np.int64)
    given = [ctypes.c_void_p(a.ctypes.data) for a in (keys, places, spare)]
    getattr(library, f"sort_{name}")(*given, ctypes.c_int64(n), ctypes.c_int(down))
    assert places[n] == spare[n] == -7
    return places[:n]


def expected(keys: Any, down: bool) -> Any:
    """The same by numpy: NaNs are one value, the greatest; equal keys stay as they stand."""
    ranks = np.unique(keys, return_inverse=True, equal_nan=True)[1].reshape(-1).astype(np.int64)
    return np.argsort(-ranks if down else ranks, kind="stable")


def drawn(kind: Any, n: int, few: bool, rng: Any) -> Any:
    """Keys of all sizes, or of few values, so that many are equal."""
    if few:
        return rng.integers(0, 5, n).astype(kind)
    bits = rng.integers(0, 256, n * np.dtype(kind).itemsize, np.uint8).view(kind).copy()
    if np.issubdtype(kind, np.floating) and n:
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45], kind)
        bits[rng.integers(0, n, n // 2)] = special[rng.integers(0, len(special), n // 2)]
    return bits


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_of_any_length_and_type_are_in_order(machine: str, sorting: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    for name, kind in TYPES.items():
        for n in LENGTHS:
            for few in (False, True):
                keys = drawn(kind, n, few, rng)
                for down in (False, True):
                    found = order(sorting, name, keys, down)
                    assert np.array_equal(found, expected(keys, down)), (name, n, few, down)


def test_wide_keys_that_are_close_together_are_in_order(machine: str, sorting: ctypes.CDLL) -> None:
    """At the ends of what 64 bits hold, so far apart that 32 bits just hold the distance or not."""
    rng = np.random.default_rng(1)
    for distance in ((1 << 32) - 1, 1 << 32):
        for low in (-(1 << 63), -5, (1 << 63) - 1 - distance):
            keys = low + rng.integers(0, distance, 300)
            keys[[3, 200]] = low, low + distance
            for down in (False, True):
                found = order(sorting, "i64", keys, down)
                assert np.array_equal(found, expected(keys, down)), (distance, low, down)


def test_wide_keys_that_lie_together_but_for_a_few_are_in_order(
    machine: str, sorting: ctypes.CDLL
) -> None:
    """What 32 bits tell apart is hardly anything then: whole rows are merged."""
    rng = np.random.default_rng(2)
    for n in (5, 64, 700, 3000):
        whole = rng.integers(0, 1 << 20, n)
        whole[[1, n - 2]] = -(1 << 63), (1 << 63) - 1
        floats = 1 + rng.integers(0, 50, n) * 2.0**-50
        floats[[0, n // 2, n - 1]] = np.nan, -np.inf, 1e300
        for down in (False, True):
            for name, keys in (("i64", whole), ("f64", floats)):
                found = order(sorting, name, keys, down)
                assert np.array_equal(found, expected(keys, down)), (name, n, down)
