"""The host on torch tensors, in Python: kernels on their memory, library calls in between.

A plan is bound once for each set of run-time sizes (numbers instead of expressions) to a list of
actions, which a run walks. The arena belongs to one run: torch's allocator makes it and takes it
back, so that runs may overlap in threads and nothing is held in between.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch

from treadle.core.context import Ctx
from treadle.core.errors import TreadleError
from treadle.core.options import Options
from treadle.index import Symbol, hint
from treadle.ir.program import Program
from treadle.ir.run_error import RunError
from treadle.runtime.device_memory import DeviceMemory
from treadle.runtime.hosts.cuda_graphs import CudaRecorder
from treadle.runtime.hosts.numpy import CompiledProgram
from treadle.runtime.hosts.recorded_steps import (
    FEWEST_LAUNCHES,
    MOST_RECORDINGS,
    DeviceRecorder,
    ReplayedSteps,
    StepRange,
)
from treadle.runtime.hosts.sizes_of_inputs import SizesOfInputs
from treadle.runtime.hosts.torch_c import CHost, HostChoice, choose_host, translated
from treadle.runtime.hosts.torch_c_launch import choose_launching, launching
from treadle.runtime.hosts.torch_c_replay import choose_replaying
from treadle.runtime.hosts.torch_c_translate import InC
from treadle.runtime.hosts.torch_calls import BoundCalls
from treadle.runtime.hosts.torch_memory import Action, RunMemory, TensorMemory
from treadle.runtime.hosts.torch_tensors import as_expected, reinterpret, uncounted, view_of
from treadle.runtime.hosts.torch_threads import threads_of_torch
from treadle.runtime.kernels import Kernels
from treadle.runtime.launch_plan import (
    CallStep,
    LaunchPlan,
    LaunchStep,
    RecordedSteps,
    Step,
    TakeStep,
    WaitStep,
)
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.layouts_at_sizes import layout_at, layouts_at, number_at
from treadle.runtime.plan_launches import plan_launches
from treadle.runtime.signature import (
    ObjectResult,
    Result,
    Signature,
    SizeResult,
    TensorResult,
)
from treadle.runtime.triton_kernels import TritonKernels, is_interpreted

MOST_BOUND = 64
WALKS_AT_FIRST, WALKS_EVERY = 2 * MOST_RECORDINGS + 4, 16
"""Runs without a recording after which C launches, and how often Python looks again."""
RUNS_BEFORE_C = {"auto": 2, "c": 0, "python": sys.maxsize}
"""How often Python walks a plan before its host is compiled: most graphs of a test run once."""
OUT_OF_RANGE = ("RUN003", "RUN004")

GiveUp = Callable[[TreadleError], Callable[[list[Any]], Any]]
"""Takes what went wrong; gives what runs a graph without kernels of ours, or raises."""
Blame = Callable[[TreadleError], Sequence[str]]
"""The user's places behind an error of a run."""


class OutOfRangeError(IndexError, RuntimeError):
    """An index that leaves its tensor: eager mode raises one or the other, by operator."""


