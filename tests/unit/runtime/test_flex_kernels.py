"""Kernels of attention are submitted when they are bound, loaded once, launched by address."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen"))

from flex_specs import CAUSAL

from treadle.codegen.triton.flex.forward import write_forward
from treadle.codegen.triton.flex.spec import Tile
from treadle.core.options import Options
from treadle.runtime import flex_kernels
from treadle.runtime.flex_kernels import BoundKernel
from treadle.runtime.triton_builds import KernelBinary, KernelJob

KERNEL = write_forward(CAUSAL, Tile(128, 64, 4, 3), True, False)
NUMBERS = dict.fromkeys(KERNEL.numbers, 64) | {"q_len": 100, "q_b": 1 << 32}


class Device:
    """A device that only says what it is told."""

    number = 3
    arch = "sm_90"

    def stream(self) -> int:
        return 17

    def here(self) -> Any:
        return nullcontext()


class Machine:
    """Compilers and a driver that remember."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.jobs: list[KernelJob] = []
        self.loads: list[str] = []
        self.starts: list[tuple[int, int, list[int]]] = []
        patch.setattr(flex_kernels, "compilers_for", lambda arch, options: self)
        patch.setattr(flex_kernels, "load_function", self.load)
        patch.setattr(flex_kernels, "launcher", self.launcher)

    def submit(self, job: KernelJob) -> Future[KernelBinary]:
        self.jobs.append(job)
        found: Future[KernelBinary] = Future()
        found.set_result(KernelBinary(job.name, "cubin", 4, 1024, 0, b""))
        return found

    def load(self, made: KernelBinary, device: int) -> int:
        self.loads.append(made.name)
        return 7

    def launcher(self, made: KernelBinary, function: int, grid: int, count: int) -> Any:
        return lambda stream, given: self.starts.append((stream, grid, given[:count]))


def test_a_bound_kernel_is_compiled_at_once_and_loaded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, loaded = Machine(monkeypatch), {}
    bound = [BoundKernel(KERNEL, NUMBERS, grid, Options(), Device(), loaded) for grid in (32, 64)]
    assert {job.name for job in machine.jobs} == {"flex_forward"}
    kinds = dict(zip(KERNEL.numbers, machine.jobs[0].sizes, strict=True))
    assert kinds["q_b"] == ("i64", True)
    assert kinds["q_len"] == ("i32", False)
    assert machine.loads == []
    addresses = list(range(len(KERNEL.addresses)))
    for one in bound:
        one.launch(addresses)
        one.launch(addresses)
    assert machine.loads == ["flex_forward"]
    whole = [*addresses, *[NUMBERS[name] for name in KERNEL.numbers]]
    assert machine.starts == [(17, grid, whole) for grid in (32, 32, 64, 64)]


def test_nothing_is_compiled_or_launched_for_no_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    BoundKernel(KERNEL, NUMBERS, 0, Options(), Device(), {}).launch([0] * len(KERNEL.addresses))
    assert machine.jobs == []
    assert machine.starts == []
