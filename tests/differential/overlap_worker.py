"""One rank of a job on gloo whose communication takes known time: what is predicted and what is.

python overlap_worker.py RANK WORLD FOLDER

delayed   collectives go through a link that lets each take a while, in turn; compute sleeps as
          long as the calibration says: how long a run waits, in the order given and in ours
traced    real products and real messages under torch's profiler: the trace, and how long the run
          took, for the simulator to replay
"""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.autograd.profiler import record_function

from treadle.analysis.comm.machine import machine_of
from treadle.analysis.comm.simulate import simulate
from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture import compile as compiling
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.ir.text import show_program
from treadle.runtime.hosts.torch_cpu import Runner
from treadle.runtime.launch_plan import LaunchStep
from treadle.schedule.passes import SCHEDULING
from treadle.schedule.pipeline import run_pipeline

LAYERS, SIZE = 4, 1024
COMPUTE_S, COLLECTIVE_S = 0.08, 0.05
RUNS, TRACED_RUNS = 40, 15
"""At most, of which the shortest counts: in others the machine was busy with something else."""
CALM = 0.04
"""A run that is so close to what it should be, as a part of it, was not disturbed."""
gather = getattr(funcol, "all_gather_single", funcol.all_gather_tensor)  # its newer name
scatter = getattr(funcol, "reduce_scatter_single", funcol.reduce_scatter_tensor)


