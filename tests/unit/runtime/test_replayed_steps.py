"""Recordings hold addresses: used where memory lies as it lay, never where it does not."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle.torch  # noqa: E402, F401  (registers the backend)
from treadle.runtime import plan_launches, recorded_parts  # noqa: E402
from treadle.runtime.hosts.recorded_steps import (  # noqa: E402
    CannotRecordError,
    RecordingStarts,
    ReplayedSteps,
    Work,
)
from treadle.runtime.hosts.torch_cpu import Bound, Runner  # noqa: E402
from treadle.runtime.hosts.torch_memory import RunMemory  # noqa: E402
from treadle.runtime.launch_plan import RecordedSteps  # noqa: E402
from treadle.runtime.launch_shape import LaunchShape  # noqa: E402


class _Frozen:
    """Work with the addresses it had: what a recorded device does when it replays."""

    handle: int | None = None

    def __init__(self, work: Work, memory: RunMemory, copies: Mapping[str, Any]) -> None:
        self.work = work
        self.tensors = {n: _Pointer(t) for n, t in memory.tensors.items()}
        self.copies = {n: _Pointer(t) for n, t in copies.items()}
        self.addresses = list(memory.addresses)

    def replay(self) -> None:
        inside = RunMemory(len(self.addresses))
        inside.tensors = {n: p.tensor() for n, p in self.tensors.items()}
        inside.addresses[:] = self.addresses
        self.work(inside, {n: p.tensor() for n, p in self.copies.items()})


class _Pointer:
    """Where a tensor lies, without keeping it alive."""

    def __init__(self, tensor: Any) -> None:
        self.address, self.element = tensor.data_ptr(), tensor.dtype
        self.sizes, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        reach = 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
        self.bytes = 0 if 0 in self.sizes else reach * tensor.element_size()

    def tensor(self) -> Any:
        if self.bytes == 0:
            return torch.empty(self.sizes, dtype=self.element)
        memory = (ctypes.c_char * self.bytes).from_address(self.address)
        return torch.frombuffer(memory, dtype=self.element).as_strided(self.sizes, self.strides)


class _Recorder:
    """Records on the CPU, where there is no device that could."""

    def __init__(self) -> None:
        self.recorded = 0
        self.draws: list[bool] = []
        self.refuses = False
        self.starts: RecordingStarts | None = None

    def place(self) -> object:
        return "here"

    def record(
        self, work: Work, memory: RunMemory, copies: Mapping[str, Any], draws: bool
    ) -> _Frozen:
        if self.refuses:
            raise CannotRecordError("not today")
        self.recorded += 1
        self.draws.append(draws)
        return _Frozen(work, memory, copies)


FEWEST_STEPS, MOST_STEPS = 8, 80
"""What is allocated outside of our plans may lie elsewhere for some steps, as the heap is then."""


class _CachingTorch:
    """torch with an allocator like that of a GPU: what was freed is given out again, in order."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, count: int, dtype: Any, device: str) -> Any:
        return self.empty_strided((count,), (1,), dtype, device)

    def empty_strided(self, sizes: Any, strides: Any, dtype: Any, device: str) -> Any:
        assert device == "cpu"
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        count = max(reach, 0) * dtype.itemsize
        blocks = self.blocks.setdefault(count, [])
        free = [b for b in blocks if torch._C._storage_Use_Count(b._cdata) == 1]
        if not free:
            free = [torch.empty(count, dtype=torch.uint8).untyped_storage()]
            blocks.append(free[0])
        return torch.empty(0, dtype=dtype).set_(free[0], 0, sizes, strides)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Recorder]:
    """Every graph is recorded, from its first step to its last."""
    torch._dynamo.reset()
    monkeypatch.setattr("treadle.runtime.hosts.torch_memory.torch", _CachingTorch())
    found, made = _Recorder(), Bound._parts
    monkeypatch.setattr(Runner, "recorder", found)
    monkeypatch.setattr(Bound, "_worth_recording", lambda self: [(0, len(self.plan.steps) - 1)])
    bounds: list[Bound] = []

    def parts(self: Bound) -> Any:
        bounds.append(self)
        return made(self)

    monkeypatch.setattr(Bound, "_parts", parts)
    found.bounds = bounds  # type: ignore[attr-defined]
    monkeypatch.setenv("TREADLE_HOST", "python")
    yield found
    torch._dynamo.reset()


def _replayed(recorder: Any) -> list[ReplayedSteps]:
    return [one for bound in recorder.bounds for one in bound.recorded]


def test_a_loop_settles_on_one_recording(recorder: _Recorder) -> None:
    """Inputs stay where they are, results die: from the third run on there is one launch."""
    f = torch.compile(lambda x, w: torch.relu(x @ w).sum(1) + 1, backend="treadle")
    x, w = torch.randn(16, 32), torch.randn(32, 24)
    for k in range(8):
        x.copy_(torch.randn(16, 32) * k)
        torch.testing.assert_close(f(x, w), torch.relu(x @ w).sum(1) + 1)
    (steps,) = _replayed(recorder)
    assert recorder.recorded >= 1
    assert steps.replays >= 4


