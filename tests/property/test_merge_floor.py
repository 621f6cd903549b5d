"""The floor of a merge is never above what a trial finds: it refuses nothing that would fit."""

from __future__ import annotations

import random

import pytest
from focused_programs import relays
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import small_programs

from treadle.analysis.cost import cost_model
from treadle.analysis.merge_floor import merge_floor
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.schedule.board import Board
from treadle.schedule.policy import policy_named


def board_of(program: Program) -> Board:
    options = Options()
    ctx = Ctx(options, cost_model(program, options), Journal())
    board = Board(program, ctx, policy_named("balanced"))
    board.enter_groups(lambda kept, gone: None)
    return board


def tried(board: Board, rng: random.Random, count: int) -> list[tuple[int, int, bool]]:
    """(floor, what the trial found, whether steps moved) of random merges, some of them kept."""
    seen = []
    names = range(len(board.deps.names))
    for _ in range(count):
        a, b = (board.group_of(rng.choice(names)) for _ in "ab")
        if a == b or not board.acyclic(a, b):
            continue
        first, second = (a, b) if board.before(a, b) else (b, a)
        drops = rng.random() < 0.7
        for place in board.placer.places(first, second):
            both = (board.timeline, first, second, place.at, place.moved)
            floor = merge_floor(*both, drops=drops)
            mark = board.placer.try_at(first, second, place, drops)
            if mark is None:
                continue
            seen.append((floor, board.timeline.during(place.at), bool(place.moved)))
            if rng.random() < 0.3:
                board.join(a, b)
                break
            board.timeline.rollback(mark)
    return seen


def woven(rng: random.Random, count: int) -> Program:
    """Pointwise kernels of two sizes, each over a few earlier results, some results returned."""
    b = ProgramBuilder("woven")
    made = {n: [b.input(f"x{n}", "f32", [n], donated=rng.random() < 0.5)] for n in (4, 6)}
    for k in range(count):
        n = rng.choice((4, 6))
        make = b.output if rng.random() < 0.1 else b.buffer
        target = make(f"t{k}", "f32", [n])
        recent = made[n][-rng.choice((2, 4, 12)) :]
        with b.loop(f"k{k}", [n]) as body:
            values = [body.load(s, body.vars[0]) for s in rng.sample(recent, min(2, len(recent)))]
            body.store(target, body.vars, sum(values[1:], values[0]) * 0.5)
        made[n].append(target)
    b.returns(*[row[-1] for row in made.values() if len(row) > 1])
    return b.build()


@settings(max_examples=examples(120))
@given(st.one_of(small_programs(groups=True), relays()), st.integers(0, 2**32))
def test_a_floor_is_never_above_what_the_trial_finds(program: Program, seed: int) -> None:
    if len(program.leaves) > 1:
        for floor, found, _ in tried(board_of(program), random.Random(seed), 12):
            assert floor <= found


@pytest.mark.parametrize("seed", range(60))
def test_floors_hold_where_steps_must_move_and_are_often_exact(seed: int) -> None:
    rng = random.Random(seed)
    rows = tried(board_of(woven(rng, 24)), rng, 120)
    assert all(floor <= found for floor, found, _ in rows)
    assert any(moved for _, _, moved in rows)
    unmoved = [(floor, found) for floor, found, moved in rows if not moved]
    exact = sum(floor == found for floor, found in unmoved)
    assert 2 * exact >= len(unmoved)
