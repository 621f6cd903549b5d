"""Places that formulas say know the points that are put there, each exactly once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from treadle.frontends.torch.lowering.gathered_sums import Sources, sources_of
from treadle.index import (
    Domain,
    Expr,
    as_expr,
    evaluate,
    floordiv,
    maximum,
    minimum,
    substitute,
)

I = Domain.of(i=128).vars[0]
UP = floordiv(I + 1, 2)
FORMULAS = {
    "the lower of two around": (maximum(UP - 1, 0), 128, 64),
    "the upper of two around": (minimum(maximum(UP, 1), 63), 128, 64),
    "every third": (floordiv(I * 2 + 1, 3), 96, 64),
    "one and a half": (minimum(floordiv(I * 2, 3) + 1, 63), 96, 64),
    "four of each": (floordiv(I, 4), 128, 32),
    "the first places get none": (floordiv(I, 2) + 5, 117, 64),
}


def found(formula: Expr, points: int, size: int, may_ask: bool = True) -> Sources | None:
    """The sources of one loop."""
    made = sources_of((formula,), (I,), (as_expr(points),), (as_expr(size),), may_ask)
    return None if made is None else made[0]


@pytest.mark.parametrize("name", FORMULAS)
def test_every_point_is_found_once_and_at_its_place(name: str) -> None:
    formula, points, size = FORMULAS[name]
    one = found(formula, points, size)
    assert one is not None
    table = [evaluate(substitute(formula, {I: i}), {}) for i in range(points)]
    seen = []
    for place in range(size):
        for k in range(one.many):
            first = evaluate(substitute(one.first, {one.symbol: place}), {})
            point = evaluate(one.point(as_expr(place), as_expr(k)), {})
            assert 0 <= point < points, "what is loaded exists"
            asked = one.place is not None
            at = first + k
            if asked and (at >= points or table_at(formula, at) != place):
                continue
            assert table[at] == place
            seen.append(at)
    assert sorted(seen) == list(range(points))


def table_at(formula: Expr, i: int) -> int:
    """The place of a point, which need not exist."""
    return evaluate(substitute(formula, {I: i}), {})


def test_places_that_get_as_many_as_others_should_not_be_asked() -> None:
    one = found(*FORMULAS["four of each"])
    assert one is not None
    assert one.place is None
    assert one.many == 4


def test_uneven_places_should_not_be_gathered_where_nobody_may_ask() -> None:
    assert found(*FORMULAS["the lower of two around"], may_ask=False) is None


def test_what_turns_around_should_not_be_gathered() -> None:
    assert found(maximum(I - 64, -I + 64), 128, 65) is None


def test_places_with_gaps_between_them_should_not_be_gathered() -> None:
    assert found(I * 2 + 5, 28, 64) is None
