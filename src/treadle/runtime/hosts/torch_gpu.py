"""The GPU that a graph is on, as torch sees it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch

from treadle.core.options import Options
from treadle.runtime.cuda_clock import CudaClock
from treadle.runtime.triton_builds import compilers_for
from treadle.runtime.tuning.decide import DeviceClock
from treadle.runtime.tuning.tuner import OTHER_RANKS


class TorchGpu:
    """A device of CUDA: its architecture, the caller's stream."""

    def __init__(self, device: str) -> None:
        number = torch.device(device).index
        self.number = torch.cuda.current_device() if number is None else number
        self._nothing = nullcontext()

    @cached_property
    def arch(self) -> str:
        """Its architecture, as compilers call it."""
        major, minor = torch.cuda.get_device_capability(self.number)
        return f"sm_{major}{minor}"

    @cached_property
    def name(self) -> str:
        """What its maker calls it."""
        return str(torch.cuda.get_device_name(self.number))

    @property
    def is_alone(self) -> bool:
        """Whether no other rank must compute the same bits as this one."""
        known: Any = torch.distributed
        if not known.is_available() or not known.is_initialized():
            return True
        return int(known.get_world_size()) == 1

    def clock(self, most: int | None) -> DeviceClock | str:
        """What measures on it, with at most so many bytes; or why nothing is measured now."""
        if not self.is_alone:
            return OTHER_RANKS
        if torch.cuda.is_current_stream_capturing():
            return "the caller records what runs"
        return CudaClock(self.number, self.stream(), most)

    def stream(self) -> int:
        """The stream that the caller works on."""
        return int(torch._C._cuda_getCurrentRawStream(self.number))

    def here(self) -> AbstractContextManager[Any]:
        """Makes it the present device, if it is not."""
        if torch._C._cuda_getDevice() == self.number:
            return self._nothing
        found: AbstractContextManager[Any] = torch.cuda.device(self.number)
        return found


def gpu_of(devices: set[str]) -> TorchGpu | None:
    """The GPU of NVIDIA among the devices of a program, if there is one here."""
    found = sorted(d for d in devices if d.startswith("cuda"))
    if not found or torch.version.hip is not None or not torch.cuda.is_available():
        return None
    return TorchGpu(found[0])


def start_compilers(given: Sequence[Any], options: Options) -> None:
    """Start what compiles kernels, if a graph will need it: it gets ready while we are busy."""
    devices = {str(x.device) for x in given if isinstance(x, torch.Tensor)}
    gpu = gpu_of(devices)
    if gpu is not None:
        compilers_for(gpu.arch, options).start()
