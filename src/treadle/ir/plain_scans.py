"""A running extreme whose position nobody asks for is one of values alone.

    %2 = scan argmax %0, %1
    %3 = get %2, 0               ->   %2 = scan max %0
    %4 = exp %3                       %3 = exp %2

Of equal values both take the later one, and after a NaN both stay at it. Positions are scanned one
by one; values are not.
"""

from __future__ import annotations

from treadle.ir.body import Body, Stmt
from treadle.ir.ops import OPS
from treadle.ir.rewrite import BodySource, Rewriter, pruned, values_in

EXTREMES = {"argmax": "max", "argmin": "min"}


def with_plain_scans(body: Body) -> Body:
    """The body with such scans of values alone; the same object if there is none."""
    found = {
        at.number
        for at in body.walk()
        if at.stmt.op == "scan" and not at.depth and at.stmt.attr("combine") in EXTREMES
    }
    for at in body.walk():
        is_value = at.stmt.op == "get" and at.stmt.attr("position") == 0 and not at.depth
        if not is_value:
            found -= set(at.stmt.args)
    if not found:
        return body
    rewriter = Rewriter()
    source = BodySource(rewriter)
    number = 0
    for stmt in body.stmts:
        made = number
        number += values_in(stmt) if stmt.region else OPS[stmt.op].produces
        if stmt.op == "scan" and made in found:
            combine = EXTREMES[str(stmt.attr("combine"))]
            plain = Stmt("scan", (source.numbers[stmt.args[0]],), (combine,))
            source.numbers[made] = rewriter.emit(plain)
        elif stmt.op == "get" and stmt.args[0] in found:
            source.numbers[made] = source.numbers[stmt.args[0]]
        else:
            source.take((stmt,), made if OPS[stmt.op].produces else None)
    return Body(body.domain, body.reduce, pruned(rewriter.stmts))
