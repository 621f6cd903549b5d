"""Inner loops of a single step, taken away: what is reduced over one step is that step.

    reduce r0 in 4096, r1 in 1:
    %3 = reduce_part sum %2 over r0      ->   reduce r0 in 4096:   %3 = reduce sum %2
    %5 = reduce_part sum %4 over r1                                %5 = %4

A mean that is added up to a loss, or a size that happens to be one, would else make a nest of
partial sums, which is walked point by point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from treadle.index import Domain, Symbol
from treadle.ir.body import Body, Stmt
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.ir.types import Buffer
from treadle.ir.typing import infer_types
from treadle.kernel.renest import top_statements
from treadle.kernel.stages import over_of

OF_ONE = ("sum", "prod", "max", "min")
"""Reductions that give a single step as it is."""


def reduced_single_steps(body: Body, buffers: Mapping[str, Buffer]) -> Body:
    """The body whose reductions over loops of a single step are conversions; loops stay."""
    single = frozenset(v for v, n in body.reduce.items() if n.value == 1)
    types = infer_types(body, buffers)
    stmts = []
    for top in top_statements(body):
        stmt = top.stmt
        if _is_over(stmt, single, body) and stmt.attr("kind") in OF_ONE:
            stmt = Stmt("cast", stmt.args, (types[top.number],))
        stmts.append(stmt)
    return replace(body, stmts=tuple(stmts))


def without_single_steps(body: Body, buffers: Mapping[str, Buffer]) -> Body:
    """The body without inner loops of one step; the same object if there is none, or it scans."""
    single = frozenset(v for v, n in body.reduce.items() if n.value == 1)
    if not single or any(at.stmt.op in ("scan", "sort") for at in body.walk()):
        return body
    made = reduced_single_steps(body, buffers)
    rest = Domain([(v, n) for v, n in body.reduce.items() if v not in single])
    if any(_is_over(stmt, single, body) for stmt in made.stmts):
        return body  # a position, or several results of one step
    writer = Rewriter()
    source = BodySource(writer, dict.fromkeys(single, 0))
    for top in top_statements(made):
        stmt = top.stmt
        if stmt.op == "reduce_part" and over_of(stmt) - single == frozenset(rest.vars):
            stmt = Stmt("reduce", stmt.args, stmt.attrs[:2])
        source.take((stmt,), top.number)
    return Body(body.domain, rest, writer.stmts)


def _is_over(stmt: Stmt, single: frozenset[Symbol], body: Body) -> bool:
    """Whether a statement reduces, and over nothing but these loops."""
    if stmt.op == "reduce_part":
        return over_of(stmt) <= single
    return stmt.op == "reduce" and frozenset(body.reduce.vars) <= single
