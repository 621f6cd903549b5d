"""Every pass, alone and in a row, keeps what random programs compute.

Promised, and checked here on random programs:

    meaning      outputs and inputs end up bit for bit the same
    certificate  every dependence is kept, and nothing needed is gone
    stage        the verifier accepts what a pass returns
    rest         a pass that runs again finds nothing to do, and returns its very argument
    text         what is printed reads back as an equal program
"""

from __future__ import annotations

import pytest
from how_many import examples
from hypothesis import given, settings
from small_operations import LOOP_MOVES
from small_programs import run_small, seen_by_caller, size_choices, small_programs

from treadle.analysis.certificate import certify
from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import check, run_pipeline


def context(program: Program, level: int = 0) -> Ctx:
    return Ctx(Options(check=level), Roofline(program), Journal())


def assert_same_meaning(before: Program, after: Program) -> None:
    for sizes in size_choices(before):
        expected = seen_by_caller(before, run_small(before, sizes))
        assert seen_by_caller(after, run_small(after, sizes)) == expected


@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
@settings(max_examples=examples(50))
@given(small_programs(groups=True))
def test_a_pass_keeps_meaning_dependences_and_rules(step: Pass, program: Program) -> None:
    after = step.run(program, context(program))
    assert violations(after, step.after) == []
    assert certify(program, after) == []
    assert step.run(after, context(after)) is after
    assert parse_program(show_program(after)) == after
    assert_same_meaning(program, after)


@settings(max_examples=examples(50))
@given(small_programs(groups=True))
def test_all_passes_in_a_row_keep_the_meaning(program: Program) -> None:
    after = run_pipeline(program, context(program, level=2), PIPELINE)
    assert certify(program, after) == []
    assert_same_meaning(program, after)


@settings(max_examples=examples(40))
@given(small_programs(moves=LOOP_MOVES, groups=True))
def test_the_strictest_check_finds_nothing(program: Program) -> None:
    current = program
    for step in PIPELINE:
        after = step.run(current, context(current))
        assert check(current, after, step.after, 3) == []
        current = after


@settings(max_examples=examples(80))
@given(small_programs(groups=True))
def test_a_program_reads_back_as_it_was_printed(program: Program) -> None:
    text = show_program(program)
    again = parse_program(text)
    assert again == program
    assert show_program(again) == text
    assert violations(again) == []
