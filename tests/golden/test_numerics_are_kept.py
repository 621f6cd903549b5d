"""Every pass keeps what its program says about exactness, on cases in which it does something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.numerics import TORCH
from treadle.ir.program import Program
from treadle.ir.text import parse_program
from treadle.schedule.passes import PASSES, PIPELINE
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.record import replay, schedule_of
from treadle.testing.costs import MACHINES
from treadle.testing.golden import golden_cases, read_case

HERE = Path(__file__).parent


def cases_of(name: str) -> list[Program]:
    paths = golden_cases(HERE / name.replace("-", "_"))
    before = [parse_program(read_case(path).blocks["before"]) for path in paths]
    return [replace(program, numerics=TORCH) for program in before]


def context() -> Ctx:
    return Ctx(Options(), MACHINES, Journal())


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_the_numerics_of_what_it_changes(name: str) -> None:
    changed = 0
    for program in cases_of(name):
        after = PASSES[name].run(program, context())
        assert after.numerics == TORCH, program.name
        changed += after is not program
    assert changed > 0, "no case in which the pass does something"


@pytest.mark.parametrize("name", PASSES)
def test_all_passes_together_and_a_replay_keep_them_too(name: str) -> None:
    program = cases_of(name)[0]
    ctx = context()
    assert run_pipeline(program, ctx, PIPELINE).numerics == TORCH
    said = {event["numerics"] for event in ctx.journal.events("pass")}
    assert said == {str(TORCH)}
    scheduled = run_pipeline(program, context())
    assert replay(program, schedule_of(program, scheduled)).numerics == TORCH