def test_other_addresses_are_not_replayed(recorder: _Recorder) -> None:
    """Every run has other inputs and keeps its results: results are right and all different."""
    f = torch.compile(lambda x: (x.exp() @ x.t()).relu() + x[:, :1], backend="treadle")
    inputs = [torch.randn(12, 7) for _ in range(6)]
    for _ in range(4):
        outputs = [f(x) for x in inputs]
        for x, y in zip(inputs, outputs, strict=True):
            torch.testing.assert_close(y, (x.exp() @ x.t()).relu() + x[:, :1])
    assert recorder.bounds  # type: ignore[attr-defined]


def test_results_of_calls_are_copied_out(recorder: _Recorder) -> None:
    """What a call allocates inside a recording is written over by the next replay."""
    f = torch.compile(lambda x: (torch.fft.fft(x + 1).abs(), torch.sort(x)[0]), backend="treadle")
    x = torch.randn(4, 8)
    kept = []
    for k in range(8):
        x.copy_(torch.randn(4, 8) + k)
        kept.append((x.clone(), f(x)))
        if k % 2:
            kept[-1] = (x.clone(), [t.clone() for t in kept[-1][1]])
    for given, (a, b) in kept:
        torch.testing.assert_close(a, torch.fft.fft(given + 1).abs())
        torch.testing.assert_close(b, torch.sort(given)[0])


def test_training_with_recordings(recorder: _Recorder) -> None:
    """Forward and backward each settle; gradients are those of eager."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    f = torch.compile(model, backend="treadle")
    x, done = torch.empty(6, 8), []
    for _ in range(12):
        x.copy_(torch.randn(6, 8))
        model.zero_grad()
        f(x).square().sum().backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for p, g in zip(model.parameters(), found, strict=True):
            torch.testing.assert_close(g, p.grad)
        done.append(found)
    assert _replayed(recorder)[0].replays > 0


def test_what_cannot_be_recorded_runs_step_by_step(recorder: _Recorder) -> None:
    """A refusal is remembered with its reason, and asked for once."""
    recorder.refuses = True
    f = torch.compile(lambda x: torch.cumsum(x * 2, 0).sin(), backend="treadle")
    x = torch.randn(9)
    for _ in range(5):
        torch.testing.assert_close(f(x), torch.cumsum(x * 2, 0).sin())
    (steps,) = _replayed(recorder)
    assert steps.refused == "not today"
    assert steps.replays == 0


def test_recordings_are_found_from_c(recorder: _Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there is a recording, a run that it fits does not go through Python's host."""
    monkeypatch.setenv("TREADLE_HOST", "auto")
    walks = 0
    walk = Runner._walk

    def counted(self: Runner, *given: Any) -> Any:
        nonlocal walks
        walks += 1
        return walk(self, *given)

    monkeypatch.setattr(Runner, "_walk", counted)

    def f(x: Any, y: Any) -> None:
        x.add_(torch.tanh(y)).mul_(2)
        y.sub_(1)

    compiled = torch.compile(f, backend="treadle")
    pairs = [(torch.randn(7, 9), torch.randn(7, 9)) for _ in range(2)]
    for k in range(12):
        x, y = pairs[k % 2]
        wanted = x.clone(), y.clone()
        f(*wanted)
        compiled(x, y)
        torch.testing.assert_close((x, y), wanted)
    assert recorder.recorded == 2
    assert walks < 7
    assert _replayed(recorder)[0].replays >= 7


def test_hosts_that_replay_allocate_as_python_does(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of large results that was held back would never lie where a recording knows it."""
    monkeypatch.setenv("TREADLE_HOST", "auto")
    asked: list[object] = []
    monkeypatch.setattr("treadle.runtime.hosts.torch_c.empty_again", asked.append)
    f, x = torch.compile(lambda x: torch.tanh(x) + 1, backend="treadle"), torch.randn(300, 300)
    for _ in range(6):
        torch.testing.assert_close(f(x), torch.tanh(x) + 1)
    assert _replayed(recorder)[0].replays >= 1
    assert not asked


def test_random_numbers_are_drawn_anew_by_recordings_that_python_starts(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch moves its generator on before a replay, which a launch by the driver would not do."""
    monkeypatch.setenv("TREADLE_HOST", "auto")
    asked: list[object] = []
    monkeypatch.setattr("treadle.runtime.hosts.torch_c_replay.finder_for", asked.append)

    def f(x: Any) -> Any:
        return torch.nn.functional.dropout(x * 2, 0.5) + 1

    fast, x = torch.compile(f, backend="treadle"), torch.randn(40, 8)
    torch.manual_seed(3)
    wanted = [f(x) for _ in range(9)]
    torch.manual_seed(3)
    for one in wanted:
        torch.testing.assert_close(fast(x), one)
    assert recorder.recorded >= 1
    assert all(recorder.draws)
    assert _replayed(recorder)[0].replays >= 4
    assert not asked


class _Driver:
    """Functions in C that a device's driver would have: a stream, and recordings by number."""

    def __init__(self) -> None:
        self.stream, self.is_capturing, self.fails = 7, False, False
        self.recordings: list[Any] = []
        self.started = 0
        i32, pointer = ctypes.c_int32, ctypes.c_void_p
        self.functions = (
            ctypes.CFUNCTYPE(i32, i32, ctypes.POINTER(pointer))(self._stream_of),
            ctypes.CFUNCTYPE(i32, pointer, ctypes.POINTER(i32))(self._capturing),
            ctypes.CFUNCTYPE(i32, pointer, pointer)(self._launch),
        )

    def starts(self) -> RecordingStarts:
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self.functions]
        return RecordingStarts(3, *addresses)

    def _stream_of(self, device: int, found: Any) -> int:
        assert device == 3
        found[0] = self.stream
        return 0

    def _capturing(self, stream: int, found: Any) -> int:
        found[0] = self.is_capturing
        return 0

    def _launch(self, handle: int, stream: int) -> int:
        if self.fails:
            return 1
        self.started += 1
        self.recordings[handle - 1].replay()
        return 0


