"""Measures the model of `treadle demo`: forward and a training step, by several backends.

Every backend gets a model of its own with the same weights. Results, and in training the gradients
of all weights, are compared with eager's.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.frontends.torch.compat import fresh_function, inductor_code
from treadle.frontends.torch.demo.model import Decoder, ModelSizes, next_token_loss
from treadle.frontends.torch.report.live_page import ReportPage, report
from treadle.frontends.torch.report.memory import graph_memory
from treadle.ir.program import Call
from treadle.runtime.hosts.torch_c_blocks import let_go

TOLERANCE = 1e-4
"""How far a result may be from eager's, as a share of its largest element."""
ROUNDS = 20


@dataclass
class MeasuredRow:
    """One backend at one job."""

    job: str
    backend: str
    kernels: int | None = 0
    """Kernels that were generated; None if the backend does not say."""
    calls: int | None = None
    """Calls of torch's own operators, views and allocations apart."""
    compile_s: float = 0.0
    ms: float = 0.0
    speed: float = 0.0
    """Eager's milliseconds over ours; 0 if it was not timed."""
    peak_bytes: int | None = None
    """What a run holds at most besides weights and inputs, said before it ran."""
    peak_measured: int = 0
    """The same, as torch's allocator saw it."""
    max_error: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the results are eager's."""
        return self.max_error <= TOLERANCE

    def to_json(self) -> dict[str, object]:
        """The row as plain data."""
        return {**asdict(self), "ok": self.ok}


Step = Callable[[], dict[str, Any]]


def measure(
    sizes: ModelSizes, backends: Sequence[str], *, rounds: int = ROUNDS, threads: int = 1
) -> list[MeasuredRow]:
    """Every job by every backend, eager first; the caller's number of threads is put back."""
    with _on_threads(threads):
        return [row for job in JOBS for row in _measure_job(job, sizes, backends, rounds)]


@contextmanager
def _on_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure_job(
    job: str, sizes: ModelSizes, backends: Sequence[str], rounds: int
) -> list[MeasuredRow]:
    rows = [MeasuredRow(job, backend) for backend in ("eager", *backends)]
    # Once for all: what one backend has compiled must not be compiled again for the timing.
    torch._dynamo.reset()
    wanted: dict[str, Any] = {}
    steps: list[tuple[MeasuredRow, Step]] = []
    for row in rows:
        step = JOBS[job](_fresh_model(sizes), _ids(sizes), PREPARE[row.backend](row))
        texts: list[str] = []
        try:
            with inductor_code(texts) if row.backend in PEERS else nullcontext():
                got = _first_call(row, step)
        except Exception as e:
            if row.backend not in PEERS:
                raise
            row.notes.append(f"it failed: {type(e).__name__}")
            continue
        wanted = wanted or got
        row.max_error = distance(got, wanted)
        row.peak_measured = measured_peak(step)
        if row.backend in PEERS:
            _count_inductor(row, texts)
        elif row.backend == "eager":
            _count_eager(row, step)
        steps.append((row, step))
    times = _milliseconds([step for _, step in steps], rounds)
    for (row, _), ms in zip(steps, times, strict=True):
        row.ms, row.speed = ms, times[0] / ms
    return rows


def _first_call(row: MeasuredRow, step: Step) -> dict[str, Any]:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = step()
    row.compile_s = 0.0 if row.backend == "eager" else time.perf_counter() - start
    row.notes += [str(w.message) for w in caught if "TOR0" in str(w.message)]
    return got


def _fresh_model(sizes: ModelSizes) -> Any:
    torch.manual_seed(0)
    return Decoder(sizes)


def demo_page(sizes: ModelSizes, out: str, *, threads: int = 1) -> ReportPage:
    """Write the page of the demo's training step, forward and backward, measured like the rest."""
    model, ids = _fresh_model(sizes), _ids(sizes)

    def training_step(ids: Any) -> Any:
        return next_token_loss(model(ids), ids)

    with _on_threads(threads):
        return report(training_step, ids, out=out)


def _ids(sizes: ModelSizes) -> Any:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(sizes.words, (sizes.batch, sizes.tokens), generator=generator)


# ------------------------------------------------------------------------------------------- jobs


def _forward(model: Any, ids: Any, prepare: Callable[..., Any]) -> Step:
    call = prepare(model.eval())

    def step() -> dict[str, Any]:
        with torch.no_grad():
            return {"scores": call(ids)}

    return step


