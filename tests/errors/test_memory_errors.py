"""The exact text of everything the memory planner refuses."""

from __future__ import annotations

import pytest

from treadle.core.errors import InputError, SpecError
from treadle.core.options import Options
from treadle.memory.csvio import parse_csv
from treadle.memory.line import line_of
from treadle.memory.native import native_line
from treadle.memory.portfolio import solve
from treadle.memory.problem import Block, Place, Plan, Pool, Problem
from treadle.memory.validate import validated, violations

OUT = Pool("out", 128, ((0, 4),), alignment=64)

WRONG_PLANS: dict[str, tuple[Problem, Plan, str]] = {
    "two_blocks_in_the_same_bytes": (
        Problem((Block("a", 0, 5, 1024), Block("b", 4, 6, 1024))),
        Plan({"a": Place("arena", 0), "b": Place("arena", 512)}, 1536),
        "MEM001 at b: [512, 1536) of arena at time 4 overlaps a at [0, 1024)",
    ),
    "an_offset_that_is_no_multiple": (
        Problem((Block("q", 0, 1, 8, alignment=64),)),
        Plan({"q": Place("arena", 100)}, 108),
        "MEM002 at q: offset 100 is not a multiple of 64",
    ),
    "a_host_that_is_less_aligned": (
        Problem((Block("q", 0, 1, 8, alignment=128),), (OUT,)),
        Plan({"q": Place("out", 0)}, 0),
        "MEM002 at q: out is aligned to 64, the block to 128",
    ),
    "past_the_end_of_a_host": (
        Problem((Block("t", 0, 1, 64),), (OUT,)),
        Plan({"t": Place("out", 96)}, 0),
        "MEM003 at t: [96, 160) is outside [0, 128) of out",
    ),
    "below_the_first_byte": (
        Problem((Block("t", 0, 1, 64),)),
        Plan({"t": Place("arena", -64)}, 0),
        "MEM003 at t: [-64, 0) is outside [0, ...) of arena",
    ),
    "a_block_left_out": (
        Problem((Block("x", 0, 1, 1),)),
        Plan({}, 0),
        "MEM004 at x: the block has no place",
    ),
    "a_block_nobody_knows": (
        Problem(()),
        Plan({"y": Place("arena", 0)}, 0),
        "MEM005 at y: the problem has no such block",
    ),
    "a_pool_nobody_knows": (
        Problem((Block("x", 0, 1, 1),)),
        Plan({"x": Place("lake", 0)}, 0),
        "MEM005 at x: the problem has no pool 'lake'",
    ),
    "a_fixed_block_elsewhere": (
        Problem((Block("table", 0, 1, 8, fixed=0),)),
        Plan({"table": Place("arena", 64)}, 72),
        "MEM006 at table: offset 64, but it is fixed at 0",
    ),
    "a_group_in_two_places": (
        Problem((Block("i", 0, 2, 64, group="g"), Block("o", 2, 4, 64, group="g"))),
        Plan({"i": Place("arena", 0), "o": Place("arena", 64)}, 128),
        "MEM007 at o: at arena+64, but i of the same group g is at arena+0",
    ),
    "more_than_the_capacity": (
        Problem((Block("x", 0, 1, 1280),), capacity=1024),
        Plan({"x": Place("arena", 0)}, 1280),
        "MEM008: height 1280 is over the capacity of 1024",
    ),
    "a_host_that_is_in_use": (
        Problem((Block("t", 3, 9, 64),), (OUT,)),
        Plan({"t": Place("out", 0)}, 0),
        "MEM009 at t: uses out in [3, 9), when it is not free",
    ),
    "not_in_the_pool_asked_for": (
        Problem((Block("s", 0, 1, 64, host="out"),), (OUT,)),
        Plan({"s": Place("arena", 0)}, 64),
        "MEM010 at s: lives in arena, but must live in out",
    ),
    "fixed_without_a_pool_is_in_the_arena": (
        Problem((Block("s", 0, 1, 64, fixed=0),), (OUT,)),
        Plan({"s": Place("out", 0)}, 0),
        "MEM010 at s: lives in out, but must live in arena",
    ),
    "a_height_that_is_not_so": (
        Problem((Block("x", 0, 1, 128),)),
        Plan({"x": Place("arena", 0)}, 96),
        "MEM011: the plan says height 96, its blocks reach 128",
    ),
}


@pytest.mark.parametrize("case", WRONG_PLANS)
def test_a_wrong_plan_is_named(case: str) -> None:
    problem, plan, text = WRONG_PLANS[case]
    assert [str(one) for one in violations(problem, plan)] == [text]
    with pytest.raises(SpecError) as caught:
        validated(problem, plan)
    assert text in caught.value.render()


