"""From a file to the data of its page, for every kind of file that has something to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import basename
from typing import Any

from treadle.analysis.accounting import ACCOUNTINGS, Accounting, figures
from treadle.core.errors import InputError, UsageError
from treadle.core.reading import STANDARD_INPUT
from treadle.frontends.inductor_dump import unpacked
from treadle.frontends.xla_dump import FILE_KINDS
from treadle.frontends.xla_dump.plan import Replanned, plan_dump
from treadle.frontends.xla_dump.replan import xla_answer
from treadle.ir.program import Program
from treadle.lab.given_or_new import ORDER_OF_POLICIES, choose
from treadle.lab.loading import LoadedFile, program_of, sound
from treadle.lab.scheduling import context_for, for_target, options_for
from treadle.memory.plan_program import PlannedProgram
from treadle.memory.portfolio import solve
from treadle.page.from_journal import report_of_journal, story_in
from treadle.page.memory import map_of_plan
from treadle.page.report import plan_as_run, report_of_plan, report_of_story
from treadle.page.story import ScheduleStory, tell
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline

MOST_TRIED = 4000
"""Programs of more operations are not scheduled again under the other policies."""


@dataclass(frozen=True)
class Wanted:
    """What the user asked a report to be made with."""

    policy: str | None = None
    accounting: str | None = None
    target: str | None = None
    others: bool = True
    """Also tell the figures under the other policies."""


@dataclass(frozen=True)
class FileReport:
    """The data of a page, and what it was made from where there is a program."""

    data: dict[str, Any]
    story: ScheduleStory | None = None
    planned: PlannedProgram | None = None


def report_of_file(loaded: LoadedFile, wanted: Wanted) -> FileReport:
    """The page of a file; one InputError for a kind that has none."""
    maker = REPORTED_BY.get(loaded.kind)
    if maker is None:
        raise InputError(
            file=loaded.path,
            expected="a program, a dump, a memory problem or a journal",
            found=f"a file of kind {loaded.kind}",
            code="TXT002",
        )
    return maker(loaded, wanted)


def title_of(loaded: LoadedFile) -> str:
    """What the page of a file is called."""
    return "standard input" if loaded.path == STANDARD_INPUT else basename(loaded.path)


def story_of(loaded: LoadedFile, wanted: Wanted) -> ScheduleStory:
    """What scheduling makes of the program in a file, as `treadle schedule` does it."""
    given = for_target(program_of(loaded), wanted.target)
    options = options_for(loaded.text, wanted.policy, wanted.accounting)
    if wanted.target is not None:
        options = options.with_(target=wanted.target)
    # A dump comes with the peer's groups: they are what to beat, not where to start.
    program = unpacked(given) if loaded.is_dump else given
    return tell(given, program, context_for(program, options, given), title_of(loaded), _keep)


def _keep(given: Program, found: Program, built: Program, accounting: Accounting) -> bool:
    return choose(given, found, built, accounting).kept_given


def _of_program(loaded: LoadedFile, wanted: Wanted) -> FileReport:
    story = story_of(loaded, wanted)
    planned = plan_as_run(story.scheduled)
    data = report_of_story(story, planned)
    data["file_kind"] = loaded.kind
    if wanted.others and len(story.unfused.leaves) <= MOST_TRIED:
        data["others"] = _others(story)
    return FileReport(data, story, planned)


def _others(story: ScheduleStory) -> list[dict[str, Any]]:
    """The figures of the same program under every policy."""
    rows = []
    for policy in ORDER_OF_POLICIES:
        options = story.ctx.options.with_(policy=policy)
        ctx = context_for(story.unfused, options, story.given)
        found = figures(run_pipeline(story.unfused, ctx, PIPELINE), ACCOUNTINGS[options.accounting])
        counted = {k: getattr(found, k) for k in ("kernels", "bytes_moved", "peak_bytes")}
        rows.append({"policy": policy, **counted})
    return rows


def _of_xla(loaded: LoadedFile, wanted: Wanted) -> FileReport:
    """XLA's plan and ours; kernels and decisions too if the program is among the files."""
    dump = sound(loaded).xla
    assert dump is not None, "a file of this kind holds a dump"
    try:
        result: Replanned | None = plan_dump(dump)
    except InputError:
        result = None  # no buffer assignment: there is still the program
    try:
        made = _of_program(loaded, wanted)
    except InputError:
        if result is None:
            raise
        made = None
    if result is None:
        assert made is not None, "without a plan there is a program"
        return made
    bound = result.solution.lower_bound
    maps = [
        map_of_plan(result.problem, xla_answer(dump, result.problem), bound, "XLA's plan"),
        map_of_plan(result.problem, result.plan, bound, "planned again"),
    ]
    said = [
        f"XLA's scratch memory: {result.before.temp_bytes:,} B; planned again:"
        f" {result.after.temp_bytes:,} B. Everything: {result.before.total_bytes:,} B, then"
        f" {result.after.total_bytes:,} B."
    ]
    if made is None:
        return FileReport(report_of_plan(maps, title_of(loaded)) | {"notes": said})
    made.data["memory"] += maps
    made.data["notes"] = said
    scratch = [result.before.temp_bytes, result.after.temp_bytes]
    made.data["headline"] = [
        {"words": "scratch memory", "unit": "bytes", "before": scratch[0], "after": scratch[1]}
    ]
    return made


def _of_csv(loaded: LoadedFile, wanted: Wanted) -> FileReport:
    found = sound(loaded).table
    assert found is not None, "a file of this kind holds a table"
    solution = solve(found.problem)
    if solution.plan is None:
        raise UsageError(f"{loaded.path}: no plan fits: {solution.verdict}")
    bound, maps = solution.lower_bound, []
    if found.plan is not None:
        maps.append(map_of_plan(found.problem, found.plan, bound, "the plan in the file"))
    maps.append(map_of_plan(found.problem, solution.plan, bound, "planned"))
    return FileReport(report_of_plan(maps, title_of(loaded)))


def _of_journal(loaded: LoadedFile, wanted: Wanted) -> FileReport:
    assert loaded.journal is not None, "a file of this kind holds a journal"
    title = title_of(loaded)
    story = story_in(loaded.journal, title)
    planned = plan_as_run(story.scheduled) if story is not None else None
    return FileReport(report_of_journal(loaded.journal, title, story, planned), story, planned)


REPORTED_BY: Mapping[str, Callable[[LoadedFile, Wanted], FileReport]] = {
    "program": _of_program,
    "reproducer": _of_program,
    "inductor_dump": _of_program,
    **dict.fromkeys(FILE_KINDS, _of_xla),
    "minimalloc_csv": _of_csv,
    "journal": _of_journal,
}
