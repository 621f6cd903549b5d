"""Device figures for the cost model, and calibration files that replace them.

Peaks are the vendors' published dense figures. A calibration file is JSON:

    {"treadle_calibration": 1,
     "devices": {"h200": {"gigabytes_per_second": 4200, "launch_ns": 2100}}}

Each entry starts from the built-in device of that name (or from "like") and replaces fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from treadle.analysis.calibration import bad_calibration, calibration_of, changed_table
from treadle.ir.types import DType


@dataclass(frozen=True)
class Device:
    """What the cost model knows of a device."""

    name: str
    gigabytes_per_second: float
    """main memory bandwidth, reads and writes together"""
    vector_gflops: float
    """f32 multiply-adds outside matrix units, counted as two"""
    matrix_gflops_16: float
    """f16/bf16 matrix units"""
    matrix_gflops_8: float
    """8-bit matrix units"""
    matrix_gflops_32: float
    """what f32 matrix products reach (tf32 where the device has it)"""
    vector_gflops_64: float
    memory_bytes: int
    launch_ns: float
    """what one more kernel costs on top of its work"""
    transfer_latency_ns: float
    """the least that passes before data of another device is there"""
    cache_bytes: int
    """last-level cache"""
    cores: int
    """streaming multiprocessors, compute units, or CPU cores"""

    def gigaflops(self, element: DType, matrix: bool) -> float:
        """Peak for arithmetic in `element`."""
        if element is DType.F64:
            return self.vector_gflops_64
        if not matrix:
            return self.vector_gflops
        if element.bits == 8:
            return self.matrix_gflops_8
        return self.matrix_gflops_16 if element.bits == 16 else self.matrix_gflops_32


# name | GB/s | Gflop/s: vector, matrix 16, 8, 32 bit, vector f64 | GiB | launch, link ns | L2 MiB
# | cores
_TABLE = """
a100  | 1935 |  19500 |  312000 |  624000 |  156000 |  9700 |  80 | 2500 | 10000 |  40 | 108
h100  | 3350 |  67000 |  989000 | 1979000 |  494000 | 34000 |  80 | 2200 | 10000 |  50 | 132
h200  | 4800 |  67000 |  989000 | 1979000 |  494000 | 34000 | 141 | 2200 | 10000 |  50 | 132
b200  | 8000 |  80000 | 2250000 | 4500000 | 1100000 | 40000 | 180 | 2000 | 10000 | 126 | 148
mi300 | 5300 | 163400 | 1307000 | 2614000 |  653700 | 81700 | 192 | 3000 | 10000 | 256 | 304
cpu   |   20 |    100 |     100 |     200 |     100 |    50 |  24 |  500 |     0 |  32 |   2
"""


def _device(row: str) -> Device:
    name, *cells = (c.strip() for c in row.split("|"))
    bandwidth, *rates, memory, launch, link, cache, cores = (float(c) for c in cells)
    vector, matrix16, matrix8, matrix32, vector64 = rates
    return Device(
        name=name,
        gigabytes_per_second=bandwidth,
        vector_gflops=vector,
        matrix_gflops_16=matrix16,
        matrix_gflops_8=matrix8,
        matrix_gflops_32=matrix32,
        vector_gflops_64=vector64,
        memory_bytes=int(memory) << 30,
        launch_ns=launch,
        transfer_latency_ns=link,
        cache_bytes=int(cache) << 20,
        cores=int(cores),
    )


DEVICES: Mapping[str, Device] = {
    d.name: d for d in [_device(row) for row in _TABLE.strip().splitlines()]
}


def read_calibration(file: str, base: Mapping[str, Device] = DEVICES) -> dict[str, Device]:
    """The device table with the entries of a calibration file put in."""
    data = calibration_of(file)
    # A file may be about links and collectives alone (see `analysis/comm/hardware`).
    is_about_others = {"hardware", "collectives", "traces"} & data.keys()
    entries = data.get("devices", {} if is_about_others else None)
    return changed_table(file, "device", entries, base, _checked)


def _checked(file: str, key: str, kind: object, value: object) -> object:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < float("inf")
    ):
        raise bad_calibration(file, f'a number of at least 0 for "{key}"', json.dumps(value))
    if value == 0 and ("gflops" in key or key == "gigabytes_per_second"):
        raise bad_calibration(file, f'a positive number for "{key}"', "0")
    return int(value) if kind == "int" else value
