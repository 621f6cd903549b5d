"""From a translation unit to a function to call: compiled, loaded, failures made errors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn

from treadle.codegen.c.sites import Site
from treadle.codegen.c.unit import ENTRY, ERROR_LENGTH, FLAGS, LIBRARIES, USE_THREADS, Unit
from treadle.core.options import Options
from treadle.core.toolchain import load_shared
from treadle.core.verdict import Verdict


class ThreadTable(ctypes.Structure):
    """Where the functions of an OpenMP runtime are, as threads.h reads it."""

    _fields_ = (
        ("parallel", ctypes.c_void_p),
        ("number", ctypes.c_void_p),
        ("count", ctypes.c_void_p),
        ("is_inside", ctypes.c_void_p),
        ("wanted", ctypes.c_void_p),
        ("process", ctypes.c_void_p),
    )


def thread_table(runtime: Any, wanted: Any, process: Any) -> ThreadTable:
    """The table of an OpenMP runtime (of ctypes): who says how many, and which process it is."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_in_parallel")
    found = [ctypes.cast(runtime[name], ctypes.c_void_p) for name in names]
    asked = ctypes.cast(wanted, ctypes.c_void_p)
    table = ThreadTable(*found, asked, ctypes.addressof(process))
    table.kept = (runtime, wanted, process)
    return table


class Kernels:
    """The kernels of a program in a loaded shared object."""

    def __init__(self, library: Any, sites: Sequence[Site]) -> None:
        self._library, self._sites = library, tuple(sites)
        self._entry = library[ENTRY]
        self._entry.restype = ctypes.c_int
        pointer = ctypes.c_void_p
        self._entry.argtypes = [pointer, pointer, pointer, ctypes.c_int64, ctypes.c_int64]

    @property
    def address(self) -> int:
        """Where the entry point lies, for a host in C."""
        found = ctypes.cast(self._entry, ctypes.c_void_p).value
        assert found is not None, "a function that was loaded has an address"
        return found

    def use_threads(self, table: ThreadTable | None) -> None:
        """Let nests that pay for it be shared by threads; None: by one."""
        try:
            use = self._library[USE_THREADS]
        except AttributeError:
            return  # no nest of it is long enough to be shared
        use.argtypes, use.restype = [ctypes.c_void_p], None
        self._table = table  # it must not go before the library does
        use(None if table is None else ctypes.addressof(table))

    def run(self, addresses: Sequence[int], sizes: Sequence[int], first: int, last: int) -> None:
        """Run kernels number `first` up to, not including, `last`; raises what they report."""
        buffers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        numbers = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        self.launch(buffers, numbers, (ctypes.c_int64 * ERROR_LENGTH)(), first, last)

    def launch(self, addresses: Any, sizes: Any, error: Any, first: int, last: int) -> None:
        """Like `run`, on arrays of ctypes that the caller made once and keeps.

        `addresses` holds pointers, `sizes` and `error` (ERROR_LENGTH long) 64-bit integers.
        """
        if self._entry(addresses, sizes, error, first, last):
            self.fail(list(error))

    def fail(self, record: list[int]) -> NoReturn:
        """Raise what the record of a failed kernel says."""
        from treadle.ir.run_error import RunError

        if record[0] < 1:
            message = f"no memory for {record[1]} elements of scratch"
            raise RunError(message, code="RUN012", notes=["a kernel asked for a row of its own"])
        site = self._sites[record[0] - 1]
        message, notes = site.render(record)
        raise RunError(message, code=site.code, notes=notes, operations=site.operations)


def load_kernels(unit: Unit, options: Options, optimise: int = 2) -> tuple[Kernels | None, Verdict]:
    """Compile and load a unit; without kernels, the verdict says why there are none."""
    # Loops on vectors gain by what level 3 unrolls, and compile as fast; others gain nothing.
    level = 3 if unit.flags != FLAGS and optimise == 2 else optimise
    flags = (*unit.flags, f"-O{level}", *LIBRARIES)
    loaded = load_shared(unit.text, flags=flags, options=options)
    if not loaded.verdict and unit.flags != FLAGS and loaded.verdict.code == "TOOL002":
        # A compiler that stumbles over vectors may still do without them.
        loaded = load_shared(unit.text, flags=(*FLAGS, "-O1", *LIBRARIES), options=options)
    return (Kernels(loaded.library, unit.sites) if loaded.verdict else None), loaded.verdict
