"""Every schedule that a GPU may be asked to try, run by Triton's interpreter.

    TRITON_INTERPRET=1 python tests/differential/triton_candidates.py --programs 10 --seed 1

Nests of every shape, and random programs, are walked by each schedule that differs from the usual
one, and held against the bound that their numerics allow around the reference interpreter.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import triton_cases
from triton_cases import run_in_triton

from treadle.core.errors import TreadleError
from treadle.core.options import Options
from treadle.ir.interp.compare import random_inputs
from treadle.ir.loop_schedule import Tune
from treadle.ir.numerics import TORCH
from treadle.ir.program import Kernel, Nest, Operation, Program
from treadle.ir.text import parse_program
from treadle.kernel.candidates_gpu import LEANINGS
from treadle.kernel.choose_gpu import Lean, choose_gpu_steps
from treadle.runtime import triton_kernels
from treadle.runtime.triton_builds import KernelBinary
from treadle.testing.error_bound import derive_bounds, outside

HEAD = "treadle 1\nprogram p\ninputs x\noutputs y\n\n"
NESTS: Mapping[str, str] = {
    "points": """buffer x : f32[5000] on cpu
buffer y : f32[5000] on cpu

loop a on cpu for i in 5000 {
  %0 = load x[i]
  %1 = exp %0
  %2 = add %1, %0
  store y[i] = %2
}
""",
    "transposed": """buffer x : f32[150, 90] on cpu
buffer y : f32[90, 150] on cpu

loop a on cpu for i in 90, j in 150 {
  %0 = load x[90*j + i]
  %1 = mul %0, %0
  store y[150*i + j] = %1
}
""",
    "short rows": """buffer x : f32[301, 100] on cpu
buffer y : f32[301, 100] on cpu

loop a on cpu for i in 301 reduce r in 100 {
  %0 = load x[100*i + r]
  %1 = reduce max %0
  %2 = sub %0, %1
  %3 = exp %2
  %4 = reduce sum %3
  %5 = truediv %3, %4
  store y[100*i + r] = %5
}
""",
    "rows": """buffer x : f32[9, 3000] on cpu
buffer y : f32[9] on cpu

loop a on cpu for i in 9 reduce r in 3000 {
  %0 = load x[3000*i + r]
  %1 = mul %0, %0
  %2 = reduce sum %1
  store y[i] = %2
}
""",
    "long rows": """buffer x : f32[3, 20000] on cpu
buffer y : f32[3, 20000] on cpu

loop a on cpu for i in 3 reduce r in 20000 {
  %0 = load x[20000*i + r]
  %1 = reduce max %0
  %2 = sub %0, %1
  store y[20000*i + r] = %2
}
""",
    "columns": """buffer x : f32[600, 130] on cpu
buffer y : f32[130] on cpu

loop a on cpu for j in 130 reduce r in 600 {
  %0 = load x[130*r + j]
  %1 = reduce sum %0
  store y[j] = %1
}
""",
    "rows across": """buffer x : f32[700, 90] on cpu
buffer y : f32[90, 700] on cpu

loop a on cpu for j in 90 reduce r in 700 {
  %0 = load x[90*r + j]
  %1 = reduce sum %0
  %2 = sub %0, %1
  store y[700*j + r] = %2
}
""",
    "a running sum": """buffer x : f32[40, 300] on cpu
buffer y : f32[40, 300] on cpu

