"""One backend in a process of its own: `python -m treadle.frontends.torch.bench.worker ASKED OUT`.

ASKED is the question as JSON, OUT the file that gets the answer: a row, or `bad` with one line
about what the user named.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.bench.asked import EAGER, OURS, Asked, BenchRow
from treadle.frontends.torch.bench.stages import AOT, DYNAMO, Clock, watched
from treadle.frontends.torch.bench.steps import ModelStep, error_between
from treadle.frontends.torch.bench.targets import (
    AllDouble,
    Target,
    TargetError,
    in_double,
    load_target,
    said,
)
from treadle.frontends.torch.capture.compile import Settings
from treadle.frontends.torch.demo.measure import measured_peak, predicted_peak

MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of TorchInductor that may be named like backends."""
WARM = 5
LEAST_ROUNDS, MOST_SECONDS = 5, 20.0
"""Rounds end early once so many seconds have gone, but not before so many rounds."""


def measured(asked: Asked) -> BenchRow:
    """The row of the one backend that is asked for; TargetError if the target is none."""
    (backend,) = asked.backends
    torch.set_num_threads(asked.threads)
    target = load_target(asked.target, asked.device, asked.dtype)
    steps, row = ModelStep(target, asked.train), BenchRow(backend)
    try:
        wanted = steps.results()
    except Exception as e:
        raise TargetError(f"{asked.target} does not run in eager mode: {said(e)}") from e
    exact = _exact(target, asked, steps, wanted, row)
    try:
        call = _compiled(row, asked, steps, wanted, exact)
        _time(row, asked, steps, call)
        _weigh(row, asked, steps, call)
    except Exception as e:
        row.failed = said(e)
    return row


def _exact(
    target: Target, asked: Asked, steps: ModelStep, wanted: list[Any], row: BenchRow
) -> list[Any] | None:
    """The results of a run in f64; None, and a note, where errors cannot be told."""
    if (
        error_between(steps.results(seed=1), wanted) > 0
        and error_between(steps.results(), wanted) == 0
    ):
        row.notes.append("it draws random numbers: errors are not compared")
        return None
    try:
        wide = in_double(target)
        with AllDouble():
            found = ModelStep(wide, asked.train).results()
    except Exception as e:
        row.notes.append(f"no run in f64 to compare with: {said(e)}")
        return None
    row.eager_error = error_between(wanted, found)
    return found


# -------------------------------------------------------------------------------------- compiling


def _compiled(
    row: BenchRow, asked: Asked, steps: ModelStep, wanted: list[Any], exact: list[Any] | None
) -> Callable[..., Any]:
    """What is to be timed, after its first calls."""
    target = steps.target
    if row.backend == EAGER:
        row.error = row.eager_error
        return target.call
    clock, peaks = Clock(), [0]
    call = _with_backend(row, asked, target.call, clock, peaks)
    with warnings.catch_warnings(record=True) as caught, watched(clock):
        warnings.simplefilter("always")
        start, cpu = time.perf_counter(), _cpu_seconds()
        got = clock.timed(DYNAMO, steps.results)(call)
        _settle(asked.device)
        row.compile_s = time.perf_counter() - start
        row.compile_cpu_s = _cpu_seconds() - cpu
        took = []
        for _ in range(WARM):
            start = time.perf_counter()
            steps.run(call)
            _settle(asked.device)
            took.append(time.perf_counter() - start)
    row.notes += [str(w.message).splitlines()[0] for w in caught if "TOR0" in str(w.message)]
    if row.backend == OURS:
        row.stages, row.peak_predicted = clock.in_order(min(took)), max(peaks)
    drawn = any(note.startswith("it draws") for note in row.notes)
    row.error_to_eager = None if drawn else error_between(got, wanted)
    row.error = None if exact is None else error_between(got, exact)
    return call


def _with_backend(
    row: BenchRow, asked: Asked, call: Any, clock: Clock, peaks: list[int]
) -> Callable[..., Any]:
    dynamic = True if asked.dynamic else None
    if row.backend == OURS:
        settings = Settings(
            Options.from_env(), report=lambda built: peaks.append(predicted_peak(built))
        )
        backend: Any = clock.timed(AOT, partial(compile_with, settings))
        return torch.compile(call, backend=backend, dynamic=dynamic)
    if row.backend in MODES:
        return torch.compile(call, mode=row.backend, dynamic=dynamic)
    return torch.compile(call, backend=row.backend, dynamic=dynamic)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


# ----------------------------------------------------------------------------------------- timing


def _time(row: BenchRow, asked: Asked, steps: ModelStep, call: Callable[..., Any]) -> None:
    """Rounds of one run in eager mode and one of the backend, so that drift hits both."""
    for _ in range(WARM):
        steps.run(call)
        steps.run()
    _settle(asked.device)
    theirs: list[tuple[float, float]] = []
    eagers: list[tuple[float, float]] = []
    end = time.perf_counter() + MOST_SECONDS
    for k in range(asked.rounds):
        if k >= LEAST_ROUNDS and time.perf_counter() > end:
            row.notes.append(f"{k} rounds of {asked.rounds}: time was up")
            break
        eagers.append(_once(asked.device, lambda: steps.run()))
        theirs.append(_once(asked.device, lambda: steps.run(call)))
    wall, cpu = [[one[k] for one in theirs] for k in (0, 1)]
    eager_wall, eager_cpu = [median([one[k] for one in eagers]) for k in (0, 1)]
    row.rounds, row.ms, row.cpu_ms = len(theirs), median(wall), median(cpu)
    cuts = quantiles(wall, n=4) if len(wall) > 1 else [wall[0]] * 3
    row.low_ms, row.high_ms = cuts[0], cuts[2]
    row.eager_ms = eager_wall
    row.speed, row.cpu_speed = eager_wall / row.ms, eager_cpu / max(row.cpu_ms, 1e-9)


def _once(device: str, run: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of one run, wall and CPU; on CUDA between events."""
    cpu = time.process_time()
    if device == "cuda":
        event: Any = torch.cuda.Event
        begin, end = [event(enable_timing=True) for _ in range(2)]
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)), (time.process_time() - cpu) * 1e3
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3, (time.process_time() - cpu) * 1e3


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _weigh(row: BenchRow, asked: Asked, steps: ModelStep, call: Callable[..., Any]) -> None:
    """The most bytes a step holds besides what was there before it."""

    def step() -> dict[str, Any]:
        made = steps.run(call)
        return {str(k): x for k, x in enumerate(made)}

    for leaf in steps.leaves:
        leaf.grad = None
    if asked.device == "cuda":
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        row.peak_measured = torch.cuda.max_memory_allocated() - before
        return
    row.peak_measured = measured_peak(_without_gradients_after(step, steps))


def _without_gradients_after(
    step: Callable[[], dict[str, Any]], steps: ModelStep
) -> Callable[[], dict[str, Any]]:
    """The step, which leaves no gradients: what it frees first would hide what it holds."""

    def run() -> dict[str, Any]:
        made = step()
        for leaf in steps.leaves:
            leaf.grad = None
        return made

    return run


def main(words: list[str]) -> int:
    """Answer the question; exit 2 if the target is none."""
    asked, out = Asked.from_json(json.loads(words[0])), Path(words[1])
    try:
        answer: dict[str, Any] = measured(asked).to_json()
    except TargetError as e:
        answer = {"bad": e.message, "notes": list(e.notes)}
    out.write_text(json.dumps(answer))
    return 2 if "bad" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
