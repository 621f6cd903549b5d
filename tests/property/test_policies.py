"""Random programs under every policy, with each pass left out, compute what they did before."""

from __future__ import annotations

import pytest
from focused_programs import crowds
from how_many import examples
from hypothesis import given, settings
from small_programs import run_small, seen_by_caller, size_choices, small_programs

from treadle.analysis.certificate import certify
from treadle.analysis.cost import Roofline
from treadle.analysis.liveness import Liveness
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES

NAMES = sorted({p.name for p in PIPELINE})


def context(program: Program, policy: str) -> Ctx:
    return Ctx(Options(check=2, policy=policy), Roofline(program), Journal(enabled=False))


def assert_same_meaning(before: Program, after: Program) -> None:
    for sizes in size_choices(before):
        expected = seen_by_caller(before, run_small(before, sizes))
        assert seen_by_caller(after, run_small(after, sizes)) == expected


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=examples(30))
@given(small_programs(groups=True))
def test_every_policy_keeps_the_meaning(policy: str, program: Program) -> None:
    after = run_pipeline(program, context(program, policy))
    assert certify(program, after) == []
    assert_same_meaning(program, after)


@settings(max_examples=examples(30))
@given(crowds())
def test_crowded_storages_keep_their_meaning(program: Program) -> None:
    after = run_pipeline(program, context(program, "balanced"))
    assert certify(program, after) == []
    assert_same_meaning(program, after)


@pytest.mark.parametrize("left_out", NAMES)
@settings(max_examples=examples(10))
@given(small_programs(groups=True))
def test_any_pass_can_be_left_out(left_out: str, program: Program) -> None:
    passes = [p for p in PIPELINE if p.name != left_out]
    assert_same_meaning(program, run_pipeline(program, context(program, "balanced"), passes))


@pytest.mark.parametrize("policy", ["balanced", "memory"])
@settings(max_examples=examples(60))
@given(small_programs())
def test_the_peak_is_never_above_that_of_the_program_as_given(
    policy: str, program: Program
) -> None:
    # Without groups: a kernel that shrinks to one member has nothing internal any more.
    after = run_pipeline(program, context(program, policy))
    assert Liveness(after).peak().bytes <= Liveness(program).peak().bytes
