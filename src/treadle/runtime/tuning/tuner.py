"""The questions of one program: answered from what is known, or by the device before its first run.

    tuning = tuning_of(program, options, device)      what is known is in tuning.program already
    tuning.write(host, unit)                          the other schedules as functions
    tuning.decide(makes, clock)                       nest -> steps, for those that others won

While nobody answered, a nest has the schedule that the model takes. An answer is final for this
process: kernels that have run once do not change any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import dataclass, replace
from typing import Any, Protocol

from treadle.analysis.cost import cost_model
from treadle.codegen.host import HostProgram, KernelPlan
from treadle.codegen.triton.unit import TritonUnit, same_function, sources_of
from treadle.codegen.triton.writer import TritonSource
from treadle.core.errors import TreadleError
from treadle.core.options import Options
from treadle.core.verdict import Verdict, no, yes
from treadle.index import evaluate
from treadle.ir.loop_schedule import Step
from treadle.ir.program import Program
from treadle.runtime.plan_launches import sizes_of
from treadle.runtime.tuning.answers import TunedAnswer, TunedAnswers
from treadle.runtime.tuning.decide import DeviceClock, Outcome, Start, Trial, decide
from treadle.runtime.tuning.questions import Question, questions_of, with_schedules

WAIT_SHARE, LEAST_WAIT = 0.1, 0.05
"""Compilers are waited for so long, as a share of the time since they began, in seconds at least:
kernels that nobody may use must not hold up those that everybody waits for."""


AUTOTUNE_IS_OFF = "autotune is off"
OTHER_RANKS = "ranks must compute the same bits"


class Makes(Protocol):
    """Who has functions compiled, and starts them."""

    def submitted(self, source: TritonSource) -> Future[Any]:
        """The binary of a function for the likely sizes, now or later."""

    def starting(self, source: TritonSource, addresses: Mapping[str, int]) -> Start:
        """What starts a function on the memory of its storages, on a stream."""


@dataclass(frozen=True)
class _Variants:
    """A question, and the functions of each of its candidates; None for what has no form."""

    question: Question
    sources: tuple[tuple[TritonSource, ...] | None, ...]


class Tuning:
    """What is asked about one program, and what is known."""

    def __init__(
        self, program: Program, options: Options, answers: TunedAnswers, why_not: str = ""
    ) -> None:
        """`why_not`: why nothing is measured, if that is so."""
        self.answers, self.began = answers, time.monotonic()
        self.told: list[Verdict] = []
        """What was decided, one verdict for each question."""
        self.open: list[Question] = []
        self.variants: list[_Variants] = []
        self.functions: dict[object, TritonSource] = {}
        """Every function that is compiled, by what it does."""
        known: dict[str, tuple[Step, ...]] = {}
        for question in questions_of(program, cost_model(program, options)):
            found = answers.find(question)
            if found is None:
                self.open.append(question)
                continue
            answer, where = found
            self.told.append(_told(question, answer.measured_ns, answer.chosen, where))
            if answer.chosen:
                steps = question.candidates[answer.chosen].steps
                known.update(dict.fromkeys(question.nests, steps))
        if why_not:
            self.told += [_left(q, why_not) for q in self.open]
            self.open = []  # and nothing is compiled for it
        self.program = with_schedules(program, known)

    # -- before the first run ------------------------------------------------------------------
    def write(self, host: HostProgram, unit: TritonUnit) -> None:
        """Write the functions of all candidates."""
        self.functions = {same_function(one): one for one in unit.functions.values()}
        values = sizes_of(host.program)
        self.values, self.program = values, host.program
        plans = {nest.name: plan for plan in host.kernels for nest in plan.nests}
        for question in self.open:
            plan = plans[question.measured[0]]
            sources = tuple([self._sources(plan, question, c.steps, unit)
                             for c in question.candidates])  # fmt: skip
            checks = any("tl.device_assert" in s.text for some in sources for s in some or ())
            if sources[0] is None or checks:
                self.told.append(_left(question, "it looks at what it reads"))
            else:
                self.variants.append(_Variants(question, sources))
        self.open = []

    def _sources(
        self, plan: KernelPlan, question: Question, steps: tuple[Step, ...], unit: TritonUnit
    ) -> tuple[TritonSource, ...] | None:
        nests = [replace(n, schedule=steps) for n in plan.nests if n.name in question.measured]
        try:
            made = sources_of(self.program, nests, plan.shape, unit.names)
        except TreadleError:
            return None
        return tuple([self.known(one) for one in made])

    def known(self, one: TritonSource) -> TritonSource:
        """The function itself, under the name and text of one that is compiled already."""
        same = self.functions.setdefault(same_function(one), one)
        return one if same is one else replace(one, name=same.name, text=same.text)

    def others(self) -> Iterator[TritonSource]:
        """The functions that are compiled for trials alone."""
        for one in self.variants:
            for sources in one.sources[1:]:
                yield from sources or ()

    def verdicts(self) -> tuple[Verdict, ...]:
        """What was decided, and what is still to be."""
        return (*self.told, *[_left(one.question, "it has not run yet") for one in self.variants])

    # -- at the first run ----------------------------------------------------------------------
    def leave(self, reason: str) -> None:
        """Take the model's word for everything that is open."""
        self.told += [_left(one.question, reason) for one in self.variants]
        self.variants = []

    def decide(self, makes: Makes, clock: DeviceClock) -> dict[str, tuple[Step, ...]]:
        """Try what was compiled; the steps of nests for which another schedule won."""
        now = time.monotonic()
        until = now + max(WAIT_SHARE * (now - self.began), LEAST_WAIT)
        trials = [self._trial(one, makes, until) for one in self.variants]
        chosen: dict[str, tuple[Step, ...]] = {}
        found: list[TunedAnswer] = []
        for outcome in decide(trials, clock):
            question = outcome.question
            if outcome.refused:
                self.told.append(_left(question, outcome.refused))
                continue
            if outcome.is_final:
                found.append(self._answer(outcome))
            measured, number = outcome.measured_ns, outcome.chosen
            self.told.append(_told(question, measured, number, "measured"))
            if number:
                chosen.update(dict.fromkeys(question.nests, question.candidates[number].steps))
        self.variants = []
        self.answers.keep(found)
        return chosen

    def _trial(self, one: _Variants, makes: Makes, until: float) -> Trial:
        every = [s for sources in one.sources for s in sources or ()]
        storages = {name: self._memory(name) for source in every for name in source.storages}

        late: set[int] = set()

        def start(k: int, addresses: Mapping[str, int]) -> Start | None:
            sources = one.sources[k]
            if sources is None:
                return None
            try:
                _wait(makes, sources, until)
                starts = [makes.starting(source, addresses) for source in sources]
            except NotInTimeError:
                late.add(k)
                return None
            except TreadleError:
                return None  # compilers refuse some, and devices have no room for others

            def both(stream: int) -> None:
                for begin in starts:
                    begin(stream)

            return both

        return Trial(one.question, storages, start, late)

    def _memory(self, storage: str) -> tuple[int, bool]:
        buffer = self.program.by_name[storage]
        count = max(int(evaluate(buffer.storage_numel, self.values)), 1)
        return count * max(buffer.dtype.itemsize, 1), buffer.dtype.is_float

    def _answer(self, outcome: Outcome) -> TunedAnswer:
        question, by = outcome.question, self.answers
        return TunedAnswer(
            question.key,
            by.gpu,
            by.arch,
            by.triton,
            question.kernel,
            tuple([c.text for c in question.candidates]),
            tuple([c.predicted_ns for c in question.candidates]),
            outcome.measured_ns,
            outcome.chosen,
        )


def _wait(makes: Makes, sources: Sequence[TritonSource], until: float) -> None:
    """Wait for functions to be compiled; raises what compilers say, or NotInTimeError."""
    for source in sources:
        makes.submitted(source).result(max(until - time.monotonic(), 0.0))


def _told(question: Question, measured: Sequence[float], chosen: int, by: str) -> Verdict:
    return yes(
        "TUN001",
        kernel=question.kernel,
        nests=len(question.nests),
        chosen=question.candidates[chosen].text,
        by=by,
        schedules=[c.text for c in question.candidates],
        predicted_us=[round(c.predicted_ns / 1e3, 2) for c in question.candidates],
        measured_us=[round(t / 1e3, 2) if t >= 0 else None for t in measured],
    )


def _left(question: Question, reason: str) -> Verdict:
    return no(
        "TUN001",
        kernel=question.kernel,
        nests=len(question.nests),
        reason=reason,
        schedules=[c.text for c in question.candidates],
        predicted_us=[round(c.predicted_ns / 1e3, 2) for c in question.candidates],
    )
