"""Where one workload spends its time: compiling by phase, running by kernel and call.

  python bench/torch_phases.py WORKLOAD            of the shared ones
  python bench/torch_phases.py MODEL[:forward]     of own_models.py, in training unless said
  ... --dtype bf16 --slowest 12                    for models

Prints one JSON object. Used by torch_workloads.py, which runs it in a fresh process with an empty
cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

from common import SHARED

RUNS = 7


class Clock:
    """Seconds by name; what runs inside something timed is taken out of it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inside = [0.0]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - start
                self.seconds[name] += taken - self._inside.pop()
                self._inside[-1] += taken

        return run


def phases_of(name: str, dtype: str = "f32", slowest: int = 3) -> dict[str, Any]:
    """The workload, compiled and run a few times with clocks in it."""
    import torch

    torch.set_num_threads(1)
    compiled, run = _workload(name) or _model(name, dtype)
    compiling, running, built = Clock(), Clock(), []
    with ExitStack() as stack:
        _watch_compiling(stack, compiling)
        _watch_kernels(stack, running, built)
        f = torch.compile(compiled, backend=_backend(running, built))
        compiling.timed("torch", run)(f)
        running.seconds.clear()
        whole = [_once(run, f) for _ in range(RUNS)]
    return {
        "compile": {k: round(s, 3) for k, s in compiling.seconds.most_common()},
        "kernels": sum(len(b.runner.compiled.host.kernels) for b in built),
        "calls": sum(len(b.lowered.calls) for b in built),
        **_running(running, built, sum(whole), slowest),
    }


def _workload(name: str) -> tuple[Any, Callable[[Any], None]] | None:
    """A shared workload, after a run in eager mode, and how it is run; None if it is none."""
    import torch

    if not (SHARED / "bench").exists():
        return None
    sys.path.insert(0, str(SHARED / "bench"))
    import workloads

    if name not in workloads.REG:
        return None
    torch.manual_seed(0)
    fn, args = workloads.REG[name]("cpu", torch.float32, "cpu")
    step = getattr(fn, "_step", None)

    def run(f: Any) -> None:
        if step:
            step(f, *args)
        else:
            f(*args)

    run(fn)
    return fn, run


def _model(name: str, dtype: str) -> tuple[Any, Callable[[Any], None]]:
    """A model of our own and how it is run."""
    import torch

    import own_models

    own_models.table()
    from own_models_parts import made

    name, _, form = name.partition(":")
    one = made(name, "cpu", getattr(torch, own_models.KINDS[dtype]), "cpu")
    form = form or ("training" if one.trains else "forward")

    def run(f: Any) -> None:
        own_models.step_of(form, f, one)()

    run(one.module)
    return one.module, run


def _once(run: Callable[[Any], None], f: Any) -> float:
    start = time.perf_counter()
    run(f)
    return time.perf_counter() - start


def _running(clock: Clock, built: list[Any], whole: float, most: int) -> dict[str, Any]:
    each = {k: s / RUNS * 1e3 for k, s in clock.seconds.items()}
    kernels = {k: ms for k, ms in each.items() if k.startswith("kernel ")}
    calls = {k: ms for k, ms in each.items() if k.startswith("call ")}
    total = whole / RUNS * 1e3
    slowest = sorted(each.items(), key=lambda one: -one[1])[:most]
    return {
        "ms": round(total, 3),
        "kernels_ms": round(sum(kernels.values()), 3),
        "calls_ms": round(sum(calls.values()), 3),
        "host_ms": round(total - sum(kernels.values()) - sum(calls.values()), 3),
        "slowest": {k: round(ms, 3) for k, ms in slowest},
    }


def _backend(clock: Clock, built: list[Any]) -> Callable[..., Any]:
    from treadle.core.options import Options
    from treadle.frontends.torch.backend import compile_with
    from treadle.frontends.torch.capture.compile import Settings

    def watch_calls(lowered: Any) -> None:
        for call in lowered.calls.values():
            name = f"call {call.function}"
            call.function = clock.timed(name, call.function)
            call.into = call.into and clock.timed(name, call.into)

    # Kernels and calls are timed one by one, so Python must be the one who makes them.
    options = Options.from_env().with_(host="python")
    settings = Settings(options, strict=True, observe=watch_calls, report=built.append)
    return partial(compile_with, settings)


def _watch_compiling(stack: ExitStack, clock: Clock) -> None:
    from treadle.frontends.torch.capture import compile as compiling
    from treadle.runtime import kernels
    from treadle.runtime.hosts.torch_cpu import Runner

    for home, attribute, name in (
        (compiling, "lower_graph", "lower"),
        (compiling, "schedule", "schedule"),
        (compiling, "build_program", "generate C"),
        (kernels, "load_shared", "C compiler"),
        (Runner, "bound", "memory plan"),
    ):
        stack.enter_context(
            patch.object(home, attribute, clock.timed(name, getattr(home, attribute)))
        )


def _watch_kernels(stack: ExitStack, clock: Clock, built: list[Any]) -> None:
    from treadle.runtime.kernels import Kernels

    whole = Kernels.launch

    def one_by_one(
        self: Any, addresses: Any, sizes: Any, error: Any, first: int, last: int
    ) -> None:
        for k in range(first, last):
            clock.timed(f"kernel {_kernel_name(built, self, k)}", whole)(
                self, addresses, sizes, error, k, k + 1
            )

    stack.enter_context(patch.object(Kernels, "launch", one_by_one))


def _kernel_name(built: list[Any], kernels: Any, k: int) -> str:
    for one in built:
        if one.runner.compiled.kernels is kernels:
            return f"{one.name}.{one.runner.compiled.host.kernels[k].name}"
    return str(k)


def main() -> None:
    made = argparse.ArgumentParser(description="Where one workload spends its time.")
    made.add_argument("name")
    made.add_argument("--dtype", default="f32")
    made.add_argument("--slowest", type=int, default=3)
    asked = made.parse_args()
    print("PHASES " + json.dumps(phases_of(asked.name, asked.dtype, asked.slowest)))


if __name__ == "__main__":
    main()
