"""What happened to one program, from how it was given to its kernels: what a page is made from.

    story = tell(given, program, ctx, title="softmax.txt")
    story.after, story.passes, story.ctx.journal

The passes are run as everywhere else; what is kept besides is the program before and after each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps

from treadle.analysis.accounting import ACCOUNTINGS, Accounting
from treadle.core.context import Ctx
from treadle.ir.program import Program
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import KERNELS, SCHEDULING
from treadle.schedule.pipeline import run_pipeline

Chooser = Callable[[Program, Program, Program, Accounting], bool]
"""(given, found, its kernels, accounting) -> whether the given schedule is to be kept."""


@dataclass(frozen=True)
class PassRecord:
    """One pass that ran, and the program on both sides of it."""

    name: str
    summary: str
    before: Program
    after: Program

    @property
    def changed(self) -> bool:
        """Whether it gave another program than it was given."""
        return self.after is not self.before


@dataclass(frozen=True)
class ScheduleStory:
    """A program as it was given and as it was scheduled, and every decision on the way."""

    title: str
    given: Program
    """With the groups and the order of the file."""
    unfused: Program
    """Where the passes began."""
    scheduled: Program
    """Operations in groups, in order: the given program if its schedule was kept."""
    counted: Program
    """What the figures after scheduling are counted on."""
    built: Program
    """The kernels themselves."""
    kept_given: bool
    passes: tuple[PassRecord, ...]
    ctx: Ctx

    @property
    def accounting(self) -> Accounting:
        """How bytes are counted."""
        return ACCOUNTINGS[self.ctx.options.accounting]

    @property
    def is_regrouped(self) -> bool:
        """Whether the passes began with other groups than the given ones."""
        return self.unfused is not self.given


def tell(
    given: Program, program: Program, ctx: Ctx, title: str, keep: Chooser | None = None
) -> ScheduleStory:
    """Schedule `program` and keep what each pass did; `given` is what it is compared with."""
    seen: list[PassRecord] = []
    found = run_pipeline(program, ctx, recorded(SCHEDULING, seen))
    built = run_pipeline(found, ctx, recorded(KERNELS, seen))
    kept = keep is not None and keep(given, found, built, ACCOUNTINGS[ctx.options.accounting])
    if kept:
        quiet = replace(ctx, journal=type(ctx.journal)())
        built = run_pipeline(given, quiet, KERNELS)
    return ScheduleStory(
        title=title,
        given=given,
        unfused=program,
        scheduled=given if kept else found,
        counted=given if kept else built,
        built=built,
        kept_given=kept,
        passes=tuple(seen),
        ctx=ctx,
    )


def recorded(passes: Sequence[Pass], into: list[PassRecord]) -> tuple[Pass, ...]:
    """The same passes; each that runs also notes down what it was given and what it gave."""
    return tuple([replace(step, run=_noting(step, into)) for step in passes])


def _noting(step: Pass, into: list[PassRecord]) -> Callable[[Program, Ctx], Program]:
    @wraps(step.run)
    def run(program: Program, ctx: Ctx) -> Program:
        new = step.run(program, ctx)
        into.append(PassRecord(step.name, step.summary, program, new))
        return new

    return run
