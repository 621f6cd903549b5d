"""Which stores of a nest go past the caches: what is written once, where much is touched.

const int goes_past = tr_goes_past(50331648);              bytes that the nest touches
... tr_w_stream(goes_past, p2 + i0, v4);                   see stream.h
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.index import Symbol, coefficient
from treadle.ir.body import Body
from treadle.ir.program import Program
from treadle.ir.types import DType
from treadle.kernel.vector_rules import BodyAccess, accesses_of

STREAM = "stream"
"""The helper that stream.h is."""
LEAST_BYTES = 8 << 20
"""Bytes that a nest must touch before it is asked, at run time, whether a cache holds them."""


def streamed_bytes(body: Body, program: Program, along: Symbol) -> tuple[int, frozenset[str]]:
    """How many bytes a nest touches, and the buffers that it stores past the caches if it may."""
    points = body.space.numel.value
    if points is None:
        return 0, frozenset()
    accesses = accesses_of(body, program)
    bytes_of: dict[str, int] = {}
    for a in accesses:
        step = coefficient(a.index, along)
        bytes_of[a.storage] = 0 if step is None or step.value == 0 else _touched(a, points, program)
    total = sum(bytes_of.values())
    if total < LEAST_BYTES:
        return 0, frozenset()
    count: Mapping[str, int] = {
        a.storage: sum(b.storage == a.storage for b in accesses) for a in accesses
    }
    found = [a for a in accesses if a.mode == "plain" and not a.depth and count[a.storage] == 1]
    stored = frozenset(a.buffer for a in found if _is_row(a, along, program))
    return total, stored


def _touched(a: BodyAccess, points: int, program: Program) -> int:
    """The bytes of a storage that an access comes by at most."""
    buffer = program.by_name[a.buffer]
    whole = program.by_name[a.storage].storage_numel.value
    return min(points, points if whole is None else whole) * buffer.dtype.itemsize


def _is_row(a: BodyAccess, along: Symbol, program: Program) -> bool:
    """Whether a store of floats goes from one element to the next."""
    step = coefficient(a.index, along)
    return program.by_name[a.buffer].dtype is DType.F32 and step is not None and step.value == 1
