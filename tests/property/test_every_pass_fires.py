"""On random programs every pass of the pipeline does something, and what it does is right.

A pass that never changes a program is not tested by random programs, however many there are. So
the policy here has all its thresholds at one, the programs have what passes look for, and a pass
that never fired fails by name.

    exact   bit for bit what the interpreter computed before, after every single pass (level 3)
    torch   every dependence kept after every pass (level 2); results within the derived bound
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from eventful_programs import eventful_programs
from how_many import examples, until
from hypothesis import given, settings

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.interp import run
from treadle.ir.interp.compare import random_inputs
from treadle.ir.numerics import EXACT, TORCH
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.error_bound import derive_bounds, outside
from treadle.testing.policies import ANY_SIZE, FreeLaunches

NAMES = tuple(dict.fromkeys(step.name for step in PIPELINE))
EXAMPLES = examples(60)
NEEDS_LOOSE_SUMS = {"schedule-loops"}
"""Passes that leave exact programs alone."""


def through_all(
    program: Program, level: int, fired: Counter[str], passes: tuple[Pass, ...] = PIPELINE
) -> Program:
    cost, journal = FreeLaunches(Roofline(program)), Journal()
    after = run_pipeline(program, Ctx(Options(check=level), cost, journal, policy=ANY_SIZE), passes)
    fired.update(event["name"] for event in journal.events("pass") if event["changed"])
    return after


def silent(fired: Counter[str], names: tuple[str, ...] = NAMES) -> list[str]:
    """The passes that never changed a program."""
    return [name for name in names if not fired[name]]


def within_bounds(program: Program, after: Program) -> None:
    for count in (48, 3) if program.sizes else (0,):
        named = {s.name: count for s in program.sizes}
        inputs = random_inputs(program, sizes=named)
        bounds = derive_bounds(program, inputs, sizes=named)
        result = run(after, inputs, sizes=named)
        got = {n: result.read(n) for n in (*program.outputs, *program.inputs)}
        found = outside(bounds, got, undecidable=1.0)
        assert not found, "\n".join([*map(str, found), show_program(after)])


def test_every_pass_fires_on_exact_programs_and_changes_no_bit() -> None:
    fired: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        through_all(replace(program, numerics=EXACT), 3, fired)

    until(lambda: set(silent(fired)) <= NEEDS_LOOSE_SUMS, every_program)
    assert set(silent(fired)) == NEEDS_LOOSE_SUMS, fired


def test_every_pass_fires_on_torch_programs_within_the_bound() -> None:
    fired: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        stated = replace(program, numerics=TORCH)
        within_bounds(stated, through_all(stated, 2, fired))

    assert until(lambda: silent(fired) == [], every_program), fired


def test_a_pass_that_never_fires_is_named() -> None:
    idle = Pass("idle", lambda program, ctx: program, PIPELINE[-1].after)
    fired: Counter[str] = Counter()

    @settings(max_examples=examples(3))
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        through_all(program, 1, fired, (*PIPELINE, idle))

    every_program()
    assert "idle" in silent(fired, (*NAMES, "idle"))


@pytest.mark.parametrize("name", ["split-reductions", "mix-orders"])
def test_thresholds_keep_a_pass_from_small_programs(name: str) -> None:
    # What the policy for tests is there for: with the usual one these passes see no reason.
    fired: Counter[str] = Counter()

    @settings(max_examples=examples(20))
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        journal = Journal()
        run_pipeline(program, Ctx(Options(), Roofline(program), journal), PIPELINE)
        fired.update(event["name"] for event in journal.events("pass") if event["changed"])

    every_program()
    assert not fired[name]
