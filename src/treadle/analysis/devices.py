"""Device figures for the cost model, and calibration files that replace them.

Peaks are the vendors' published dense figures. A calibration file is JSON:

    {"treadle_calibration": 1,
     "devices": {"h200": {"gigabytes_per_second": 4200, "launch_ns": 2100}}}

Each entry starts from the built-in device of that name (or from "like") and replaces fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from treadle.core.errors import InputError
from treadle.core.reading import read_utf8
from treadle.core.suggest import nearest
from treadle.ir.types import DType

CALIBRATION_VERSION = 1


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
    try:
        data = json.loads(read_utf8(file))
    except OSError as e:
        raise _bad(file, "a readable calibration file", e.strerror or str(e)) from None
    except UnicodeDecodeError:
        raise _bad(file, "UTF-8 text", "other bytes") from None
    except (ValueError, RecursionError) as e:
        line = getattr(e, "lineno", None)
        raise _bad(file, "JSON", str(getattr(e, "msg", e)), line) from None
    if not isinstance(data, dict) or data.get("treadle_calibration") != CALIBRATION_VERSION:
        wanted = f'an object with "treadle_calibration": {CALIBRATION_VERSION}'
        raise _bad(file, wanted, "something else")
    # A file may be about links and collectives alone (see `analysis/comm/hardware`).
    entries = data.get("devices", {} if {"hardware", "collectives"} & data.keys() else None)
    if not isinstance(entries, dict):
        raise _bad(file, 'an object under "devices"', type(entries).__name__)
    table = dict(base)
    for name, entry in entries.items():
        table[name] = _calibrated(file, name, entry, table)
    return table


def _calibrated(file: str, name: str, entry: object, table: Mapping[str, Device]) -> Device:
    if not isinstance(entry, dict):
        raise _bad(file, f'an object for device "{name}"', type(entry).__name__)
    like = entry.get("like", name)
    if like not in table:
        known = ", ".join(sorted(table))
        raise _bad(file, f'"like" with one of {known} for device "{name}"', repr(like))
    numbers = {f.name: f.type for f in fields(Device) if f.name != "name"}
    changes: dict[str, float] = {}
    for key, value in entry.items():
        if key == "like":
            continue
        if key not in numbers:
            close = ", ".join(nearest(key, list(numbers))) or ", ".join(numbers)
            raise _bad(file, f'a field such as {close} in device "{name}"', repr(key))
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < float("inf")
        ):
            raise _bad(file, f'a number of at least 0 for "{key}"', json.dumps(value))
        changes[key] = int(value) if numbers[key] == "int" else value
    for key, value in changes.items():
        if value == 0 and ("gflops" in key or key == "gigabytes_per_second"):
            raise _bad(file, f'a positive number for "{key}"', "0")
    made: Device = replace(table[like], name=name, **changes)  # type: ignore[arg-type]
    return made


def _bad(file: str, expected: str, found: str, line: int | None = None) -> InputError:
    return InputError(file=file, line=line, expected=expected, found=found, code="COST001")
