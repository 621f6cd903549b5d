"""The data of a report: everything that the page shows, as one JSON-able object.

Views that cannot be made (a memory problem has no kernels) are left out; the page shows the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treadle import __version__
from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.liveness import LivenessPolicy
from treadle.core.journal import Journal
from treadle.core.plain import as_plain
from treadle.ir.program import Program
from treadle.memory.from_program import PlanOptions
from treadle.memory.plan_program import PlannedProgram, plan_program
from treadle.page.history import pass_rows
from treadle.page.kernels import edges_of, kernel_rows, roofs_of
from treadle.page.lanes import predicted_run
from treadle.page.memory import map_of_program
from treadle.page.overview import advice, figure_table, live_curves
from treadle.page.story import ScheduleStory
from treadle.page.verdicts import code_pages, refusals_in, traded_in, verdict_rows

PAGE_VERSION = 1
PLANNED = PlanOptions(outputs_in_arena=True)
"""What `treadle plan` lets lie where, unless it is told otherwise."""


def head(kind: str, title: str) -> dict[str, Any]:
    """What every page begins with."""
    return {"treadle_page": PAGE_VERSION, "kind": kind, "title": title, "treadle": __version__}


def report_of_story(story: ScheduleStory, planned: PlannedProgram | None = None) -> dict[str, Any]:
    """The page of one scheduled program; `planned` is its memory if that was planned already."""
    kernels, verdicts = kernel_rows(story), verdict_rows(story.ctx.journal)
    run = predicted_run(story.counted, story.ctx.options)
    maps = memory_maps(story, planned)
    data = head("report", story.title)
    data |= {
        "policy": story.ctx.options.policy,
        "accounting": story.accounting.name,
        "target": story.ctx.options.target,
        "kept_given": story.kept_given,
        "figures": figure_table(story),
        "live": live_curves(story),
        "counts_inputs": story.accounting.policy.include_inputs,
        "advice": advice(story, kernels, verdicts, maps[-1], run),
        "kernels": kernels,
        "roofs": roofs_of(story.counted, story.ctx.options),
        "edges": edges_of(story.counted, kernels),
        "memory": maps,
        "passes": pass_rows(story),
        "lanes": run.to_json(),
    }
    data |= decisions(story.ctx.journal, verdicts)
    found = as_plain(data)
    assert isinstance(found, dict)
    return found


def decisions(journal: Journal, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every verdict, what refusals left on the table, and the pages of the codes."""
    return {
        "verdicts": list(verdicts),
        "refusals": refusals_in(journal),
        "traded": traded_in(journal),
        "codes": code_pages(row["code"] for row in verdicts),
    }


def report_of_plan(maps: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    """The page of memory alone: buffers whose program is not known."""
    return head("report", title) | {"memory": list(maps)}


def memory_maps(story: ScheduleStory, planned: PlannedProgram | None) -> list[dict[str, Any]]:
    """The memory of the given program as its maker counts it, and of the scheduled one as it runs.

    The figures are those of `treadle plan`: of the file before, and of the schedule after.
    """
    counted = given_policy(story.accounting.name)
    given = plan_program(story.given, policy=counted, options=PLANNED)
    ours = planned or plan_as_run(story.scheduled)
    return [
        map_of_program(given, "as given", story.given),
        map_of_program(ours, "as scheduled", story.unfused),
    ]


def plan_as_run(program: Program) -> PlannedProgram:
    """The memory of a program as a run takes it, as `treadle plan` plans it."""
    return plan_program(program, policy=running_policy(program), options=PLANNED)


def given_policy(accounting: str) -> LivenessPolicy:
    """How the maker of a program counts its memory; the caller's inputs do not."""
    policy = ACCOUNTINGS[accounting].policy
    return LivenessPolicy(**{**vars(policy), "include_inputs": False})


def running_policy(program: Program) -> LivenessPolicy:
    """How memory is counted that a run takes: donated inputs count, for others may lie in them."""
    return LivenessPolicy(include_inputs=bool(program.donated))
