"""The host on numpy arrays: C kernels in a shared object, library calls by table, an arena.

    compiled = compile_program(program, externs={"mylib.norm": norm})
    result = compiled.run({"x": x, "w": w})
    result["y"], result.outputs[0], result.read("x")     # x as it is afterwards

Inputs are copied, as the interpreter does; `run_on` works on the caller's memory instead. A
collective is carried out when it is waited for, as late as a slow network would: who reads its
result before finds whatever lies there, which in a poisoned run is poison. Where no C compiler is
found the interpreter runs the program, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from treadle.codegen.c.unit import Unit, write_unit
from treadle.codegen.host import HostProgram
from treadle.codegen.lower import lower
from treadle.core.options import Options
from treadle.core.toolchain import why_not_compiled
from treadle.core.verdict import YES, Verdict
from treadle.ir.effects import effects
from treadle.ir.program import Program
from treadle.ir.types import BufferKind
from treadle.memory.problem import ARENA
from treadle.runtime.arena import Arena, aligned_bytes, as_placement
from treadle.runtime.device_memory import Role
from treadle.runtime.kernels import Kernels, load_kernels
from treadle.runtime.launch_plan import (
    CallStep,
    ClearStep,
    LaunchPlan,
    LaunchStep,
    Step,
    TakeStep,
    WaitStep,
)
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.plan_launches import plan_as_told
from treadle.runtime.tensor import TensorAdapter, as_array, bytes_of, has_layout
from treadle.runtime.triton_kernels import TritonKernels

if TYPE_CHECKING:
    from treadle.ir.interp import ExternFn
    from treadle.runtime.hosts.numpy_memory import PlacedMemory

MOST_PLANS = 64
"""How many sets of run-time sizes keep their plan."""


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
        kernels: Kernels | TritonKernels | None,
        plan: Any,
        externs: Mapping[str, ExternFn],
        verdict: Verdict = YES,
    ) -> None:
        self.verdict = verdict
        """Why there is machine code, or none."""
        self.host, self.unit, self.kernels = host, unit, kernels
        self.program = host.program
        self.externs, self._given_places = dict(externs), plan
        self._arenas: dict[str, Arena] = {}
        self._number = {plan.name: k for k, plan in enumerate(host.kernels)}
        self._planned = lru_cache(maxsize=MOST_PLANS)(self._plan_at)

    @property
    def is_compiled(self) -> bool:
        """Whether kernels run as machine code; otherwise the interpreter runs the program."""
        return self.kernels is not None

    @property
    def arena_bytes(self) -> int:
        """How many bytes the arena holds now: what the largest run so far needed."""
        return sum(arena.nbytes for arena in self._arenas.values())

    @cached_property
    def shape(self) -> LaunchShape:
        """What of a run does not depend on sizes."""
        return LaunchShape(self.host)

    def plan(self, sizes: Mapping[str, int] | None = None) -> LaunchPlan:
        """The launch plan for run-time sizes by name; those not given have their likely value.

        A fixed placement was made for the likely sizes; with others it would not fit.
        """
        known = {s.name: s.hint for s in self.program.sizes} | dict(sizes or {})
        return self._planned(tuple(known.items()))

    def _plan_at(self, sizes: tuple[tuple[str, int], ...]) -> LaunchPlan:
        values, given = dict(sizes), self._given_places
        if callable(given):
            return plan_as_told(self.shape, values, as_placement(given(values)))
        is_likely = all(s.hint == values[s.name] for s in self.program.sizes)
        places = as_placement(given) if given is not None and is_likely else None
        return plan_as_told(self.shape, values, places)

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

    def _lies_in_place(self, memory: PlacedMemory, name: str, tensor: TensorAdapter) -> bool:
        """Whether a tensor can serve as the storage of an input just as it is."""
        layout = memory.layout(name)
        is_whole = self.program.storage_of(name) == name and layout.offset == 0
        if not is_whole or layout.lowest < 0 or 0 in layout.sizes:
            return False
        return has_layout(tensor, layout.sizes, layout.strides)

    def _numpy_type(self, name: str) -> Any:
        from treadle.ir.interp.dtypes import NUMPY_TYPES

        return NUMPY_TYPES[self.program.by_name[name].dtype]

    def _memory(
        self, inputs: Mapping[str, Any], sizes: Mapping[str, int] | None, poison: bool
    ) -> PlacedMemory:
        from treadle.ir.interp.bindings import as_arrays, bind_sizes, check_shape
        from treadle.runtime.hosts.numpy_memory import PlacedMemory

        arrays = as_arrays(self.program, inputs)
        memory = PlacedMemory(self.program, bind_sizes(self.program, arrays, sizes or {}), poison)
        for name, array in arrays.items():
            check_shape(self.program.by_name[name], memory.layout(name).sizes, array)
        return memory

    @property
    def shares_nothing(self) -> bool:
        """Whether every storage has a place of its own, for want of a plan."""
        return self._given_places is None

    def _interpret(
        self, inputs: Mapping[str, Any], sizes: Mapping[str, int] | None, poison: bool
    ) -> RunResult:
        from treadle.ir.interp import run

        given = self.externs
        result = run(self.program, inputs, sizes=sizes, externs=given, poison=poison)
        return RunResult(self.program, result._memory, result.outputs)

    # -- the steps -------------------------------------------------------------------------
    def _execute(self, memory: PlacedMemory) -> RunResult:
        import numpy as np

        plan = self.plan({s.name: n for s, n in memory.sizes.items()})
        # What the caller keeps must not lie in memory that the next run overwrites.
        own = {
            name: aligned_bytes(memory.nbytes(name))
            for name, life in plan.lives.items()
            if life.role is Role.OUTPUT
        }
        run = _Run(self, memory, plan, own)
        with np.errstate(all="ignore"):
            run.walk()
            results = [self._output(memory, name, name in own) for name in self.program.outputs]
        return RunResult(self.program, memory, results)

    def arena(self, device: str, total: int) -> Any:
        """The bytes of a device's arena."""
        return self._arenas.setdefault(device, Arena()).take(total)

    def _output(self, memory: PlacedMemory, name: str, is_fresh: bool) -> Any:
        """An output as the caller gets it; memory nobody else looks at needs no copy."""
        tensor = memory.tensor(name)
        sharing = [n for n in self.program.outputs if self.program.storage_of(n) == name]
        return tensor if is_fresh and len(sharing) == 1 else tensor.copy()

    def launch(self, memory: PlacedMemory, kernels: Sequence[str]) -> None:
        """Run kernels of consecutive numbers in one call."""
        assert isinstance(self.kernels, Kernels), "the interpreter runs what has no kernels in C"
        numbers = [self._number[name] for name in kernels]
        roots = self.unit.storages
        for root in roots:
            memory.elements(root)  # a storage whose turn has not come yet lies anywhere
        addresses = [memory.address(root) for root in roots]
        sizes = [memory.sizes[s] for s in self.program.sizes]
        self.kernels.run(addresses, sizes, numbers[0], numbers[-1] + 1)


