"""The validator sees what is wrong and nothing else."""

from __future__ import annotations

import random
import time

from treadle.memory.problem import Block, Place, Plan, Pool, Problem
from treadle.memory.validate import violations


def codes(problem: Problem, plan: Plan) -> list[str]:
    return [one.code for one in violations(problem, plan)]


def test_lives_that_only_touch_may_share_bytes() -> None:
    problem = Problem((Block("a", 0, 2, 8), Block("b", 2, 4, 8)))
    assert codes(problem, Plan({"a": Place("arena", 0), "b": Place("arena", 0)}, 8)) == []


def test_bytes_are_free_for_others_in_a_gap_and_only_there() -> None:
    plan = Plan({"a": Place("arena", 0), "b": Place("arena", 0)}, 8)
    long = Block("a", 0, 9, 8, gaps=((3, 6),))
    assert codes(Problem((long, Block("b", 3, 6, 8))), plan) == []
    assert codes(Problem((long, Block("b", 3, 7, 8))), plan) == ["MEM001"]


def test_members_of_a_group_are_not_in_each_others_way() -> None:
    blocks = (Block("a", 0, 5, 8, group="g"), Block("b", 2, 7, 4, group="g"))
    plan = {"a": Place("arena", 0), "b": Place("arena", 0)}
    assert codes(Problem(blocks), Plan(plan, 8)) == []
    # The slot is as large as the largest of the group as long as any of them lives.
    third = Block("c", 6, 7, 4)
    assert codes(Problem((*blocks, third)), Plan({**plan, "c": Place("arena", 4)}, 8)) == ["MEM001"]
    assert codes(Problem((*blocks, third)), Plan({**plan, "c": Place("arena", 8)}, 12)) == []


def test_a_group_and_a_block_of_the_same_name_are_two_things() -> None:
    blocks = (Block("x", 0, 5, 8), Block("b", 2, 7, 8, group="x"))
    plan = {"x": Place("arena", 0), "b": Place("arena", 0)}
    assert codes(Problem(blocks), Plan(plan, 8)) == ["MEM001"]


def test_equal_offsets_of_different_pools_do_not_meet() -> None:
    problem = Problem((Block("a", 0, 2, 8), Block("b", 0, 2, 8)), (Pool("out", 8, ((0, 2),)),))
    assert codes(problem, Plan({"a": Place("arena", 0), "b": Place("out", 0)}, 8)) == []


def test_a_host_may_be_free_in_ranges_that_touch() -> None:
    pool = Pool("out", 8, ((0, 2), (2, 5), (7, 9)))
    plan = Plan({"a": Place("out", 0)}, 0)
    assert codes(Problem((Block("a", 1, 5, 8),), (pool,)), plan) == []
    assert codes(Problem((Block("a", 1, 8, 8, gaps=((5, 7),)),), (pool,)), plan) == []
    assert codes(Problem((Block("a", 1, 8, 8),), (pool,)), plan) == ["MEM009"]


def test_blocks_without_bytes_are_in_nobodys_way() -> None:
    problem = Problem((Block("a", 0, 2, 8), Block("z", 0, 2, 0)))
    assert codes(problem, Plan({"a": Place("arena", 0), "z": Place("arena", 4)}, 8)) == []


def overlap_by_pairs(problem: Problem, plan: Plan) -> bool:
    return any(
        a is not b
        and plan.placements[a.name].offset < plan.placements[b.name].offset + b.size
        and plan.placements[b.name].offset < plan.placements[a.name].offset + a.size
        and any(s < v and u < e for s, e in a.spans for u, v in b.spans)
        for a in problem.blocks
        for b in problem.blocks
    )


def test_the_sweep_finds_an_overlap_exactly_if_some_pair_has_one() -> None:
    rng = random.Random(7)
    seen = set()
    for _ in range(400):
        blocks, places = [], {}
        for k in range(rng.randint(1, 6)):
            lower = rng.randrange(8)
            upper = lower + rng.randint(1, 4)
            gaps = ((lower, lower + 1),) if upper - lower > 2 and rng.random() < 0.3 else ()
            blocks.append(Block(f"b{k}", lower, upper, rng.randint(1, 3), gaps=gaps))
            places[f"b{k}"] = Place("arena", rng.randrange(10))
        problem = Problem(tuple(blocks))
        height = max(places[b.name].offset + b.size for b in blocks)
        found = codes(problem, Plan(places, height))
        expected = overlap_by_pairs(problem, Plan(places, height))
        assert (set(found) == {"MEM001"}) is expected
        seen.add(expected)
    assert seen == {True, False}


def test_a_hundred_thousand_blocks_take_seconds() -> None:
    count = 100_000
    blocks = tuple(Block(f"b{i}", i, i + 20, 8) for i in range(count))
    plan = Plan({f"b{i}": Place("arena", i % 20 * 8) for i in range(count)}, 160)
    start = time.process_time()
    assert codes(Problem(blocks), plan) == []
    assert time.process_time() - start < 10
