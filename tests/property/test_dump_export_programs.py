"""Any program can be written as a dump: it passes every check, and comes back with its meaning."""

from __future__ import annotations

import pytest
from export_round_trip import differing, flaws_of_dump, round_trip
from focused_programs import crowds, relays
from how_many import examples
from hypothesis import assume, given, settings
from random_bodies import bodies
from small_programs import small_programs

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.options import Options
from treadle.ir.body import Numbered
from treadle.ir.program import Loop, Program
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.strategies import programs

WITHOUT_CALLS = ("pointwise", "reduction", "normalise", "in_place", "view")


@pytest.mark.parametrize("dialect", ["2.5", "2.6", "2.13"])
@given(programs(moves=WITHOUT_CALLS))
@settings(max_examples=examples(25))
def test_loops_come_back_with_their_results(dialect: str, program: Program) -> None:
    trip = round_trip(program, dialect)
    assert trip.opaque == []
    assert differing(program, trip) == []


@given(programs(moves=WITHOUT_CALLS, max_ops=8))
@settings(max_examples=examples(25))
def test_a_schedule_comes_back_with_its_results(program: Program) -> None:
    options = Options()
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    scheduled = run_pipeline(program, ctx)
    trip = round_trip(scheduled)
    assert trip.opaque == []
    assert differing(scheduled, trip) == []
    kinds = [type(op).__name__ for op in scheduled.ops]
    assert sorted(type(op).__name__ for op in trip.imported.program.ops) == sorted(kinds)


def bodies_of(program: Program) -> list[Numbered]:
    return [at for op in program.leaves if isinstance(op, Loop) for at in op.body.walk()]


@given(bodies())
@settings(max_examples=examples(80))
def test_any_body_is_said_or_a_note_says_why_not(program: Program) -> None:
    trip = round_trip(program)
    if trip.opaque or any(at.stmt.op == "scan" for at in bodies_of(program)):
        assert trip.exported.notes  # also that a dump does not say how a scan combines
    else:
        assert differing(program, trip) == []


@pytest.mark.slow
@given(small_programs(groups=True))
@settings(max_examples=examples(80))
def test_calls_groups_and_views_make_a_sound_dump(program: Program) -> None:
    assume(program.ops)  # an empty text is no dump
    assert flaws_of_dump(program) == []


@given(crowds())
@settings(max_examples=examples(40))
def test_many_writers_of_one_buffer_make_a_sound_dump(program: Program) -> None:
    assert flaws_of_dump(program) == []


@given(relays())
@settings(max_examples=examples(25))
def test_chains_of_kernels_make_a_sound_dump(program: Program) -> None:
    assert flaws_of_dump(program) == []
