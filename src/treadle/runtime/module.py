"""A compiled program: C kernels in a shared object, library calls by table, one arena.

    compiled = compile_program(program, externs={"mylib.norm": norm})
    result = compiled.run({"x": x, "w": w})
    result["y"], result.outputs[0], result.read("x")     # x as it is afterwards

Inputs are copied, as the interpreter does; `run_on` works on the caller's memory instead. Where no
C compiler is found the interpreter runs the program, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.codegen.c.unit import Unit, write_unit
from treadle.codegen.host import (
    Alloc,
    CallStep,
    ClearStep,
    HostProgram,
    HostStep,
    Launch,
    TakeStep,
    WaitStep,
)
from treadle.codegen.lower import lower
from treadle.core.options import Options
from treadle.core.toolchain import why_not_compiled
from treadle.core.verdict import YES, Verdict
from treadle.index import Symbol
from treadle.ir.program import Program
from treadle.ir.types import BufferKind
from treadle.runtime.arena import (
    ARENA,
    Arena,
    ArenaLayout,
    aligned_bytes,
    as_placement,
    plan_layout,
    stacked_layout,
)
from treadle.runtime.launch import Kernels, load_kernels
from treadle.runtime.tensor import TensorAdapter, as_array, bytes_of, is_window

if TYPE_CHECKING:
    from treadle.ir.interp import ExternFn
    from treadle.runtime.rows import Rows


class RunResult(Mapping[str, Any]):
    """What a run left behind: outputs by name, in order, and every input as it is now."""

    def __init__(self, program: Program, memory: Any, outputs: Sequence[Any]) -> None:
        self._program, self._memory = program, memory
        self.outputs = list(outputs)

    def __getitem__(self, name: str) -> Any:
        return self.outputs[self._program.outputs.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self._program.outputs))

    def __len__(self) -> int:
        return len(set(self._program.outputs))

    def read(self, name: str) -> Any:
        """A copy of an input or an output after the run, in its shape."""
        return self._memory.tensor(name).copy()

    @property
    def sizes(self) -> Mapping[str, int]:
        """The run-time sizes of this run by name."""
        return {s.name: n for s, n in self._memory.sizes.items()}


class CompiledProgram:
    """A program that is ready to run, any number of times, for any sizes it allows."""

    def __init__(
        self,
        host: HostProgram,
        unit: Unit,
        kernels: Kernels | None,
        plan: Any,
        externs: Mapping[str, ExternFn],
        verdict: Verdict = YES,
    ) -> None:
        self.verdict = verdict
        """Why there is machine code, or none."""
        self.host, self.unit, self.kernels = host, unit, kernels
        self.program = host.program
        self.externs, self._plan = dict(externs), plan
        self._arena = Arena()
        self._number = {plan.name: k for k, plan in enumerate(host.kernels)}

    @property
    def is_compiled(self) -> bool:
        """Whether kernels run as machine code; otherwise the interpreter runs the program."""
        return self.kernels is not None

    @property
    def arena_bytes(self) -> int:
        """How many bytes the arena holds now: what the largest run so far needed."""
        return self._arena.nbytes

    # -- running ---------------------------------------------------------------------------
    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        sizes: Mapping[str, int] | None = None,
        poison: bool = False,
    ) -> RunResult:
        """Run on copies of the input arrays; `poison` fills fresh memory as the interpreter does.

        `sizes` gives run-time sizes that no input shows.
        """
        if self.kernels is None:
            return self._interpret(inputs, sizes, poison)
        memory = self._memory(inputs, sizes, poison)
        for name in self.program.inputs:
            if self.program.by_name[name].kind is BufferKind.TENSOR:
                memory.tensor(name)[...] = inputs[name]
        return self._execute(memory)

    def run_on(
        self, tensors: Mapping[str, TensorAdapter], *, sizes: Mapping[str, int] | None = None
    ) -> RunResult:
        """Run on the caller's own memory: what the program mutates changes there.

        A tensor that does not lie as its buffer's layout says is copied in and back.
        """
        arrays = {n: as_array(t, self._numpy_type(n)) for n, t in tensors.items()}
        if self.kernels is None:
            result = self._interpret(arrays, sizes, False)
            for name, array in arrays.items():
                array[...] = result.read(name)
            return result
        memory = self._memory(arrays, sizes, False)
        copied = []
        for name, array in arrays.items():
            if self._lies_in_place(memory, name, tensors[name]):
                memory.put(name, bytes_of(array), is_fresh=False)
            else:
                memory.tensor(name)[...] = array
                copied.append(name)
        result = self._execute(memory)
        for name in copied:
            arrays[name][...] = memory.tensor(name)
        return result

    def _lies_in_place(self, memory: Rows, name: str, tensor: TensorAdapter) -> bool:
        """Whether a tensor can serve as the storage of an input just as it is."""
        window = memory.layout(name)
        is_whole = self.program.storage_of(name) == name and window.offset == 0
        if not is_whole or window.lowest < 0 or 0 in window.sizes:
            return False
        return is_window(tensor, window.sizes, window.strides)

    def _numpy_type(self, name: str) -> Any:
        from treadle.ir.interp.dtypes import NUMPY_TYPES

        return NUMPY_TYPES[self.program.by_name[name].dtype]

    def _memory(
        self, inputs: Mapping[str, Any], sizes: Mapping[str, int] | None, poison: bool
    ) -> Rows:
        from treadle.ir.interp.bindings import as_arrays, bind_sizes, check_shape
        from treadle.runtime.rows import Rows

        arrays = as_arrays(self.program, inputs)
        memory = Rows(self.program, bind_sizes(self.program, arrays, sizes or {}), poison)
        for name, array in arrays.items():
            check_shape(self.program.by_name[name], memory.layout(name).sizes, array)
        return memory

    def _interpret(
        self, inputs: Mapping[str, Any], sizes: Mapping[str, int] | None, poison: bool
    ) -> RunResult:
        from treadle.ir.interp import run

        given = self.externs
        result = run(self.program, inputs, sizes=sizes, externs=given, poison=poison)
        return RunResult(self.program, result._memory, result.outputs)

    # -- the steps -------------------------------------------------------------------------
    def layout(self, sizes: Mapping[str, int], run_time: Mapping[Symbol, int]) -> ArenaLayout:
        """Where storages of the given bytes lie in the arena.

        A fixed plan was made for the likely run-time sizes; with others it would not fit.
        """
        plan = self._plan
        if plan is None or (not callable(plan) and any(s.hint != n for s, n in run_time.items())):
            return stacked_layout(sizes)
        named = {s.name: n for s, n in run_time.items()}
        return plan_layout(as_placement(plan(named) if callable(plan) else plan), sizes)

    def _execute(self, memory: Rows) -> RunResult:
        import numpy as np

        program = self.program
        # What the caller keeps must not lie in memory that the next run overwrites.
        kept = {program.storage_of(n) for n in program.outputs}
        own = {s: aligned_bytes(memory.nbytes(s)) for s in self.host.storages if s in kept}
        temps = {s: memory.nbytes(s) for s in self.host.storages if s not in kept}
        where = self.layout(temps, memory.sizes)
        arena = self._arena.take(where.total)
        # Storages that share memory may be born in bytes that are still being read.
        at_birth = memory.is_poisoned and self._plan is None
        if memory.is_poisoned and not at_birth:
            arena[...] = RUBBISH

        def begin(storage: str) -> None:
            if storage in own:
                memory.put(storage, own[storage])
                return
            pool, offset = where.spots[storage]
            host = arena if pool == ARENA else own[pool] if pool in own else memory.raw(pool)
            width = self.program.by_name[storage].dtype.itemsize
            place = host[offset:]
            if pool != ARENA and int(place.ctypes.data) % width:
                # A caller's memory may begin anywhere; what needs more gets memory of its own.
                place = aligned_bytes(memory.nbytes(storage))
            memory.put(storage, place, is_fresh=at_birth)

        with np.errstate(all="ignore"):
            if not at_birth:
                for storage in self.host.storages:
                    begin(storage)
            self._walk(memory, begin if at_birth else None)
            results = [self._output(memory, name, name in own) for name in program.outputs]
        return RunResult(program, memory, results)

    def _output(self, memory: Rows, name: str, is_fresh: bool) -> Any:
        """An output as the caller gets it; memory nobody else looks at needs no copy."""
        tensor = memory.tensor(name)
        sharing = [n for n in self.program.outputs if self.program.storage_of(n) == name]
        return tensor if is_fresh and len(sharing) == 1 else tensor.copy()

    def _walk(self, memory: Rows, begin: Any) -> None:
        waiting: list[int] = []
        for step in self.host.steps:
            if isinstance(step, Launch):
                waiting.append(self._number[step.kernel])
                continue
            if isinstance(step, Alloc) and begin is None:
                continue
            if waiting and isinstance(step, Alloc | CallStep | TakeStep | ClearStep):
                self._launch(memory, waiting)
                waiting = []
            if isinstance(step, Alloc):
                begin(step.storage)
            else:
                self._other(step, memory)
        if waiting:
            self._launch(memory, waiting)

    def _launch(self, memory: Rows, numbers: Sequence[int]) -> None:
        """Kernels of consecutive numbers in one call."""
        assert self.kernels is not None
        roots = self.unit.storages
        for root in roots:
            memory.elements(root)  # a storage whose turn has not come yet lies anywhere
        addresses = [memory.address(root) for root in roots]
        sizes = [memory.sizes[s] for s in self.program.sizes]
        self.kernels.run(addresses, sizes, numbers[0], numbers[-1] + 1)

    def _other(self, step: HostStep, memory: Rows) -> None:
        from treadle.ir.interp.machine import RUNNERS

        if isinstance(step, CallStep | TakeStep):
            RUNNERS[type(step.op)](step.op, memory, self.externs)
        elif isinstance(step, ClearStep):
            for name in step.op.writes:
                memory.clear(name)
        elif isinstance(step, WaitStep):
            pass  # a world of one rank: the collective ended when it was called


def compile_program(
    program: Program,
    *,
    plan: Any = None,
    externs: Mapping[str, ExternFn] | None = None,
    options: Options | None = None,
    optimise: int = 2,
) -> CompiledProgram:
    """Generate C for a program, compile it, and give what runs it.

    `plan` places storages in the arena: a plan of the memory planner, a mapping from storage to
    byte offset, or a function from run-time sizes to one of these. `externs` implements library
    calls by target, before the reference's own. `optimise` is the C compiler's level, 0 to 3:
    results do not depend on it.
    """
    compiled = build_program(
        program, plan=plan, externs=externs, options=options, optimise=optimise
    )
    if not compiled.is_compiled:
        words = "the interpreter runs this program, slowly, because"
        reason = why_not_compiled(compiled.verdict)
        warnings.warn(f"{NOT_COMPILED}: {words} {reason}", stacklevel=2)
    return compiled


def build_program(
    program: Program,
    *,
    plan: Any = None,
    externs: Mapping[str, ExternFn] | None = None,
    options: Options | None = None,
    optimise: int = 2,
) -> CompiledProgram:
    """What `compile_program` gives, without a warning if C was not compiled: see `verdict`."""
    host = lower(program)
    unit = write_unit(host)
    kernels, verdict = load_kernels(unit, options or Options.from_env(), optimise)
    return CompiledProgram(host, unit, kernels, plan, externs or {}, verdict)


NOT_COMPILED = "RUN011"
RUBBISH = 0x5B
"""What fresh memory is full of in a poisoned run whose storages share it."""
