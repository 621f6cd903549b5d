"""The kernels of a program in Triton: compiled ahead, loaded, launched by address.

`launch` has the form of the kernels in C, so that hosts need not know the difference. Every address
a kernel is given is a multiple of 16, which hosts see to.

On a GPU of NVIDIA binaries are made beside us (`triton_builds`) and launched by the driver. Without
one, in Triton's interpreter, and on devices that only Triton knows, Triton itself does both.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from treadle.codegen.host import HostProgram
from treadle.codegen.triton.unit import TritonUnit, write_triton
from treadle.codegen.triton.writer import TritonSource
from treadle.core.options import Options, cache_folder
from treadle.index import Symbol, evaluate
from treadle.ir.program import Program
from treadle.runtime.cuda_driver import launcher, load_function
from treadle.runtime.triton_builds import Builds, KernelBinary, KernelJob, compilers_for
from treadle.runtime.triton_server import load_file

AN_ADDRESS = 1 << 40
"""Stands for an address where there is no memory: 64 bits wide, well aligned."""
NARROW = 1 << 31

Launch = Callable[[Any], None]
"""Starts kernels on the addresses of a program's storages."""


class GpuDevice(Protocol):
    """The device that kernels are for."""

    number: int

    @property
    def arch(self) -> str:
        """Its architecture, as compilers call it."""

    def stream(self) -> int:
        """The stream that the caller works on."""

    def here(self) -> AbstractContextManager[Any]:
        """Makes it the present device."""


