"""Kernels on a GPU of NVIDIA, through the driver itself: loaded from binaries, launched by address.

Triton's own way to a launch compiles a piece of C for every kind of argument list, and looks at
each argument again at every launch. Here all arguments are 64 bits wide, and a launch is one call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from treadle.core.errors import TreadleError
from treadle.runtime.triton_builds import KernelBinary

LANES = 32
FREE_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may have without asking."""
SHARED_LIMIT = 8
"""How the driver calls a function's limit of shared memory."""
UNSEEN = 4
"""Arguments that the compiler adds behind ours, all of them null."""
LAUNCHING = ("cuCtxGetCurrent", "cuCtxSetCurrent", "cuLaunchKernel")
"""What launches kernels from C needs of the driver."""


class DriverError(TreadleError):
    """What the driver refused, in its own words."""


@lru_cache(maxsize=1)
def driver() -> Any:
    """The driver's functions; DriverError without one."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise DriverError(f"there is no driver of NVIDIA's: {e}") from e


def check(status: int, what: str) -> None:
    """Raise what the driver says of a status that is not 0."""
    if status == 0:
        return
    said = ctypes.c_char_p()
    driver().cuGetErrorString(status, ctypes.byref(said))
    words = (said.value or b"").decode() or f"error {status}"
    raise DriverError(f"the driver cannot {what}: {words}")


def function_address(name: str) -> int | None:
    """Where a function of the driver lies; None without one."""
    try:
        return ctypes.cast(driver()[name], ctypes.c_void_p).value
    except (AttributeError, DriverError):
        return None


def checked(name: str, *arguments: Any) -> None:
    """Call a function of the driver by name; DriverError if it says no, or has none."""
    try:
        function = driver()[name]
    except AttributeError as e:
        raise DriverError(f"the driver has no {name}") from e
    check(function(*arguments), f"do {name}")


def enter(device: int) -> None:
    """Give a thread that has done nothing on a device yet the context that others have there."""
    known, present = driver(), ctypes.c_void_p()
    check(known.cuCtxGetCurrent(ctypes.byref(present)), "say where it is")
    if present.value is None:
        check(known.cuCtxSetCurrent(ctypes.c_void_p(context_of(device))), f"enter device {device}")


@lru_cache(maxsize=128)
def context_of(device: int) -> int:
    """The context of a device that all who use it share, kept from now on."""
    known, found, own = driver(), ctypes.c_void_p(), ctypes.c_int()
    check(known.cuDeviceGet(ctypes.byref(own), device), f"find device {device}")
    check(known.cuDevicePrimaryCtxRetain(ctypes.byref(found), own), f"use device {device}")
    assert found.value is not None, "the driver gave it"
    return found.value


def load_function(made: KernelBinary, device: int) -> int:
    """The function of a binary, ready on a device, the present one."""
    if made.scratch:
        raise DriverError(f"{made.name} wants {made.scratch} bytes of device memory of its own")
    enter(device)
    known, module, function = driver(), ctypes.c_void_p(), ctypes.c_void_p()
    check(known.cuModuleLoadData(ctypes.byref(module), made.binary), f"load {made.name}")
    name = made.name.encode()
    found = known.cuModuleGetFunction(ctypes.byref(function), module, name)
    check(found, f"find {made.name} in its binary")
    if made.shared > FREE_SHARED:
        asked = known.cuFuncSetAttribute(function, SHARED_LIMIT, made.shared)
        check(asked, f"give {made.name} {made.shared} bytes of shared memory")
    assert function.value is not None, "the driver found it"
    return function.value


class _Arguments(threading.local):
    """The arguments of one launch, for each thread: where they are, and pointers to them."""

    def __init__(self, count: int) -> None:
        self.values = (ctypes.c_int64 * (count + UNSEEN))()
        start = ctypes.addressof(self.values)
        places = [start + 8 * k for k in range(count + UNSEEN)]
        self.pointers = (ctypes.c_void_p * (count + UNSEEN))(*places)


def launcher(made: KernelBinary, function: int, grid: int, count: int) -> Callable[..., None]:
    """What launches a function on a stream: `start(stream, arguments)`, all of them numbers."""
    launch, given = driver().cuLaunchKernel, _Arguments(count)
    point = ctypes.c_void_p
    where, threads = point(function), LANES * made.warps
    # Numbers that Python hands to C are ints there; the driver wants unsigned ones of that width.
    launch.argtypes = [point, *[ctypes.c_uint] * 7, point, point, point]
    name, shared = made.name, made.shared

    def start(stream: int, arguments: list[int]) -> None:
        given.values[:count] = arguments  # type: ignore[assignment]
        status = launch(where, grid, 1, 1, threads, 1, 1, shared, stream, given.pointers, None)
        if status:
            check(status, f"launch {name}")

    return start
