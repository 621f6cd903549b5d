"""Communication hidden behind compute: shares of what is possible, and seconds to find the order.

  python bench/collectives.py [--save]

seed_000   a real FSDP backward; each collective takes as long as the compute before it
fsdp       generated training steps: exposed time and makespan before and after, `overlap` as a
           share of what the bound allows, peak over that of the given order, seconds of scheduling;
           `simple` is the pass without estimates, `buckets` the same program with small messages
           sent together, `peer` the order of torch's own scheduler (`peer_overlap.py`), `beside_it`
           ours within the memory that the peer's order takes
scaling    one program on more and more ranks
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import peer_overlap
from common import parser, report, seed_file
from treadle.analysis.comm.bounds import bound_of
from treadle.analysis.comm.machine import machine_of
from treadle.analysis.comm.simulate import simulate
from treadle.analysis.comm.tasks import TaskGraph, TaskKind
from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump, unpacked
from treadle.ir.program import Program
from treadle.schedule.ordering.measure import peak_of
from treadle.schedule.ordering.steps import steps_of
from treadle.schedule.overlap.bucketing import choose_buckets
from treadle.schedule.overlap.search import FoundOverlap, find_overlap
from treadle.schedule.passes.order_collectives import order_collectives
from treadle.testing.fsdp_programs import fsdp_program

CASES = [
    (layers, world, tokens)
    for layers in (8, 16, 32, 64)
    for world in (8, 64, 512, 4096)
    for tokens in (2048, 16384)
]
SPARE = 1.05
"""The budget, as a multiple of the peak of the given order."""


def row_of(found: FoundOverlap, given_peak: int, seconds: float) -> dict[str, Any]:
    return {
        "collectives": len(found.after.graph.collectives),
        "makespan_us": [round(r.makespan_us, 1) for r in (found.before, found.after)],
        "exposed_comm_us": [round(r.exposed_us, 1) for r in (found.before, found.after)],
        "bound_us": round(found.bound.us, 1),
        "bound_by": found.bound.by,
        "overlap": round(found.share, 4),
        "peak_over_given": round(found.peak_bytes / given_peak, 4),
        "order_kept": found.order_kept,
        "seconds": round(seconds, 3),
    }


def ordered(program: Program, options: Options, budget: int, given_peak: int) -> dict[str, Any]:
    graph, steps = machine_of(program, options).tasks(program), steps_of(program, options)
    start = time.process_time()
    found = find_overlap(graph, steps, budget)
    return row_of(found, given_peak, time.process_time() - start)


def case(layers: int, world: int, tokens: int) -> dict[str, Any]:
    program = fsdp_program(layers, world, 4096, tokens)
    options = Options(comm="model", hardware="h100-8", world=world)
    steps = steps_of(program, options)
    peak = peak_of(steps, list(range(len(program.ops))))
    budget = int(peak * SPARE)
    ctx = Ctx(options.with_(memory_limit=budget), Roofline(program), Journal(level=0), peak)
    simple = order_collectives(program, replace(ctx, options=options.with_(comm="simple")))
    graph = machine_of(program, options).tasks(simple)
    start = time.process_time()
    together = choose_buckets(program, ctx)
    spent = time.process_time() - start
    plain = simulate(graph)
    return {
        "layers": layers,
        "world": world,
        "tokens": tokens,
        "simple": {
            "makespan_us": round(plain.makespan_us, 1),
            "overlap": round(plain.overlap(bound_of(graph).us), 4),
        },
        "model": ordered(program, options, budget, peak),
        "buckets": {
            **ordered(together, options, budget, peak),
            "choosing_seconds": round(spent, 3),
        },
        **beside_the_peer(program, options, budget, peak),
    }


def beside_the_peer(
    program: Program, options: Options, budget: int, given_peak: int
) -> dict[str, Any]:
    if not peer_overlap.is_available():
        return {}
    graph, steps = machine_of(program, options).tasks(program), steps_of(program, options)
    start = time.process_time()
    order = peer_overlap.peers_order(program, graph, SPARE)
    spent = time.process_time() - start
    if not peer_overlap.is_order(graph, order):
        raise SystemExit("the peer's order was not read back as one of the same program")
    run, peak = simulate(graph, order), peak_of(steps, order)
    ours = find_overlap(graph, steps, max(budget, peak))
    return {
        "peer": {
            "makespan_us": round(run.makespan_us, 1),
            "overlap": round(run.overlap(bound_of(graph).us), 4),
            "peak_over_given": round(peak / given_peak, 4),
            "seconds": round(spent, 3),
        },
        "beside_it": {
            "makespan_us": round(ours.after.makespan_us, 1),
            "overlap": round(ours.share, 4),
            "of_the_peers_time": round(ours.after.makespan_us / run.makespan_us, 5),
        },
    }


def seed() -> dict[str, Any]:
    file = seed_file("000")
    if file is None:
        return {}
    given = import_program(read_dump(str(file))).program
    options = Options(comm="model", hardware="h100-8", world=2, accounting="dump")
    found = {}
    for word, program in (("peers_groups", given), ("unfused", unpacked(given))):
        graph = as_long_as_compute(machine_of(program, options).tasks(program))
        steps = steps_of(program, options)
        peak = peak_of(steps, list(range(len(graph.tasks))))
        start = time.process_time()
        overlap = find_overlap(graph, steps, peak)
        found[word] = row_of(overlap, peak, time.process_time() - start)
    return found


def as_long_as_compute(graph: TaskGraph) -> TaskGraph:
    """Each collective takes as long as the compute since the one before it."""
    tasks, since = [], 0.0
    for task in graph.tasks:
        if task.kind is TaskKind.COLLECTIVE:
            tasks.append(replace(task, us=since))
            since = 0.0
        else:
            tasks.append(task)
            since += task.us
    return replace(graph, tasks=tuple(tasks))


def scaling() -> list[dict[str, Any]]:
    rows = []
    program = fsdp_program(16, 8, 4096, 16384)
    for world in (8, 16, 64, 256, 1024, 4096):
        options = Options(comm="model", hardware="h100-8", world=world)
        peak = peak_of(steps_of(program, options), list(range(len(program.ops))))
        rows.append({"world": world, **ordered(program, options, int(peak * SPARE), peak)})
    return rows


def main() -> None:
    args = parser(__doc__).parse_args()
    rows = [case(*one) for one in CASES]
    shares = [r[word]["overlap"] for r in rows for word in ("model", "buckets")]
    data = {
        "hardware": "h100-8, as many nodes as the world needs",
        "spare": SPARE,
        "least_overlap": min(shares),
        "most_seconds": max(r["model"]["seconds"] for r in rows),
        "most_of_the_peers_time": max(
            (r["beside_it"]["of_the_peers_time"] for r in rows if "beside_it" in r), default=None
        ),
        "seed_000": seed(),
        "fsdp": rows,
        "scaling": scaling(),
    }
    report("collectives", data, args.save)


if __name__ == "__main__":
    main()
