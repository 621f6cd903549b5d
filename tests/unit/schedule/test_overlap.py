"""Orders by simulation: close to the bound, within memory, the same every time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.analysis.accounting import ACCOUNTINGS, DUMP, figures
from treadle.analysis.comm.machine import machine_of
from treadle.analysis.comm.simulate import longest_flight, most_in_flight, simulate
from treadle.analysis.comm.tasks import Task, TaskGraph, TaskKind
from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump, unpacked
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Collective, Program
from treadle.ir.spec import verify
from treadle.schedule.ordering.measure import peak_of
from treadle.schedule.ordering.steps import Steps, steps_of
from treadle.schedule.overlap.agreement import CollectiveOrder, RankOrderError, collective_order
from treadle.schedule.overlap.bucketing import choose_buckets, find_buckets, with_buckets
from treadle.schedule.overlap.dead import dead_collectives
from treadle.schedule.overlap.list_schedule import Limits
from treadle.schedule.overlap.search import FoundOverlap, find_overlap
from treadle.schedule.passes.order_collectives import order_collectives
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.fsdp_programs import fsdp_program

SEEDS = sorted((Path(__file__).parents[3].parent / "shared" / "seeds").glob("000_*"))


def model(world: int, **rest: object) -> Options:
    return Options.make(comm="model", hardware="h100-8", world=world, **rest)


def problem(program: Program, world: int) -> tuple[TaskGraph, Steps, int]:
    options = model(world)
    graph, steps = machine_of(program, options).tasks(program), steps_of(program, options)
    return graph, steps, peak_of(steps, list(range(len(graph.tasks))))


def assert_sound(found: FoundOverlap, steps: Steps) -> None:
    graph = found.after.graph
    place = {k: at for at, k in enumerate(found.order)}
    assert sorted(place) == list(range(len(graph.tasks)))
    assert all(place[s] < place[k] for k in place for s in graph.before[k])
    assert found.peak_bytes == peak_of(steps, list(found.order)) <= found.budget
    assert found.bound.us <= found.after.makespan_us + 1e-6
    assert found.after.makespan_us <= found.before.makespan_us
    kept = all(place[a] < place[b] for a, b in graph.kept)
    assert kept == found.order_kept


@pytest.mark.parametrize(
    ("layers", "world", "hidden", "tokens", "spare"),
    [
        (8, 8, 4096, 8192, 1.0),
        (8, 8, 4096, 2048, 1.1),  # communication and compute take as long as each other
        (8, 64, 4096, 8192, 1.0),
        (16, 64, 4096, 16384, 1.02),
        (16, 512, 2048, 8192, 1.05),
        (32, 4096, 4096, 32768, 1.05),
    ],
)
def test_most_of_the_possible_overlap_of_sharded_transformers_is_had(
    layers: int, world: int, hidden: int, tokens: int, spare: float
) -> None:
    graph, steps, peak = problem(fsdp_program(layers, world, hidden, tokens), world)
    found = find_overlap(graph, steps, int(peak * spare))
    assert_sound(found, steps)
    assert found.before.overlap(found.bound.us) < 0.01
    assert found.share >= 0.9


def test_where_the_network_is_always_behind_the_last_gap_is_found_and_closed() -> None:
    """Every collective is exposed here; one wait decides, and costs some 300 us."""
    graph, steps, peak = problem(fsdp_program(8, 512, 4096, 2048), 512)
    found = find_overlap(graph, steps, int(peak * 1.0566))
    assert_sound(found, steps)
    assert found.after.makespan_us <= found.bound.us * 1.0001


def test_sixty_four_layers_are_scheduled_within_seconds() -> None:
    graph, steps, peak = problem(fsdp_program(64, 512, 4096, 8192), 512)
    start = time.process_time()
    found = find_overlap(graph, steps, int(peak * 1.02))
    assert time.process_time() - start < 5
    assert_sound(found, steps)
    assert found.share >= 0.9


def test_the_same_program_gives_the_same_order_every_time() -> None:
    orders = set()
    for _ in range(2):
        graph, steps, peak = problem(fsdp_program(4, 8, 1024, 1024), 8)
        orders.add(find_overlap(graph, steps, peak).order)
    assert len(orders) == 1


def test_a_small_budget_is_kept_and_costs_overlap() -> None:
    graph, steps, peak = problem(fsdp_program(4, 8, 4096, 2048), 8)
    shares = []
    for spare in (1.0, 1.3):
        found = find_overlap(graph, steps, int(peak * spare))
        assert_sound(found, steps)
        assert found.peak_bytes <= int(peak * spare)
        shares.append(found.share)
    assert shares[0] <= shares[1]


def test_bytes_under_way_are_bounded_if_asked() -> None:
    program = fsdp_program(4, 8, 1024, 512)
    graph, steps, peak = problem(program, 8)
    most = max(t.message_bytes for t in graph.tasks)
    found = find_overlap(graph, steps, 2 * peak, Limits(in_flight=most, distance=8))
    free = find_overlap(graph, steps, 2 * peak)
    assert found.after.makespan_us >= free.after.makespan_us - 1e-6
    assert most_in_flight(graph, found.order) <= most < most_in_flight(graph, free.order)


@pytest.mark.parametrize("most", [0, 1, 5, 16])
def test_no_more_kernels_than_asked_run_between_a_collective_and_its_wait(most: int) -> None:
    graph, steps, peak = problem(fsdp_program(4, 8, 1024, 512), 8)
    free = find_overlap(graph, steps, 2 * peak)
    found = find_overlap(graph, steps, 2 * peak, Limits(prefetch=most))
    assert_sound(found, steps)
    assert longest_flight(graph, found.order) <= most < longest_flight(graph, free.order)
    assert found.after.makespan_us >= free.after.makespan_us - 1e-6
    if most >= 5:
        assert found.share > 0.5  # what is left is used


def test_an_order_that_prefetches_too_far_is_not_kept_for_its_speed() -> None:
    program = fsdp_program(2, 8, 1024, 512)
    graph, steps, peak = problem(program, 8)
    fast = find_overlap(graph, steps, 2 * peak)
    given = program.with_ops(tuple([program.ops[k] for k in fast.order]))
    graph, steps, peak = problem(given, 8)
    assert longest_flight(graph, range(len(graph.tasks))) > 2
    found = find_overlap(graph, steps, 2 * peak, Limits(prefetch=2))
    assert longest_flight(graph, found.order) <= 2


def test_an_order_with_too_much_under_way_is_not_kept_for_its_speed() -> None:
    program = fsdp_program(2, 8, 1024, 512)
    graph, steps, peak = problem(program, 8)
    most = max(t.message_bytes for t in graph.tasks)
    fast = find_overlap(graph, steps, 2 * peak)
    given = program.with_ops(tuple([program.ops[k] for k in fast.order]))
    graph, steps, peak = problem(given, 8)
    assert most_in_flight(graph, range(len(graph.tasks))) > most
    found = find_overlap(graph, steps, 2 * peak, Limits(in_flight=1))
    assert most_in_flight(graph, found.order) <= most  # less than the largest message is nothing
    place = {k: at for at, k in enumerate(found.order)}
    assert all(place[s] < place[k] for k in place for s in graph.before[k])
    assert found.peak_bytes <= found.budget


def reordered() -> Program:
    """The first collective is ready late, the second could run beside all that the first needs."""
    b = ProgramBuilder("p", device="cuda:0")
    size = [1 << 22]
    x, y = b.input("x", "f32", size), b.input("y", "f32", size)
    value = x
    for k in range(12):
        made = b.buffer(f"v{k}", "f32", size)
        with b.loop(f"work{k}", size) as body:
            body.store(made, body.vars, body.load(value, *body.vars) * 2.0)
        value = made
    late, soon = b.buffer("late", "f32", size), b.buffer("soon", "f32", size)
    b.collective("all_reduce", [value], writes=[late], group="g", name="first")
    b.wait(late, name="first_wait")
    b.collective("all_reduce", [y], writes=[soon], group="g", name="second")
    b.wait(soon, name="second_wait")
    b.returns(late, soon)
    return b.build()


def test_collectives_change_places_only_where_it_pays_and_a_verdict_says_so() -> None:
    program = reordered()
    journal = Journal(level=4)
    ctx = Ctx(model(8, check=2, policy="fast"), Roofline(program), journal, 10**10)
    after = run_pipeline(program, ctx)
    assert [op.name for op in after.leaves if isinstance(op, Collective)] == ["second", "first"]
    verdicts = [e for e in journal.events("verdict") if e["code"] == "COL004"]
    assert len(verdicts) == 1
    assert verdicts[0]["facts"]["order"] == ["second", "first"]
    # Without estimates nobody may say so: the order stays.
    ctx = Ctx(Options(check=2), Roofline(program), Journal(), 10**10)
    after = run_pipeline(program, ctx)
    assert [op.name for op in after.leaves if isinstance(op, Collective)] == ["first", "second"]


def test_what_stays_exposed_has_a_verdict_with_its_reason() -> None:
    program = fsdp_program(2, 8, 1024, 1024)
    journal = Journal(level=4)
    order_collectives(program, Ctx(model(8), Roofline(program), journal))
    found = {e["code"]: e for e in journal.events("verdict")}
    assert found["COL003"]["facts"]["limit"] in ("operand", "channel", "launch")
    assert found["COL000"]["facts"]["exposed_us"] == 0
    (step,) = [e for e in journal.events("step") if e["action"] == "order-by-model"]
    before, after, bound, peak, budget = step["args"]
    assert before > after >= bound
    assert peak <= budget


def test_an_order_that_the_liveness_engine_counts_over_the_budget_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = fsdp_program(2, 8, 1024, 1024)
    ctx = Ctx(model(8, policy="memory"), Roofline(program), Journal(level=4))
    most = figures(program, ACCOUNTINGS["ours"]).peak_bytes
    assert figures(order_collectives(program, ctx), ACCOUNTINGS["ours"]).peak_bytes <= most
    # With a budget that nothing keeps, what needs no estimates does the work.
    monkeypatch.setattr("treadle.schedule.overlap.by_model.budget_of", lambda *_: 1)
    journal = Journal(level=4)
    after = order_collectives(program, replace(ctx, journal=journal))
    assert {e["code"] for e in journal.events("verdict")} <= {"COL000", "COL001", "COL002"}
    assert figures(after, ACCOUNTINGS["ours"]).peak_bytes <= most


def test_without_a_world_the_ranks_of_the_capture_count() -> None:
    program = fsdp_program(1, 2, 256, 64)
    assert machine_of(program, Options(hardware="h100-8")).world == 2
    assert machine_of(program, Options(hardware="h100-8x4")).world == 32
    assert machine_of(program, Options(hardware="h100-8", world=16)).world == 16


# ------------------------------------------------------------------------------- the seed


def with_costs(graph: TaskGraph) -> TaskGraph:
    """Each collective takes as long as the compute since the one before it."""
    tasks: list[Task] = []
    since = 0.0
    for task in graph.tasks:
        if task.kind is TaskKind.COLLECTIVE:
            task, since = replace(task, us=since), 0.0
        elif task.kind is TaskKind.COMPUTE:
            since += task.us
        tasks.append(task)
    return replace(graph, tasks=tuple(tasks))


@pytest.mark.skipif(not SEEDS, reason="the seeds are not beside the repository")
@pytest.mark.parametrize("peers_groups", [True, False])
def test_a_real_backward_hides_nine_tenths_of_what_can_be_hidden(peers_groups: bool) -> None:
    given = import_program(read_dump(str(SEEDS[0]))).program
    program = given if peers_groups else unpacked(given)
    options = model(2, accounting="dump")
    graph = with_costs(machine_of(program, options).tasks(program))
    steps = steps_of(program, options)
    peak = peak_of(steps, list(range(len(graph.tasks))))
    found = find_overlap(graph, steps, peak)
    assert_sound(found, steps)
    assert peak == figures(program, DUMP).peak_bytes == 2080
    sent = sum(t.us for t in graph.tasks if t.channel)
    assert found.before.exposed_us == pytest.approx(sent)
    assert found.share >= 0.9
    assert found.after.exposed_us < 0.1 * found.before.exposed_us
    assert found.order_kept


@pytest.mark.skipif(not SEEDS, reason="the seeds are not beside the repository")
def test_the_gather_that_nobody_uses_is_reported() -> None:
    program = unpacked(import_program(read_dump(str(SEEDS[0]))).program)
    (chain,) = dead_collectives(program)
    assert chain.names[0] == "op23"
    assert {"op20", "op24"} <= set(chain.names)
    journal = Journal(level=4)
    ctx = Ctx(model(2, accounting="dump"), Roofline(program), journal)
    order_collectives(program, ctx)
    assert [e["facts"]["bytes"] for e in journal.events("verdict") if e["code"] == "COL005"] == [
        512
    ]


# ------------------------------------------------------------------------------- bucketing


def test_small_collectives_are_sent_together_under_the_cap() -> None:
    program = fsdp_program(4, 64, 256, 256)
    options = model(64, check=2)
    journal = Journal(level=4)
    ctx = Ctx(options, Roofline(program), journal)
    cap = 2 << 20
    buckets = find_buckets(program, machine_of(program, options), cap)
    assert buckets
    assert all(b.bytes <= cap and len(b.members) > 1 for b in buckets)
    for b in buckets:
        members = [program.ops[m] for m in b.members]
        assert len({(m.target, m.group) for m in members if isinstance(m, Collective)}) == 1
    joined = with_buckets(program, ctx, cap)
    verify(joined)
    assert [e["code"] for e in journal.events("verdict")] == ["COL006"] * len(buckets)
    machine = machine_of(program, options)
    apart, together = simulate(machine.tasks(program)), simulate(machine.tasks(joined))
    assert together.makespan_us < apart.makespan_us
    run_pipeline(joined, ctx)


def test_a_chain_of_reductions_goes_one_by_one() -> None:
    b = ProgramBuilder("p", device="cuda:0")
    value = b.input("x", "f32", [64])
    for k in range(3):
        made = b.buffer(f"r{k}", "f32", [64])
        b.collective("all_reduce.default", [value], writes=[made], group="g", name=f"send{k}")
        b.wait(made, name=f"wait{k}")
        value = made
    b.returns(value)
    program = b.build()
    assert find_buckets(program, machine_of(program, model(8)), 1 << 30) == []


def test_the_size_of_buckets_is_chosen_by_what_is_done_soonest() -> None:
    program = fsdp_program(4, 512, 1024, 8192)
    ctx = Ctx(model(512, policy="fast"), Roofline(program), Journal(level=4))
    chosen = choose_buckets(program, ctx)
    machine = machine_of(program, ctx.options)
    sent = [len(machine.tasks(p).collectives) for p in (program, chosen)]
    assert sent[1] < sent[0]
    budget = int(figures(program, ACCOUNTINGS["ours"]).peak_bytes * 1.25)
    graph, steps = machine.tasks(chosen), steps_of(chosen, ctx.options)
    found = find_overlap(graph, steps, budget)
    assert found.peak_bytes <= budget
    alone = find_overlap(machine.tasks(program), steps_of(program, ctx.options), budget)
    assert found.after.makespan_us < alone.after.makespan_us


# ------------------------------------------------------------------------------- agreement


def test_ranks_that_agree_have_the_same_digest_whatever_operations_are_called() -> None:
    one = collective_order(fsdp_program(2, 8, 64, 64))
    other = collective_order(fsdp_program(2, 8, 64, 64))
    assert one.digest == other.digest
    assert CollectiveOrder.parse(one.to_text()) == one
    one.check_against(other)


def test_ranks_that_disagree_are_told_both_orders() -> None:
    program = reordered()
    changed = program.with_ops(tuple(reversed(program.ops)))
    size = 4 << 22
    small = CollectiveOrder((("g", ("a", "b", "c")),))
    large = CollectiveOrder((("g", ("a", "c", "b")),))
    assert small.question == large.question
    assert small.digest != large.digest
    with pytest.raises(RankOrderError) as caught:
        small.check_against(large, "rank 0", "rank 1")
    assert caught.value.code == "COL008"
    assert "from number 1 on" in str(caught.value)
    assert "rank 0: 0: a; 1: b; 2: c" in str(caught.value)
    assert "rank 1: 0: a; 1: c; 2: b" in str(caught.value)
    # Two equal messages may change places: nobody can tell.
    collective_order(program).check_against(collective_order(changed))
    assert f"of {size} bytes" in collective_order(program).groups[0][1][0]
