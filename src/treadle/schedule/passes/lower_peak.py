"""lower-peak: run the operations in an order that needs less memory at once.

before   a = make() ; b = make() ; use(a) ; use(b)
after    a = make() ; use(a) ; b = make() ; use(b)
keeps    the given order unless a better one was found; groups stay together
"""

from __future__ import annotations

from treadle.analysis.deps import carry_over
from treadle.core.context import Ctx
from treadle.ir.program import Program
from treadle.schedule.ordering.search import find_order
from treadle.schedule.policy import policy_of

TRIES = 120
"""Changes tried by the local search: a number, not a time, so that results repeat."""
ROUNDS = 4
"""A better order is a new start; usually the second round finds nothing more."""
LARGEST = 2000
"""Larger programs are left to fusion, which runs operations late by itself."""


def lower_peak(program: Program, ctx: Ctx) -> Program:
    """Reorder for a lower peak."""
    policy = policy_of(ctx)
    if len(program.ops) > LARGEST or not policy.lower_peak:
        return program
    for _ in range(ROUNDS):
        found = find_order(program, ctx.options, seconds=None, tries=TRIES)
        ctx.journal.emit(
            "step",
            action="lower-peak",
            args=[found.given_peak, found.peak, found.bound, found.method],
        )
        if found.peak >= found.given_peak:
            break
        moved = program.with_ops(tuple([program.ops[k] for k in found.order]))
        carry_over(program, moved)
        program = moved
    return program
