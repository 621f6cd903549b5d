"""Reductions in two stages, and two stages in one: the same bits, enough points."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.interp.compare import differing_results
from treadle.ir.program import Loop, Program
from treadle.ir.reduced import reduced_once
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program
from treadle.schedule.passes.drop_dead_ops import drop_dead_ops
from treadle.schedule.passes.split_reductions import (
    SplitCandidate,
    has_few_points,
    is_faster_in_two,
    split_reductions,
)
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES
from treadle.schedule.record import replay, schedule_of
from treadle.schedule.two_stages import SPLITTABLE, Splitter, cuts
from treadle.testing.costs import MACHINES


def context(policy: str = "balanced") -> tuple[Ctx, Journal]:
    journal = Journal()
    return Ctx(Options(policy=policy), MACHINES, journal), journal


def codes(journal: Journal) -> list[str]:
    return [e["code"] for e in journal.events("verdict")]


def reduction(rows: int, columns: int, device: str = "cuda:0", element: str = "f32") -> Program:
    b = ProgramBuilder("p", device)
    x, y = b.input("x", element, [rows, columns]), b.output("y", element, [rows])
    with b.loop("total", [rows], reduce=[columns]) as k:
        i, j = k.vars
        k.store(y, (i,), k.sum(k.load(x, i, j)))
    return b.build()


def split(program: Program, policy: str = "balanced") -> tuple[Program, list[str]]:
    ctx, journal = context(policy)
    after = split_reductions(program, ctx)
    if after is not program:
        verify(after)
        assert differing_results(program, after) == []
        assert parse_program(show_program(after)) == after
        assert split_reductions(after, ctx) is after
    return after, codes(journal)


def test_a_sum_of_everything_becomes_two_stages_with_points_for_every_core() -> None:
    after, found = split(reduction(1, 1 << 18))
    assert found == ["SPL000"]
    first, second = after.ops
    assert isinstance(first, Loop)
    assert isinstance(second, Loop)
    assert (first.name, second.name) == ("total_part", "total")
    assert first.body.domain.numel.value == second.body.reduce.numel.value == 1024
    assert first.body.reduce.numel.value == 256
    assert str(after.by_name["total_part_1"].dtype) == "f64"


def test_few_steps_and_many_points_stay_in_one_stage() -> None:
    for rows, columns in ((1, 1 << 16), (264, 1 << 12), (1 << 10, 511)):
        program = reduction(rows, columns)
        assert split(program) == (program, [])  # SPL001 is too common to be told
    (op,) = program.ops
    assert isinstance(op, Loop)
    assert has_few_points(SplitCandidate(op, program, POLICIES["fast"], MACHINES)).code == "SPL001"
    assert split(reduction(100, 1 << 16))[1] == ["SPL000"]


def test_two_stages_that_would_take_longer_stay_one() -> None:
    program = reduction(131, 1 << 12)
    (op,) = program.ops
    assert isinstance(op, Loop)
    verdict = is_faster_in_two(SplitCandidate(op, program, POLICIES["fast"], MACHINES))
    assert verdict.code == "SPL005"
    assert verdict.facts["one_stage_ns"] < verdict.facts["two_stages_ns"]
    assert split(program)[0] is program


def test_the_policy_and_the_device_decide() -> None:
    assert split(reduction(1, 1 << 18), "memory")[1] == []
    assert split(reduction(1, 1 << 18, "cpu"))[1] == []


def test_what_rounds_differently_stays_in_one_stage() -> None:
    program = reduction(1, 1 << 18, element="f64")
    assert split(program) == (program, ["SPL003"])


def test_a_prime_length_cannot_be_cut() -> None:
    program = reduction(2, 131071)
    assert split(program) == (program, ["SPL004"])


def test_a_run_time_length_cannot_be_cut() -> None:
    b = ProgramBuilder("p", "cuda:0")
    n = b.size("n", hint=1 << 18)
    x, y = b.input("x", "f32", [n]), b.output("y", "f32", [1])
    with b.loop("total", [1], reduce=[n]) as k:
        i, j = k.vars
        k.store(y, (i,), k.sum(k.load(x, j)))
    program = b.build()
    ctx, journal = context()
    assert split_reductions(program, ctx) is program
    assert codes(journal) == ["SPL004"]


def test_rows_that_are_needed_twice_stay_in_one_stage() -> None:
    b = ProgramBuilder("p", "cuda:0")
    x, y = b.input("x", "f32", [1 << 18]), b.output("y", "f32", [1 << 18])
    with b.loop("norm", [1], reduce=[1 << 18]) as k:
        v = k.load_at(x, k.vars[1])
        k.store_at(y, k.vars[1], v / k.sum(v))
    program = b.build()
    assert split(program) == (program, ["SPL002"])


# ------------------------------------------------------------------------ every kind, small


def apply(k: BodyBuilder, kind: str, v: Value) -> Value:
    if kind == "dot":
        return k.reduce_by("dot", v, v + 1.0)
    found = k.reduce_by(kind, v)
    return k.emit("get", [found], (1,)) if kind == "welford" else found


def small(kind: str, element: str, sizes: list[int]) -> Program:
    b = ProgramBuilder("p")
    x, w = b.input("x", element, [3, *sizes]), b.input("w", "f32", [3])
    result = {"any": "bool", "all": "bool", "argmax": "i64", "argmin": "i64"}.get(kind, element)
    y, z = b.output("y", result, [3]), b.output("z", "f32", [3])
    with b.loop("r", [3], reduce=sizes) as k:
        i, *js = k.vars
        found = apply(k, kind, k.load(x, i, *js))
        k.store(y, (i,), found)
        k.store(z, (i,), k.load(w, i) * 2.0 + k.emit("cast", [found], (w.dtype,)))
    return verify(b.build())


KINDS = [(k, e) for k in sorted(SPLITTABLE) for e in ("f32", "bf16", "i32", "i64")]
KINDS = [
    (k, e)
    for k, e in KINDS
    if (k not in ("welford", "dot") or not e.startswith("i")) and (k != "xor_sum" or e[0] == "i")
]


@pytest.mark.parametrize("kind, element", KINDS)
@settings(max_examples=8)
@given(st.lists(st.sampled_from([2, 3, 4, 6]), min_size=1, max_size=3), st.integers(0, 50))
def test_every_cut_of_every_kind_gives_the_same_bits(
    kind: str, element: str, sizes: list[int], seed: int
) -> None:
    program = small(kind, element, sizes)
    (op,) = program.ops
    assert isinstance(op, Loop)
    assert reduced_once(op.body)
    for cut in cuts(op.body.reduce):
        stages = Splitter(op, program, cut).stages()
        buffers = (*program.buffers, *stages.partial)
        after = verify(replace(program, buffers=buffers, ops=(stages.first, stages.second)))
        assert differing_results(program, after, seed) == []


def stored_between(kind: str) -> Program:
    """The first value of the body is used again after a store."""
    b = ProgramBuilder("p")
    x, w = b.input("x", "f32", [3, 8]), b.input("w", "f32", [3])
    y, z = b.output("y", "f32", [3]), b.output("z", "f32", [3])
    with b.loop("r", [3], reduce=[8]) as k:
        i, j = k.vars
        first = k.load(w, i)
        found = k.reduce_by(kind, k.load(x, i, j))
        k.store(y, (i,), found)
        k.store(z, (i,), found + first)
    return verify(b.build())


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_values_are_still_known_after_a_store(kind: str) -> None:
    program = stored_between(kind)
    (op,) = program.ops
    assert isinstance(op, Loop)
    for cut in cuts(op.body.reduce):
        stages = Splitter(op, program, cut).stages()
        buffers = (*program.buffers, *stages.partial)
        after = verify(replace(program, buffers=buffers, ops=(stages.first, stages.second)))
        assert differing_results(program, after) == []
        again, _ = split(after)
        assert [x.name for x in drop_dead_ops(again, context()[0]).ops] == ["r"]


# ------------------------------------------------------------------------- back to one stage


def two_stages(kind: str, element: str, *, shift: int = 0, kept: bool = False) -> Program:
    b = ProgramBuilder("p")
    x, y = b.input("x", element, [2, 4, 8]), b.output("y", element, [2])
    p = b.buffer("p", element, [2, 4])
    with b.loop("first", [2, 4], reduce=[8]) as k:
        k.store(p, k.vars[:2], k.reduce_by(kind, k.load(x, *k.vars)))
    with b.loop("second", [2], reduce=[4]) as k:
        i, j = k.vars
        k.store(y, (i,), k.reduce_by(kind, k.load_at(p, 4 * i + (3 - j if shift else j))))
    if kept:
        b.returns(p)
    return b.build()


def test_two_stages_become_one_where_that_is_enough() -> None:
    program = two_stages("max", "f32")
    after, _ = split(program)
    assert [op.name for op in drop_dead_ops(after, context()[0]).ops] == ["second"]
    assert split(two_stages("sum", "i32"))[0] is not two_stages("sum", "i32")


def test_stages_stay_apart_if_bits_would_change_or_others_need_the_first() -> None:
    for program in (
        two_stages("sum", "f32"),
        two_stages("max", "f32", shift=1),
        two_stages("max", "f32", kept=True),
    ):
        assert split(program)[0] is program


def test_a_split_is_undone_where_it_was_not_needed() -> None:
    program = small("sum", "f32", [6])
    (op,) = program.ops
    assert isinstance(op, Loop)
    cut = next(iter(cuts(op.body.reduce)))
    stages = Splitter(op, program, cut).stages()
    buffers = (*program.buffers, *stages.partial)
    program = verify(replace(program, buffers=buffers, ops=(stages.first, stages.second)))
    after, _ = split(program)
    assert [x.name for x in drop_dead_ops(after, context()[0]).ops] == ["r"]


def test_a_schedule_with_a_split_can_be_replayed() -> None:
    program = reduction(1, 1 << 18)
    ctx, _ = context()
    after = run_pipeline(program, ctx)
    assert len(after.leaves) == 2
    assert replay(program, schedule_of(program, after)) == after
