"""MiniMalloc's eleven hard instances are solved at their capacity, and the plans are right."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from treadle.core.options import Options
from treadle.core.toolchain import find_compiler
from treadle.memory.csvio import parse_csv
from treadle.memory.portfolio import solve
from treadle.memory.problem import Problem
from treadle.memory.validate import violations

SHARED = Path(__file__).parents[2].parent / "shared"
CAPACITY = 1_048_576
QUICK = "ABCFGH"
ALL = "ABCDEFGHIJK"

needs_compiler = pytest.mark.skipif(
    not find_compiler(Options()), reason="these need the compiled search"
)


def instance(letter: str) -> Problem:
    path = SHARED / "dumps" / "minimalloc" / f"{letter}.{CAPACITY}.csv"
    if not path.exists():
        pytest.skip(f"instance {letter} is not beside the repository")
    problem = parse_csv(path.read_text(), path.name).problem
    return Problem(problem.blocks, capacity=CAPACITY, name=letter)


def solved(letter: str, seconds: float) -> None:
    problem = instance(letter)
    start = time.process_time()
    solution = solve(problem, effort="balanced", steps=1 << 40, seconds=seconds)
    assert time.process_time() - start < seconds
    assert solution.verdict
    assert solution.plan is not None
    assert violations(problem, solution.plan) == ()
    assert solution.height <= CAPACITY


@needs_compiler
@pytest.mark.parametrize("letter", QUICK)
def test_the_quick_ones_are_solved_in_seconds(letter: str) -> None:
    solved(letter, 30)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("letter", ALL)
def test_each_is_solved_within_two_minutes(letter: str) -> None:
    solved(letter, 120)


@needs_compiler
def test_c_is_solved_at_its_lower_bound() -> None:
    problem = instance("C")
    solution = solve(Problem(problem.blocks), effort="exact", steps=10**6)
    assert solution.height == solution.lower_bound == 1_039_360
