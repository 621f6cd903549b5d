"""Orders that a solver proves to be the best, beside those that list scheduling finds."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from treadle.analysis.comm.bounds import bound_of
from treadle.analysis.comm.machine import machine_of
from treadle.analysis.comm.simulate import simulate
from treadle.analysis.comm.tasks import Task, TaskGraph, TaskKind
from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.schedule.ordering.steps import steps_of
from treadle.schedule.overlap import exact
from treadle.schedule.overlap.exact import exact_order, is_available, is_small
from treadle.schedule.overlap.list_schedule import Limits
from treadle.schedule.overlap.search import find_overlap
from treadle.schedule.passes.order_collectives import order_collectives
from treadle.testing.fsdp_programs import fsdp_program

needs_solver = pytest.mark.skipif(not is_available(), reason="OR-tools is not installed")
ENOUGH = 10**12


def random_graph(seed: int) -> TaskGraph:
    """Kernels and collectives, each needing some before it, each collective waited for at once."""
    draw = random.Random(seed)
    tasks: list[Task] = []
    before: list[tuple[int, ...]] = []
    usable: list[int] = []
    for number in range(draw.randint(5, 9)):
        sources = tuple(sorted(draw.sample(usable, min(len(usable), draw.randint(0, 2)))))
        if draw.random() < 0.5:
            channel = f"g{draw.randint(0, 1)}"
            tasks.append(Task(f"c{number}", TaskKind.COLLECTIVE, draw.randint(1, 9), "s", channel))
            before.append(sources)
            tasks.append(Task(f"w{number}", TaskKind.WAIT, 0.0, "s", of=len(tasks) - 1))
            before.append((len(tasks) - 2,))
        else:
            tasks.append(Task(f"k{number}", TaskKind.COMPUTE, draw.randint(1, 9), "s"))
            before.append(sources)
        usable.append(len(tasks) - 1)
    sent = [k for k, t in enumerate(tasks) if t.kind is TaskKind.COLLECTIVE]
    kept = tuple((a, b) for a, b in pairwise(sent) if tasks[a].channel == tasks[b].channel)
    return TaskGraph(tuple(tasks), tuple(before), kept)


def best_of_all(graph: TaskGraph) -> float:
    """The makespan of the best order, by trying every one."""
    best = float("inf")
    stack: list[tuple[int, ...]] = [()]
    while stack:
        order = stack.pop()
        if len(order) == len(graph.tasks):
            best = min(best, simulate(graph, order).makespan_us)
            continue
        ready = [
            k
            for k in range(len(graph.tasks))
            if k not in order and set(graph.before[k]) <= set(order)
        ]
        stack += [(*order, k) for k in ready]
    return best


@needs_solver
def test_the_solver_finds_what_trying_every_order_finds() -> None:
    tried = 0
    for seed in range(40):
        graph = random_graph(seed)
        if len(graph.tasks) > 9:
            continue
        found = exact_order(graph)
        assert found.is_proven
        assert simulate(graph, found.order).makespan_us == pytest.approx(best_of_all(graph))
        assert bound_of(graph).us <= found.bound_us + 0.1
        tried += 1
    assert tried >= 10


@needs_solver
@pytest.mark.parametrize("tokens", [512, 2048, 8192])
def test_list_scheduling_is_within_a_hundredth_of_the_proven_best(tokens: int) -> None:
    program = fsdp_program(1, 8, 1024, tokens)
    options = Options(comm="exact", hardware="h100-8", world=8)
    graph, steps = machine_of(program, options).tasks(program), steps_of(program, options)
    plain = find_overlap(graph, steps, ENOUGH)
    proven = find_overlap(graph, steps, ENOUGH, Limits(exact=True))
    assert is_small(graph)
    assert proven.after.makespan_us <= plain.after.makespan_us + 1e-6
    assert plain.after.makespan_us <= proven.after.makespan_us * 1.01
    best = exact_order(graph.with_order_kept())
    assert best.is_proven
    assert simulate(graph, best.order).makespan_us == pytest.approx(best.bound_us, abs=0.05)


@needs_solver
def test_the_pass_takes_the_proven_order() -> None:
    program = fsdp_program(1, 8, 256, 512)
    options = Options(comm="exact", hardware="h100-8", world=8, policy="fast", check=2)
    journal = Journal(level=4)
    after = order_collectives(program, Ctx(options, Roofline(program), journal))
    assert after is not program
    assert [e["action"] for e in journal.events("step")] == ["order-by-model"]


def test_programs_that_are_large_or_say_more_are_not_solved() -> None:
    graph = random_graph(0)
    assert is_small(graph)
    assert not is_small(TaskGraph(graph.tasks, graph.before, graph.kept, slowdown=0.1))
    program = fsdp_program(2, 8, 256, 512)
    assert not is_small(machine_of(program, Options(hardware="h100-8")).tasks(program))


def test_without_a_solver_the_user_is_told_and_nothing_else_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "is_available", lambda: False)
    with pytest.raises(UsageError, match="needs OR-tools") as caught:
        exact_order(random_graph(1))
    assert caught.value.code == "COL010"
