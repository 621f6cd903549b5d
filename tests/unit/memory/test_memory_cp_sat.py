"""The optional second opinion agrees with the search, and says so when it is not there."""

from __future__ import annotations

import pytest

from treadle.core.errors import UsageError
from treadle.memory import cp_sat
from treadle.memory.portfolio import solve
from treadle.memory.problem import Block, Pool, Problem
from treadle.memory.validate import violations

PROBLEM = Problem(
    (
        Block("a", 0, 4, 5, alignment=4),
        Block("b", 1, 6, 6),
        Block("c", 3, 9, 4, gaps=((5, 7),)),
        Block("d", 5, 7, 4),
        Block("e", 0, 2, 3, fixed=12),
        Block("f", 2, 4, 8),
    ),
    (Pool("out", 8, ((0, 5),)),),
)


def test_a_missing_oracle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat, "is_available", lambda: False)
    with pytest.raises(UsageError, match="OR-tools is not installed"):
        cp_sat.solve_with_cp_sat(PROBLEM)


def test_the_oracle_agrees_with_the_search() -> None:
    if not cp_sat.is_available():
        pytest.skip("OR-tools is not installed")
    plan, bound = cp_sat.solve_with_cp_sat(PROBLEM, seconds=20)
    ours = solve(PROBLEM, effort="exact", steps=10**5)
    assert plan is not None
    assert violations(PROBLEM, plan) == ()
    assert plan.height == bound == ours.height == ours.lower_bound
