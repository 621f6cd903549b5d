"""The compiled inner loops (search.c), used when there is a C compiler and numbers fit 64 bits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.resources import files
from itertools import accumulate
from typing import Any

from treadle.core.options import Options
from treadle.core.toolchain import load_shared
from treadle.core.verdict import Verdict, no
from treadle.memory.line import Line
from treadle.memory.search_python import Way

FLAGS = ("-O2", "-std=c11")
OUT_OF_MEMORY = -2
HUGE_ADDRESS = 1 << 61
"""What search.c takes for no address; below half of it 64-bit sums cannot overflow."""


class _Line(ctypes.Structure):
    _fields_ = [
        ("n", ctypes.c_int32),
        ("sections", ctypes.c_int32),
        ("regions", ctypes.c_int32),
        ("size", ctypes.c_void_p),
        ("alignment", ctypes.c_void_p),
        ("fixed", ctypes.c_void_p),
        ("span_at", ctypes.c_void_p),
        ("span", ctypes.c_void_p),
        ("open_at", ctypes.c_void_p),
        ("open", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("limit", ctypes.c_int64),
    ]


class Native:
    """One line handed to the compiled code; make it with `native_line`."""

    def __init__(self, library: Any, line: Line) -> None:
        self._library = library
        self._count = len(line.items)
        items = line.items
        self._line = _Line(n=len(items), sections=len(line.times), regions=len(line.regions))
        self._kept: list[object] = []  # the structure points into these
        self._put("size", _wide([item.size for item in items]))
        self._put("alignment", _wide([item.alignment for item in items]))
        fixed = [-1 if item.fixed is None else item.fixed for item in items]
        self._put("fixed", _wide([min(address, HUGE_ADDRESS) for address in fixed]))
        self._put("span_at", _narrow(_starts([len(item.spans) for item in items])))
        self._put("span", _narrow([n for item in items for span in item.spans for n in span]))
        self._put("open_at", _narrow(_starts([len(item.regions) for item in items])))
        self._put("open", _narrow([number for item in items for number in item.regions]))
        self._put("base", _wide([region.base for region in line.regions]))
        self._put("end", _wide([min(region.end, HUGE_ADDRESS) for region in line.regions]))

    def _put(self, name: str, values: ctypes.Array[Any]) -> None:
        self._kept.append(values)
        setattr(self._line, name, ctypes.addressof(values))

    def fit(
        self, order: Sequence[int], *, best: bool, seconds: float | None = None
    ) -> list[int] | None:
        """What `fits.fit` gives."""
        offsets = (ctypes.c_int64 * self._count)()
        self._line.limit = HUGE_ADDRESS
        status = self._library.treadle_fit(
            ctypes.byref(self._line),
            _narrow(order),
            ctypes.c_int32(best),
            ctypes.c_int64(_microseconds(seconds)),
            offsets,
        )
        if status == OUT_OF_MEMORY:
            raise MemoryError
        return list(offsets) if status == 1 else None

    def search(
        self, way: Way, trouble: list[int], *, limit: int, nodes: int, seconds: float | None = None
    ) -> tuple[int, int, list[int]]:
        """What `search_python.search` gives."""
        offsets = (ctypes.c_int64 * self._count)()
        numbers = (ctypes.c_int64 * 2)(nodes, _microseconds(seconds))
        counters = _wide(trouble)
        self._line.limit = min(limit, HUGE_ADDRESS)
        status = self._library.treadle_search(
            ctypes.byref(self._line),
            _narrow(way.rank),
            _narrow(way.twin),
            ctypes.c_int32(way.rule),
            numbers,
            counters,
            offsets,
        )
        trouble[:] = counters[: len(trouble)]
        if status == OUT_OF_MEMORY:
            raise MemoryError
        return status, numbers[0], list(offsets)


def native_line(line: Line, options: Options) -> Native | Verdict:
    """The line in compiled hands, or the reason why that cannot be."""
    highest = line.arena.base + sum(item.size + item.alignment for item in line.items)
    highest += sum(item.fixed for item in line.items if item.fixed is not None and item.regions)
    if highest >= HUGE_ADDRESS // 2:
        return no("TOOL003", bytes=sum(item.size for item in line.items))
    source = files("treadle.memory").joinpath("search.c").read_text("utf-8")
    loaded = load_shared(source, flags=FLAGS, options=options)
    return Native(loaded.library, line) if loaded.verdict else loaded.verdict


def _microseconds(seconds: float | None) -> int:
    return -1 if seconds is None else int(seconds * 1e6)


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts)]


def _wide(values: Sequence[int]) -> ctypes.Array[Any]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def _narrow(values: Sequence[int]) -> ctypes.Array[Any]:
    return (ctypes.c_int32 * max(1, len(values)))(*values)
