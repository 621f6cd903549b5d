"""Problems refuse what makes no sense; files say the same as problems."""

from __future__ import annotations

import pytest

from treadle.memory.csvio import looks_like_csv, parse_csv, print_csv
from treadle.memory.problem import Block, Place, Plan, Pool, Problem


def test_spans_are_the_life_without_the_gaps() -> None:
    block = Block("a", 0, 10, 1, gaps=((0, 2), (4, 5), (5, 6), (9, 10)))
    assert block.spans == ((2, 4), (6, 9))
    assert Block("a", 3, 7, 1).spans == ((3, 7),)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Block("a", 1, 1, 1), "block a: life [1, 1) is empty"),
        (lambda: Block("a", 0, 1, -1), "block a: negative size -1"),
        (lambda: Block("a", 0, 1, 1, alignment=0), "block a: alignment 0 is less than 1"),
        (lambda: Block("a", 0, 1, 1, fixed=-4), "block a: negative fixed offset -4"),
        (lambda: Block("a", 2, 5, 1, gaps=((1, 3),)), "block a: gap [1, 3) starts before 2"),
        (lambda: Block("a", 0, 5, 1, gaps=((3, 3),)), "block a: gap [3, 3) is empty"),
        (lambda: Pool("arena", 1, ()), "a host cannot be named 'arena'"),
        (lambda: Pool("p", -1, ()), "pool p: negative size -1"),
        (lambda: Pool("p", 1, (), alignment=0), "pool p: alignment 0 is less than 1"),
        (lambda: Pool("p", 1, ((3, 5), (4, 6))), "pool p: free range [4, 6) starts before 5"),
        (lambda: Problem((), capacity=-1), "negative capacity -1"),
        (lambda: Problem((), (Pool("p", 1, ()), Pool("p", 1, ()))), "two pools are named 'p'"),
        (
            lambda: Problem(
                (Block("a", 0, 1, 1, fixed=0, group="g"), Block("b", 0, 1, 1, fixed=8, group="g"))
            ),
            "group g: a and b have different fixed: 0 and 8",
        ),
    ],
)
def test_should_not_accept_nonsense(make: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == message


FULL = Problem(
    (
        Block("plain", 0, 5, 1024),
        Block("a, b", -3, 9, 64, alignment=64, gaps=((-2, 0), (4, 5)), group="g"),
        Block("c", 2, 3, 64, fixed=128, group="g"),
        Block("t", 0, 2, 8, host="out 0"),
    ),
    (Pool("out 0", 4096, ((0, 155), (160, 170)), 64), Pool("in", 8, ())),
    capacity=1 << 20,
    name="full.csv",
)


def test_a_problem_and_its_plan_come_back_from_csv() -> None:
    plan = Plan(
        {
            "plain": Place("arena", 256),
            "a, b": Place("arena", 128),
            "c": Place("arena", 128),
            "t": Place("out 0", 0),
        },
        1280,
    )
    assert parse_csv(print_csv(FULL), "full.csv").problem == FULL
    assert parse_csv(print_csv(FULL), "full.csv").plan is None
    table = parse_csv(print_csv(FULL, plan), "full.csv")
    assert (table.problem, table.plan) == (FULL, plan)


def test_plain_problems_have_the_plain_columns() -> None:
    text = print_csv(Problem((Block("0", 3, 9, 4),)))
    assert text == "id,lower,upper,size\n0,3,9,4\n"
    assert print_csv(Problem((Block("0", 3, 9, 4),)), Plan({"0": Place("arena", 0)}, 4)) == (
        "id,lower,upper,size,offset\n0,3,9,4,0\n"
    )


def test_columns_come_in_any_order_with_any_line_ends() -> None:
    table = parse_csv("size, id ,upper,lower\r\n4,0,9,3\r\n\r\n", "x.csv")
    assert table.problem.blocks == (Block("0", 3, 9, 4),)


@pytest.mark.parametrize(
    "text, answer",
    [
        ("id,lower,upper,size\n", True),
        ("# capacity 5\n\nupper,lower,size,id,offset\n1,0,1,a,0\n", True),
        ("", False),
        ("treadle 1\n", False),
        ("id;lower;upper;size\n", False),
        ("op0: SchedulerNode(ComputedBuffer)\n", False),
    ],
)
def test_files_are_known_by_their_columns(text: str, answer: bool) -> None:
    assert looks_like_csv(text) is answer
