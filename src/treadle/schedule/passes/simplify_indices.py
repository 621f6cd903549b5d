"""simplify-indices: bring every index expression to its simplest form under the loops around it.

before   load x[256*((256*i + j) // 256) + ((256*i + j) % 256)]   for i in 128, j in 256
after    load x[256*i + j]
before   sum over r of (g if r == k else 0)
after    g + 0 * g                                                   where numerics allow it
needs    nothing
keeps    bodies with a loop that never runs, and indices that would lose all trace of data
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.context import Ctx
from treadle.index import Expr, Facts, Kind
from treadle.ir.body import Body
from treadle.ir.change import map_indices, map_loops
from treadle.ir.pattern import named, pattern_of
from treadle.ir.picked_sums import with_picked_sums
from treadle.ir.program import Loop, Program
from treadle.ir.spec_facts import facts_of


def simplify_indices(program: Program, ctx: Ctx) -> Program:
    """Rewrite index expressions with the help of loop extents, and sums that pick one term."""
    picks = program.numerics.reassociation

    def simplified(op: Loop) -> Loop:
        found = _simplified(op)
        if not picks or not len(op.body.reduce):
            return found
        body = with_picked_sums(found.body, program.by_name)
        return found if body is found.body else replace(found, body=body)

    return program.with_ops(tuple([map_loops(op, simplified) for op in program.ops]))


def _simplified(op: Loop) -> Loop:
    pattern, buffers = pattern_of(op)
    body = pattern.derive(_simple_body)
    return op if body is pattern.body else replace(op, body=named(body, buffers))


def _simple_body(body: Body) -> Body:
    if any(n.value == 0 for n in body.space.extents):
        return body  # an index that loses its empty loop would be looked at after all
    facts = facts_of(body)
    return map_indices(body, lambda e: _simple(e, facts))


def _simple(e: Expr, facts: Facts) -> Expr:
    """The simplest form that still shows what comes from data: a scatter stays a scatter."""
    simple = facts.simplify(e)
    lost = e.free - simple.free
    return e if any(s.kind is Kind.INDIRECT for s in lost) else simple
