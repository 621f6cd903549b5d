"""What can be written in Triton: asked by the writer, and by front ends before they write a loop.

A front end that is refused a statement calls the operator of the library instead, and the rest of
the graph is compiled as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.codegen.triton.ops import can_write
from treadle.codegen.triton.reduce import KINDS
from treadle.codegen.triton.scans import SCANS
from treadle.index import Domain
from treadle.ir.body import Stmt
from treadle.ir.ops import POINTWISE
from treadle.ir.types import Buffer, DType
from treadle.kernel.choose_gpu import LONGEST_KEPT

ATOMIC: Mapping[str, str] = {
    "atomic_add": "tl.atomic_add",
    "atomic_max": "tl.atomic_max",
    "atomic_min": "tl.atomic_min",
}
"""Stores that combine with what is there."""
STATEMENTS = frozenset(
    {
        "bitcast",
        "cast",
        "constant",
        "get",
        "index",
        "indirect",
        "load",
        "masked",
        "param",
        "yield",
    }
)
"""Statements that can always be written."""


def why_unwritable(
    stmt: Stmt, types: Sequence[DType], buffers: Mapping[str, Buffer], inner: Domain
) -> str | None:
    """Why a statement on operands of these types has no form in Triton; None if it has one.

    `inner` are the loops over which the body reduces or scans.
    """
    if stmt.op in POINTWISE:
        return None if can_write(stmt.op, types) else _says(f"{stmt.op} of {_words(types)}")
    if stmt.op == "reduce":
        kind = str(stmt.attr("kind"))
        return None if kind in KINDS else _says(f"reduction {kind}")
    if stmt.op == "store":
        return _why_not_stored(stmt, buffers)
    if stmt.op == "scan":
        return _why_not_scanned(stmt, types, inner)
    return None if stmt.op in STATEMENTS else _says(stmt.op)


def _why_not_stored(stmt: Stmt, buffers: Mapping[str, Buffer]) -> str | None:
    mode, kept = str(stmt.attr("mode")), buffers[stmt.buffer].dtype
    if mode == "plain":
        return None
    fits = mode in ATOMIC and kept.bits >= 16 and kept is not DType.BOOL
    if kept.is_low_precision or (kept.is_int and kept.bits < 32):
        fits = mode == "atomic_add" and kept in (DType.F16, DType.BF16)
    return None if fits else _says(f"a store that combines by {mode} in {kept}")


def _why_not_scanned(stmt: Stmt, types: Sequence[DType], inner: Domain) -> str | None:
    combine = str(stmt.attr("combine"))
    if combine not in SCANS:
        return _says(f"scan {combine}")
    if combine == "logaddexp" and types[0] is not DType.F32:
        return _says(f"scan {combine} of {_words(types)}")
    length = inner.numel.value
    if len(inner) != 1 or length is None or length > LONGEST_KEPT:
        return _says("a scan along more than registers hold")
    return None


def _says(what: str) -> str:
    return f"{what} has no form in Triton"


def _words(types: Sequence[DType]) -> str:
    return ", ".join(dict.fromkeys(map(str, types)))
