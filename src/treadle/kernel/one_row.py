"""Rows that are scanned, as one loop: a tile of a GPU has no rows in rows.

    for i  inner r0 in 5, r1 in 5:   scan over both        ->   inner r in 25, with r // 5 and r % 5

What beside it is reduced over a single step is that step.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.unused import unused_name
from treadle.index import Domain, Expr, IntLike, Symbol, loop
from treadle.ir.body import Body
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.kernel.single_steps import reduced_single_steps


def as_one_row(nest: Nest, program: Program) -> Nest:
    """The nest with one inner loop if it scans, and if that can be."""
    ops = {at.stmt.op for at in nest.body.walk()}
    if "scan" not in ops or len(nest.body.reduce) < 2:
        return nest
    body = reduced_single_steps(nest.body, program.by_name)
    if any(at.stmt.op == "reduce_part" for at in body.walk()):
        return nest
    return replace(nest, body=_flattened(body))


def _flattened(body: Body) -> Body:
    """The body over one inner loop, whose place in the old ones is by division."""
    names = {v.name for v in body.space.vars}
    row = loop(unused_name("r", names))
    values: dict[Symbol, IntLike] = {}
    rest: Expr = row
    for v, n in reversed(list(body.reduce.items())):
        values[v] = rest % n
        rest = rest // n
    writer = Rewriter()
    BodySource(writer, values).take(body.stmts)
    inner = Domain([(row, body.reduce.numel)])
    return Body(body.domain, inner, writer.stmts)
