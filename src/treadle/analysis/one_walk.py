"""Whether one walk over the reduction loops does everything a body asks for.

    %0 = load x[i, j]
    store y[i, j] = %0       in the walk
    %1 = reduce sum %0       in the same walk
    store z[i] = %1          after it: the row is complete

If something along the row waited for %1, or for a store of the whole row, the row would be gone
over again, and what was loaded before would be loaded once more.
"""

from __future__ import annotations

from treadle.index import Expr
from treadle.ir.body import COMBINING, Body, Stmt, operands_of
from treadle.ir.ops import OPS

IN_ONE_WALK = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""Kinds of reductions that look at every element once, however they are written."""


def is_walked_once(body: Body) -> bool:
    """Whether no statement along the reduction loops waits for the end of a row."""
    rows = frozenset(body.reduce.vars)
    along: list[bool] = []
    """For each value, whether it differs along a row."""
    late: list[bool] = []
    """For each value, whether it is known only at the end of a row."""
    is_row_over = False
    for stmt in body.stmts:
        if stmt.region or stmt.op == "bucketize":
            return False
        used = list(operands_of(stmt))
        differs = any(along[n] for n in used) or not rows.isdisjoint(_loops_of(stmt))
        waits = any(late[n] for n in used)
        combines = stmt.op in COMBINING
        if differs and waits:
            return False
        if combines and (stmt.op != "reduce" or stmt.attr("kind") not in IN_ONE_WALK):
            return False
        if combines or (differs and not OPS[stmt.op].produces):
            # What happens along some loops of a row only is a walk of its own.
            if is_row_over or waits or not (combines or rows <= _loops_of(stmt)):
                return False
        elif not OPS[stmt.op].produces:
            is_row_over = True
        if OPS[stmt.op].produces:
            along.append(differs and not combines)
            late.append(waits or combines)
    return True


def _loops_of(stmt: Stmt) -> frozenset[object]:
    """The loops that the statement's own indices go by."""
    found = {s for e in stmt.attrs if isinstance(e, Expr) for s in e.free}
    return frozenset(found)
