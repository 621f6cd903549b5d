"""Simulated runs and the bounds that no order beats."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from treadle.analysis.comm.bounds import bound_of, interrupted_makespan
from treadle.analysis.comm.simulate import critical_chain, simulate, what_limits
from treadle.analysis.comm.tasks import MeasuredTask, Task, TaskGraph, TaskKind, task_graph
from treadle.analysis.cost import Roofline
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Collective, Program

COMPUTE, SENT, WAIT = TaskKind.COMPUTE, TaskKind.COLLECTIVE, TaskKind.WAIT


def work(name: str, us: float) -> Task:
    return Task(name, COMPUTE, us, "gpu")


def sent(name: str, us: float, channel: str = "g") -> Task:
    return Task(name, SENT, us, "gpu", channel)


def wait(of: int) -> Task:
    return Task(f"wait{of}", WAIT, 0.0, "gpu", of=of)


def graph(*rows: tuple[Task, tuple[int, ...]], slowdown: float = 0.0) -> TaskGraph:
    tasks, before = zip(*rows, strict=True)
    return TaskGraph(tuple(tasks), tuple(before), (), slowdown)


HIDDEN = graph(
    (work("a", 5), ()),
    (sent("c", 8), (0,)),
    (work("b", 6), ()),
    (wait(1), (1,)),
    (work("d", 2), (2, 3)),
)


def test_a_collective_runs_beside_compute_and_only_the_rest_is_exposed() -> None:
    run = simulate(HIDDEN)
    assert run.begin == (0, 5, 5, 11, 13)
    assert (run.makespan_us, run.exposed_us) == (15, 2)
    assert HIDDEN.serial_us == 21
    (exposed,) = what_limits(run)
    assert (exposed.collective, exposed.us, exposed.limit) == ("c", 2, "operand")
    assert run.overlap(15) == 1.0


def test_launched_late_it_hides_nothing_and_the_reason_is_said() -> None:
    run = simulate(HIDDEN, (0, 2, 1, 3, 4))
    assert (run.makespan_us, run.exposed_us) == (21, 8)
    assert [e.limit for e in what_limits(run)] == ["launch"]
    assert run.overlap(15) == 0.0


def test_collectives_of_one_channel_follow_each_other_and_those_of_two_do_not() -> None:
    def both(channel: str) -> TaskGraph:
        return graph(
            (sent("c", 8), ()), (sent("d", 8, channel), ()), (wait(0), (0,)), (wait(1), (1,))
        )

    run = simulate(both("g"))
    assert run.makespan_us == 16
    assert {e.collective: e.limit for e in what_limits(run)}["d"] == "channel"
    assert simulate(both("h")).makespan_us == 8


def test_compute_is_slower_while_something_is_under_way() -> None:
    slow = replace(HIDDEN, slowdown=0.5)
    run = simulate(slow)
    # b takes 9 instead of 6: 8 of it beside c at two thirds of the speed, the rest after it.
    assert run.end[2] == pytest.approx(5 + 8 + (6 - 8 / 1.5))
    assert run.makespan_us > simulate(HIDDEN).makespan_us


def test_streams_wait_for_what_others_made() -> None:
    tasks = (work("a", 5), Task("b", COMPUTE, 3, "cpu"), work("c", 1))
    run = simulate(TaskGraph(tasks, ((), (0,), (1,)), ()))
    assert run.begin == (0, 5, 8)


def random_graph(draw: random.Random, count: int) -> TaskGraph:
    rows: list[tuple[Task, tuple[int, ...]]] = []
    for k in range(count):
        earlier = [s for s in range(k) if draw.random() < 0.3]
        kind = draw.random()
        if kind < 0.3 and rows:
            rows.append((sent(f"c{k}", draw.randint(1, 9), draw.choice("gh")), tuple(earlier)))
        elif kind < 0.6 and any(t.kind is SENT for t, _ in rows):
            of = draw.choice([j for j, (t, _) in enumerate(rows) if t.kind is SENT])
            rows.append((wait(of), tuple({*earlier, of})))
        else:
            rows.append((work(f"w{k}", draw.randint(1, 9)), tuple(earlier)))
    # What reads a collective's result reads it after a wait.
    fixed = [
        (task, tuple(s for s in sources if rows[s][0].kind is not SENT or task.of == s))
        for task, sources in rows
    ]
    return graph(*fixed)


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_a_small_graph_is_done_before_the_bound(seed: int) -> None:
    found = random_graph(random.Random(seed), 6)
    bound = bound_of(found)
    best = float("inf")
    for order in itertools.permutations(range(6)):
        place = {k: at for at, k in enumerate(order)}
        if all(place[s] < place[k] for k in order for s in found.before[k]):
            best = min(best, simulate(found, order).makespan_us)
    assert bound.us <= best + 1e-9
    assert bound.us >= max(bound.stream_us, bound.channel_us, bound.path_us)


@pytest.mark.parametrize("seed", range(40))
def test_the_chain_that_decides_the_end_is_as_long_as_the_run(seed: int) -> None:
    draw = random.Random(seed)
    found = random_graph(draw, 24)
    tasks = [replace(t, stream=draw.choice(("gpu", "gpu", "cpu"))) for t in found.tasks]
    run = simulate(replace(found, tasks=tuple(tasks)))
    chain = critical_chain(run)
    assert run.end[chain[0]] == run.makespan_us
    assert sum(tasks[k].us for k in chain) == pytest.approx(run.makespan_us)
    assert all(run.end[b] <= run.end[a] for a, b in itertools.pairwise(chain))


def test_the_chain_leaves_out_what_could_take_longer() -> None:
    # b runs beside c, which is waited for: only c decides.
    assert [HIDDEN.tasks[k].name for k in critical_chain(simulate(HIDDEN))] == [
        "d",
        "wait1",
        "c",
        "a",
    ]


def test_the_machine_bound_sees_heads_and_tails() -> None:
    # Two messages of 4 behind 3 of compute, 5 of compute behind each: neither sum is above 13.
    assert interrupted_makespan([(3, 4, 5), (3, 4, 5)]) == 16
    assert interrupted_makespan([(0, 4, 1), (1, 2, 9)]) == 12  # the second interrupts the first


def test_a_program_becomes_tasks_with_its_waits_joined() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [64])
    whole = b.buffer("whole", "f32", [128])
    b.collective("all_gather", [x], writes=[whole], group="g", ranks=(0, 1), name="gather")
    b.wait(whole, name="arrive")
    b.returns(whole)
    program: Program = b.build()

    def made(op: Collective) -> Task:
        return sent(op.name, 7)

    found = task_graph(program, Roofline(program), made)
    assert [t.kind for t in found.tasks] == [SENT, WAIT]
    assert found.tasks[1].of == 0
    assert found.before[1] == (0,)


def test_measured_tasks_take_their_time_and_launches_occupy_the_stream() -> None:
    measured = {"c": MeasuredTask(10.0, launch_us=2.0), "a": MeasuredTask(4.0)}
    found = HIDDEN.with_times(measured)
    run = simulate(found)
    assert (run.end[0], run.begin[1], run.end[1]) == (4.0, 6.0, 16.0)
    assert run.begin[2] == 6.0  # the next kernel runs once the launch is over
    assert simulate(HIDDEN.with_times({})) == simulate(HIDDEN)
