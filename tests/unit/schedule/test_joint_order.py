"""Order and places as one question: needs OR-tools, gives valid plans, never beats the bound."""

from __future__ import annotations

from itertools import permutations

import pytest

from treadle.analysis.liveness import LivenessPolicy
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.memory.cp_sat import is_available
from treadle.memory.from_program import PlanOptions
from treadle.memory.plan_program import plan_program
from treadle.schedule.ordering import joint
from treadle.schedule.ordering.steps import steps_of

COUNTED = LivenessPolicy(include_inputs=False, in_place=False)


def branches(sizes: tuple[int, ...]) -> Program:
    """Large temporaries, each reduced to one element, all summed at the end: order matters."""
    b = ProgramBuilder("branches")
    x = b.input("x", "f32", [max(sizes)])
    total = b.output("total", "f32", [1])
    large = [b.buffer(f"big{k}", "f32", [n]) for k, n in enumerate(sizes)]
    for k, n in enumerate(sizes):
        with b.loop(f"make{k}", [n]) as body:
            (i,) = body.vars
            body.store(large[k], (i,), body.load(x, i) * float(k))
    small = []
    for k, n in enumerate(sizes):
        small.append(b.buffer(f"small{k}", "f32", [1]))
        with b.loop(f"fold{k}", [1], reduce=[n]) as body:
            i, r = body.vars
            body.store(small[k], (i,), body.sum(body.load(large[k], r)))
    with b.loop("add", [1]) as body:
        (i,) = body.vars
        value = body.load(small[0], i)
        for s in small[1:]:
            value = value + body.load(s, i)
        body.store(total, (i,), value)
    return b.build()


def test_without_or_tools_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "is_available", lambda: False)
    with pytest.raises(UsageError, match="needs OR-tools") as caught:
        joint.find_order_and_plan(branches((16, 16)))
    assert "find_order, then plan_program" in str(caught.value.notes)


def test_large_programs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "is_available", lambda: True)
    with pytest.raises(UsageError, match="too many"):
        joint.find_order_and_plan(branches((16,) * 40))


@pytest.mark.skipif(not is_available(), reason="OR-tools is not installed")
def test_order_and_places_together_are_as_low_as_the_best_of_all_orders() -> None:
    program = branches((16, 32, 48))
    steps = steps_of(program, Options(), COUNTED)
    options = PlanOptions(alignment=4, outputs_in_arena=True)
    best = min(
        plan_program(
            program.with_ops(tuple(program.ops[k] for k in order)),
            policy=COUNTED, options=options, steps=200,
        ).arena_bytes
        for order in permutations(range(len(steps)))
        if steps.is_valid(list(order))
    )  # fmt: skip
    found = joint.find_order_and_plan(program, alignment=4, seconds=30)
    assert found is not None
    assert steps.is_valid(found.order)
    assert found.plan.height == best
    assert found.is_optimal
    given = plan_program(program, policy=COUNTED, options=options, steps=200)
    assert found.plan.height < given.arena_bytes