@torch.library.custom_op("overlap_worker::busy", mutates_args=())
def busy(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As long as the calibration says that it takes."""
    time.sleep(COMPUTE_S)
    return x + weight


@busy.register_fake
def _(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def sleeping_layers(x: Any, *shards: Any) -> Any:
    """Each layer gathers its weight, computes, and reduces what it computed."""
    reduced = []
    for shard in shards:
        x = busy(x, gather(shard, 0, dist.group.WORLD))
        reduced.append(scatter(x, "sum", 0, dist.group.WORLD))
    return x, *reduced


def real_layers(x: Any, *shards: Any) -> Any:
    """The same with products of matrices."""
    reduced = []
    for shard in shards:
        x = torch.tanh(x @ gather(shard, 0, dist.group.WORLD))
        reduced.append(scatter(x, "sum", 0, dist.group.WORLD))
    return x, *reduced


class Link:
    """Lets collectives run one after the other in a thread of its own, each after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.waited = seconds, 0.0
        self.jobs: queue.Queue[tuple[Callable[[], Any], list[Any], threading.Event]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            job, result, done = self.jobs.get()
            time.sleep(self.seconds)
            result.append(job())
            done.set()

    def begin(self, function: Any, wait: Any) -> Any:
        """The function through the link; it returns at once, with what `end` takes."""

        def begun(*args: Any, **rest: Any) -> Any:
            result: list[Any] = []
            done = threading.Event()
            self.jobs.put((lambda: wait(function(*args, **rest)), result, done))
            return result, done

        return begun

    def end(self, under_way: Any) -> Any:
        """The result of what was begun, once it is there."""
        start = time.perf_counter()
        result, done = under_way
        done.wait()
        self.waited += time.perf_counter() - start
        return result[0]


def built(function: Any, given: list[Any], options: Options, ours: bool) -> tuple[Built, list[Any]]:
    """The function compiled, in the order given or in ours, and what its graph is called with."""
    made: list[Built] = []
    calls: list[list[Any]] = []
    call, schedule = Runner.__call__, compiling.run_pipeline
    kept = [p for p in SCHEDULING if p.name not in ("order-collectives", "lower-peak")]

    def noted(self: Runner, args: list[Any]) -> Any:
        calls.append(list(args))
        return call(self, args)

    def as_given(program: Any, ctx: Any, passes: Any = kept) -> Any:
        return run_pipeline(program, ctx, passes)

    Runner.__call__ = noted  # type: ignore[method-assign]
    compiling.run_pipeline = schedule if ours else as_given  # type: ignore[assignment]
    try:
        torch._dynamo.reset()
        compiling._made.cache_clear()
        # Passes differ from what the options say: nothing of it may be kept for others.
        options = options.with_(cache_dir=tempfile.mkdtemp())
        settings = Settings(options, True, report=made.append)
        backend = lambda gm, args: compile_with(settings, gm, args)  # noqa: E731
        expected = function(*given)
        found = torch.compile(function, backend=backend)(*given)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
    finally:
        Runner.__call__ = call  # type: ignore[method-assign]
        compiling.run_pipeline = schedule
    return made[0], calls[0]


def delayed(folder: Path, rank: int, world: int, ours: bool) -> dict[str, Any]:
    """How long runs wait for delayed collectives, and how long they should."""
    shards = [torch.randn(SIZE // world) for _ in range(LAYERS)]
    bytes_touched = 3 * 4 * SIZE  # of one layer: two tensors read, one written
    kinds = ("all_gather", "reduce_scatter")
    rows = [{"kind": k, "ranks": world, "bytes": 4 * SIZE, "us": 1e6 * COLLECTIVE_S} for k in kinds]
    slow = {"gigabytes_per_second": bytes_touched / COMPUTE_S / 1e9, "launch_ns": 0}
    file = folder / f"calibration{rank}.json"
    content = {"treadle_calibration": 1, "devices": {"cpu": slow}, "collectives": rows}
    file.write_text(json.dumps(content))
    options = Options.from_env().with_(
        comm="model", cost_file=str(file), host="python", policy="fast"
    )
    one, given = built(sleeping_layers, [torch.randn(SIZE), *shards], options, ours)
    program = one.scheduled.program
    run = simulate(machine_of(program, options).tasks(program))
    link = Link(COLLECTIVE_S)
    signature = one.runner.signature
    for call in signature.calls.values():
        if call.wait is not None:
            call.function, call.wait = link.begin(call.function, call.wait), link.end
    again = Runner(one.runner.compiled, signature, one.scheduled.ctx)
    times: list[tuple[float, float]] = []
    calm = False
    while not calm and len(times) < RUNS:
        dist.barrier()
        link.waited, start = 0.0, time.perf_counter()
        again(list(given))
        times.append((time.perf_counter() - start, link.waited))
        took, waited = min(times)
        late = max(1e6 * took / run.makespan_us, 1e6 * waited / run.exposed_us) - 1
        calm = _on_all_ranks(late < CALM)
    return {
        "exposed_us": 1e6 * waited,
        "makespan_us": 1e6 * took,
        "predicted_exposed_us": run.exposed_us,
        "predicted_makespan_us": run.makespan_us,
    }


def traced(folder: Path, rank: int, world: int) -> dict[str, Any]:
    """A trace of one run, its program, and how long it took."""
    size = 1024
    shards = [torch.randn(size // world, size) / 32 for _ in range(LAYERS)]
    options = Options.from_env().with_(comm="model", host="python")
    one, given = built(real_layers, [torch.randn(512, size), *shards], options, True)
    runner, signature = one.runner, one.runner.signature
    for name, call in signature.calls.items():
        call.function = _marked(name, call.function)
        call.into = call.into and _marked(name, call.into)
    launches = [s for s in runner.bound().plan.steps if isinstance(s, LaunchStep)]
    operation = {s.kernel: s.operation for s in launches}
    kernels = runner.compiled.kernels
    names = [operation[k.name] for k in runner.compiled.host.kernels]
    start = kernels.launch  # type: ignore[union-attr]

    def one_by_one(addresses: Any, sizes: Any, error: Any, first: int, last: int) -> None:
        for k in range(first, last):
            with record_function(f"treadle::{names[k]}"):
                start(addresses, sizes, error, k, k + 1)

    kernels.launch = one_by_one  # type: ignore[union-attr, method-assign, assignment]
    again = Runner(runner.compiled, signature, one.scheduled.ctx)
    again(list(given))
    runs = [_profiled(lambda: again(list(given))) for _ in range(TRACED_RUNS)]
    profile, took = min(runs, key=lambda run: run[1])
    profile.export_chrome_trace(str(folder / f"trace{rank}.json"))
    (folder / f"program{rank}.txt").write_text(show_program(runner.compiled.program))
    return {"makespan_us": 1e6 * took}


def _on_all_ranks(here: bool) -> bool:
    """Whether it is so on all: they go on together or end together."""
    answer = torch.tensor(int(here))
    dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer)


def _profiled(call: Callable[[], Any]) -> tuple[Any, float]:
    """The profile of a call that all ranks begin together, and the seconds it took."""
    dist.barrier()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        began = time.perf_counter()
        call()
        took = time.perf_counter() - began
    return profile, took


def _marked(name: str, function: Any) -> Any:
    def marked(*args: Any, **rest: Any) -> Any:
        with record_function(f"treadle::{name}"):
            return function(*args, **rest)

    return marked


def main(words: list[str]) -> None:
    rank, world, folder = int(words[0]), int(words[1]), Path(words[2])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    with torch.no_grad():
        said = {
            "given": delayed(folder, rank, world, False),
            "ours": delayed(folder, rank, world, True),
            "traced": traced(folder, rank, world),
        }
    print(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
