"""One rank of a job on gloo: trains with and without the compiler and says what it saw, as JSON.

python distributed_worker.py CASE RANK WORLD STORE_FILE [FIRST_SEED LAST_SEED]
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from distributed_models import TOKENS, WIDTH, Gathered, parallel_transformer
from distributed_programs import COLUMNS, ROWS, random_program

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.frontends.torch.lowering import collectives
from treadle.ir.program import Collective, Wait
from treadle.runtime.hosts.torch_cpu import Runner
from treadle.runtime.launch_plan import CallStep, WaitStep

STEPS = 5
PROBES = 20
"""Steps at most in which memory is measured."""
PATIENCE = 0.002
"""Seconds by which the pause behind each wait grows from one measured step to the next."""
LAPS = 150
OPERATORS: Any = torch.ops._c10d_functional
MARK = 77_777
"""Bytes of an allocation that nothing else makes: it stands before and behind every run."""
OPTIONS: dict[str, dict[str, Any]] = {
    "modelled": {"comm": "model"},
    "in_graph_again": {"regather": "always"},
    "in_graph_bucketed": {"comm": "model", "bucket": 4096, "check": 2},
}


def options_of(case: str, rank: int) -> dict[str, Any]:
    """The options of a case; those that ranks need not share are other ones on each."""
    if case == "in_graph_limited":
        return {"memory_limit": 45_000 - 5_000 * rank}
    return OPTIONS.get(case, {})


def backend(built: list[Built], **options: Any) -> Any:
    settings = Settings(Options.from_env().with_(**options), True, report=built.append)
    return lambda gm, given: compile_with(settings, gm, given)


class Steps:
    """Losses and gradients of training steps."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.gradients: list[list[Any]] = []

    def train(self, model: Any, run: Any, data: list[Any]) -> Steps:
        """Train on the data, one step for each."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x in data:
            loss = run(x).square().mean()
            loss.backward()
            self.losses.append(float(loss.detach()))
            given = [p.grad for p in model.parameters()]
            self.gradients.append([_own(g).clone() for g in given if g is not None])
            optimizer.step()
            optimizer.zero_grad()
        return self

    def apart(self, other: Steps) -> float:
        """How far gradients are apart, as a part of the largest of their step, at most."""
        most = 0.0
        for mine, theirs in zip(self.gradients, other.gradients, strict=True):
            scale = max(float(b.abs().max()) for b in theirs)
            pairs = zip(mine, theirs, strict=True)
            most = max(most, *[float((a - b).abs().max()) / scale for a, b in pairs])
        return most


class Watched:
    """The plan of every run, in order; runs are marked by allocations around them.

    To be made before anything is compiled: programs remember how they wait.
    """

    def __init__(self) -> None:
        self.plans: list[Any] = []
        self.pause = 0.0
        """Seconds that a program stands still behind each wait."""
        run, wait = Runner.__call__, collectives.wait_for

        def patiently(tensor: Any) -> Any:
            done = wait(tensor)
            time.sleep(self.pause)
            return done

        collectives.wait_for = patiently

        def marked(runner: Runner, args: list[Any]) -> Any:
            self.plans.append(runner._bound(runner._sizes(args)).memory)
            torch.empty(MARK, dtype=torch.uint8)
            try:
                return run(runner, args)
            finally:
                torch.empty(MARK, dtype=torch.uint8)

        Runner.__call__ = marked  # type: ignore[method-assign]

    def peaks(self, call: Any) -> tuple[list[int], list[int]]:
        """For each run inside `call`: bytes that it held on top of its inputs, and predicted."""
        self.plans.clear()
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            call()
        found = list(_allocations(profile.profiler.kineto_results.experimental_event_tree()))
        peaks: list[int] = []
        inside, total, ours = False, 0, 0
        gloos: set[int] = set()
        taken: set[int] = set()
        for _, count, where, is_gloos, thread in sorted(found):
            if count == MARK:
                inside, total, ours = not inside, 0, thread
                taken.clear()
                peaks += [0] if inside else []
            elif count > 0 and is_gloos:
                gloos.add(where)  # what gloo needs for itself: other libraries need nothing
            elif count < 0 and (is_gloos or where in gloos):
                gloos.discard(where)
            elif count < 0 and where not in taken and thread != ours:
                pass  # another thread is done with what was there before the run
            elif inside and count != -MARK:
                gloos.discard(where)
                taken.add(where)
                total += count
                peaks[-1] = max(peaks[-1], total)
        return peaks, [plan.peak_bytes - plan.input_bytes for plan in self.plans]


def _allocations(
    events: list[Any], is_gloos: bool = False
) -> Iterator[tuple[int, int, int, bool, int]]:
    """(when, bytes or minus bytes, address, whether gloo did it, thread) of all allocations."""
    for event in events:
        if event.name == "[memory]":
            about = event.extra_fields
            yield event.start_time_ns, about.alloc_size, about.ptr, is_gloos, event.start_tid
        inner = is_gloos or event.name.startswith(("c10d::", "gloo:"))
        yield from _allocations(event.children, inner)


def models(case: str, rank: int, world: int) -> tuple[Any, Any]:
    """The same model twice, spread over the ranks as the case says."""
    if case in ("gathered", "modelled"):
        torch.manual_seed(0)
        one: Any = Gathered(rank, world)
        return one, copy.deepcopy(one)
    return parallel_transformer(case, world), parallel_transformer(case, world)


def disagree(rank: int) -> str:
    """Two ranks that order the same collectives differently; gives the error of the second."""
    from treadle.frontends.torch.process_groups import _first_written
    from treadle.schedule.overlap.agreement import CollectiveOrder, RankOrderError

    rows = ("gather of 8 bytes", "gather of 16 bytes")
    mine = CollectiveOrder((("g", rows if rank == 0 else rows[::-1]),))
    if rank == 1:
        dist.barrier()
    known = _first_written(f"test/{mine.question}", rank, mine.to_text())
    if rank == 0:
        dist.barrier()
    assert known is not None, "gloo's store can tell who was first"
    try:
        mine.check_against(CollectiveOrder.parse(known[1]), f"rank {rank}", f"rank {known[0]}")
    except RankOrderError as e:
        return str(e)
    return ""


def loses_a_rank(case: str, rank: int, store: Any) -> dict[str, Any]:
    """Rank 1 dies, or is late, in the second step; what rank 0 is told."""

    def summed(x: Any) -> Any:
        total = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)  # the user's line
        return total + 1

    run = torch.compile(summed, backend=backend([]))
    with torch.no_grad():
        run(torch.ones(8))
        if rank == 1:
            if case == "lags":
                store.wait(["told"])
            os._exit(0)
        # Only now: until here a rank may take as long as the machine lets it.
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1 if case == "lags" else 300))
        try:
            run(torch.ones(8))
        except Exception as e:
            kinds = [kind.__name__ for kind in type(e).__mro__]
            print(json.dumps({"kinds": kinds, "words": str(e), "notes": e.__notes__}))
            sys.stdout.flush()
            store.set("told", "1")
            os._exit(0)
    raise AssertionError("nobody was told")


def in_parts(rank: int) -> dict[str, Any]:
    """Sums of several tensors sent as one, of which each is used by itself."""

    def summed(*given: Any) -> Any:
        sums = funcol.all_reduce_coalesced(list(given), "sum", dist.group.WORLD)
        return [torch.tanh(x).cumsum(0) for x in sums]

    torch.manual_seed(rank)
    given = [torch.randn(1 << 17) for _ in range(4)]
    built: list[Built] = []
    with torch.no_grad():
        run = torch.compile(summed, backend=backend(built, comm="model", split=True, check=2))
        apart = max(
            float((a - b).abs().max()) for a, b in zip(run(*given), summed(*given), strict=True)
        )
    leaves = built[0].scheduled.program.leaves
    sent = [leaf for leaf in leaves if isinstance(leaf, Collective)]
    return {"apart": apart, "parts": [len(leaf.writes) for leaf in sent if leaf.part_of]}


def random_programs(rank: int, world: int, seeds: range) -> dict[str, Any]:
    """How far random programs are from eager mode, and how many collectives each has."""
    groups = ["0", dist.new_group(list(range(world))).group_name]
    rows = []
    for seed in seeds:
        program = random_program(seed, world, groups)
        torch.manual_seed(1000 * seed + rank)
        given = [torch.randn(ROWS, COLUMNS) for _ in range(2)]
        mine, eagers = [[x.clone() for x in given] for _ in range(2)]
        built: list[Built] = []
        for options in ({}, {"comm": "model", "bucket": 64 << seed % 8, "check": 2}):
            torch._dynamo.reset()
            run = torch.compile(program, backend=backend(built, **options))
            with torch.no_grad():
                pairs = zip([*run(*mine), *mine], [*program(*eagers), *eagers], strict=True)
                apart = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
            leaves = [leaf for b in built for leaf in b.scheduled.program.leaves]
            sent = {leaf.group for leaf in leaves if isinstance(leaf, Collective)}
            rows.append({"seed": seed, "options": options, "apart": apart, "groups": len(sent)})
    return {"programs": rows}


def in_flight(rank: int, world: int) -> dict[str, Any]:
    """Many gathers under way at once, again and again; in which form they went to the group."""
    sizes = [16, 64, 128, 32, 1000, 256, 16, 40_000] * 4

    def gathered(*given: Any) -> Any:
        listed = OPERATORS.all_gather_into_tensor_coalesced([x + 1 for x in given[:8]], world, "0")
        single = [OPERATORS.all_gather_into_tensor(x * 2, world, "0") for x in given[8:]]
        return [torch.cos(OPERATORS.wait_tensor(x)) for x in (*listed, *single)]

    given = [torch.arange(n) * 0.25 + rank for n in sizes]
    others = [[torch.arange(n) * 0.25 + r for r in range(world)] for n in sizes]
    expected = [torch.cos(torch.cat(row) + 1) for row in others[:8]]
    expected += [torch.cos(torch.cat(row) * 2) for row in others[8:]]
    built: list[Built] = []
    apart = 0.0
    with torch.no_grad():
        run = torch.compile(gathered, backend=backend(built))
        for _ in range(LAPS):
            pairs = zip(run(*given), expected, strict=True)
            apart = max(apart, *[float((a - b).abs().max()) for a, b in pairs])
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            run(*given)
    names = {event.name for event in profile.events() if event.name.startswith("c10d::")}
    steps = built[0].runner.bound().plan.steps
    flights = [isinstance(s, CallStep) - isinstance(s, WaitStep) for s in steps]
    most = max(sum(flights[: k + 1]) for k in range(len(flights)))
    return {"apart": apart, "names": sorted(names), "most": most}


def fails_in_flight(rank: int, world: int, store: Any) -> dict[str, Any]:
    """A run that ends with an error instead of a wait; who wrote to memory later on."""

    def gathered(x: Any) -> Any:
        return OPERATORS.wait_tensor(OPERATORS.all_gather_into_tensor(x * 2, world, "0")) + 1

    def refused(tensor: Any) -> Any:
        raise RuntimeError("nobody waits")

    count = 1000
    told, changed, apart = "", 0, 0.0
    x = torch.full((count,), float(rank))
    if rank == 0:
        collectives.wait_for = refused
    with torch.no_grad():
        run = torch.compile(gathered, backend=backend([]))
        if rank == 0:
            try:
                run(x)
            except RuntimeError as e:
                told = str(e)
            # What the run let go of may be somebody else's now.
            mine = [torch.full((n,), 7.0) for n in (count, count * world) for _ in range(64)]
            store.set("rank 0 has failed", "yes")
            store.wait(["rank 1 is done"])
            changed = sum(bool((one != 7).any()) for one in mine)
        else:
            store.wait(["rank 0 has failed"])
            expected = torch.arange(float(world)).repeat_interleave(count) * 2 + 1
            apart = float((run(x) - expected).abs().max())
            store.set("rank 1 is done", "yes")
    return {"told": told, "changed": changed, "apart": apart}


def _least(measured: list[tuple[list[int], list[int]]]) -> tuple[list[int], list[int]]:
    """What each run held in the step in which it held least, and what was predicted for it.

    A thread of gloo's lets go of a tensor when the system runs it again, which on a busy machine
    is after our wait has returned: such a step holds more than the program asked for. So steps
    that are measured again pause behind each wait, longer every time.
    """
    (predicted,) = {tuple(row) for _, row in measured}
    peaks = zip(*[row for row, _ in measured], strict=True)
    return [min(row) for row in peaks], list(predicted)


def _on_any_rank(mine: bool) -> bool:
    """Whether it is so on any rank: what the ranks do next they must do together."""
    said = torch.tensor(int(mine))
    dist.all_reduce(said)
    return bool(said)


def trained(case: str, rank: int, world: int) -> dict[str, Any]:
    """Train twice, in eager mode and compiled; what each gave, and what was compiled."""
    eager, compiled = models(case, rank, world)
    # Ranks of one tensor-parallel group see the same data.
    torch.manual_seed(1 + (rank // 2 if case.startswith("tp") else rank))
    data = [torch.randn(4, TOKENS, WIDTH) for _ in range(STEPS)]
    built: list[Built] = []
    watched = Watched()
    run = torch.compile(compiled, backend=backend(built, **options_of(case, rank)))
    expected, found = Steps().train(eager, eager, data), Steps()
    found.train(compiled, run, data[:2])
    measured = [watched.peaks(partial(found.train, compiled, run, [x])) for x in data[2:]]
    held, predicted = _least(measured)
    weights_apart = max(
        float(_own(a - b).abs().max())
        for a, b in zip(eager.parameters(), compiled.parameters(), strict=True)
    )
    while len(measured) < PROBES and _on_any_rank(held != predicted):
        watched.pause += PATIENCE
        measured.append(watched.peaks(partial(Steps().train, compiled, run, data[:1])))
        held, predicted = _least(measured)
    leaves = [leaf for b in built for leaf in b.scheduled.program.leaves]
    sent = [leaf for leaf in leaves if isinstance(leaf, Collective)]
    return {
        "expected": expected.losses,
        "found": found.losses,
        "gradients": [len(row) for row in found.gradients],
        "gradients_apart": found.apart(expected),
        "weights_apart": weights_apart,
        "held": held,
        "predicted": predicted,
        "graphs": len(built),
        "collectives": [leaf.target for leaf in sent],
        "ranks": sorted({leaf.ranks for leaf in sent}),
        "waits": sum(isinstance(leaf, Wait) for leaf in leaves),
        "between": sum(_covered(b) for b in built),
    }


def main(words: list[str]) -> None:
    case, rank, world, file = words[0], int(words[1]), int(words[2]), words[3]
    torch.set_num_threads(1)
    store = dist.FileStore(file, world)
    patience = timedelta(seconds=300)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=patience)
    if case in ("dies", "lags"):
        loses_a_rank(case, rank, store)
    if case == "disagree":
        said: dict[str, Any] = {"error": disagree(rank)}
    elif case == "random":
        said = random_programs(rank, world, range(int(words[4]), int(words[5])))
    elif case == "in_flight":
        said = in_flight(rank, world)
    elif case == "fails_in_flight":
        said = fails_in_flight(rank, world, store)
    else:
        said = in_parts(rank) if case == "parts" else trained(case, rank, world)
    print(json.dumps(said))
    dist.destroy_process_group()


def _covered(built: Built) -> int:
    """How many collectives have work between their start and the first wait for them."""
    program = built.scheduled.program
    begun: dict[str, tuple[str, int]] = {}
    covered: dict[str, bool] = {}
    work = 0
    for op in program.ops:
        if isinstance(op, Collective):
            begun.update({program.storage_of(name): (op.name, work) for name in op.writes})
        elif isinstance(op, Wait):
            name, before = begun.get(program.storage_of(op.buffer), ("", work))
            covered.setdefault(name, work > before)
        else:
            work += 1
    return sum(covered.values())


def _own(tensor: Any) -> Any:
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


if __name__ == "__main__":
    main(sys.argv[1:])
