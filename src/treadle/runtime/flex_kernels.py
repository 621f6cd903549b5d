"""Kernels of attention, ready to be launched: compiled beside us, or run by Triton itself.

Everything but addresses is bound once for a set of lengths and strides. A kernel is submitted to
the compilers when it is bound, and waited for when it is first launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from treadle.codegen.triton.flex.spec import FlexKernel
from treadle.core.options import Options
from treadle.runtime.cuda_driver import launcher, load_function
from treadle.runtime.triton_builds import KernelBinary, KernelJob, compilers_for
from treadle.runtime.triton_kernels import NARROW, GpuDevice, load_module

MOST_BOUND = 256
"""So many sets of lengths and strides are remembered for an operator."""

Loaded: TypeAlias = dict[KernelJob, tuple[KernelBinary, int]]
"""Functions that the driver has, of all lengths of an operator."""


class BoundKernel:
    """A kernel for one set of lengths and strides: `launch(addresses)`."""

    def __init__(
        self,
        kernel: FlexKernel,
        numbers: Mapping[str, int],
        grid: int,
        options: Options,
        device: GpuDevice | None,
        loaded: Loaded,
    ) -> None:
        self.kernel, self.grid, self.options, self.device = kernel, grid, options, device
        self.numbers = [int(numbers[name]) for name in kernel.numbers]
        self._start: Callable[[Sequence[int]], None] | None = None
        self._loaded = loaded
        if device is not None and grid:
            compilers_for(device.arch, options).submit(self._job(device.arch))

    def _job(self, arch: str) -> KernelJob:
        kernel = self.kernel
        kinds = [("i32" if abs(n) < NARROW else "i64", n % 16 == 0) for n in self.numbers]
        options = tuple(sorted(kernel.options.items()))
        return KernelJob(
            kernel.text, kernel.name, arch, len(kernel.addresses), tuple(kinds), options
        )

    def launch(self, addresses: Sequence[int]) -> None:
        """Start it on the caller's stream."""
        if not self.grid:
            return
        if self._start is None:
            self._start = self._by_triton() if self.device is None else self._by_driver(self.device)
        self._start(addresses)

    def _by_driver(self, device: GpuDevice) -> Callable[[Sequence[int]], None]:
        job = self._job(device.arch)
        if job not in self._loaded:
            made = compilers_for(device.arch, self.options).submit(job).result()
            with device.here():
                self._loaded[job] = made, load_function(made, device.number)
        count = len(self.kernel.addresses) + len(self.numbers)
        begin, numbers = launcher(*self._loaded[job], self.grid, count), self.numbers

        def start(addresses: Sequence[int]) -> None:
            with device.here():
                begin(device.stream(), [*addresses, *numbers])

        return start

    def _by_triton(self) -> Callable[[Sequence[int]], None]:
        function = getattr(load_module(self.kernel.text, self.options), self.kernel.name)
        run, options, numbers = function[(self.grid,)], self.kernel.options, self.numbers
        return lambda addresses: run(*addresses, *numbers, **options)