class _Run:
    """One run of a plan: where storages lie, which events have not happened yet."""

    def __init__(
        self,
        compiled: CompiledProgram,
        memory: PlacedMemory,
        plan: LaunchPlan,
        own: Mapping[str, Any],
    ) -> None:
        self.compiled, self.memory, self.plan, self.own = compiled, memory, plan, own
        self.arenas = {m.device: compiled.arena(m.device, m.arena_bytes) for m in plan.memory}
        self.pending: dict[str, list[Step]] = {}
        """Event -> the steps to be done when it is waited for, in the order they were begun."""
        self.before: dict[str, Any] = {}
        """What storages held that a collective under way is changing."""
        # Storages that share memory may be born in bytes that are still being read.
        self.poisons_at_birth = memory.is_poisoned and compiled.shares_nothing
        self.births: dict[int, list[str]] = {}
        for name, life in plan.lives.items():
            if life.first >= 0:
                at = life.first if self.poisons_at_birth else 0
                self.births.setdefault(at, []).append(name)

    def walk(self) -> None:
        """Carry out every step."""
        if self.memory.is_poisoned and not self.poisons_at_birth:
            for arena in self.arenas.values():
                arena[...] = RUBBISH
        waiting: list[str] = []
        for k, step in enumerate(self.plan.steps):
            born = self.births.get(k, ())
            if waiting and (born or not isinstance(step, LaunchStep)):
                self.compiled.launch(self.memory, waiting)
                waiting = []
            for storage in born:
                self._begin(storage)
            if isinstance(step, LaunchStep):
                waiting.append(step.kernel)
            else:
                self._other(step)
        if waiting:
            self.compiled.launch(self.memory, waiting)
        if not self.memory.is_poisoned:
            self._finish(list(self.pending))  # what nobody waits for ends some time, too

    def _begin(self, storage: str) -> None:
        memory, own = self.memory, self.own
        if storage in own:
            memory.put(storage, own[storage])
            return
        device = self.plan.lives[storage].device
        pool, offset = self._place(device, storage)
        host = self.arenas[device] if pool == ARENA else own.get(pool)
        place = (memory.raw(pool) if host is None else host)[offset:]
        width = memory.buffer(storage).dtype.itemsize
        if pool != ARENA and int(place.ctypes.data) % width:
            # A caller's memory may begin anywhere; what needs more gets memory of its own.
            place = aligned_bytes(memory.nbytes(storage))
        memory.put(storage, place, is_fresh=self.poisons_at_birth)

    def _place(self, device: str, storage: str) -> tuple[str, int]:
        (memory,) = [m for m in self.plan.memory if m.device == device]
        return memory.places[storage]

    def _other(self, step: Step) -> None:
        if isinstance(step, CallStep) and step.event is not None:
            self.pending[step.event] = [step]
            self._take_away(step.mutates)
        elif isinstance(step, TakeStep) and step.event in self.pending:
            self.pending[step.event].append(step)
        elif isinstance(step, WaitStep):
            begun = list(self.pending)
            if step.event in begun:
                # Those of a group end in the order in which they were begun.
                self._finish(begun[: begun.index(step.event) + 1])
        elif isinstance(step, ClearStep):
            for name in effects(self.compiled.program.op_by_name[step.operation]).writes:
                self.memory.clear(name)  # it may be a view that begins anew, not the whole
        else:
            self._do(step)

    def _finish(self, events: Sequence[str]) -> None:
        for event in events:
            for step in self.pending.pop(event):
                if isinstance(step, CallStep):
                    for name in step.mutates:
                        if name in self.before:
                            self.memory.raw(name)[...] = self.before.pop(name)
                self._do(step)

    def _take_away(self, storages: Sequence[str]) -> None:
        """In a poisoned run, what a collective under way is changing cannot be read."""
        if self.memory.is_poisoned:
            for name in storages:
                if self.memory.buffer(name).kind is BufferKind.TENSOR:
                    self.before[name] = self.memory.raw(name).copy()
                    self.memory.clear(name)

    def _do(self, step: Step) -> None:
        from treadle.ir.interp.machine import RUNNERS

        op = self.compiled.program.op_by_name[step.operation]
        RUNNERS[type(op)](op, self.memory, self.compiled.externs)


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