BAD_FILES: dict[str, tuple[str, str]] = {
    "an_empty_file": (
        "",
        "case.csv:1: expected a first line with the columns id,lower,upper,size,"
        " found an empty file [MEM020]",
    ),
    "a_missing_column": (
        "id,lower,upper\na,0,1\n",
        "case.csv:1: expected the columns id,lower,upper,size, found none named 'size' [MEM020]",
    ),
    "an_unknown_column": (
        "id,lower,upper,size,colour\n",
        "case.csv:1: expected columns among id,lower,upper,size,alignment,gaps,fixed,host,group,"
        "pool,offset, found 'colour' [MEM020]",
    ),
    "a_column_twice": (
        "id,lower,upper,size,size\n",
        "case.csv:1: expected each column once, found 'size' twice [MEM020]",
    ),
    "a_value_too_few": (
        "id,lower,upper,size\na,0,1\n",
        "case.csv:2: expected 4 values, found 3 [MEM020]",
    ),
    "a_size_in_kilobytes": (
        "# a comment\nid,lower,upper,size\na,0,1,1\nb,0,1,12k\n",
        "case.csv:4: expected a whole number for size, found '12k' [MEM020]",
    ),
    "a_size_left_out": (
        "id,lower,upper,size\na,0,1,\n",
        "case.csv:2: expected a whole number for size, found nothing [MEM020]",
    ),
    "no_name": (
        "id,lower,upper,size\n,0,1,1\n",
        "case.csv:2: expected a name in column id, found nothing [MEM020]",
    ),
    "a_life_of_no_time": (
        "id,lower,upper,size\na,5,5,1\n",
        "case.csv:2: expected a block, found block a: life [5, 5) is empty [MEM020]",
    ),
    "a_gap_that_is_no_range": (
        "id,lower,upper,size,gaps\na,0,5,1,2..3\n",
        "case.csv:2: expected ranges such as 2-5 for gaps, found '2..3' [MEM020]",
    ),
    "a_gap_outside_the_life": (
        "id,lower,upper,size,gaps\na,0,5,1,2-7\n",
        "case.csv:2: expected a block, found block a: gap [2, 7) ends after 5 [MEM020]",
    ),
    "two_blocks_of_one_name": (
        "id,lower,upper,size\na,0,1,1\na,0,1,1\n",
        "case.csv:3: expected blocks and pools that go together,"
        " found two blocks are named 'a' [MEM020]",
    ),
    "a_host_nobody_declared": (
        "id,lower,upper,size,host\na,0,1,1,out\n",
        "case.csv:2: expected blocks and pools that go together,"
        " found block a: there is no pool 'out' [MEM020]",
    ),
    "a_negative_capacity": (
        "# capacity -1\nid,lower,upper,size\n",
        "case.csv:1: expected a capacity of at least 0, found -1 [MEM020]",
    ),
    "a_pool_without_size": (
        "# pool out free=0-4\nid,lower,upper,size\n",
        "case.csv:1: expected a whole number for size, found nothing [MEM020]",
    ),
    "a_quote_that_does_not_end": (
        'id,lower,upper,size\n"a,0,1,1\n',
        "case.csv:2: expected a line of comma-separated values,"
        " found unexpected end of data [MEM020]",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_gets_one_line(case: str) -> None:
    text, message = BAD_FILES[case]
    with pytest.raises(InputError) as caught:
        parse_csv(text, "case.csv")
    assert caught.value.render() == message


def test_a_capacity_that_cannot_be_met_is_refused_with_a_proof() -> None:
    problem = Problem((Block("a", 0, 2, 6), Block("b", 1, 3, 6)), capacity=10)
    verdict = solve(problem, steps=1000).verdict
    assert str(verdict) == "no MEM030 height=12 capacity=10 lower_bound=12 is_proven=True"


def test_blocks_that_cannot_be_placed_at_all_are_refused() -> None:
    problem = Problem((Block("a", 0, 2, 6, fixed=0), Block("b", 1, 3, 6, fixed=3)))
    solution = solve(problem, steps=1000)
    assert solution.plan is None
    assert solution.verdict.code == "MEM030"


def test_numbers_beyond_64_bits_are_left_to_python() -> None:
    problem = Problem((Block("a", 0, 2, 1 << 70), Block("b", 1, 3, 1 << 70)))
    assert str(native_line(line_of(problem), Options())) == f"no TOOL003 bytes={1 << 71}"
    assert solve(problem, steps=1000).height == 1 << 71
