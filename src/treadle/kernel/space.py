"""The iteration space of a kernel, as fusion sees it: levels of points, each a part of the next.

    pointwise over [8, 16]                     (128)
    with a pointwise loop over [8] before it   (8, 128)       once for each row
    reduction over [8] of [16]                 (8, 128)       8 points, 128 steps in all
    with a reduction of blocks of 4 inside     (8, 32, 128)   each point has 4 blocks of 4 steps

Kernels fuse if their spaces fit into one chain in which each level divides the next: a pointwise
loop runs at the level that has as many points. How the loops are cut does not matter: points are
counted in the order in which the loops visit them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from treadle.index import Const, Expr, floordiv
from treadle.index.expr import mul
from treadle.ir.program import Loop

ONE = Const(1)


class Space(NamedTuple):
    """Numbers of points, rising; the last is all steps. Equal spaces are equal tuples."""

    levels: tuple[Expr, ...]

    @property
    def total(self) -> Expr:
        """All steps of all points."""
        return self.levels[-1]

    @property
    def outer(self) -> Expr:
        """The points that are independent of each other."""
        return self.levels[0]

    @property
    def is_pointwise(self) -> bool:
        """Whether there is nothing but points."""
        return len(self.levels) == 1

    def __str__(self) -> str:
        parts = [str(self.levels[0])]
        for coarse, fine in pairwise(self.levels):
            parts.append(str(quotient(fine, coarse)))
        return " x ".join(parts)


def space_of(op: Loop) -> Space:
    """The space of one loop."""
    points, reduce = op.body.domain.numel, op.body.reduce
    if not len(reduce) or reduce.numel is ONE:
        return Space((points,))
    return Space((points, mul(points, reduce.numel)))


@lru_cache(maxsize=16384)
def joined(a: Space, b: Space, nests: bool = True) -> Space | None:
    """The space of both in one kernel, None if there is none.

    With `nests`, points of the coarser may each hold several of the finer, as rows hold elements.
    """
    if a == b:
        return a
    if any(n.value == 0 for n in (*a.levels, *b.levels)):
        return None  # loops that do not run: nothing to gain
    meets = a.total is b.total or a.total in b.levels or b.total in a.levels
    if not meets and not (nests and a.is_pointwise and b.is_pointwise):
        return None
    levels = chain_of([*a.levels, *b.levels])
    return None if levels is None else Space(levels)


def chain_of(levels: list[Expr]) -> tuple[Expr, ...] | None:
    """The levels from coarse to fine, each once, if each divides the next."""
    found: list[Expr] = []
    for level in dict.fromkeys(levels):
        at = len(found)
        while at and divides(level, found[at - 1]):
            at -= 1
        found.insert(at, level)
    return tuple(found) if all(divides(c, f) for c, f in pairwise(found)) else None


def divides(coarse: Expr, fine: Expr) -> bool:
    """Whether `fine` is a provable multiple of `coarse`."""
    if coarse.value is not None and fine.value is not None:
        return coarse.value != 0 and fine.value % coarse.value == 0
    return mul(floordiv(fine, coarse), coarse) is fine


@lru_cache(maxsize=16384)
def quotient(fine: Expr, coarse: Expr) -> Expr:
    """How many steps of the fine level one point of the coarse level has."""
    if coarse is fine:
        return ONE
    return floordiv(fine, coarse)
