"""Nobody lies where a collective that is under way still reads or writes.

Plans of random programs, ordered and bucketed: between the start of a collective and the last wait
for what it delivers, its arguments and results share no byte with anything that is needed then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from eventful_programs import eventful_programs
from how_many import examples, until
from hypothesis import given, settings

from treadle.analysis.cost import Roofline
from treadle.codegen.lower import lower
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Collective, Program
from treadle.ir.spec import Stage
from treadle.runtime.device_memory import DeviceMemory
from treadle.runtime.launch_plan import CallStep, LaunchPlan, WaitStep
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.plan_launches import plan_launches
from treadle.runtime.run_facts import CallFacts, ResultsAre, RunFacts
from treadle.schedule.overlap.bucketing import with_buckets
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PASSES
from treadle.schedule.pipeline import run_pipeline

WAYS = {
    "as it is": (),
    "ordered": (PASSES["order-collectives"],),
    "bucketed": (
        Pass("bucket-collectives", with_buckets, Stage.GROUPED, moves_collectives=True),
        PASSES["order-collectives"],
    ),
}
KEEPS = CallFacts(ResultsAre.ALLOCATED, keeps_arguments=True)


def flights(plan: LaunchPlan) -> Iterator[tuple[int, int, frozenset[str]]]:
    """(start, last wait, the storages it touches) of every collective."""
    for k, step in enumerate(plan.steps):
        if isinstance(step, CallStep) and step.event is not None:
            waits = [
                at
                for at, s in enumerate(plan.steps)
                if isinstance(s, WaitStep) and s.event == step.event
            ]
            yield k, max(waits), frozenset((*step.reads, *step.writes, *step.mutates))


def bytes_of(memory: DeviceMemory, name: str) -> tuple[str, int, int]:
    """The piece of memory that a storage lies in, its first byte there and the one behind."""
    home, begin = name, 0
    while home in memory.places:
        home, begin = memory.places[home].pool, begin + memory.places[home].offset
        if home not in memory.lives:
            break
    return home, begin, begin + memory.lives[name].bytes


def shared(memory: DeviceMemory, start: int, end: int, touched: frozenset[str]) -> Iterator[str]:
    """Who lies where a flight reads or writes while it is under way."""
    for mine in touched:
        home, begin, behind = bytes_of(memory, mine)
        for name, life in memory.lives.items():
            if name == mine or life.last < start or life.first > end:
                continue
            other, first, after = bytes_of(memory, name)
            if other == home and max(begin, first) < min(behind, after):
                yield f"'{name}' lies in '{mine}'"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keeps", [True, False])
def test_nobody_lies_in_what_is_under_way(way: str, keeps: bool) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=examples(40))
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        options = Options(check=0, comm="model", hardware="h100-8")
        ctx = Ctx(options, Roofline(program), Journal(level=0))
        program = run_pipeline(program, ctx, WAYS[way])
        sent = [op.name for op in program.leaves if isinstance(op, Collective)]
        facts = RunFacts(dict.fromkeys(sent, KEEPS) if keeps else {})
        plan = plan_launches(LaunchShape(lower(program), facts))
        for start, end, touched in flights(plan):
            seen["flights"] += 1
            seen["work inside"] += end > start + 1
            memory = plan.main
            assert not list(shared(memory, start, end, touched))
            if keeps:  # a library works on it in threads of its own
                assert not touched & (memory.places.keys() | memory.suballocations.keys())

    assert until(
        lambda: seen["flights"] and (seen["work inside"] or way == "as it is"), every_program
    )