class Runner:
    """A graph that is ready to run: takes the graph's inputs as a list, gives its outputs."""

    def __init__(
        self,
        compiled: CompiledProgram,
        signature: Signature,
        ctx: Ctx | None = None,
        blame: Blame | None = None,
    ) -> None:
        self.compiled, self.signature, self.ctx = compiled, signature, ctx
        self.blame = blame
        self.options = ctx.options if ctx is not None else Options.from_env()
        self.runs_before_c = RUNS_BEFORE_C[self.options.host]
        if isinstance(compiled.kernels, Kernels):
            compiled.kernels.use_threads(threads_of_torch())
        self._likely: LaunchPlan | None = None
        self.program: Program = compiled.program
        self._place = {name: k for k, name in enumerate(compiled.unit.storages)}
        self._sizes = SizesOfInputs(compiled.program, signature)
        self._bound = lru_cache(maxsize=MOST_BOUND)(lambda sizes: Bound(self, sizes))
        self.host_libraries: dict[str, Any] = {}
        """Host functions in C that are loaded, by their text: other sizes mostly have the same."""
        self._only_host: CHost | None = None
        """The host in C of a program without run-time sizes, once there is one."""
        self.give_up: GiveUp | None = None
        """What to run instead if compilers that ran beside us say no; None: their error is ours."""
        self.on_settled: Callable[[], None] | None = None
        """Called once all kernels are there, and it is decided which are used."""
        self._instead: Callable[[list[Any]], Any] | None = None
        self._is_settled = not isinstance(compiled.kernels, TritonKernels)

    @cached_property
    def recorder(self) -> DeviceRecorder | None:
        """Who records steps to replay them; None where that is not possible or not wanted."""
        kernels = self.compiled.kernels
        on_device = isinstance(kernels, TritonKernels) and not is_interpreted()
        devices = [s.device for s in self.shape.streams if not s.device.startswith("cpu")]
        if not on_device or not devices or not self.options.record:
            return None
        return CudaRecorder(devices[0])

    @cached_property
    def shape(self) -> LaunchShape:
        """What of a run does not depend on sizes."""
        return LaunchShape(self.compiled.host, self.signature.facts)

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run on the caller's tensors; the list is emptied so that they can die early."""
        host = self._only_host
        if host is not None:
            found = host.enter(args)
            if found is not None:
                if host.is_direct and type(found) is list:
                    args.clear()
                    return found
                return self._finished(host, args, found)
        if self._instead is not None or not (self._is_settled or self._settled()):
            assert self._instead is not None, "who gives up says what runs instead"
            return list(self._instead(args))
        given = list(args)
        args.clear()
        bound = self._bound(self._sizes(given))
        tried, host = host, bound.in_c
        if host not in (None, tried) and (found := host.enter(given)) is not None:
            return self._finished(host, given, found)
        host = bound.launching()
        if host is not None and (found := host.enter(given)) is not None:
            return self._finished(host, given, found)
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            return self._walk(bound, given)
        except TreadleError as e:
            raise self._as_in_eager(e) from e
        finally:
            torch._C._set_grad_enabled(before)

    def _settled(self) -> bool:
        """Wait for compilers that run beside us; whether all kernels are there."""
        kernels = self.compiled.kernels
        assert isinstance(kernels, TritonKernels), "C is compiled before it gets here"
        try:
            kernels.settle()
        except TreadleError as e:
            if self.give_up is None:
                raise
            self._instead = self.give_up(e)
            return False
        self._is_settled = True
        if self.on_settled is not None:
            self.on_settled()
        return True

    def _finished(self, host: CHost, given: list[Any], found: Any) -> list[Any]:
        """The results of a run in C, or the error it ended with."""
        try:
            results = host.results(given, found)
        except TreadleError as e:
            raise self._as_in_eager(e) from e
        given.clear()
        return results

    def _walk(self, bound: Bound, given: list[Any]) -> list[Any]:
        """Carry out a plan from Python; what was given may die on the way."""
        memory = RunMemory(len(self._place))
        back = bound.take_inputs(memory, given)
        given.clear()
        for act in bound.actions:
            act(memory)
        for target, source in back:
            # AOTAutograd counts the change itself.
            with uncounted(target):
                target.copy_(source)
        return [give(memory) for give in bound.results]

    def _as_in_eager(self, error: TreadleError) -> Exception:
        """The error under the type that eager mode raises, with the user's line."""
        places = list(self.blame(error)) if self.blame is not None else []
        words = "your line" if len(places) == 1 else "one of your lines"
        if not any(":" in place for place in places):
            words = "in your model"
        lines = [f"  {words}: {'; '.join(places)}"] if places else []
        kind = OutOfRangeError if error.code in OUT_OF_RANGE else RuntimeError
        return kind("\n".join([str(error), *lines]))

    def places(self, operation: str) -> Sequence[str]:
        """The user's places behind an operation, as far as they are known."""
        return () if self.blame is None else self.blame(RunError("", operations=[operation]))

    @property
    def likely(self) -> LaunchPlan | None:
        """The plan for the likely sizes, once it is made: what others are made like."""
        return self._likely

    def bound(self, sizes: Mapping[str, int] | None = None) -> Bound:
        """The actions for some run-time sizes by name; those not given have their likely value."""
        known, own = sizes or {}, self.program.sizes
        found = self._bound(tuple([(s.name, known.get(s.name, hint(s))) for s in own]))
        self._likely = self._likely or found.plan
        return found

    def settle_for(self, bound: Bound) -> None:
        """Remember the one host in C of a program that has no run-time sizes."""
        if not self.program.sizes and bound.choice is not None:
            self._only_host = bound.choice.host

    def place(self, storage: str) -> int | None:
        """The position of a storage among the addresses kernels are given."""
        return self._place.get(storage)


