"""Loop schedules as data: steps that are printed, read back, resolved to loops, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.core.context import Ctx
from treadle.core.errors import InputError, SpecError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.loop_schedule import (
    Bind,
    Binding,
    Flush,
    Keep,
    Order,
    Split,
    StageLoad,
    Step,
    plan_loops,
)
from treadle.ir.program import Kernel, Nest, Program
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program
from treadle.schedule.passes import PASSES
from treadle.testing.costs import MACHINES

TEXT = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[64, 512] on cpu
buffer y : f32[64] on cpu

launch k on cpu loop {
  nest n on cpu for i in 64 reduce r in 512 runs (n)SCHEDULE {
    %0 = load x[512*i + r]
    %1 = exp %0
    %2 = reduce sum %1
    store y[i] = %2
  }
}
"""
TILED: tuple[Step, ...] = (
    Split("i", 16),
    Split("r", 64),
    Order(("i", "r", "i'", "r'")),
    StageLoad(0),
    Keep(1),
    Flush("r"),
    Bind("i", Binding.THREADS),
    Bind("r'", Binding.VECTOR),
)


def program_with(*steps: Step) -> Program:
    shown = f" schedule ({', '.join(map(str, steps))})" if steps else ""
    return parse_program(TEXT.replace("SCHEDULE", shown))


def nest_of(program: Program) -> Nest:
    (op,) = program.ops
    assert isinstance(op, Kernel)
    (nest,) = op.members
    assert isinstance(nest, Nest)
    return nest


def test_steps_are_printed_and_read_back() -> None:
    program = program_with(*TILED)
    assert nest_of(program).schedule == TILED
    assert parse_program(show_program(program)) == program
    assert verify(program) is program


def test_steps_come_to_loops() -> None:
    plan = plan_loops(nest_of(program_with()).body, TILED)
    assert [a.name for a in plan.outer] == ["i"]
    assert [a.name for a in plan.inner] == ["r", "i'", "r'"]
    assert [(a.name, a.size) for a in plan.lanes] == [("i'", 16)]
    assert plan.vector is plan.axes[-1]
    assert plan.axes[0].binding is Binding.THREADS
    assert (plan.kept, plan.staged, plan.flush) == ({1}, {0}, "r")


@pytest.mark.parametrize(
    "steps, words",
    [
        ([Split("q", 8)], "there is no loop q: there are i, r"),
        ([Split("i", 1)], "a block has at least 2 elements"),
        ([Split("i", 8), Split("i", 4)], "it is split already"),
        ([Order(("i",))], "an order names each of i, r once"),
        ([Split("r", 8), Order(("i", "r'", "r"))], "r' is walked outside of its blocks"),
        ([Order(("r", "i"))], "i is walked inside a reduction, but not in blocks"),
        ([Bind("i", Binding.VECTOR)], "i is bound to vectors, but is not innermost"),
        ([Flush("i")], "the loop does not reduce"),
        ([StageLoad(1)], "it is no load"),
        ([Keep(9)], "there is no such value"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(steps: list[Step], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        verify(program_with(*steps))
    assert "KER006" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("split i", "'by'"),
        ("bind i to air", "'serial' or"),
        ("turn i", "'split' or"),
        ("keep i", "value"),
    ],
)
def test_a_step_that_cannot_be_read_names_its_place(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_program(TEXT.replace("SCHEDULE", f" schedule ({text})"), "file.tread")
    assert "file.tread" in str(caught.value)
    assert "11" in str(caught.value)
    assert expected in str(caught.value)


def test_what_was_decided_and_why_not_is_in_the_journal() -> None:
    journal = Journal()
    ctx = Ctx(Options(), MACHINES, journal)
    PASSES["schedule-loops"].run(program_with(), ctx)
    exact = replace(program_with(), numerics=replace(program_with().numerics, reassociation=False))
    assert PASSES["schedule-loops"].run(exact, ctx) is exact
    verdicts = [str(e) for e in journal.events()]
    assert any("KER007" in v and "rows" in v for v in verdicts), verdicts
    assert any("KER007" in v and "sums must be exact" in v for v in verdicts), verdicts


def test_a_schedule_that_stands_is_kept() -> None:
    program = program_with(*TILED[:3])
    ctx = Ctx(Options(), MACHINES, Journal())
    assert PASSES["schedule-loops"].run(program, ctx) is program
