"""CUDA graphs as recordings: captured on a stream of our own, replayed on the caller's."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from typing import Any

import torch

from treadle.runtime.cuda_driver import function_address
from treadle.runtime.hosts.recorded_steps import (
    CannotRecordError,
    DeviceRecording,
    RecordingStarts,
    Work,
)
from treadle.runtime.hosts.torch_c_library import address_of
from treadle.runtime.hosts.torch_memory import RunMemory

_GRAPH: Any = torch.cuda.CUDAGraph
_ONE_AT_A_TIME = threading.Lock()


class CudaRecorder:
    """Records on one device of CUDA."""

    def __init__(self, device: str) -> None:
        number = torch.device(device).index
        self.device = torch.cuda.current_device() if number is None else number

    def place(self) -> object | None:
        """The caller's stream; None while the caller records it himself."""
        if torch.cuda.is_current_stream_capturing():
            return None
        return torch._C._cuda_getCurrentRawStream(self.device)

    def record(
        self, work: Work, memory: RunMemory, copies: Mapping[str, Any], draws: bool
    ) -> DeviceRecording:
        """Capture the work; memory it allocates is shared by all recordings of the stream.

        That is safe because replays of one stream follow each other, and none reads what an
        earlier one left behind.
        """
        graph: Any = torch.cuda.CUDAGraph()
        pool, _ = _memory_for(self.device, self.place())
        side = _side_stream(self.device)
        with _ONE_AT_A_TIME, _no_collection(), torch.cuda.stream(side):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work(memory, copies)
            except BaseException as e:
                _end_badly(graph)
                if isinstance(e, torch.OutOfMemoryError) or not isinstance(e, Exception):
                    raise
                raise CannotRecordError(str(e)) from e
            try:
                graph.capture_end()
            except RuntimeError as e:
                raise CannotRecordError(str(e)) from e
        return CudaRecording(graph, draws)

    @cached_property
    def starts(self) -> RecordingStarts | None:
        """The functions that start recordings, where torch and the driver have them."""
        stream_of = address_of("aoti_torch_get_current_cuda_stream")
        of_driver = [function_address(n) for n in ("cuStreamIsCapturing", "cuGraphLaunch")]
        if stream_of is None or None in of_driver or not hasattr(_GRAPH, "raw_cuda_graph_exec"):
            return None
        capturing, launch = of_driver
        assert capturing is not None, "it was just found"
        assert launch is not None, "it was just found"
        return RecordingStarts(self.device, stream_of, capturing, launch)


class CudaRecording:
    """A CUDA graph, ready to be replayed."""

    def __init__(self, graph: Any, draws: bool) -> None:
        self.graph, self._draws = graph, draws
        self.replay: Callable[[], None] = graph.replay

    @cached_property
    def handle(self) -> int | None:
        """By what the driver knows it; None where torch must move its generator on first."""
        if self._draws:
            return None
        try:
            return int(self.graph.raw_cuda_graph_exec())
        except (AttributeError, RuntimeError):
            return None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python collects no garbage in here: a tensor that died elsewhere must not be freed now."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _end_badly(graph: Any) -> None:
    """End a capture that failed; CUDA may have given it up already, which is no news."""
    with suppress(RuntimeError):
        graph.capture_end()


@lru_cache(maxsize=16)
def _side_stream(device: int) -> Any:
    made: Any = torch.cuda.Stream
    return made(device)


@lru_cache(maxsize=16)
def _memory_for(device: int, stream: object) -> tuple[Any, Any]:
    """Memory of recordings, and a recording of nothing that keeps it while no other one is left."""
    with torch.cuda.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch wonders that nothing was recorded
        pool, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(_side_stream(device)):
            keeper.capture_begin(pool=pool, capture_error_mode="thread_local")
            keeper.capture_end()
    return pool, keeper
