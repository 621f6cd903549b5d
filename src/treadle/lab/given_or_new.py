"""A new schedule against the file's own: which of the two to give, and what is worse in it.

    chosen = choose(given, new, accounting)
    chosen.program, chosen.kept_given      # never one that is worse and nowhere better
    worse_lines(...)                       # one line for each figure that is worse, with its reason

A schedule is judged by its kernels, the bytes it moves, its peak and its waits that nothing hides.
One that is worse in some of these and better in none is not given: the file's own is kept. One that
trades a figure for another is given, and what it trades away is said, with why and with the policy
that would not do it: the first one that, tried on the same program, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from treadle.analysis.accounting import Accounting, Figures, figures
from treadle.core.codes import explain, parse_page
from treadle.ir.program import Program
from treadle.schedule.choose import MEMORY_CODES
from treadle.schedule.policy import Policy, policy_named

JUDGED = ("kernels", "bytes_moved", "peak_bytes", "exposed_waits")
"""Figures of which less is better."""
WORDS = {
    "kernels": "kernels",
    "bytes_moved": "bytes moved",
    "peak_bytes": "peak",
    "exposed_waits": "waits with nothing to hide them",
}
ORDER_OF_POLICIES = ("balanced", "fast", "memory", "inductor")
Refusals = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class ScheduleChoice:
    """The schedule to give, and how the two compare."""

    program: Program
    kept_given: bool
    given: Figures
    new: Figures
    """Of the schedule that was found, also if it is not the one to give."""
    is_asked_for: bool = False

    def worse(self) -> list[str]:
        """The figures in which the new schedule is worse than the file's own."""
        return [name for name in JUDGED if _value(self.new, name) > _value(self.given, name)]


@dataclass(frozen=True)
class Worse:
    """One figure that is worse than in the file's own schedule."""

    figure: str
    before: int
    after: int
    reason: str
    policy: str | None
    """A policy under which it is not worse; None: none was found."""

    def line(self) -> str:
        """The same in one line."""
        end = (
            f"policy {self.policy} would not do it"
            if self.policy
            else "no policy does without it on this program"
        )
        return (
            f"worse than the file's own schedule: {WORDS[self.figure]} {self.before:,} -> "
            f"{self.after:,}, because {self.reason}; {end}"
        )

    def to_json(self) -> dict[str, object]:
        """The same as data."""
        return asdict(self)


def choose(
    given: Program,
    new: Program,
    built: Program,
    accounting: Accounting,
    *,
    is_asked_for: bool = False,
) -> ScheduleChoice:
    """The new schedule, unless it is nowhere better than the given one and somewhere worse.

    It is judged by what its kernels, `built`, do, not by what was promised of them. One that the
    user asked for (a saved schedule, applied again) is given in any case.
    """
    mine, theirs = figures(built, accounting), figures(given, accounting)
    pairs = [(_value(mine, name), _value(theirs, name)) for name in JUDGED]
    keep = all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
    keep = keep and not is_asked_for
    return ScheduleChoice(given if keep else new, keep, theirs, mine, is_asked_for)


def kept_line(choice: ScheduleChoice) -> str:
    """Why the file's own schedule was kept, in one line."""
    parts = [
        f"{WORDS[name]} {_value(choice.given, name):,} -> {_value(choice.new, name):,}"
        for name in choice.worse()
    ]
    return f"the file's own schedule is kept: the one found is nowhere better ({', '.join(parts)})"


def explain_worse(
    choice: ScheduleChoice,
    unfused: Figures,
    refusals: Refusals,
    tried: str,
    under: Callable[[str], Figures],
) -> list[Worse]:
    """Each figure that is worse, with its reason and a policy that avoids it.

    `under` gives the figures of the same program under another policy than `tried`.
    """
    if choice.kept_given:
        return []
    names = choice.worse()
    found: Mapping[str, Figures] = {
        policy: under(policy)
        for policy in ORDER_OF_POLICIES
        if names and (policy != tried or choice.is_asked_for)
    }
    return [
        Worse(
            name,
            _value(choice.given, name),
            _value(choice.new, name),
            _reason(name, choice, unfused, refusals, policy_named(tried)),
            _avoided_by(name, choice.given, found),
        )
        for name in names
    ]


def _avoided_by(name: str, given: Figures, found: Mapping[str, Figures]) -> str | None:
    fits = [policy for policy, other in found.items() if _value(other, name) <= _value(given, name)]
    return fits[0] if fits else None


def _reason(
    name: str, choice: ScheduleChoice, unfused: Figures, refusals: Refusals, policy: Policy
) -> str:
    """What the figure was traded for, by what the search has noted down."""
    if choice.is_asked_for:
        return "the saved schedule says so"
    if name == "peak_bytes":
        if choice.new.peak_bytes <= unfused.peak_bytes > choice.given.peak_bytes:
            return f"the policy holds the peak of the unfused program, {unfused.peak_bytes:,}"
        return f"it buys {_bought(choice, name)}"
    if name == "exposed_waits":
        return f"the order was chosen for {_bought(choice, name)}"
    if name == "kernels" and policy.combine == 1:
        return f"the policy lets no kernels share a launch; it buys {_bought(choice, name)}"
    for_memory = sum(row["count"] for code, row in refusals.items() if code in MEMORY_CODES)
    if for_memory:
        return f"{_fusions(for_memory)} refused to hold the peak; it buys {_bought(choice, name)}"
    if refusals:
        code = max(refusals, key=lambda c: (refusals[c]["bytes"], refusals[c]["count"]))
        title = parse_page(code, explain(code)).title
        refused = f"{_fusions(refusals[code]['count'])} refused by {code} ({title})"
        return f"{refused}; it buys {_bought(choice, name)}"
    return f"it buys {_bought(choice, name)}"


def _fusions(count: int) -> str:
    return "1 fusion was" if count == 1 else f"{count} fusions were"


def _bought(choice: ScheduleChoice, name: str) -> str:
    """What is better in the new schedule."""
    parts = [
        f"{WORDS[other]} {_value(choice.given, other):,} -> {_value(choice.new, other):,}"
        for other in JUDGED
        if other != name and _value(choice.new, other) < _value(choice.given, other)
    ]
    return " and ".join(parts) or "nothing that is counted"


def _value(found: Figures, name: str) -> int:
    value: int = getattr(found, name)
    return value
