"""Every solver's plan is right, none is below the bound, and the exact one is lowest."""

from __future__ import annotations

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import lowest_height, problems

from treadle.core.options import Options
from treadle.memory import fits, greedy, search_python
from treadle.memory.engine import PythonEngine, engine_for
from treadle.memory.improve import improved
from treadle.memory.line import line_of, plan_of, top_of
from treadle.memory.lower_bound import lower_bound
from treadle.memory.native import Native, native_line
from treadle.memory.portfolio import EFFORTS, solve
from treadle.memory.problem import Problem
from treadle.memory.search import SECTION_RULES, SearchBudget, find, ways
from treadle.memory.search_python import IMPOSSIBLE, SOLVED
from treadle.memory.validate import violations

SOME = settings(max_examples=examples(80), deadline=None)
FEW = settings(max_examples=examples(40), deadline=None)


@SOME
@given(problems())
def test_every_greedy_plan_is_right_and_not_below_the_bound(problem: Problem) -> None:
    line = line_of(problem)
    bound = lower_bound(problem)
    for attempt in greedy.attempts(line, PythonEngine(line)):
        plan = plan_of(line, attempt.offsets)
        assert violations(problem, plan) == ()
        assert plan.height == attempt.height >= bound


@SOME
@given(problems(most=8))
def test_the_best_of_the_family_is_never_above_the_rule_of_xla(problem: Problem) -> None:
    line = line_of(problem)
    engine = engine_for(line, Options())
    heights = {a.method: a.height for a in greedy.attempts(line, engine)}
    xla = [heights[m] for m in ("spatial/best-fit", "temporal/best-fit") if m in heights]
    if xla:
        assert min(heights.values()) <= min(xla)
        solution = solve(problem, effort="fast", steps=0)
        assert solution.plan is not None
        assert solution.height <= min(xla)


@SOME
@given(problems(most=5))
def test_the_exact_search_equals_trying_everything(problem: Problem) -> None:
    solution = solve(problem, effort="exact", steps=10**6)
    lowest = lowest_height(problem)
    if lowest is None:
        assert solution.plan is None
        assert solution.verdict.code == "MEM030"
    else:
        assert solution.height == lowest == solution.lower_bound
        assert solution.plan is not None
        assert violations(problem, solution.plan) == ()


@settings(max_examples=examples(4), deadline=None)
@given(problems(most=7, plain=True).filter(lambda p: len(p.blocks) >= 6))
def test_the_exact_search_equals_trying_everything_on_more_blocks(problem: Problem) -> None:
    assert solve(problem, effort="exact", steps=10**6).height == lowest_height(problem)


@SOME
@given(problems(most=6), st.sampled_from(sorted(EFFORTS)), st.integers(0, 3))
def test_every_effort_gives_a_right_plan_twice_the_same(
    problem: Problem, effort: str, seed: int
) -> None:
    one = solve(problem, effort=effort, steps=2000, seed=seed)
    two = solve(problem, effort=effort, steps=2000, seed=seed)
    assert one.plan == two.plan
    assert one.lower_bound == two.lower_bound
    if one.plan is not None:
        assert violations(problem, one.plan) == ()
        assert one.height >= lower_bound(problem)


@SOME
@given(problems(most=6))
def test_the_bound_is_below_the_lowest_plan(problem: Problem) -> None:
    if len(problem.blocks) <= 5 and (lowest := lowest_height(problem)) is not None:
        assert lower_bound(problem) <= lowest


@FEW
@given(problems(most=12), st.integers(0, 5))
def test_improvement_never_makes_a_plan_higher_or_wrong(problem: Problem, seed: int) -> None:
    line = line_of(problem)
    engine = engine_for(line, Options())
    for attempt in list(greedy.attempts(line, engine))[:1]:
        offsets = improved(line, engine, attempt.offsets, 0, 20, SearchBudget(10**6), seed)
        assert top_of(line, offsets) <= attempt.height
        assert violations(problem, plan_of(line, offsets)) == ()


def compiled(problem: Problem) -> Native:
    made = native_line(line_of(problem), Options())
    if not isinstance(made, Native):
        pytest.skip(f"no compiled engine: {made}")
    return made


@SOME
@given(problems(most=14))
def test_compiled_and_python_placing_agree(problem: Problem) -> None:
    line, native = line_of(problem), compiled(problem)
    for name in greedy.ORDERS:
        order = greedy.order_of(line, name)
        for best in (True, False):
            assert native.fit(order, best=best) == fits.fit(line, order, best=best)


@SOME
@given(problems(most=12), st.sampled_from(SECTION_RULES), st.integers(0, 40))
def test_compiled_and_python_search_agree_node_for_node(
    problem: Problem, rule: int, slack: int
) -> None:
    line, native = line_of(problem), compiled(problem)
    limit = line.arena.base + lower_bound(problem) + slack // 4
    way = next(ways(line, seed=slack))[0]._replace(rule=rule)
    trouble, also = [slack % 3] * len(line.times), [slack % 3] * len(line.times)
    status, nodes, offsets = native.search(way, trouble, limit=limit, nodes=300)
    other = search_python.search(line, way, also, limit=limit, nodes=300)
    assert (status, nodes, trouble) == (*other[:2], also)
    if status == SOLVED:
        assert offsets == other[2]
        assert violations(problem, plan_of(line, offsets)) == ()


@SOME
@given(problems(most=5), st.integers(0, 20))
def test_a_search_finds_a_plan_exactly_where_there_is_one(problem: Problem, height: int) -> None:
    line = line_of(problem)
    answer = find(line, PythonEngine(line), height, SearchBudget(10**6))
    lowest = lowest_height(problem)
    assert answer.status == (SOLVED if lowest is not None and lowest <= height else IMPOSSIBLE)
