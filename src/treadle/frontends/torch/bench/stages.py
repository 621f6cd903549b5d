"""What of compiling takes how long: clocks around its steps, in a process that does only this.

clock = Clock()
with watched(clock):
    clock.timed("Dynamo", first_call)()
clock.seconds                                   # what a step takes less the steps inside it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from treadle.frontends.torch.capture import compile as capturing
from treadle.runtime import kernels
from treadle.runtime.hosts import torch_cpu

DYNAMO, AOT = "Dynamo", "AOTAutograd"
FIRST_RUN, HOST = "first run", "host in C, at the third call"
STAGES = (
    DYNAMO, AOT, "lowering", "passes", "code generation", "C compiler", "memory plan", FIRST_RUN,
    HOST,
)  # fmt: skip
"""Every stage, in the order in which they come."""
STEPS: tuple[tuple[Any, str, str], ...] = (
    (capturing, "lower_graph", "lowering"),
    (capturing, "schedule", "passes"),
    (capturing, "build_program", "code generation"),
    (capturing, "build_triton_program", "code generation"),
    (kernels, "load_shared", "C compiler"),
    (torch_cpu.Runner, "bound", "memory plan"),
    (torch_cpu, "choose_host", HOST),
)
"""Where a step is called from, what it is called there, and the stage it belongs to."""


class Clock:
    """Seconds by stage; what runs inside a stage that is timed itself is taken out."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = [0.0]

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its seconds counted for a stage."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - start
                own = taken - self._inside.pop()
                self.seconds[stage] = self.seconds.get(stage, 0.0) + own
                self._inside[-1] += taken

        return run

    def in_order(self, run_s: float) -> dict[str, float]:
        """Seconds of every stage; Dynamo's without the run that the first call also is."""
        found = dict(self.seconds)
        run_s = min(run_s, found.get(DYNAMO, 0.0))
        found[DYNAMO] = found.get(DYNAMO, 0.0) - run_s
        found[FIRST_RUN] = run_s
        return {stage: round(found[stage], 4) for stage in STAGES if stage in found}


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Clocks around every step meanwhile."""
    with ExitStack() as stack:
        for home, name, stage in STEPS:
            before = getattr(home, name)
            stack.callback(setattr, home, name, before)
            setattr(home, name, clock.timed(stage, before))
        yield
