"""A journal that a page can be made from: besides what was decided it holds the programs.

    note_programs(journal, {"given": given, ...}, options, kept_given=False)
    story_in(Journal.read(path), title)       what happened, with nothing scheduled again

The programs are notes with the fields `program` (its text) and `role`; those who do not know the
fields read a remark. Only the options that differ from the defaults are kept, and of those only
such as a page depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.errors import InputError, TreadleError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program
from treadle.memory.plan_program import PlannedProgram
from treadle.page.history import pass_list
from treadle.page.report import decisions, head, report_of_story
from treadle.page.story import ScheduleStory
from treadle.page.verdicts import verdict_rows

ROLES = ("given", "unfused", "scheduled", "built")
KEPT = ("policy", "accounting", "target", "numerics", "comm", "hardware", "world")


def note_programs(
    journal: Journal, programs: Mapping[str, Program], options: Options, kept_given: bool
) -> None:
    """Add the programs of a schedule to its journal, each text once."""
    assert tuple(programs) == ROLES, "every role has its program"
    asked = {k: v for k, v in asdict(options).items() if k in KEPT and v is not None}
    seen: dict[int, str] = {}
    for role, program in programs.items():
        said: dict[str, object] = {"role": role}
        if id(program) in seen:
            said["same_as"] = seen[id(program)]
        else:
            said["program"] = show_program(program)
            seen[id(program)] = role
        if role == "given":
            said |= {"options": asked, "kept_given": kept_given}
        journal.emit("note", text=f"the program, {role}", **said)


def story_in(journal: Journal, title: str) -> ScheduleStory | None:
    """What happened to the program of a journal; None if it holds no programs."""
    notes = {e["role"]: e for e in journal.events("note") if e.get("role") in ROLES}
    if len(notes) != len(ROLES):
        return None
    try:
        programs: dict[str, Program] = {}
        for role in ROLES:
            event = notes[role]
            same = event.get("same_as")
            text = str(event.get("program"))
            programs[role] = programs[same] if same else parse_program(text, file=title)
        options = Options.from_env().with_(**notes["given"]["options"])
        kept = bool(notes["given"]["kept_given"])
    except (TreadleError, LookupError, TypeError) as e:
        raise InputError(
            file=title,
            expected="notes with whole programs, as `treadle schedule --journal` writes them",
            found=str(e).partition("\n")[0],
            code="TXT002",
        ) from None
    given, built = programs["given"], programs["built"]
    return ScheduleStory(
        title=title,
        given=given,
        unfused=programs["unfused"],
        scheduled=programs["scheduled"],
        counted=given if kept else built,
        built=built,
        kept_given=kept,
        passes=(),
        ctx=Ctx(options, cost_model(programs["unfused"], options), journal),
    )


def report_of_journal(
    journal: Journal,
    title: str,
    story: ScheduleStory | None = None,
    planned: PlannedProgram | None = None,
) -> dict[str, Any]:
    """The page of a journal: all of it with the story in it, else passes and decisions."""
    told = {"passes": pass_list(journal), "taken": steps_taken(journal)}
    if story is not None:
        return {**report_of_story(story, planned), "taken": told["taken"]}
    return head("report", title) | told | decisions(journal, verdict_rows(journal))


def steps_taken(journal: Journal) -> dict[str, int]:
    """How often each action was taken."""
    return dict(sorted(Counter(e["action"] for e in journal.events("step")).items()))
