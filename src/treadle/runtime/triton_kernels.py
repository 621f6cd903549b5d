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
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from treadle.codegen.host import HostProgram
from treadle.codegen.triton.unit import TritonUnit, module_of_one, sources_of, write_triton
from treadle.codegen.triton.writer import TritonSource
from treadle.core.options import Options, cache_folder
from treadle.core.verdict import Verdict
from treadle.index import Symbol, evaluate
from treadle.ir.loop_schedule import Step
from treadle.runtime.cuda_driver import LANES, launcher, load_function
from treadle.runtime.triton_builds import Builds, KernelBinary, KernelJob, compilers_for
from treadle.runtime.triton_server import load_file
from treadle.runtime.tuning.decide import DeviceClock, Start
from treadle.runtime.tuning.tuner import Tuning

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

    @property
    def name(self) -> str:
        """What its maker calls it: devices of one name are equally fast."""

    @property
    def is_alone(self) -> bool:
        """Whether no other rank must compute the same bits as this one."""

    def clock(self, most: int | None) -> DeviceClock | str:
        """What measures on it, with at most so many bytes; or why nothing is measured now."""


@dataclass(frozen=True)
class _Ready:
    """A function to launch, and which of the program's storages and sizes it takes."""

    source: TritonSource
    function: TritonSource
    """The one of those that are alike that is compiled."""
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


@dataclass(frozen=True)
class KernelLaunch:
    """One launch as the driver wants it: a function of its, and where it finds addresses."""

    function: int
    grid: int
    threads: int
    shared: int
    arguments: tuple[tuple[int, int], ...]
    """(number of a storage, bytes behind its start)"""


class TritonKernels:
    """The kernels of one program."""

    def __init__(
        self,
        host: HostProgram,
        options: Options,
        device: GpuDevice | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        """Without a device Triton itself compiles, or interprets; then nothing is tuned."""
        self.host, self.program = host, host.program
        self.unit: TritonUnit = write_triton(host)
        self.options, self.device, self._tuning = options, device, tuning
        if tuning is not None:
            tuning.write(host, self.unit)
        storages = [s for several in self.unit.kernels for one in several for s in one.storages]
        self.storages = tuple(dict.fromkeys(storages))
        self._place = {name: k for k, name in enumerate(self.storages)}
        self.kernels = [
            [self._ready(one, self.unit.functions[one.name]) for one in several]
            for several in self.unit.kernels
        ]
        self._begun = False
        self._settling = threading.Lock()
        self._functions: dict[KernelJob, tuple[KernelBinary, int]] = {}

    def _ready(self, source: TritonSource, function: TritonSource) -> _Ready:
        return _Ready(source, function, tuple([self._place[s] for s in source.storages]))

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
        for source in self.unit.functions.values():
            self.submitted(source)
        for source in self._tuning.others() if self._tuning is not None else ():
            self.builds.submit(self._job(source, self._likely), is_spare=True)
        self._begun = True

    def settle(self) -> None:
        """Wait for what was begun, and load it; raises what compiler or driver say against it.

        What a device has to decide between is measured now: from here on nothing changes.
        """
        if self.device is None or not self._begun:
            return
        with self.device.here(), self._settling:
            for source in self.unit.functions.values():
                self.function(source, self._likely)
            if self._tuning is not None and self._tuning.variants:
                self._tune(self._tuning, self.device)

    @property
    def tuned(self) -> Sequence[Verdict]:
        """What was decided between schedules, and what was left to the model."""
        return () if self._tuning is None else self._tuning.verdicts()

    def _tune(self, tuning: Tuning, device: GpuDevice) -> None:
        clock = device.clock(self.options.memory_limit)
        if isinstance(clock, str):
            tuning.leave(clock)
        else:
            self._use(tuning, tuning.decide(self, clock))

    def _use(self, tuning: Tuning, chosen: Mapping[str, tuple[Step, ...]]) -> None:
        """Launch nests by other schedules from now on."""
        for k, plan in enumerate(self.host.kernels):
            if chosen.keys().isdisjoint(n.name for n in plan.nests):
                continue
            nests = [replace(n, schedule=chosen.get(n.name, n.schedule)) for n in plan.nests]
            made = sources_of(self.program, nests, plan.shape, self.unit.names)
            self.kernels[k] = [self._ready(one, tuning.known(one)) for one in made]

    @property
    def _likely(self) -> list[int]:
        return [s.hint or 1 for s in self.program.sizes]

    def _job(self, source: TritonSource, sizes: Sequence[int]) -> KernelJob:
        assert self.device is not None, "jobs are for a device"
        return KernelJob(
            module_of_one(source),
            source.name,
            self.device.arch,
            len(source.storages),
            tuple([("i32" if n < NARROW else "i64", n % 16 == 0) for n in sizes]),
            tuple(sorted(launch_options(source).items())),
        )

    def submitted(self, source: TritonSource) -> Future[KernelBinary]:
        """The binary of a function for the likely sizes, now or later."""
        return self.builds.submit(self._job(source, self._likely))

    def starting(self, source: TritonSource, addresses: Mapping[str, int]) -> Start:
        """What starts a function on the memory of its storages, on a stream."""
        numbers = self._likely
        one = self._ready(source, source)
        grid = one.grid(dict(zip(self.program.sizes, numbers, strict=True)))
        made = self.function(source, numbers)
        start = launcher(*made, grid, len(one.places) + len(numbers))
        given = [*one.addresses([addresses.get(s, 0) for s in self.storages]), *numbers]
        return lambda stream: start(stream, given)

    def bind(self, first: int, last: int, numbers: Sequence[int]) -> Launch:
        """What launches kernels `first` up to, not including, `last` for some run-time sizes."""
        values = dict(zip(self.program.sizes, numbers, strict=True))
        if self.device is not None:
            return _Late(self, self.device, range(first, last), tuple(numbers))
        sized = self.sized(range(first, last), values)
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

    def launches(self, numbers: Sequence[int]) -> list[list[KernelLaunch]]:
        """For each kernel what is launched for some run-time sizes, loaded on the device."""
        values = dict(zip(self.program.sizes, numbers, strict=True))
        return [
            [self._loaded(one, grid, numbers) for one, grid in self.sized([k], values)]
            for k in range(len(self.kernels))
        ]

    def _loaded(self, one: _Ready, grid: int, numbers: Sequence[int]) -> KernelLaunch:
        made, function = self.function(one.function, numbers)
        places = tuple(zip(one.places, one.source.offsets, strict=True))
        return KernelLaunch(function, grid, LANES * made.warps, made.shared, places)

    def sized(
        self, kernels: Sequence[int], values: Mapping[Symbol, int]
    ) -> list[tuple[_Ready, int]]:
        """The functions of some kernels that have something to do, and how many programs."""
        chosen = [one for k in kernels for one in self.kernels[k]]
        return [(one, grid) for one in chosen if (grid := one.grid(values))]

    def function(self, source: TritonSource, numbers: Sequence[int]) -> tuple[KernelBinary, int]:
        """A function for some run-time sizes, compiled, and where the driver has it."""
        job = self._job(source, numbers)
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
        numbered: Sequence[int],
        numbers: tuple[int, ...],
    ) -> None:
        self.kernels, self.device, self.numbered, self.numbers = kernels, device, numbered, numbers
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
        values = dict(zip(self.kernels.program.sizes, self.numbers, strict=True))
        for one, grid in self.kernels.sized(self.numbered, values):
            made = self.kernels.function(one.function, self.numbers)
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