def _training(model: Any, ids: Any, prepare: Callable[..., Any]) -> Step:
    def loss_of(tokens: Any) -> Any:
        return next_token_loss(model(tokens), tokens)

    call = prepare(loss_of)

    def step() -> dict[str, Any]:
        loss = call(ids)
        loss.backward()
        found = {"loss": loss.detach(), **{n: p.grad for n, p in model.named_parameters()}}
        model.zero_grad(set_to_none=True)
        return found

    return step


JOBS: Mapping[str, Callable[[Any, Any, Callable[..., Any]], Step]] = {
    "forward": _forward,
    "training step": _training,
}


# --------------------------------------------------------------------------------------- backends


def _with_treadle(row: MeasuredRow) -> Callable[..., Any]:
    row.calls, row.peak_bytes = 0, 0

    def note(built: Built) -> None:
        host = built.runner.compiled.host
        row.kernels = (row.kernels or 0) + len(host.kernels)
        row.calls = (row.calls or 0) + sum(isinstance(op, Call) for op in host.program.ops)
        row.peak_bytes = max(row.peak_bytes or 0, predicted_peak(built))

    settings = Settings(Options.from_env(), report=note)
    return partial(_compiled_apart, backend=partial(compile_with, settings))


def _compiled_apart(function: Any, backend: Any) -> Any:
    """The function compiled by one backend, sharing no compiled code with another's."""
    return torch.compile(fresh_function(function), backend=backend)


def predicted_peak(built: Built) -> int:
    """The most bytes a run of the graph holds besides what its caller keeps."""
    memory = graph_memory(built)
    kept = sum(piece.bytes for piece in memory.breakdown if piece.kind == "input")
    return memory.peak_bytes - kept


def _count_eager(row: MeasuredRow, step: Step) -> None:
    with _Counter() as counter:
        step()
    row.calls = int(counter.count)


def _with_inductor(row: MeasuredRow) -> Callable[..., Any]:
    return partial(_compiled_apart, backend="inductor")


def _count_inductor(row: MeasuredRow, texts: Sequence[str]) -> None:
    row.kernels = sum(map(launches_in, texts)) if texts else None


def launches_in(code: str) -> int:
    """How many kernels one run of TorchInductor's code launches.

    Its own counter counts what it generates, loops that are tried and not used included.
    """
    names = set(re.findall(r"^(\w+) = async_compile\.", code, re.M))
    return sum(name in names for name in re.findall(r"^[ \t]+(\w+)(?:\.run)?\(", code, re.M))


PREPARE: Mapping[str, Callable[[MeasuredRow], Callable[..., Any]]] = {
    "eager": lambda row: lambda function: function,
    "treadle": _with_treadle,
    "inductor": _with_inductor,
}
"""What makes a function one of the backend's."""

PEERS = ("inductor",)
"""Others' backends: if one fails, the demo says so and goes on."""


# ---------------------------------------------------------------------------------------- figures


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_idle = func.is_view or func._schema.name in ("aten::detach", "aten::empty_like")
        self.count += not is_idle
        return func(*args, **(kwargs or {}))


def measured_peak(step: Step) -> int:
    """The most bytes torch's allocator holds during a step beyond what it held before.

    Memory of former results that a run would use again is given back first: it counts.
    """
    step()
    let_go()
    return allocated_peak(step)


def allocated_peak(run: Callable[[], object]) -> int:
    """The most bytes of those that torch's CPU allocator gives out during a call."""
    with _hushed(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    changes = [(e["ts"], int(e["args"]["Bytes"])) for e in events if e.get("name") == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda one: one[0]):
        held += change
        peak = max(peak, held)
    return peak


@contextmanager
def _hushed() -> Iterator[None]:
    """Standard error goes nowhere: the profiler's library says there when it starts and stops."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def distance(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The largest difference of any tensor, as a share of that tensor's largest element."""
    shares = []
    for name, goal in wanted.items():
        gap = float((got[name].double() - goal.double()).abs().max())
        shares.append(gap / max(float(goal.abs().max()), 1e-12))
    return max(share if share == share else float("inf") for share in shares)


def _milliseconds(steps: Sequence[Step], rounds: int) -> list[float]:
    """The median of each step, taken in turns so that a busy machine is busy for all."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            taken.append((time.perf_counter() - start) * 1e3)
    return [median(taken) for taken in times]
