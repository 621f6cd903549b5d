"""A device decides between schedules: a few launches of each, on memory that is nobody's.

Every trial runs on scratch of the sizes its kernel has: no data of the user is read or written,
and nothing of it stays. What fits into the device's cache stays there from launch to launch, as it
mostly does from one kernel of a graph to the next; what does not is cold each time.

There is an end to it: a budget of device time for a program, and no more scratch than is free.
What is left over then is left to the model, and asked again by the next process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from treadle.core.errors import TreadleError
from treadle.runtime.tuning.questions import Question

BUDGET_NS = 50e6
"""Device time that trials of one program may take."""
ROUND_NS, MOST_LAUNCHES = 100e3, 20
"""What one round of a schedule takes, if a launch is short; and how many launches at most."""
ROUNDS, FEWEST_ROUNDS, LONG_NS = 4, 2, 1e6
"""Rounds of each, in turn, fewer of long launches; the first warms up and does not count."""
HOPELESS = 1.5
"""What takes longer than the fastest by this factor in the first round is not measured again."""
BETTER = 0.97
"""Another schedule is used if it takes at most this share of the usual one's time."""
NOT_MEASURED = -1.0
ALIGNED = 256

Start = Callable[[int], None]
"""Starts kernels on a stream."""


class TimedLaunches(Protocol):
    """Launches that a device carries out one after the other, again and again."""

    def nanoseconds(self) -> float:
        """Carry them out now; how long one took."""


class DeviceClock(Protocol):
    """A device that can be asked how long something takes."""

    def room(self) -> int:
        """Bytes that trials may have."""

    def scratch(self, sizes: Sequence[tuple[int, bool]]) -> AbstractContextManager[Sequence[int]]:
        """Memory of some sizes, in bytes, with numbers in it if so; its addresses."""

    def recorded(self, start: Start, launches: int) -> AbstractContextManager[TimedLaunches]:
        """So many launches, ready to be timed."""


@dataclass(frozen=True)
class Trial:
    """A question, and what it takes to try its candidates."""

    question: Question
    storages: Mapping[str, tuple[int, bool]]
    """What kernels touch: bytes, and whether that is floating point."""
    start: Callable[[int, Mapping[str, int]], Start | None]
    """(candidate, address of each storage) -> what starts it; None if it is not compiled."""
    late: set[int] = field(default_factory=set)
    """Candidates that were still being compiled when they were to start."""

    @property
    def bytes(self) -> int:
        """What its scratch takes."""
        return sum(-(-size // ALIGNED) * ALIGNED for size, _ in self.storages.values())

    def launches(self) -> int:
        """How many launches make up a round."""
        predicted = max(self.question.candidates[0].predicted_ns, 1.0)
        return max(min(round(ROUND_NS / predicted), MOST_LAUNCHES), 1)

    def rounds(self) -> int:
        """How often each candidate is measured."""
        is_long = self.question.candidates[0].predicted_ns > LONG_NS
        return FEWEST_ROUNDS if is_long else ROUNDS

    def expected_ns(self) -> float:
        """What measuring all candidates is predicted to take."""
        each = sum(c.predicted_ns for c in self.question.candidates)
        return self.rounds() * self.launches() * each


@dataclass(frozen=True)
class Outcome:
    """How long each candidate took, and which is used; or why nothing was measured."""

    question: Question
    measured_ns: tuple[float, ...] = ()
    chosen: int = 0
    refused: str = ""
    is_final: bool = True
    """Whether nothing was missing that a later process would have."""


def decide(
    trials: Sequence[Trial], clock: DeviceClock, budget_ns: float = BUDGET_NS
) -> list[Outcome]:
    """Measure what the budget is enough for, in order; every trial gets an outcome."""
    found, left = [], budget_ns
    for trial in trials:
        question = trial.question
        if trial.expected_ns() > left:
            found.append(Outcome(question, refused="it would take longer than all trials may"))
            continue
        try:
            one, spent = _measured(trial, clock)
        except TreadleError as e:
            one, spent = Outcome(question, refused=str(e).splitlines()[0]), trial.expected_ns()
        left -= spent
        found.append(one)
    return found


def _measured(trial: Trial, clock: DeviceClock) -> tuple[Outcome, float]:
    """One trial: its outcome, and what device time it took."""
    question, launches = trial.question, trial.launches()
    if trial.bytes > clock.room():
        return Outcome(question, refused=f"{trial.bytes} bytes are not free"), 0.0
    with ExitStack() as stack:
        addresses = stack.enter_context(clock.scratch(list(trial.storages.values())))
        where = dict(zip(trial.storages, addresses, strict=True))
        recordings: dict[int, TimedLaunches] = {}
        for k in range(len(question.candidates)):
            start = trial.start(k, where)
            if start is not None:
                recordings[k] = stack.enter_context(clock.recorded(start, launches))
            elif k == 0:
                return Outcome(question, refused="its kernel is not compiled"), 0.0
        if len(recordings) < 2:
            return Outcome(question, refused="no other schedule was compiled"), 0.0
        times = {k: [recording.nanoseconds()] for k, recording in recordings.items()}
        fastest = min(several[0] for several in times.values())
        left = [k for k, several in times.items() if k == 0 or several[0] <= HOPELESS * fastest]
        for _ in range(trial.rounds() - 1):
            for k in left:
                times[k].append(recordings[k].nanoseconds())
    spent = launches * sum(sum(several) for several in times.values())
    best = {k: min(several[1:] or several) for k, several in times.items()}
    measured = tuple(_in_order(best, len(question.candidates)))
    return Outcome(question, measured, chosen_of(measured), is_final=not trial.late), spent


def _in_order(best: Mapping[int, float], count: int) -> Iterator[float]:
    for k in range(count):
        yield best.get(k, NOT_MEASURED)


def chosen_of(measured: Sequence[float]) -> int:
    """The fastest of those that were measured; the usual one unless another is clearly faster."""
    known = [k for k, time in enumerate(measured) if time >= 0]
    best = min(known, key=lambda k: (measured[k], k))
    return best if measured[best] <= BETTER * measured[0] else 0
