"""What a pass may know besides the program, in one explicit argument: no ambient state."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.core.costs import CostModel
from treadle.core.journal import Journal
from treadle.core.journal_schema import LEVEL_OF_REFUSAL
from treadle.core.options import Options


@dataclass(frozen=True, slots=True)
class Ctx:
    """Options, cost model and journal of one compilation, and how much memory it may use."""

    options: Options
    cost: CostModel
    journal: Journal
    peak_bytes: int | None = None
    """The peak of the program as it was given: what policies measure their budget by."""
    given: object | None = None
    """The program as it was given, whose peak is asked for if `peak_bytes` does not say it."""
    policy: object | None = None
    """A `schedule.policy.Policy` to schedule by, in place of the one that the options name."""


def journal_for(options: Options) -> Journal:
    """Return an empty journal that keeps what these options ask for.

    `explain` needs every verdict, agreements and refusals alike, whatever the debug level.
    """
    level = max(options.debug, LEVEL_OF_REFUSAL) if options.explain else options.debug
    return Journal(level=level)
