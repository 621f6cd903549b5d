"""Hypothesis strategies: loop domains, index expressions over them, whole programs.

Everything drawn is small, so that a test can afford to look at every point, and legal: programs
pass `treadle.ir.spec.verify`. Shrinking leads to fewer and shorter operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from treadle.index import Domain, Expr, Symbol, as_expr, loop, maximum, minimum
from treadle.testing.program_writer import program_strategy as programs

LOOP_NAMES = "ijkmnpq"
DIVISORS = (1, 2, 3, 4, 6, 8)

__all__ = ["domains", "index_expressions", "programs"]


@st.composite
def domains(
    draw: st.DrawFn,
    *,
    min_loops: int = 0,
    max_loops: int = 3,
    min_extent: int = 1,
    max_extent: int = 6,
    sizes: Sequence[Symbol] = (),
) -> Domain:
    """A loop nest with static extents, or extents out of the run-time `sizes` given."""
    count = draw(st.integers(min_loops, max_loops))
    extents = st.integers(min_extent, max_extent).map(as_expr)
    if sizes:
        extents = st.one_of(extents, st.sampled_from([as_expr(s) for s in sizes]))
    return Domain([(loop(LOOP_NAMES[k]), draw(extents)) for k in range(count)])


def index_expressions(
    domain: Domain, *, sizes: Sequence[Symbol] = (), max_leaves: int = 8
) -> st.SearchStrategy[Expr]:
    """Expressions over the loops of `domain` and `sizes`: every node kind of the algebra.

    Divisors are positive constants or sizes (which must then be at least 1), so the expressions
    can be evaluated at every point.
    """
    leaves: list[Expr] = [*domain.vars, *sizes]
    leaf = st.integers(-8, 8).map(as_expr)
    if leaves:
        leaf = st.one_of(st.sampled_from(leaves), leaf)
    divisor = st.sampled_from([as_expr(d) for d in DIVISORS] + [as_expr(s) for s in sizes])

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            st.tuples(inner, st.integers(-4, 4)).map(lambda p: p[0] * p[1]),
            pair.map(lambda p: p[0] * p[1]),
            st.tuples(inner, divisor).map(lambda p: p[0] // p[1]),
            st.tuples(inner, divisor).map(lambda p: p[0] % p[1]),
            pair.map(lambda p: minimum(p[0], p[1])),
            pair.map(lambda p: maximum(p[0], p[1])),
        )

    return st.recursive(leaf, extend, max_leaves=max_leaves)
