"""The host of a plan on a GPU that launches step by step, in C: kernels, library calls, memory.

A recording is faster, where there is one (`torch_c_replay.py`). This is for runs that none fits:
memory that lies elsewhere every time, steps that a device does not record, callers who want none.
Launching from here takes the host about half of what it takes Python (docs/performance.md).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from treadle.codegen.host_c.render import FLAGS, KERNEL_FAILED
from treadle.core.options import Options
from treadle.core.toolchain import load_shared, why_not_compiled
from treadle.runtime.cuda_driver import LAUNCHING, check, context_of, function_address
from treadle.runtime.hosts.torch_c import (
    CHost,
    HostChoice,
    address_of_function,
    host_library,
    why_not_in_c,
)
from treadle.runtime.hosts.torch_c_library import address_of
from treadle.runtime.hosts.torch_c_translate import InC, NotInC, Translation
from treadle.runtime.hosts.torch_tensors import DEVICE_ALIGNMENT
from treadle.runtime.triton_kernels import KernelLaunch, TritonKernels

if TYPE_CHECKING:
    from treadle.runtime.hosts.torch_cpu import Bound

ENTRY = "treadle_launch"
RECORD_AT = -(1 << 62) + 2
"""Stands in the table of numbers where the record of launches will be; no size is this."""
CURRENT_STREAM = "aoti_torch_get_current_cuda_stream"


def choose_launching(bound: Bound, options: Options) -> HostChoice:
    """A host in C that launches; or the reason why Python does."""
    try:
        made = launching(bound)
        return HostChoice(LaunchingHost(bound, made, host_library(bound, made, options), options))
    except (NotInC, OSError) as e:
        return HostChoice(None, str(e))


def launching(bound: Bound) -> InC:
    """A plan on a GPU as instructions; NotInC with the reason if Python must walk it."""
    why_not = why_not_in_c(bound)
    if why_not:
        raise NotInC(why_not)
    kernels = bound.runner.compiled.kernels
    if not isinstance(kernels, TritonKernels) or kernels.device is None:
        raise NotInC("its kernels are not launched by a driver")
    storages = bound.runner.compiled.unit.storages
    given = bound.shape, bound.plan, bound.layouts, bound.runner.signature, bound.values, storages
    return _Launching(*given).translated()


class _Launching(Translation):
    """A plan whose kernels find what they need in a record."""

    def sizes_at(self) -> int:
        return self.at(RECORD_AT)


class LaunchingHost(CHost):
    """A host function that launches kernels of a GPU, and what there is to launch."""

    uses_again = False
    """Memory of a GPU is torch's to hand out."""
    alignment_of_inputs = DEVICE_ALIGNMENT

    def __init__(self, bound: Bound, made: InC, library: Any, options: Options) -> None:
        kernels = bound.runner.compiled.kernels
        assert isinstance(kernels, TritonKernels), "a plan on a GPU has kernels in Triton"
        assert kernels.device is not None, "what is launched is launched on a device"
        self._device = kernels.device
        numbers = [bound.sizes[s.name] for s in bound.program.sizes]
        self._record = LaunchRecord(kernels.launches(numbers), numbers, kernels.device.number)
        launcher = _library(options)
        super().__init__(bound, made, library, options, address_of_function(launcher[ENTRY]))
        self._table[made.function.sizes_at] = self._record.address
        self._way_in = self.enter
        self.enter = self._entered

    def _entered(self, given: list[Any]) -> Any:
        """What C made; None where Python must run: also while another device is the present one."""
        if torch._C._cuda_getDevice() != self._device.number:
            return None
        return self._way_in(given)

    def _fail(self, status: int) -> NoReturn:
        if status == KERNEL_FAILED:
            check(self._error()[0], "launch the kernels of a graph")
        super()._fail(status)


class _Argument(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int64), ("offset", ctypes.c_int64))


class _One(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("grid", "threads", "shared", "count")],
        ("arguments", ctypes.c_void_p),
    )


class _LaunchRecord(ctypes.Structure):
    """What `launch.c` calls a record."""

    _fields_ = (
        ("device", ctypes.c_int64),
        ("sizes_count", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("sizes", "begins", "launches", "context")],
        *[(name, ctypes.c_void_p) for name in ("stream_of", "present", "enter", "launch")],
    )


class LaunchRecord:
    """All launches of a plan, laid out as C reads them."""

    def __init__(
        self, kernels: Sequence[Sequence[KernelLaunch]], sizes: Sequence[int], device: int
    ) -> None:
        """For each kernel its launches; OSError if the driver lacks what they need."""
        present, enter, launch = [function_address(name) for name in LAUNCHING]
        stream_of = address_of(CURRENT_STREAM)
        if None in (stream_of, present, enter, launch):
            raise OSError("torch or the driver have no way to launch from C")
        rows = [one for several in kernels for one in several]
        begins = [sum(map(len, kernels[:k])) for k in range(len(kernels) + 1)]
        self._sizes = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        self._begins = (ctypes.c_int64 * len(begins))(*begins)
        self._arguments = [_places_of(x) for x in rows]
        self._rows = (_One * max(len(rows), 1))()
        for row, x, places in zip(self._rows, rows, self._arguments, strict=False):
            row.function, row.arguments = x.function, ctypes.addressof(places)
            row.grid, row.threads, row.shared = x.grid, x.threads, x.shared
            row.count = len(x.arguments)
        self._record = _LaunchRecord(
            device,
            len(sizes),
            ctypes.addressof(self._sizes),
            ctypes.addressof(self._begins),
            ctypes.addressof(self._rows),
            context_of(device),
            stream_of,
            present,
            enter,
            launch,
        )
        self.address = ctypes.addressof(self._record)


def _places_of(x: KernelLaunch) -> ctypes.Array[_Argument]:
    return (_Argument * max(len(x.arguments), 1))(*[_Argument(*one) for one in x.arguments])


def _library(options: Options) -> Any:
    """What launches, compiled once."""
    text = files("treadle.codegen.host_c").joinpath("launch.c").read_text("utf-8")
    loaded = load_shared(text, flags=FLAGS, options=options)
    if not loaded.verdict:
        raise OSError(why_not_compiled(loaded.verdict))
    return loaded.library