loop a on cpu for i in 40 reduce r in 300 {
  %0 = load x[300*i + r]
  %1 = scan add %0
  store y[300*i + r] = %1
}
""",
}


class NothingNewError(Exception):
    """All schedules have been tried."""


class Leaning:
    """Walks the nests of a program otherwise than usual, and remembers how.

    Warps and pipelines are left out of it: the interpreter knows neither.
    """

    def __init__(self, lean: Lean, tried: set[str]) -> None:
        self.lean, self.tried = lean, tried
        self.seen: set[str] = set()

    def __call__(self, program: Program) -> Program:
        made = self._changed(program)
        if self.seen <= self.tried:
            raise NothingNewError
        return made

    def _changed(self, program: Program) -> Program:
        def changed(op: Operation) -> Operation:
            if isinstance(op, Kernel):
                return replace(op, members=tuple([changed(m) for m in op.members]))
            if not isinstance(op, Nest) or not op.schedule:
                return op
            steps, verdict = choose_gpu_steps(op, program, self.lean)
            if not verdict or steps == op.schedule:
                return op
            shown = [[str(s) for s in some if not isinstance(s, Tune)]
                     for some in (steps, op.schedule)]  # fmt: skip
            if shown[0] != shown[1]:
                self.seen.add(", ".join(shown[0]))
            return replace(op, schedule=steps)

        return program.with_ops(tuple([changed(op) for op in program.ops]))


def compared(program: Program, folder: str, sizes: Mapping[str, int]) -> int:
    """How many other schedules gave what they should; an error shows the first that did not."""
    inputs = random_inputs(program, sizes=sizes)
    bounds = derive_bounds(replace(program, numerics=TORCH), inputs, sizes=sizes)
    tried: set[str] = set()
    for lean in LEANINGS:
        change = Leaning(lean, tried)
        try:
            text, got = run_in_triton(program, inputs, sizes, folder, change)
        except NothingNewError:
            continue
        found = outside(bounds, got, undecidable=1.0)
        assert not found, "\n".join([str(lean), *found, text])
        tried |= change.seen
    return len(tried)


def check_nests(folder: str) -> dict[str, int]:
    """Nests of every shape: how many schedules each was compared by."""
    return {name: compared(parse_program(HEAD + text), folder, {}) for name, text in NESTS.items()}


def check_programs(count: int, first: int, folder: str) -> int:
    """Random programs; how many schedules were compared."""
    import random_bodies
    import wide_programs
    from hypothesis import HealthCheck, assume, given, seed, settings

    wide = tuple(e for e in wide_programs.ELEMENTS if not e.is_low_precision)
    wide_programs.ELEMENTS = wide  # type: ignore[assignment]
    random_bodies.ELEMENTS = wide  # type: ignore[assignment]
    total = 0

    @seed(first)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(wide_programs.wide_programs())
    def every_program(program: Program) -> None:
        nonlocal total
        try:
            total += compared(program, folder, {s.name: 48 for s in program.sizes})
        except TreadleError as e:
            assume(e.code != "GEN004")
            raise

    every_program()
    return total


# ------------------------------------------------------------------------------- whole graphs


class ScratchClock:
    """Tries everything once, on arrays of its own; the candidate of a number is the fastest."""

    def __init__(self, fastest: int) -> None:
        self.fastest, self.number, self.tried = fastest, 0, 0

    def room(self) -> int:
        return 1 << 30

    @contextmanager
    def scratch(self, sizes: Sequence[tuple[int, bool]]) -> Iterator[list[int]]:
        import numpy as np

        arrays = [np.zeros(size + 64, np.uint8) for size, _ in sizes]
        self.number = 0
        yield [-(-a.ctypes.data // 64) * 64 for a in arrays]

    @contextmanager
    def recorded(self, start: Callable[[int], None], launches: int) -> Iterator[Any]:
        start(0)
        self.tried += 1
        took = 1e3 if self.number == self.fastest else 2e3
        self.number += 1
        yield SimpleNamespace(nanoseconds=lambda: took)


class InterpretedGpu:
    """A device that is Triton's interpreter."""

    number, arch, name, is_alone = 0, "sm_90", "an interpreter", True

    def __init__(self, clock: ScratchClock) -> None:
        self._clock = clock

    def stream(self) -> int:
        return 0

    def here(self) -> Any:
        return nullcontext()

    def clock(self, most: int | None) -> ScratchClock:
        return self._clock


class NoBuilds:
    """Gives the text of a function for its binary."""

    def submit(self, job: Any, is_spare: bool = False) -> Future[KernelBinary]:
        made: Future[KernelBinary] = Future()
        warps = dict(job.options)["num_warps"]
        made.set_result(KernelBinary(job.name, "text", warps, 0, 0, job.text.encode()))
        return made


def interpreting(folder: str) -> Callable[..., Callable[..., None]]:
    """What stands in for the driver's launcher."""
    options = Options(cache_dir=folder)

    def launcher(made: KernelBinary, at: int, grid: int, count: int) -> Callable[..., None]:
        function = getattr(triton_kernels.load_module(made.binary.decode(), options), made.name)

        def start(stream: int, arguments: list[int]) -> None:
            function[(grid,)](*arguments, num_warps=made.warps)

        return start

    return launcher


def check_graphs(folder: str) -> int:
    """Graphs of torch for which another schedule wins give eager's results; how many others won."""
    import torch
    from torch.nn import functional

    import treadle.torch  # noqa: F401
    from treadle.frontends.torch.capture import compile as capture

    triton_kernels.compilers_for = lambda arch, options: NoBuilds()
    triton_kernels.load_function = lambda made, device: 1
    triton_kernels.launcher = interpreting(folder)
    gpu, built = InterpretedGpu(ScratchClock(0)), []
    capture.gpu_of = lambda devices: gpu
    own = capture._build
    capture._build = lambda *args: built.append(own(*args)) or built[-1]

    def mixed(x: Any, w: Any) -> Any:
        y = functional.layer_norm(functional.gelu(x), (520,), w)
        return y * 2, y.t().contiguous() + 1, x.exp().mean(0)

    others = 0
    for fastest in (1, 2):
        gpu._clock = ScratchClock(fastest)
        torch._dynamo.reset()
        capture._made.cache_clear()
        options = {"cache_dir": f"{folder}/{fastest}", "strict": True, "code": "triton"}
        results = []
        for f in (mixed, torch.compile(mixed, backend="treadle", options=options)):
            torch.manual_seed(0)
            x = torch.randn(96, 520).requires_grad_()
            w = torch.linspace(0, 1, 520).requires_grad_()
            out = f(x, w)
            sum(o.sin().sum() for o in out).backward()
            results.append([*out, x.grad, w.grad])
        for got, wanted in zip(*results, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-4)
        told = [v for one in built for v in one.runner.compiled.kernels.tuned]
        assert told, "a GPU was asked about something"
        assert gpu._clock.tried >= 2 * len(told), "and everything was tried"
        assert all(v.facts["by"] == "measured" for v in told)
        others += sum(v.facts["chosen"] != v.facts["schedules"][0] for v in told)
        built.clear()
    return others


def main() -> None:
    assert triton_cases.is_interpreted(), "set TRITON_INTERPRET=1"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--no-nests", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nests = {} if args.no_nests else check_nests(folder)
        for name, count in nests.items():
            print(name.replace(" ", "_"), count)
        if args.programs:
            print("programs", check_programs(args.programs, args.seed, folder))
        if args.graphs:
            print("graphs", check_graphs(folder))


if __name__ == "__main__":
    main()
