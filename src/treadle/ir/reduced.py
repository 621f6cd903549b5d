"""What of a body comes before its reductions and what after them."""

from __future__ import annotations

from treadle.index import Expr, Symbol
from treadle.ir.body import Body, Stmt, operands_of

UNFIT = frozenset({"assert", "inline_asm", "scan", "sort", "param"})
"""Statements of a body that stays in one stage."""


def reduced_once(body: Body, elementwise: bool = False) -> bool:
    """Whether nothing that varies along the reduction loops comes after a reduction.

    Nor another reduction: a sum of the same value at every step needs the first one finished. With
    `elementwise`, what was made before a reduction may be stored at each of its steps.
    """
    varies, reduced = levels_of(body)
    for at in body.walk():
        if at.stmt.op in UNFIT:
            return False
        if at.depth:
            continue
        uses = operands_of(at.stmt)
        if at.stmt.op == "store":
            along = uses & varies or not at.stmt.address.free.isdisjoint(body.reduce.vars)
            before = not uses & reduced and at.stmt.attr("mode") == "plain"
            if along and not (elementwise and before):
                return False
        elif uses & reduced and (at.number in varies or at.stmt.op == "reduce"):
            return False
    return True


def _loops_of(stmt: Stmt) -> set[Symbol]:
    found = {s for a in stmt.attrs if isinstance(a, Expr) for s in a.free}
    for inner in stmt.region:
        found |= _loops_of(inner)
    return found


def levels_of(body: Body) -> tuple[set[int], set[int]]:
    """Values that vary along the reduction loops, and values that come from a reduction."""
    varies: set[int] = set()
    reduced: set[int] = set()
    inner = set(body.reduce.vars)
    for at in body.walk():
        if at.depth or at.number is None:
            continue
        uses = operands_of(at.stmt)
        if at.stmt.op == "reduce":
            reduced.add(at.number)
            continue
        if uses & varies or _loops_of(at.stmt) & inner:
            varies.add(at.number)
        if uses & reduced:
            reduced.add(at.number)
    return varies, reduced
