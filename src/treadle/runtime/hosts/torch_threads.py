"""The threads that torch works with, for kernels: the same runtime, the same number.

Kernels join the OpenMP runtime that torch has loaded, so that there is one set of threads in the
process, and ask torch how many of them there should be each time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import torch

from treadle.runtime.kernels import ThreadTable, thread_table

COUNT = "_ZN2at15get_num_threadsEv"
"""`at::get_num_threads`, as the library exports it."""


@lru_cache(maxsize=1)
def threads_of_torch() -> ThreadTable | None:
    """Torch's threads; None if it has none that could be joined, then one works alone."""
    process = ctypes.c_int64(os.getpid())
    folder = Path(torch.__file__).parent / "lib"
    try:
        wanted = ctypes.CDLL(str(folder / "libtorch_cpu.so"))[COUNT]
    except (OSError, AttributeError):
        return None
    for name in _runtimes(folder):
        try:
            return thread_table(ctypes.CDLL(name), wanted, process)
        except (OSError, AttributeError):
            continue
    return None


def _runtimes(folder: Path) -> Iterator[str]:
    """Where the OpenMP runtime may be: torch's own copy of it, then the system's."""
    yield from sorted(str(f) for f in folder.glob("libgomp*.so*"))
    yield from sorted(str(f) for f in folder.parent.parent.glob("torch.libs/libgomp*.so*"))
    yield "libgomp.so.1"
