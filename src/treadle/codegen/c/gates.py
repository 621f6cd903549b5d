"""Masks without branches: what is under one is computed everywhere, and taken where it is true.

A branch would keep a compiler from running a loop on vectors. Where a mask is the same along the
loop, the first elements of a storage are loaded instead if it is false; where it is not, nothing
may be loaded that could lie outside without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from treadle.index import Expr, Kind, Symbol, coefficient
from treadle.ir.body import Stmt
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.spec_facts import storage_limit
from treadle.ir.types import DType

if TYPE_CHECKING:
    from treadle.codegen.c.body import BodyWriter

ALWAYS = frozenset({"index", "constant", "cast", "yield"})
CHEAP = 4.0
"""Work of a statement that may be done for nothing, where a mask is false."""
GATED = frozenset({DType.F32, DType.BF16, DType.F16})
"""Types that are a float while they are at hand."""


class Gate(NamedTuple):
    """A mask that is the same along a loop on vectors: where it is false, other lines are read."""

    mask: str
    axis: Symbol

    def place(self, w: BodyWriter, index: Expr) -> str:
        """The index where the mask is true, else that of the loop by itself."""
        step = coefficient(index, self.axis)
        assert step is not None, "gates are for indices that are linear along the loop"
        along = step * self.axis
        start, _ = w.place(index - along)
        return f"(({start}) & -(int64_t)({self.mask} != 0)) + {w.index.write(along)}"


def is_harmless(w: BodyWriter, stmt: Stmt, axis: Symbol | None) -> bool:
    """Whether what is under a mask harms nobody where it is false.

    `axis` is the loop along which the mask is the same, so that other lines can be read; None if
    it differs from one point to the next, and what is loaded must be there anyhow.
    """
    return all(_may_happen(w, inner, axis) for inner in stmt.region)


def _may_happen(w: BodyWriter, stmt: Stmt, axis: Symbol | None) -> bool:
    if stmt.op != "load":
        return stmt.op in ALWAYS or (stmt.op in POINTWISE and OPS[stmt.op].work <= CHEAP)
    if any(s.kind is Kind.INDIRECT for s in stmt.address.free):
        return False
    limit = storage_limit(w.program.by_name[stmt.buffer], w.program)
    if axis is None:
        return w.facts.within(stmt.address, limit)
    step = coefficient(stmt.address, axis)
    return step is not None and w.facts.within(step * axis, limit)
