"""How long each launch of a graph takes on this machine's CPU, alone and on memory of its own.

    measured_launches(built).us["op3"]      median of a few runs, in microseconds

Nothing of the model runs: kernels get fresh memory full of ones (indices: zeros), and so do library
calls, of ATen alone and of those only that change nothing and draw no random numbers. What runs
again and again finds its memory in the caches, as far as it fits.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from treadle.core.errors import TreadleError
from treadle.ir.effects import effects
from treadle.ir.program import Collective, Operation
from treadle.page.measured import Measured
from treadle.runtime.hosts.torch_calls import BoundCalls
from treadle.runtime.hosts.torch_cpu import Bound
from treadle.runtime.hosts.torch_memory import RunMemory
from treadle.runtime.kernels import Kernels
from treadle.runtime.launch_plan import CallStep, LaunchStep, Step

if TYPE_CHECKING:
    from treadle.frontends.torch.capture.compile import Built

SOURCE = "each alone on this machine's CPU by {}, median, again and again on the same memory"
SECONDS_EACH = 0.02
FEWEST_RUNS, MOST_RUNS = 5, 200
SECONDS_IN_ALL = 5.0
UNSTEADY, SHORT_US = 3, 2.0
"""Runs are unsteady if half of them take so many times the least; the clock alone moves that."""
BUSY = 1.5
"""So many processes for each core are more than what is measured needs."""
MOST_BYTES = 2 << 30
"""What a launch may touch to be measured."""


def measured_launches(built: Built) -> Measured | None:
    """Microseconds by operation of a graph on the CPU; None where nothing can be measured."""
    kernels = built.runner.compiled.kernels
    if not isinstance(kernels, Kernels):
        return None
    bound = built.runner.bound()
    if bound.tensors.device != "cpu":
        return None
    overhead = min(_times(_no_kernel(bound, kernels))) * 1e6
    us: dict[str, float] = {}
    left_out = unsteady = 0
    end = time.perf_counter() + SECONDS_IN_ALL
    with torch.no_grad():
        for step in bound.plan.steps:
            if not isinstance(step, LaunchStep | CallStep):
                continue
            if time.perf_counter() > end:
                left_out += 1
                continue
            found = _measured(bound, step, kernels)
            if found is not None:
                less = overhead if isinstance(step, LaunchStep) else 0.0
                us[step.operation] = max(found.median_us - less, 0.001)
                unsteady += found.is_unsteady
    threads = torch.get_num_threads()
    source = SOURCE.format(f"{threads} thread{'s' * (threads != 1)}")
    return Measured(us, source, [*_notes(left_out, unsteady), *busy_note(*_load())])


def _load() -> tuple[float, int]:
    """What waited for a core on average in the last minute, and how many cores there are."""
    return (os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0), os.cpu_count() or 1


def busy_note(load: float, cores: int) -> Iterator[str]:
    """Say so if others want the cores too: threads then wait for one another far longer."""
    if load > BUSY * cores:
        yield (
            f"{load:.1f} processes wanted the {cores} cores of this machine on average:"
            " times may be many times too long, so measure again when it is free"
        )


def _notes(left_out: int, unsteady: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out} were left out: measuring took {SECONDS_IN_ALL:.0f} s already"
    if unsteady:
        yield (
            f"{unsteady} took more than {UNSTEADY} times their least time in half of the runs:"
            " something else may have been using the machine, so measure again"
        )


class Timing(NamedTuple):
    """How long something took, in the middle of its runs and at least."""

    median_us: float
    least_us: float

    @property
    def is_unsteady(self) -> bool:
        """Whether most runs took far longer than the fastest: then the median says little."""
        return self.median_us > UNSTEADY * max(self.least_us, SHORT_US)


def _measured(bound: Bound, step: LaunchStep | CallStep, kernels: Kernels) -> Timing | None:
    op = bound.program.op_by_name[step.operation]
    if isinstance(step, CallStep) and not _is_harmless(bound, step, op):
        return None
    storages = dict.fromkeys(bound.program.storage_of(n) for n in effects(op).touched)
    if sum(bound.program.by_name[s].storage_bytes for s in storages) > MOST_BYTES:
        return None
    try:
        memory, start = _filled(bound, storages), _runs(bound, step, kernels)
        return timed(lambda: start(memory))
    except (TreadleError, RuntimeError, LookupError, ValueError, TypeError):
        # Ones and zeros may be no fit arguments (a matrix without inverse): it has no time, then.
        return None


def _is_harmless(bound: Bound, step: CallStep, op: Operation) -> bool:
    """Whether a call can be made for its time alone: of ATen, pure, and without random numbers."""
    if isinstance(op, Collective) or step.event is not None or step.mutates:
        return False
    call = bound.runner.signature.calls.get(op.name)
    function = getattr(call, "function", None)
    if call is None or not isinstance(function, torch._ops.OpOverload):
        return False
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    return function.namespace == "aten" and not function._schema.is_mutable and not is_random


def _filled(bound: Bound, storages: Mapping[str, Any]) -> RunMemory:
    """Memory in which these storages lie, each in a tensor of its own."""
    memory = RunMemory(len(bound.runner.compiled.unit.storages))
    for name in storages:
        tensor = bound.tensors.fresh(name)
        tensor.fill_(1 if tensor.is_floating_point() or tensor.is_complex() else 0)
        bound.tensors.put(memory, name, tensor)
    return memory


def _runs(bound: Bound, step: Step, kernels: Kernels) -> Callable[[RunMemory], None]:
    if isinstance(step, CallStep):
        # Not those of the runner: what they remember is about its own runs.
        own = BoundCalls(bound.shape, bound.runner.signature, bound.tensors, bound.values)
        return own.action(step)
    assert isinstance(step, LaunchStep), "only launches and calls are measured"
    names = [plan.name for plan in bound.runner.compiled.host.kernels]
    number, sizes = names.index(step.kernel), _sizes(bound)
    return lambda memory: kernels.launch(memory.addresses, sizes, memory.error, number, number + 1)


def _no_kernel(bound: Bound, kernels: Kernels) -> Callable[[], None]:
    """The way into the shared object and back, which a host in C does not go."""
    memory, sizes = RunMemory(len(bound.runner.compiled.unit.storages)), _sizes(bound)
    return lambda: kernels.launch(memory.addresses, sizes, memory.error, 0, 0)


def _sizes(bound: Bound) -> Any:
    numbers = [bound.sizes[s.name] for s in bound.program.sizes]
    return (ctypes.c_int64 * max(len(numbers), 1))(*numbers)


def timed(run: Callable[[], None]) -> Timing:
    """How long it takes, from a few runs."""
    run()  # the first one pays for pages and caches
    times = list(_times(run))
    return Timing(median(times) * 1e6, min(times) * 1e6)


def _times(run: Callable[[], None]) -> Iterator[float]:
    end = time.perf_counter() + SECONDS_EACH
    for k in range(MOST_RUNS):
        start = time.perf_counter()
        if k >= FEWEST_RUNS and start > end:
            return
        run()
        yield time.perf_counter() - start
