"""The planner: hosts first, gaps used, bounds met, the best plan always at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.memory import greedy
from treadle.memory.engine import PythonEngine, engine_for
from treadle.memory.line import granule, line_of
from treadle.memory.lower_bound import bound_of, lower_bound
from treadle.memory.native import Native
from treadle.memory.portfolio import solve, split
from treadle.memory.problem import Block, Pool, Problem
from treadle.memory.search import luby
from treadle.testing.costs import MACHINES

# Every greedy order leaves a hole here and ends at 13; a plan of 12 exists.
TRICKY = Problem(
    (
        Block("a", 0, 1, 2),
        Block("b", 0, 3, 3),
        Block("c", 2, 5, 4),
        Block("d", 3, 5, 4),
        Block("e", 4, 6, 4),
        Block("f", 1, 3, 4),
        Block("g", 0, 2, 3),
        Block("h", 1, 2, 2),
    )
)


def test_a_host_is_filled_before_the_arena_grows() -> None:
    problem = Problem(
        tuple(Block(f"t{k}", 0, 4, 32) for k in range(5)), (Pool("out", 128, ((0, 10),)),)
    )
    solution = solve(problem, steps=1000)
    assert solution.plan is not None
    pools = [place.pool for place in solution.plan.placements.values()]
    assert (pools.count("out"), pools.count("arena")) == (4, 1)
    assert solution.height == solution.lower_bound == 32
    assert solution.is_optimal


def test_many_temporaries_share_a_host_over_time_and_space() -> None:
    blocks = tuple(Block(f"t{k}", k, k + 3, 40) for k in range(20))
    solution = solve(Problem(blocks, (Pool("out", 120, ((0, 30),)),)), steps=1000)
    assert solution.height == 0
    assert solution.plan is not None
    assert {place.pool for place in solution.plan.placements.values()} == {"out"}


def test_a_host_that_is_born_in_the_middle_of_a_life_is_not_used() -> None:
    problem = Problem((Block("t", 2, 6, 8),), (Pool("out", 64, ((0, 5),)),))
    assert solve(problem, steps=10).height == 8


def test_gaps_are_used() -> None:
    problem = Problem((Block("a", 0, 9, 8, gaps=((3, 6),)), Block("b", 3, 6, 8)))
    assert solve(problem, steps=10).height == 8


def test_parts_that_share_no_moment_are_planned_apart() -> None:
    blocks = [Block(f"{n}{b.name}", b.lower + 6 * n, b.upper + 6 * n, b.size)
              for n in range(3) for b in TRICKY.blocks]  # fmt: skip
    line = line_of(Problem(tuple(blocks)))
    assert [numbers for _, numbers in split(line)] == [
        list(range(start, start + 8)) for start in (0, 8, 16)
    ]
    assert solve(Problem(tuple(blocks)), effort="exact", steps=10**5).height == 12


def test_search_finds_what_greedy_misses() -> None:
    line = line_of(TRICKY)
    assert min(one.height for one in greedy.attempts(line, PythonEngine(line))) == 13
    assert solve(TRICKY, effort="exact", steps=10**5).height == 12


def test_what_was_tried_is_told() -> None:
    solution = solve(TRICKY, effort="fast", steps=0)
    assert solution.tried[0].method == "spatial/best-fit"
    assert solution.height == min(one.height for one in solution.tried)
    assert solution.gap == (solution.height - 12) / 12


def test_no_time_at_all_still_gives_a_plan() -> None:
    solution = solve(TRICKY, seconds=0.0, effort="exact")
    assert solution.plan is not None
    assert len(solution.tried) == 1


def test_an_empty_problem_needs_nothing() -> None:
    solution = solve(Problem(()))
    assert (solution.height, solution.lower_bound, solution.gap) == (0, 0, 0.0)
    assert solution.is_optimal


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown effort 'heroic'"):
        solve(TRICKY, effort="heroic")


def test_without_a_compiler_the_answers_are_the_same() -> None:
    line = line_of(TRICKY)
    engine = engine_for(line, Options.make(cc="no-such-compiler"))
    assert isinstance(engine, PythonEngine)
    other = engine_for(line, Options())
    if not isinstance(other, Native):
        pytest.skip("no C compiler here")
    ours = list(greedy.attempts(line, engine))
    assert ours == list(greedy.attempts(line, other))


@pytest.mark.parametrize(
    "blocks, bound",
    [
        ((Block("a", 0, 2, 5), Block("b", 1, 3, 7)), 12),
        # Three slots of 10 bytes at multiples of 8 end at 42 at least: 16 + 16 + 10.
        (tuple(Block(f"{k}", 0, 1, 10, alignment=8) for k in range(3)), 42),
        # 6 free bytes lie below the fixed block; two of 4 do not both fit there.
        ((Block("f", 0, 1, 2, fixed=6), Block("a", 0, 1, 4), Block("b", 0, 1, 4)), 10),
        # Nothing fits below the fixed block: all of it goes on top.
        ((Block("f", 0, 1, 2, fixed=3), Block("a", 0, 1, 4), Block("b", 0, 1, 4)), 13),
        # The members of a group count once, at the size of the largest.
        ((Block("a", 0, 2, 5, group="g"), Block("b", 1, 3, 7, group="g")), 7),
    ],
)
def test_bounds(blocks: tuple[Block, ...], bound: int) -> None:
    assert lower_bound(Problem(blocks)) == bound


def test_the_bound_says_when() -> None:
    line = line_of(Problem((Block("a", 0, 9, 5), Block("b", 4, 6, 7))))
    assert bound_of(line) == (12, 4)


@pytest.mark.parametrize(
    "blocks, step",
    [
        ((Block("a", 0, 1, 1024), Block("b", 0, 1, 3072)), 1024),
        ((Block("a", 0, 1, 1024, alignment=64), Block("b", 0, 1, 3072)), 1024),
        ((Block("a", 0, 1, 96, alignment=64), Block("b", 0, 1, 96)), 32),
        ((Block("a", 0, 1, 12, alignment=4), Block("b", 0, 1, 12, alignment=9)), 1),
        ((Block("a", 0, 1, 64, fixed=16), Block("b", 0, 1, 64)), 16),
    ],
)
def test_heights_worth_trying_are_multiples_of(blocks: tuple[Block, ...], step: int) -> None:
    assert granule(line_of(Problem(blocks))) == step


def test_restarts_follow_the_known_sequence() -> None:
    assert [luby(k) for k in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


def test_xlas_orders_are_by_size_and_by_duration() -> None:
    blocks = (Block("s", 0, 9, 1), Block("l", 0, 1, 9), Block("m", 0, 2, 9), Block("n", 0, 2, 9))
    line = line_of(Problem(blocks))
    assert greedy.order_of(line, "spatial") == [2, 3, 1, 0]
    assert greedy.order_of(line, "temporal") == [0, 2, 3, 1]


def test_best_fit_takes_the_smallest_hole_and_first_fit_the_lowest() -> None:
    walls = (
        Block("w0", 0, 9, 1, fixed=8),
        Block("w1", 0, 9, 1, fixed=13),
        Block("w2", 0, 9, 1, fixed=18),
    )
    line = line_of(Problem((*walls, Block("x", 0, 9, 4))))
    engine = PythonEngine(line)
    assert engine.fit([0, 1, 2, 3], best=True) == [8, 13, 18, 9]  # two holes of 4: the lower
    assert engine.fit([0, 1, 2, 3], best=False) == [8, 13, 18, 0]


def test_a_little_work_needs_no_compiler(tmp_path: Path) -> None:
    def planned(count: int, **options: str) -> object:
        blocks = [Block(f"b{k}", k, k + 3, 64 * (k % 5 + 1)) for k in range(count)]
        ctx = Ctx(Options(**options), MACHINES, Journal(enabled=False))
        return solve(Problem(tuple(blocks)), steps=0, effort="fast", ctx=ctx).plan

    cache = tmp_path / "cache"
    assert planned(40, cache_dir=str(cache)) is not None
    assert not cache.exists()
    assert planned(100, cache_dir=str(cache)) == planned(100, cc="no-such-compiler")
    assert cache.exists()