@dataclass(frozen=True)
class _Ready:
    """A function to launch, and which of the program's storages and sizes it takes."""

    source: TritonSource
    places: tuple[int, ...]

    def addresses(self, every: Any) -> list[int]:
        """What it is handed, of the addresses of all storages."""
        places = zip(self.places, self.source.offsets, strict=True)
        return [(every[k] or AN_ADDRESS) + offset for k, offset in places]

    def grid(self, values: Mapping[Symbol, int]) -> int:
        """How many programs it runs."""
        count = 1
        for extent, block in self.source.grid:
            known = extent.value
            number = known if known is not None else int(evaluate(extent, values))
            count *= -(-number // block)
        return count


class TritonKernels:
    """The kernels of one program."""

    def __init__(
        self, host: HostProgram, options: Options, device: GpuDevice | None = None
    ) -> None:
        """Without a device Triton itself compiles, or interprets."""
        self.program: Program = host.program
        self.unit: TritonUnit = write_triton(host)
        self.options, self.device = options, device
        storages = [s for several in self.unit.kernels for one in several for s in one.storages]
        self.storages = tuple(dict.fromkeys(storages))
        place = {name: k for k, name in enumerate(self.storages)}
        self.kernels = [
            [_Ready(one, tuple([place[s] for s in one.storages])) for one in several]
            for several in self.unit.kernels
        ]
        self._begun = False
        self._functions: dict[KernelJob, tuple[KernelBinary, int]] = {}

    @property
    def builds(self) -> Builds:
        """Who compiles."""
        assert self.device is not None, "without a device Triton compiles"
        return compilers_for(self.device.arch, self.options)

    @cached_property
    def _module(self) -> Any:
        """The whole text as a Python module."""
        return load_module(self.unit.text, self.options)

    def compile_ahead(self) -> None:
        """Begin to compile all kernels, for the likely sizes."""
        if self.device is None:
            if not is_interpreted():
                self.bind(0, len(self.kernels), self._likely)
            return
        for name in self.unit.functions:
            self.builds.submit(self._job(name, self._likely))
        self._begun = True

    def settle(self) -> None:
        """Wait for what was begun, and load it; raises what compiler or driver say against it."""
        if self.device is not None and self._begun:
            with self.device.here():
                for name in self.unit.functions:
                    self.function(name, self._likely)

    @property
    def _likely(self) -> list[int]:
        return [s.hint or 1 for s in self.program.sizes]

    def _job(self, name: str, sizes: Sequence[int]) -> KernelJob:
        assert self.device is not None, "jobs are for a device"
        source = self.unit.functions[name]
        return KernelJob(
            self.unit.module_of(name),
            name,
            self.device.arch,
            len(source.storages),
            tuple([("i32" if n < NARROW else "i64", n % 16 == 0) for n in sizes]),
            tuple(sorted(launch_options(source).items())),
        )

    def bind(self, first: int, last: int, numbers: Sequence[int]) -> Launch:
        """What launches kernels `first` up to, not including, `last` for some run-time sizes."""
        values = dict(zip(self.program.sizes, numbers, strict=True))
        chosen = [one for several in self.kernels[first:last] for one in several]
        sized = [(one, grid) for one in chosen if (grid := one.grid(values))]
        if self.device is not None:
            return _Late(self, self.device, sized, tuple(numbers))
        by_triton = _interpreted if is_interpreted() else _direct
        starts = [
            (by_triton(getattr(self._module, one.source.name), one.source, grid, numbers), one)
            for one, grid in sized
        ]
        sizes = tuple(numbers)

        def launch(addresses: Any) -> None:
            for start, one in starts:
                start(*one.addresses(addresses), *sizes)

        return launch

    def function(self, name: str, numbers: Sequence[int]) -> tuple[KernelBinary, int]:
        """A function for some run-time sizes, compiled, and where the driver has it."""
        job = self._job(name, numbers)
        if job not in self._functions:
            made = self.builds.submit(job).result()
            assert self.device is not None, "functions are loaded for a device"
            self._functions[job] = made, load_function(made, self.device.number)
        return self._functions[job]

    def texts(self) -> Iterator[str]:
        """The text of every function."""
        for several in self.unit.kernels:
            for one in several:
                yield one.text


class _Late:
    """Launches kernels of a device; they are waited for and loaded when that is first asked for."""

    def __init__(
        self,
        kernels: TritonKernels,
        device: GpuDevice,
        sized: Sequence[tuple[_Ready, int]],
        numbers: tuple[int, ...],
    ) -> None:
        self.kernels, self.device, self.sized, self.numbers = kernels, device, sized, numbers
        self._starts: list[tuple[Callable[..., None], _Ready]] | None = None

    def __call__(self, addresses: Any) -> None:
        with self.device.here():
            starts, stream, sizes = (
                self._starts or self._loaded(),
                self.device.stream(),
                self.numbers,
            )
            for start, one in starts:
                start(stream, [*one.addresses(addresses), *sizes])

    def _loaded(self) -> list[tuple[Callable[..., None], _Ready]]:
        found = []
        for one, grid in self.sized:
            made = self.kernels.function(one.source.name, self.numbers)
            start = launcher(*made, grid, len(one.places) + len(self.numbers))
            found.append((start, one))
        self._starts = found
        return found


def _interpreted(
    function: Any, source: TritonSource, grid: int, sizes: Sequence[int]
) -> Callable[..., None]:
    """What runs a kernel in Triton's interpreter."""
    start = function[(grid,)]
    return lambda *given: start(*given, **launch_options(source))


def _direct(
    function: Any, source: TritonSource, grid: int, sizes: Sequence[int]
) -> Callable[..., None]:
    """What launches a kernel that Triton compiles, without asking again what it is."""
    driver: Any = importlib.import_module("triton.runtime.driver").driver.active
    given = [AN_ADDRESS] * len(source.storages)
    made = function.warmup(*given, *sizes, grid=(1,), **launch_options(source))
    made._init_handles()
    run, handle, packed = made.run, made.function, made.packed_metadata
    device = driver.get_current_device()
    stream_of = driver.get_current_stream

    def start(*arguments: int) -> None:
        run(grid, 1, 1, stream_of(device), handle, packed, None, None, None, *arguments)

    return start


def launch_options(source: TritonSource) -> dict[str, int]:
    """What a launch tells Triton besides its arguments."""
    found = {"num_warps": source.warps}
    if "tl.device_assert" in source.text:
        found["debug"] = True  # without it Triton drops the check, and memory outside is read
    return found


def load_module(text: str, options: Options) -> Any:
    """The generated text as a Python module; Triton wants to read it from a file."""
    folder = os.path.join(cache_folder(options), "triton")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = f"treadle_{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    path = os.path.join(folder, f"{name}.py")
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(fresh, path)
    return load_file(path)


def is_interpreted() -> bool:
    """Whether Triton interprets kernels instead of compiling them."""
    triton: Any = importlib.import_module("triton")
    return bool(triton.knobs.runtime.interpret)
