"""The kernels of a program in Triton: loaded, compiled ahead, launched by address.

`launch` has the form of the kernels in C, so that hosts need not know the difference. Every address
a kernel is given is a multiple of 16, which hosts see to. Triton itself is imported only here.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from treadle.codegen.host import HostProgram
from treadle.codegen.triton.unit import TritonUnit, write_triton
from treadle.codegen.triton.writer import TritonSource
from treadle.core.options import Options, cache_folder
from treadle.index import Symbol, evaluate
from treadle.ir.program import Program

AN_ADDRESS = 1 << 40
"""Stands for any address when a kernel is compiled ahead: 64 bits wide, well aligned."""
MOST_COMPILERS = 8


@dataclass(frozen=True)
class _Ready:
    """A function to launch, and which of the program's storages and sizes it takes."""

    source: TritonSource
    function: Any
    places: tuple[int, ...]

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

    def __init__(self, host: HostProgram, options: Options) -> None:
        self.program: Program = host.program
        self.unit: TritonUnit = write_triton(host)
        storages = [s for several in self.unit.kernels for one in several for s in one.storages]
        self.storages = tuple(dict.fromkeys(storages))
        place = {name: k for k, name in enumerate(self.storages)}
        module = load_module(self.unit.text, options)
        self.kernels = [
            [
                _Ready(one, getattr(module, one.name), tuple([place[s] for s in one.storages]))
                for one in several
            ]
            for several in self.unit.kernels
        ]

    def compile_ahead(self) -> None:
        """Compile all kernels for the likely sizes, several at a time."""
        every = [one for several in self.kernels for one in several]
        ready = list({(one.source.name, one.source.warps): one for one in every}.values())
        if is_interpreted() or not ready:
            return
        with ThreadPoolExecutor(min(MOST_COMPILERS, os.cpu_count() or 1)) as pool:
            list(pool.map(self._warm_up, ready))

    def _warm_up(self, one: _Ready) -> None:
        sizes = [s.hint or 1 for s in self.program.sizes]
        given = [AN_ADDRESS] * len(one.places)
        one.function.warmup(*given, *sizes, grid=(1,), **launch_options(one.source))

    def bind(self, first: int, last: int, numbers: Sequence[int]) -> Callable[[Any], None]:
        """What launches kernels `first` up to, not including, `last` for some run-time sizes."""
        values = dict(zip(self.program.sizes, numbers, strict=True))
        chosen = [one for several in self.kernels[first:last] for one in several]
        sized = [(one, grid) for one in chosen if (grid := one.grid(values))]
        starts: list[tuple[Callable[..., None], tuple[int, ...]]] = []
        for one, grid in sized:
            start = _interpreted(one, grid) if is_interpreted() else _direct(one, grid, numbers)
            starts.append((start, one.places))
        sizes = tuple(numbers)

        def launch(addresses: Any) -> None:
            for start, places in starts:
                start(*[addresses[k] or AN_ADDRESS for k in places], *sizes)

        return launch

    def texts(self) -> Iterator[str]:
        """The text of every function."""
        for several in self.unit.kernels:
            for one in several:
                yield one.text


def _interpreted(one: _Ready, grid: int) -> Callable[..., None]:
    """What runs a kernel in Triton's interpreter."""
    start = one.function[(grid,)]
    return lambda *given: start(*given, **launch_options(one.source))


def _direct(one: _Ready, grid: int, sizes: Sequence[int]) -> Callable[..., None]:
    """What launches a compiled kernel on the present stream, without asking again what it is.

    Triton's own launch looks at every argument each time: five times the work of the launch.
    """
    driver: Any = importlib.import_module("triton.runtime.driver").driver.active
    given = [AN_ADDRESS] * len(one.places)
    made = one.function.warmup(*given, *sizes, grid=(1,), **launch_options(one.source))
    made._init_handles()
    run, function, packed = made.run, made.function, made.packed_metadata
    device = driver.get_current_device()
    stream_of = driver.get_current_stream

    def start(*arguments: int) -> None:
        run(grid, 1, 1, stream_of(device), function, packed, None, None, None, *arguments)

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
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None, "a file that was just written can be loaded"
    assert found.loader is not None, "Python has a loader for its own files"
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def is_interpreted() -> bool:
    """Whether Triton interprets kernels instead of compiling them."""
    triton: Any = importlib.import_module("triton")
    return bool(triton.knobs.runtime.interpret)
