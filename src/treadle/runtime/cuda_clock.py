"""How long kernels take on a GPU of NVIDIA, asked of the driver itself.

Scratch is the driver's own, not torch's: what torch counts as allocated, and its peak, know nothing
of it. Launches are recorded and replayed, so that the host does not count, on a stream of our own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from treadle.runtime.cuda_driver import checked, enter
from treadle.runtime.tuning.decide import ALIGNED, Start

RELAXED = 2
"""How the driver calls a capture during which everything else may go on."""
APART = 1
"""How it calls a stream that does not wait for the first one."""
NUMBERS, ZEROS = 0x3C, 0
"""What bytes of floating point are (0.01 in f32 and bf16, 1.06 in f16), and all others."""
SHARE = 2
"""One in so many of the bytes that are free may be used."""


class CudaClock:
    """Times launches on one device, whose present work is waited for first."""

    def __init__(self, device: int, stream: int, most: int | None = None) -> None:
        """`stream` is the caller's; `most` are the bytes that may be used at once, if stated."""
        self.device, self.caller, self.most = device, stream, most

    def room(self) -> int:
        """Bytes that trials may have."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        enter(self.device)
        checked("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        share = free.value // SHARE
        return share if self.most is None else min(share, self.most)

    @contextmanager
    def scratch(self, sizes: Sequence[tuple[int, bool]]) -> Iterator[Sequence[int]]:
        """Memory of some sizes, in bytes, with numbers in it if so; its addresses."""
        whole = sum(_even(size) for size, _ in sizes)
        at = ctypes.c_uint64()
        with self._undisturbed(), ExitStack() as stack:
            checked("cuStreamSynchronize", ctypes.c_void_p(self.caller))
            checked("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(max(whole, ALIGNED)))
            stack.callback(checked, "cuMemFree_v2", at)
            stream = _stream(stack)
            addresses, place = [], at.value
            for size, has_numbers in sizes:
                where, count = ctypes.c_uint64(place), ctypes.c_size_t(_even(size))
                byte = ctypes.c_ubyte(NUMBERS if has_numbers else ZEROS)
                checked("cuMemsetD8Async", where, byte, count, stream)
                addresses.append(place)
                place += _even(size)
            checked("cuStreamSynchronize", stream)
            yield addresses

    @contextmanager
    def recorded(self, start: Start, launches: int) -> Iterator[_Replay]:
        """So many launches, ready to be timed."""
        graph, whole = ctypes.c_void_p(), ctypes.c_void_p()
        with self._undisturbed(), ExitStack() as stack:
            stream = _stream(stack)
            assert stream.value is not None, "the driver made a stream"
            checked("cuStreamBeginCapture_v2", stream, ctypes.c_int(RELAXED))
            try:
                for _ in range(launches):
                    start(stream.value)
            finally:
                checked("cuStreamEndCapture", stream, ctypes.byref(graph))
            stack.callback(checked, "cuGraphDestroy", graph)
            flags = ctypes.c_uint64(0)
            checked("cuGraphInstantiateWithFlags", ctypes.byref(whole), graph, flags)
            stack.callback(checked, "cuGraphExecDestroy", whole)
            yield _Replay(whole, stream, _event(stack), _event(stack), launches)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """In here nothing of ours ends a capture that another thread has begun."""
        enter(self.device)
        mode = ctypes.c_int(RELAXED)
        checked("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            checked("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


class _Replay:
    """Recorded launches on a stream of their own."""

    def __init__(
        self,
        whole: ctypes.c_void_p,
        stream: ctypes.c_void_p,
        begin: ctypes.c_void_p,
        end: ctypes.c_void_p,
        launches: int,
    ) -> None:
        self.whole, self.stream, self.begin, self.end = whole, stream, begin, end
        self.launches = launches

    def nanoseconds(self) -> float:
        """Carry them out now; how long one took."""
        milliseconds = ctypes.c_float()
        checked("cuEventRecord", self.begin, self.stream)
        checked("cuGraphLaunch", self.whole, self.stream)
        checked("cuEventRecord", self.end, self.stream)
        checked("cuEventSynchronize", self.end)
        checked("cuEventElapsedTime", ctypes.byref(milliseconds), self.begin, self.end)
        return milliseconds.value * 1e6 / self.launches


def _stream(stack: ExitStack) -> ctypes.c_void_p:
    """A stream that waits for no other, until the stack is left."""
    made = ctypes.c_void_p()
    checked("cuStreamCreate", ctypes.byref(made), ctypes.c_uint(APART))
    stack.callback(checked, "cuStreamDestroy_v2", made)
    return made


def _event(stack: ExitStack) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    checked("cuEventCreate", ctypes.byref(made), ctypes.c_uint(0))
    stack.callback(checked, "cuEventDestroy_v2", made)
    return made


def _even(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