def test_recordings_are_started_from_c_where_the_driver_can(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another stream, nor one that is being captured, nor a refusal starts one."""
    monkeypatch.setenv("TREADLE_HOST", "auto")
    driver = _Driver()
    recorder.starts = driver.starts()
    made, place = recorder.record, recorder.place

    def record(*given: Any) -> _Frozen:
        driver.recordings.append(made(*given))
        driver.recordings[-1].handle = len(driver.recordings)
        return driver.recordings[-1]

    monkeypatch.setattr(recorder, "record", record)
    monkeypatch.setattr(recorder, "place", lambda: driver.stream if place() else None)

    def f(x: Any, y: Any) -> None:
        x.add_(torch.tanh(y)).mul_(2)
        y.sub_(1)

    compiled = torch.compile(f, backend="treadle")
    pairs = [(torch.randn(7, 9), torch.randn(7, 9)) for _ in range(3)]

    def run(times: int) -> int:
        before = driver.started
        for k in range(times):
            x, y = pairs[k % 3]
            wanted = x.clone(), y.clone()
            f(*wanted)
            compiled(x, y)
            torch.testing.assert_close((x, y), wanted)
        return driver.started - before

    run(12)
    assert run(6) == 6
    driver.is_capturing = True
    assert run(6) == 0
    driver.is_capturing, driver.fails = False, True
    assert run(6) == 0
    driver.fails, driver.stream = False, 8
    assert run(3) == 0, "recordings of another stream are others"
    run(6)
    assert run(6) == 6


def test_a_failing_replay_is_heard(recorder: _Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong behind the function in C comes out as it is."""
    monkeypatch.setenv("TREADLE_HOST", "auto")

    def f(x: Any) -> None:
        x.add_(1)

    compiled, x = torch.compile(f, backend="treadle"), torch.zeros(5)
    for _ in range(6):
        compiled(x)
    monkeypatch.setattr(_Frozen, "replay", _raise)
    with pytest.raises(ValueError, match="the device is gone"):
        compiled(x)


def _raise(self: object) -> None:
    raise ValueError("the device is gone")


def test_parts_of_a_run_are_replayed_one_after_the_other(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backward that frees what was saved while it goes on; every step's gradients are right."""
    monkeypatch.undo()
    torch._dynamo.reset()
    monkeypatch.setattr("treadle.runtime.hosts.torch_memory.torch", _CachingTorch())
    monkeypatch.setattr(Runner, "recorder", recorder)
    monkeypatch.setenv("TREADLE_HOST", "python")
    for name, value in (("LEAST_BYTES", 1), ("LEAST_SHARE", 0.0)):
        monkeypatch.setattr(recorded_parts, name, value)
    monkeypatch.setattr(plan_launches, "LEAST_NS", 0.0)
    whole = property(lambda self: (RecordedSteps(0, self.end - 1),))
    monkeypatch.setattr(LaunchShape, "recordings", whole)
    bounds: list[Bound] = []
    made = Bound._parts
    monkeypatch.setattr(Bound, "_parts", lambda self: (bounds.append(self), made(self))[1])
    model = torch.nn.Sequential(
        *[m for _ in range(4) for m in (torch.nn.Linear(96, 96), torch.nn.ReLU())]
    )
    step = torch.compile(lambda x: model(x).square().sum(), backend="treadle")
    weights, x = list(model.parameters()), torch.empty(64, 96)
    one, steps = torch.ones(()), 0
    for _ in range(MOST_STEPS):
        given = torch.randn(64, 96)
        expected = torch.autograd.grad(model(given).square().sum(), weights)
        found = torch.autograd.grad(step(x.copy_(given)), weights, grad_outputs=one)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        del found, a
        steps += 1
        cut = [bound for bound in bounds if len(bound.recorded) > 1]
        assert cut, "some plan is in parts"
        if steps >= FEWEST_STEPS and all(part.replays for bound in cut for part in bound.recorded):
            return
    pytest.fail(f"a part was not replayed in {steps} steps")
