"""Do two accesses ever meet: proofs that they do not, by range or by residue.

    2*i      and 2*j + 1        never: one even, one odd
    8*i + j  and 8*k + l + 4    never for j, l in 0..4: the two halves of each eight
    9*i + 2*j  and 9*k + 2*l + 1  never for j, l in 0..4: nor in any nine
    i        and 127 - k        they may: nothing is said of equal points

Indices count elements of some width; two accesses may have different ones, so bytes are compared.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from treadle.index.bounds import Facts
from treadle.index.expr import Expr


class ByteSpan(NamedTuple):
    """The bytes from index*width up to (index + 1)*width, at every point the facts allow."""

    at: Expr
    width: int
    facts: Facts

    def reach(self) -> tuple[int, int] | None:
        """The first and last byte it can touch, None if not known before run time."""
        lo, hi = self.facts.interval(self.at)
        return None if lo is None or hi is None else (lo * self.width, (hi + 1) * self.width - 1)

    def within_period(self, g: int) -> ByteSpan | None:
        """What is no multiple of g, from the start of its period; None if it leaves one period."""
        small = self.at
        for base, c in self.at.terms:
            if c * self.width % g == 0:
                small = small - base * c
        inner = ByteSpan(small, self.width, self.facts).reach()
        if inner is None or inner[0] // g != inner[1] // g or g % self.width:
            return None
        return self._replace(at=small - inner[0] // g * (g // self.width))


def _steps(e: Expr) -> list[int]:
    """The coefficients of an index; of a number by itself 0, which leaves the other's steps."""
    return [c for _, c in e.terms] or [0]


@lru_cache(maxsize=16384)
def never_meet(a: ByteSpan, b: ByteSpan) -> bool:
    """Whether a at any point of its loops provably touches no byte that b does at any of its own.

    A range that is open on one side can still lie apart on the other.
    """
    (low, high), (bottom, top) = a.facts.interval(a.at), b.facts.interval(b.at)
    if high is not None and bottom is not None and (high + 1) * a.width <= bottom * b.width:
        return True
    if top is not None and low is not None and (top + 1) * b.width <= low * a.width:
        return True
    steps = {gcd(c * a.width, d * b.width) for c in _steps(a.at) for d in _steps(b.at)}
    widest = max(a.width, b.width)  # one element already fills every place of a smaller step
    for g in sorted((g for g in steps if g > widest), reverse=True):
        first, second = a.within_period(g), b.within_period(g)
        if first is None or second is None or (first.at is a.at and second.at is b.at):
            continue
        # Where they meet, they do so in one period: there is less to look at inside of it.
        if never_meet(first, second):
            return True
    return False
