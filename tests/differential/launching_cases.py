"""A GPU's launches from C: the same arguments, the same order, whatever runs behind the driver.

    TRITON_INTERPRET=1 python -m pytest tests/differential/launching_cases.py

Run by test_torch_launching.py, in a process in which Triton interprets.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import treadle.torch  # noqa: E402, F401  (registers the backend)
from treadle.runtime.cuda_driver import DriverError  # noqa: E402
from treadle.runtime.hosts import torch_c_launch, torch_cpu  # noqa: E402
from treadle.runtime.hosts.torch_c import HostChoice  # noqa: E402
from treadle.runtime.hosts.torch_cpu import Runner  # noqa: E402
from treadle.runtime.triton_kernels import (  # noqa: E402
    KernelLaunch,
    TritonKernels,
    _interpreted,
)

pytestmark = pytest.mark.torch
STREAM, CONTEXT, THREADS, SHARED = 7, 11, 128, 64


class _Gpu:
    number = 0


class _Driver:
    """The driver's functions, with Triton's interpreter behind a launch."""

    def __init__(self) -> None:
        self.known: list[tuple[Callable[..., None], int]] = []
        self.launched = 0
        self.fails = 0
        self.context = 0
        whole, pointer = ctypes.c_int, ctypes.c_void_p
        count = [ctypes.c_uint] * 7
        several = ctypes.POINTER(pointer)
        self.functions = {
            "stream": ctypes.CFUNCTYPE(whole, whole, several)(self._stream_of),
            "cuCtxGetCurrent": ctypes.CFUNCTYPE(whole, several)(self._present),
            "cuCtxSetCurrent": ctypes.CFUNCTYPE(whole, pointer)(self._enter),
            "cuLaunchKernel": ctypes.CFUNCTYPE(whole, pointer, *count, pointer, several, several)(
                self._launch
            ),
        }

    def address(self, name: str) -> int:
        return ctypes.cast(self.functions[name], ctypes.c_void_p).value or 0

    def _stream_of(self, device: int, found: Any) -> int:
        found[0] = STREAM
        return 0 if device == 0 else 1

    def _present(self, found: Any) -> int:
        found[0] = self.context
        return 0

    def _enter(self, context: int) -> int:
        self.context = context
        return 0

    def _launch(self, function: int, grid: int, *rest: Any) -> int:
        _, _, threads, _, _, shared, stream, given, _ = rest
        if self.fails or (threads, shared, stream) != (THREADS, SHARED, STREAM):
            return self.fails or 1
        start, count = self.known[function - 1]
        start(*[ctypes.c_int64.from_address(given[k]).value for k in range(count)])
        assert [ctypes.c_int64.from_address(given[count + k]).value for k in range(4)] == [0] * 4
        self.launched += 1
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Driver]:
    """Kernels in Triton on a CPU, launched by a driver from C after two walks of Python."""
    torch._dynamo.reset()
    found, choose = _Driver(), torch_c_launch.choose_launching

    def launches(self: TritonKernels, numbers: list[int]) -> list[list[KernelLaunch]]:
        values = dict(zip(self.program.sizes, numbers, strict=True))
        kernels = []
        for k in range(len(self.kernels)):
            kernels.append([])
            for one, grid in self.sized([k], values):
                function = getattr(self._module, one.source.name)
                start = _interpreted(function, one.source, grid, numbers)
                found.known.append((start, len(one.places) + len(numbers)))
                places = tuple(zip(one.places, one.source.offsets, strict=True))
                kernels[-1].append(KernelLaunch(len(found.known), grid, THREADS, SHARED, places))
        return kernels

    def chosen(bound: Any, options: Any) -> HostChoice:
        bound.runner.compiled.kernels.device = _Gpu()
        return choose(bound, options)

    monkeypatch.setenv("TREADLE_CODE", "triton")
    monkeypatch.setenv("TREADLE_HOST", "auto")
    monkeypatch.setattr(TritonKernels, "launches", launches)
    monkeypatch.setattr(torch_cpu, "choose_launching", chosen)
    monkeypatch.setattr(torch_c_launch, "function_address", found.address)
    monkeypatch.setattr(torch_c_launch, "address_of", lambda name: found.address("stream"))
    monkeypatch.setattr(torch_c_launch, "context_of", lambda device: CONTEXT)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    yield found
    torch._dynamo.reset()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each run that Python walks."""
    found: list[int] = []
    walk = Runner._walk

    def counted(self: Runner, *given: Any) -> Any:
        found.append(1)
        return walk(self, *given)

    monkeypatch.setattr(Runner, "_walk", counted)
    return found


def test_kernels_and_calls_run_in_order_on_memory_that_lies_anywhere(
    driver: _Driver, walks: list[int]
) -> None:
    def f(x: Any, w: Any, b: Any) -> Any:
        h = torch.tanh(x @ w + b)
        return torch.softmax(h @ w.t(), -1), torch.sort(h.sum(1))[0] * 2, x.t() @ h

    fast = torch.compile(f, backend="treadle", dynamic=False)
    for _ in range(6):
        given = torch.randn(12, 20), torch.randn(20, 16), torch.randn(16)
        for ours, eager in zip(fast(*given), f(*given), strict=True):
            torch.testing.assert_close(ours, eager)
    assert sum(walks) == 2
    assert driver.launched >= 8
    assert driver.context == CONTEXT


def test_training_and_open_sizes(driver: _Driver) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
    fast = torch.compile(model, backend="treadle", dynamic=True)
    for rows in (5, 6, 7, 6, 5, 7, 5, 5, 6):
        x = torch.randn(rows, 8)
        model.zero_grad()
        fast(x).square().sum().backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for p, ours in zip(model.parameters(), found, strict=True):
            torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-4)
    assert driver.launched > 0


def test_inputs_that_begin_in_between_are_left_to_python(driver: _Driver, walks: list[int]) -> None:
    """Kernels load 16 bytes at a time: what begins elsewhere is copied there by Python."""
    fast = torch.compile(lambda x: torch.exp(x) * 3, backend="treadle", dynamic=False)
    memory = torch.randn(65)
    for _ in range(4):
        torch.testing.assert_close(fast(memory[:64]), memory[:64].exp() * 3)
    before = sum(walks)
    assert before == 2
    torch.testing.assert_close(fast(memory[1:]), memory[1:].exp() * 3)
    assert sum(walks) == before + 1


def test_another_present_device_is_left_to_python(
    driver: _Driver, walks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, x = torch.compile(lambda x: x.sin() + 1, backend="treadle", dynamic=False), torch.randn(9)
    for _ in range(4):
        fast(x)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    torch.testing.assert_close(fast(x), x.sin() + 1)
    assert sum(walks) == 3


def test_what_the_driver_refuses_is_said(driver: _Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(status: int, what: str) -> None:
        raise DriverError(f"the driver cannot {what}: {status}")

    monkeypatch.setattr(torch_c_launch, "check", refused)
    fast, x = torch.compile(lambda x: x.cos() * 2, backend="treadle", dynamic=False), torch.randn(9)
    for _ in range(4):
        fast(x)
    driver.fails = 719
    with pytest.raises(RuntimeError, match="cannot launch the kernels of a graph: 719"):
        fast(x)
    driver.fails = 0
    torch.testing.assert_close(fast(x), x.cos() * 2)