class Misses:
    """How often no recording was found, and whether Python should walk to make one.

    A loop whose memory comes again is recorded soon. One whose memory lies elsewhere every time is
    left to C, but for a walk now and then: it may have settled since.
    """

    def __init__(self, recorded: Sequence[ReplayedSteps]) -> None:
        self._recorded = recorded
        self._count, self._replays = 0, 0

    def one_more(self, at_least: int) -> bool:
        """Count a run that C found no recording for; whether C should launch it."""
        replays = sum(one.replays for one in self._recorded)
        if replays != self._replays:
            self._count, self._replays = 0, replays
        self._count += 1
        if all(one.refused for one in self._recorded):
            return self._count > at_least
        return self._count > WALKS_AT_FIRST and self._count % WALKS_EVERY != 0


class Bound:
    """The actions and the memory of a program for one set of run-time sizes."""

    def __init__(self, runner: Runner, sizes: tuple[tuple[str, int], ...]) -> None:
        self.runner, self.program, self.shape = runner, runner.program, runner.shape
        values = dict(sizes)
        self.sizes: Mapping[str, int] = values
        self.values: Mapping[Symbol, int] = {s: values[s.name] for s in self.program.sizes}
        self.layouts = layouts_at(self.program, self.values)
        self.plan = plan_launches(
            self.shape,
            values,
            ctx=runner.ctx,
            like=runner.likely,
            layouts=self.layouts,
            at_once=self._is_replayed_whole,
        )
        self.tensors = TensorMemory(
            self.shape, self.memory, self.layouts, runner.place, runner.signature.is_inference
        )
        self.calls = BoundCalls(
            self.shape, runner.signature, self.tensors, self.values, runner.places
        )
        self.recorded: list[ReplayedSteps] = []
        """The parts of the plan that the device records."""
        self.actions: list[Action] = list(self._parts())
        self._runs = 0
        self.choice: HostChoice | None = None
        """Who carries out the plan, once that is decided."""
        self._misses = Misses(self.recorded)
        self._launching: HostChoice | None = None
        self._given: set[str] = set()
        self.results = [self._giver(one) for one in runner.signature.results]

    @property
    def _is_replayed_whole(self) -> bool:
        """Whether one recording is to stand for all steps, so that all memory is there before."""
        if self.runner.recorder is None or self.runner.signature.objects:
            return False
        return self.shape.recordings == (RecordedSteps(0, self.shape.end - 1),)

    @property
    def memory(self) -> DeviceMemory:
        """Where storages lie: all of them, for this host runs on one device."""
        return self.plan.main

    def instructions(self) -> InC:
        """The plan as a host in C carries it out; NotInC if Python must."""
        on_device = isinstance(self.runner.compiled.kernels, TritonKernels)
        return launching(self) if on_device else translated(self)

    @property
    def in_c(self) -> CHost | None:
        """The plan as a function in C, once it has run often enough for that to pay."""
        if self.choice is None and self.runner.recorder is not None:
            return self._replaying()
        if self.choice is None:
            self._runs += 1
            is_loaded = bool(self.runner.host_libraries)  # then it costs no compiler to go on in C
            if self._runs <= self.runner.runs_before_c and not is_loaded:
                return None
            on_device = isinstance(self.runner.compiled.kernels, TritonKernels)
            choose = choose_launching if on_device else choose_host
            self.choice = choose(self, self.runner.options)
            self.runner.settle_for(self)
        return self.choice.host

    def launching(self) -> CHost | None:
        """What launches step by step, for a run that no recording is likely to fit."""
        if self.runner.recorder is None or self.runner.options.host == "python":
            return None
        if not self._misses.one_more(self.runner.runs_before_c):
            return None
        if self._launching is None:
            self._launching = choose_launching(self, self.runner.options)
        return self._launching.host

    def _replaying(self) -> CHost | None:
        """A function in C that finds recordings, once the whole plan has one."""
        is_whole = [(r.steps.first, r.steps.last) for r in self.recorded] == [
            (0, len(self.plan.steps) - 1)
        ]
        if not is_whole:
            self.choice = HostChoice(None, "the plan is not recorded as a whole")
        elif self.recorded[0].refused:
            self.choice = HostChoice(None, self.recorded[0].refused)
        elif self.runner.options.host == "python":
            self.choice = HostChoice(None, "the option `host` asks for it")
        elif not self.recorded[0].known:
            return None
        else:
            self.choice = choose_replaying(self, self.recorded[0], self.runner.options)
            self.runner.settle_for(self)
        return self.choice.host

    # -- inputs ----------------------------------------------------------------------------
    def take_inputs(self, memory: RunMemory, given: list[Any]) -> list[tuple[Any, Any]]:
        """Put the inputs in place; gives pairs to copy back: tensors that had to be moved."""
        signature, tensors, back = self.runner.signature, self.tensors, []
        for position, name in signature.tensors:
            tensor, layout = given[position], self.layouts[name]
            if tensor is None:  # a token that orders effects: torch passes nothing for it
                element = tensors.element(name)
                tensor = torch.empty_strided(
                    layout.sizes, layout.strides, dtype=element, device=tensors.device
                )
            if tuple(tensor.shape) != layout.sizes and self.runner.place(name) is None:
                memory.tensors[name] = tensor  # saved by an operator that broke its promise
                memory.is_odd = True
                continue
            placed = as_expected(tensor, layout)
            tensors.put(memory, name, placed)
            if name in signature.mutated and placed.data_ptr() != tensor.data_ptr():
                back.append((tensor, placed))
        for name, tensor in signature.constants.items():
            tensors.put(memory, name, tensor)
        for position, name in signature.objects:
            memory.objects[name] = given[position]
        tensors.settle_inputs(memory, given)
        return back

    # -- steps -----------------------------------------------------------------------------
    def _parts(self) -> Iterator[Action]:
        """All steps; those that can be recorded and are worth it as one action each."""
        yield from self._let_go(self.tensors.ends.get(-1, []), 0)
        at = 0
        for first, last in self._worth_recording():
            yield from self._actions(at, first)
            yield self._recorded(first, last)
            at = last + 1
        yield from self._actions(at, len(self.plan.steps))

    def _worth_recording(self) -> Iterator[tuple[int, int]]:
        if self.runner.recorder is None or self.runner.signature.objects:
            return  # objects may be others next time: a recording would not notice
        for one in self.plan.recordings:
            steps = self.plan.steps[one.first : one.last + 1]
            if sum(map(self._launches_of, steps)) >= FEWEST_LAUNCHES:
                yield one.first, one.last

    def _launches_of(self, step: Step) -> int:
        """How many launches a step takes."""
        kernels = self.runner.compiled.kernels
        if isinstance(step, LaunchStep) and isinstance(kernels, TritonKernels):
            return len(kernels.kernels[self._number[step.kernel]])
        return 1

    def _recorded(self, first: int, last: int) -> Action:
        recorder = self.runner.recorder
        assert recorder is not None, "nothing is worth recording without a recorder"
        both, places = list(self._actions(first, last + 1)), range(first, last + 1)
        allocations = [a for k in places for a in self.tensors.allocations.get(k, [])]
        steps = [a for a in both if a not in allocations]
        draws = any(self.shape.draws(step.operation) for step in self.plan.steps[first : last + 1])
        made = StepRange(first, last, allocations, steps, both, draws)
        self.recorded.append(ReplayedSteps(made, self.plan, self.tensors, recorder))
        return self.recorded[-1]

    def _actions(self, first: int, end: int) -> Iterator[Action]:
        """Allocations, kernels, calls; what ends is let go of before memory is next needed."""
        run: list[int] = []
        over: list[str] = []
        for k in range(first, end):
            step, taken = self.plan.steps[k], self.tensors.allocations.get(k, [])
            if taken or not isinstance(step, LaunchStep):
                yield from self._launch(run)
                yield from self._let_go(over, k)
                run, over = [], []
            yield from taken
            if isinstance(step, LaunchStep):
                run.append(self._number[step.kernel])
            else:
                yield from self._other(step)
            over = over + self.tensors.ends.get(k, []) + self._objects.get(k, [])
        yield from self._launch(run)
        if end < len(self.plan.steps):
            yield from self._let_go(over, end)

    @cached_property
    def _number(self) -> dict[str, int]:
        """Kernels by name: their numbers."""
        return {plan.name: k for k, plan in enumerate(self.runner.compiled.host.kernels)}

    @cached_property
    def _objects(self) -> dict[int, list[str]]:
        """The objects that nobody needs after a step."""
        found: dict[int, list[str]] = {}
        for name, k in self.shape.objects.items():
            found.setdefault(k, []).append(name)
        return found

    def _other(self, step: Step) -> Iterator[Action]:
        assert not isinstance(step, TakeStep), "here calls give their results one by one"
        if isinstance(step, CallStep):
            yield self.calls.action(step)
        elif isinstance(step, WaitStep):
            yield self.calls.wait(step)

    def _let_go(self, names: Sequence[str], before: int) -> Iterator[Action]:
        if not names:
            return
        arena = self.memory.arena
        is_over = arena is not None and arena.last < before

        def let_go(memory: RunMemory) -> None:
            for name in names:
                memory.tensors.pop(name, None)
                memory.objects.pop(name, None)
            if is_over:
                memory.arena = None

        yield let_go

    def _launch(self, kernel_numbers: Sequence[int]) -> Iterator[Action]:
        kernels = self.runner.compiled.kernels
        if not kernel_numbers:
            return
        first, last = kernel_numbers[0], kernel_numbers[-1] + 1
        assert kernels is not None, "a runner is made of what was compiled"
        numbers = [self.sizes[s.name] for s in self.program.sizes]
        if isinstance(kernels, TritonKernels):
            start_there = kernels.bind(first, last, numbers)
            yield lambda memory: start_there(memory.addresses)
            return
        start = kernels.launch
        sizes = (ctypes.c_int64 * max(len(numbers), 1))(*numbers)

        def launch(memory: RunMemory) -> None:
            start(memory.addresses, sizes, memory.error, first, last)

        yield launch

    # -- results ---------------------------------------------------------------------------
    def _giver(self, result: Result) -> Callable[[RunMemory], Any]:
        if isinstance(result, TensorResult):
            return self._tensor_giver(result)
        if isinstance(result, ObjectResult):
            held = result.name
            return lambda memory: memory.objects[held]
        if isinstance(result, SizeResult):
            number = number_at(result.size, self.values)
            return lambda memory: number
        value = result.value
        return lambda memory: value

    def _tensor_giver(self, result: TensorResult) -> Callable[[RunMemory], Any]:
        name = result.storage
        # A result is a tensor of its own, even where another one shows the same memory.
        if result.is_whole and name not in self._given:
            self._given.add(name)
            return lambda memory: memory.tensors[name]
        look = self.viewer(result)
        return lambda memory: look(memory.tensors[name])

    def viewer(self, result: TensorResult) -> Callable[[Any], Any]:
        """What makes the tensor that a result is of the one over its storage."""
        is_view = self.runner.signature.is_inference and result.storage not in self.shape.inputs
        look = view_of if is_view else reinterpret
        sizes, strides, offset = layout_at(result.layout, self.values)
        return lambda tensor: look(tensor, sizes, strides, offset)
