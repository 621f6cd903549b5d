"""merge-loops: make neighbouring loops one wherever every access walks straight through them.

before   y[256*i + j] = x[256*i + j]     for i in 128, j in 256
after    y[j] = x[j]                     for j in 32768
needs    simplified indices; reduction loops never merge with the others
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.context import Ctx
from treadle.index import Domain, Expr, IntLike, Kind, Symbol, merge_contiguous, substitute
from treadle.ir.body import Body
from treadle.ir.change import map_indices, map_loops, with_loops
from treadle.ir.pattern import named, pattern_of
from treadle.ir.program import Loop, Nest, Program
from treadle.ir.spec_races import stores_cannot_race


def merge_loops(program: Program, ctx: Ctx) -> Program:
    """Merge contiguous loops and drop loops that run once."""

    def merged(op: Loop) -> Loop:
        return _merged(op, program)

    return program.with_ops(tuple([map_loops(op, merged) for op in program.ops]))


def _merged(op: Loop, program: Program) -> Loop:
    if isinstance(op, Nest) and op.schedule:
        return op  # somebody has said how these loops are walked
    pattern, buffers = pattern_of(op)
    body = pattern.derive(_merged_body)
    if body is pattern.body:
        return op
    fresh = named(body, buffers)
    # What data decide was proven apart from other accesses over the loops as they were.
    if pattern.derive(_scatters) and any(stores_cannot_race(fresh, program)):
        return op
    return replace(op, body=fresh)


def straight(body: Body) -> Body:
    """A body with neighbouring loops made one, unless data decide where it stores."""
    return body if _scatters(body) else _merge(body)


def _scatters(body: Body) -> bool:
    """Whether data decide where something is stored."""
    return any(s.kind is Kind.INDIRECT for _, index, _, _ in body.stores() for s in index.free)


def _merged_body(body: Body) -> Body:
    return _merge(_without_unit_loops(body))


def _without_unit_loops(body: Body) -> Body:
    ones = {v for v, n in body.space.items() if n.value == 1}
    if len(body.reduce) and ones.issuperset(body.reduce.vars):
        ones.discard(body.reduce.vars[-1])  # a reduction keeps a loop to reduce over
    # So does a reduction of a part.
    ones -= {
        v
        for at in body.walk()
        if at.stmt.op == "reduce_part" and isinstance(over := at.stmt.attr("over"), Expr)
        for v in over.free
    }
    if not ones:
        return body
    gone: dict[Symbol, IntLike] = dict.fromkeys(ones, 0)
    kept = [
        Domain([(v, n) for v, n in d.items() if v not in ones]) for d in (body.domain, body.reduce)
    ]
    return with_loops(map_indices(body, lambda e: substitute(e, gone)), *kept)


def _merge(body: Body) -> Body:
    """All index expressions of the body must agree that two loops are one."""
    attrs = dict.fromkeys(e for at in body.walk() for e in at.stmt.attrs if isinstance(e, Expr))
    indices = tuple(attrs)
    domain, merged = merge_contiguous(body.domain, indices)
    reduce, merged = merge_contiguous(body.reduce, merged)
    if domain is body.domain and reduce is body.reduce:
        return body
    new = dict(zip(indices, merged, strict=True))
    return with_loops(map_indices(body, lambda e: new[e]), domain, reduce)
