"""A nest whose indices are checked before it begins, by a nest of their own, so that none stops it.

    for i, j, k:   %1 = indirect t[i, k] size 21 check ; y[i, j, k] = ... %1 ...
    ->   for i, k:      %1 = indirect t[i, k] size 21 check
         for i, j, k:   %2 = minimum (maximum t[i, k], 0), 20
                        %1 = indirect %2 size 21 check ; y[i, j, k] = ... %1 ...

No loop that may stop runs on vectors; the loop along which memory lies is often the one along which
such an index is read. Looking at the indices alone costs little where there are few of them for
what is computed, and limits, which change nothing then, are the proof that nothing stops.
"""

from __future__ import annotations

from treadle.index import Domain, Expr, hint
from treadle.ir.body import COMBINING, Body, Literal, Stmt
from treadle.ir.masks import MaskFacts
from treadle.ir.ops import OPS
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import Rewriter, pruned, rewritten
from treadle.ir.types import DType
from treadle.kernel.pieces import line_of
from treadle.kernel.stages import loops_of_steps, steps_of
from treadle.kernel.vector_rules import STOPPING

FEWEST_POINTS = 4
"""Points of the nest for each index that is checked."""
MOST_WORK = 8.0
"""What leads to checks is done once more: as much as reading indices, not making them of floats."""


def checked_first(nest: Nest, program: Program) -> tuple[Body, Body] | None:
    """What checks, and what computes; None if that gains nothing or is not the same."""
    body, numerics = nest.body, program.numerics
    if len(body.reduce) or not numerics.reassociation or numerics.accumulation == "exact":
        return None
    line = line_of(body)
    if line is None or any(at.stmt.op in STOPPING for at in body.walk()):
        return None
    facts = MaskFacts(body)
    tested = [at for at in body.walk() if facts.may_stop(at.stmt)]
    if not tested or any(at.depth or not _has_limits(at.stmt) for at in tested):
        return None
    checks = _checks_alone(body)
    if checks is None or line not in checks.domain.vars:
        return None
    if sum(OPS[stmt.op].work for stmt in checks.stmts) > MOST_WORK:
        return None
    if hint(checks.domain.numel) * FEWEST_POINTS > hint(body.domain.numel):
        return None
    loaded = {program.storage_of(name) for name, _, _ in checks.loads()}
    if not loaded.isdisjoint(program.storage_of(name) for name, _, _, _ in body.stores()):
        return None
    return checks, rewritten(body, _limited)


def _checks_alone(body: Body) -> Body | None:
    """What leads to checks, over the loops that it varies along; None if it combines anything."""
    without = tuple([s for s in body.stmts if s.op != "store"])
    kept = Body(body.domain, body.reduce, pruned(without, _is_check))
    if any(at.stmt.op in COMBINING or at.depth for at in kept.walk()):
        return None
    along = {v for loops in loops_of_steps(steps_of(kept)) for v in loops}
    domain = Domain([(v, n) for v, n in body.domain.items() if v in along])
    return Body(domain, body.reduce, kept.stmts)


def _has_limits(stmt: Stmt) -> bool:
    size = stmt.attr("size")
    return isinstance(size, Expr) and size.value is not None and size.value > 0


def _is_check(stmt: Stmt) -> bool:
    return stmt.op == "indirect" and bool(stmt.attr("check"))


def _limited(to: Rewriter, stmt: Stmt) -> int | None:
    """An index between its limits, and counted from the front."""
    size = stmt.attr("size") if _is_check(stmt) else None
    if not isinstance(size, Expr) or size.value is None:
        return None

    def number(n: int) -> int:
        return to.emit(Stmt("constant", (), (Literal(n), DType.I64)))

    value = to.emit(Stmt("cast", stmt.args, (DType.I64,)))
    if stmt.attr("wrap"):
        is_below = to.emit(Stmt("lt", (value, number(0))))
        behind = to.emit(Stmt("add", (value, number(size.value))))
        value = to.emit(Stmt("where", (is_below, behind, value)))
    value = to.emit(Stmt("maximum", (value, number(0))))
    value = to.emit(Stmt("minimum", (value, number(size.value - 1))))
    return to.emit(Stmt("indirect", (value,), (size, False, True)))
