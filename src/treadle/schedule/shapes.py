"""The iteration space of a kernel, as fusion sees it: outer points x, r reduction steps at each.

    pointwise over [8, 16]             x = 128, r = 1
    reduction over [8] of [16]         x = 8,   r = 16

Kernels fuse if their spaces are the same, or if a pointwise one runs at every step (128 = 8 * 16)
or once per outer point (8) of a reduction. How the loops are cut does not matter: points are
counted in the order in which the loops visit them.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.index import Const, Expr
from treadle.index.expr import mul
from treadle.ir.program import Loop

ONE = Const(1)


class Shape(NamedTuple):
    """Outer points and reduction steps; equal shapes are equal tuples of interned expressions."""

    x: Expr
    r: Expr

    @property
    def total(self) -> Expr:
        """All steps of all points."""
        return self.x if self.r is ONE else mul(self.x, self.r)

    def __str__(self) -> str:
        return str(self.x) if self.r is ONE else f"{self.x} x {self.r}"


def shape_of(op: Loop) -> Shape:
    """The space of one loop."""
    reduce = op.body.reduce
    return Shape(op.body.domain.numel, reduce.numel if len(reduce) else ONE)


def joined(a: Shape, b: Shape) -> Shape | None:
    """The space of both in one kernel, None if there is none."""
    if a.x is b.x and a.r is b.r:
        return a
    if a.r is not ONE:
        a, b = b, a
    if a.r is not ONE or b.r is ONE:
        return None
    return b if a.x is b.x or a.x is b.total else None
