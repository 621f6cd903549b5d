"""A loop schedule that was chosen for a nest is what would be chosen for one that is like it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from small_programs import small_programs

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.numerics import TORCH
from treadle.ir.pattern import named, pattern_of
from treadle.ir.program import Nest, Program, walk_operations
from treadle.kernel.choose_cpu import choose_steps
from treadle.kernel.like_choices import LikeChoices
from treadle.schedule.passes import KERNELS, SCHEDULING
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.strategies import programs


def nests_of(program: Program) -> tuple[Program, list[Nest]]:
    """The program with kernels whose loops nobody has looked at yet, and its nests."""
    stated = replace(program, numerics=TORCH)
    ctx = Ctx(Options(check=0), Roofline(stated), Journal())
    built = run_pipeline(stated, ctx, (*SCHEDULING, *KERNELS[:2]))
    return built, [op for op in walk_operations(built.ops) if isinstance(op, Nest)]


def again(program: Program) -> Program:
    """The program with a second buffer for each it has, alike but for its name."""
    copies = [
        replace(b, name=f"{b.name}_2", view_of=None if b.view_of is None else f"{b.view_of}_2")
        for b in program.buffers
    ]
    return replace(program, buffers=(*program.buffers, *copies))


def check(program: Program) -> None:
    built, nests = nests_of(program)
    both, choices = again(built), LikeChoices()
    for nest in nests:
        pattern, buffers = pattern_of(nest)
        body = named(pattern.body, [f"{name}_2" for name in buffers])
        for one in (nest, replace(nest, name="other", body=body)):
            steps, verdict = choices.steps(one, both)
            wanted, said = choose_steps(one, both)
            assert steps == wanted
            assert verdict == said
            assert dict(verdict.facts) == dict(said.facts)


@given(programs())
@settings(max_examples=60)
def test_random_programs(program: Program) -> None:
    check(program)


@given(small_programs())
@settings(max_examples=60)
def test_small_programs_of_every_kind(program: Program) -> None:
    check(program)
