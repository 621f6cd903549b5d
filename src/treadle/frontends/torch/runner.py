"""Runs a compiled program on torch tensors: kernels on their memory, calls in between.

Steps are bound once for each set of run-time sizes (numbers instead of expressions) and then
walked. A storage is allocated where its life begins and dropped where it ends; what a call returns
becomes the storage itself where it lies as the program expects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from treadle.codegen.c.unit import ERROR_LENGTH
from treadle.codegen.host import Alloc, CallStep, Free, HostStep, Launch
from treadle.frontends.torch import compat
from treadle.frontends.torch.calls import Held, Hole, TorchCall, Window
from treadle.frontends.torch.lowering import Lowered
from treadle.frontends.torch.promotion import TORCH_TYPES
from treadle.frontends.torch.values import Opaque, Realised
from treadle.index import Expr, Symbol, evaluate
from treadle.ir.program import Call, Program, Ref
from treadle.ir.types import BufferKind, Layout
from treadle.runtime import CompiledProgram

MOST_BOUND = 64


class Spot(NamedTuple):
    """A layout in numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Memory:
    """What one run holds: tensors by storage, objects by name, addresses for the kernels."""

    __slots__ = ("addresses", "error", "objects", "tensors")

    def __init__(self, count: int) -> None:
        self.tensors: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self.addresses: Any = (ctypes.c_void_p * max(count, 1))()
        self.error: Any = (ctypes.c_int64 * ERROR_LENGTH)()


Step = Callable[[Memory], None]


class Runner:
    """A graph that is ready to run: takes the graph's inputs as a list, gives its outputs."""

    def __init__(self, compiled: CompiledProgram, lowered: Lowered) -> None:
        self.compiled, self.lowered = compiled, lowered
        self.program: Program = compiled.program
        self._place = {name: k for k, name in enumerate(compiled.unit.storages)}
        self._bound = lru_cache(maxsize=MOST_BOUND)(lambda sizes: Bound(self, sizes))
        self._constants = lowered.constants

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run on the caller's tensors; the list is emptied so that they can die early."""
        given = list(args)
        args.clear()
        bound = self._bound(self._sizes(given))
        memory = Memory(len(self._place))
        with torch.no_grad():
            back = bound.take_inputs(memory, given)
            del given
            for step in bound.steps:
                step(memory)
            for target, source in back:
                target.copy_(source)
            return [give(memory) for give in bound.outputs]

    def _sizes(self, given: Sequence[Any]) -> tuple[tuple[str, int], ...]:
        """The value of every run-time size, from the inputs that show it."""
        if not self.program.sizes:
            return ()
        values = {name: int(given[position]) for position, name in self.lowered.numbers}
        for position, name in self.lowered.tensors:
            shape = given[position].shape if given[position] is not None else ()
            for n, extent in zip(self.program.by_name[name].layout.sizes, shape, strict=False):
                if isinstance(n, Symbol):
                    values.setdefault(n.name, int(extent))
        return tuple([(s.name, values[s.name]) for s in self.program.sizes])

    def place(self, storage: str) -> int | None:
        """The position of a storage among the addresses kernels are given."""
        return self._place.get(storage)


class Bound:
    """The steps of a program for one set of run-time sizes."""

    def __init__(self, runner: Runner, sizes: tuple[tuple[str, int], ...]) -> None:
        self.runner, self.program = runner, runner.program
        values = dict(sizes)
        self.values: Mapping[Symbol, int] = {s: values[s.name] for s in self.program.sizes}
        self.numbers = [values[s.name] for s in self.program.sizes]
        self.spots = {
            b.name: self.spot(b.layout)
            for b in self.program.buffers
            if b.kind is BufferKind.TENSOR and b.view_of is None
        }
        self.steps: list[Step] = list(self._steps(runner.compiled.host.steps))
        self.outputs = [self._giver(one) for one in runner.lowered.outputs]

    def number(self, e: Expr) -> int:
        """What an expression stands for."""
        return e.value if e.value is not None else int(evaluate(e, self.values))

    def spot(self, layout: Layout) -> Spot:
        """A layout in numbers."""
        sizes = tuple([self.number(n) for n in layout.sizes])
        strides = tuple([self.number(n) for n in layout.strides])
        return Spot(sizes, strides, self.number(layout.offset))

    # -- inputs ----------------------------------------------------------------------------
    def take_inputs(self, memory: Memory, given: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Put the inputs in place; gives pairs to copy back: tensors that had to be moved."""
        lowered, back = self.runner.lowered, []
        for position, name in lowered.tensors:
            tensor = given[position]
            if tensor is None:  # a token that orders effects: torch passes nothing for it
                tensor = torch.empty_strided(*self.spots[name][:2], dtype=self._element(name))
            if tuple(tensor.shape) != self.spots[name].sizes and self.runner.place(name) is None:
                memory.tensors[name] = tensor  # saved by an operator that broke its promise
                continue
            placed = as_expected(tensor, self.spots[name])
            self.put(memory, name, placed)
            if name in lowered.mutated:
                torch.autograd.graph.increment_version(tensor)
                if placed is not tensor:
                    back.append((tensor, placed))
        for name, tensor in lowered.constants.items():
            self.put(memory, name, tensor)
        for position, name in lowered.objects:
            memory.objects[name] = given[position]
        return back

    def put(self, memory: Memory, storage: str, tensor: Any) -> None:
        """Let a storage lie in a tensor's memory."""
        memory.tensors[storage] = tensor
        at = self.runner.place(storage)
        if at is not None:
            memory.addresses[at] = tensor.data_ptr()

    # -- steps -----------------------------------------------------------------------------
    def _steps(self, steps: Sequence[HostStep]) -> list[Step]:
        found: list[Step] = []
        number = {plan.name: k for k, plan in enumerate(self.runner.compiled.host.kernels)}
        made = self._made_by_calls(steps)
        run: list[int] = []
        for step in steps:
            if isinstance(step, Launch):
                if run and number[step.kernel] != run[-1] + 1:
                    found.append(self._launch(run))
                    run = []
                run.append(number[step.kernel])
                continue
            if run:
                found.append(self._launch(run))
                run = []
            if isinstance(step, Alloc) and step.storage not in made:
                found.append(self._alloc(step.storage))
            elif isinstance(step, Free):
                found.append(self._free(step.storage))
            elif isinstance(step, CallStep):
                found.append(self._call(step.op))
        if run:
            found.append(self._launch(run))
        return found

    def _made_by_calls(self, steps: Sequence[HostStep]) -> set[str]:
        """Storages a call makes as a whole: nothing needs to be allocated for them."""
        calls = [s.op for s in steps if isinstance(s, CallStep)]
        return {name for op in calls for name in op.writes}

    def _launch(self, kernel_numbers: Sequence[int]) -> Step:
        kernels = self.runner.compiled.kernels
        first, last = kernel_numbers[0], kernel_numbers[-1] + 1
        assert kernels is not None
        # All launches of a run share one array of addresses: `Kernels.run` would make one each.
        entry, fail = kernels._entry, kernels._fail
        sizes = (ctypes.c_int64 * max(len(self.numbers), 1))(*self.numbers)

        def launch(memory: Memory) -> None:
            error = memory.error
            if entry(memory.addresses, sizes, error, first, last):
                fail(list(error))

        return launch

    def _alloc(self, storage: str) -> Step:
        spot, element = self.spots[storage], self._element(storage)
        at = self.runner.place(storage)

        def alloc(memory: Memory) -> None:
            tensor = torch.empty_strided(spot.sizes, spot.strides, dtype=element)
            memory.tensors[storage] = tensor
            if at is not None:
                memory.addresses[at] = tensor.data_ptr()

        return alloc

    def _free(self, storage: str) -> Step:
        def free(memory: Memory) -> None:
            memory.tensors.pop(storage, None)

        return free

    def _element(self, name: str) -> torch.dtype:
        return TORCH_TYPES[self.program.by_name[name].dtype]

    # -- calls -----------------------------------------------------------------------------
    def _call(self, op: Call) -> Step:
        call: TorchCall = self.runner.lowered.calls[op.name]
        args = [self._filler(a, op) for a in call.args]
        kwargs = {key: self._filler(a, op) for key, a in call.kwargs.items()}
        results = list(zip(call.results, op.writes, strict=True))
        function, is_single = call.function, call.is_single

        def invoke(memory: Memory) -> None:
            given = [fill(memory) for fill in args]
            made = function(*given, **{key: fill(memory) for key, fill in kwargs.items()})
            if not results:
                return
            several = (made,) if is_single else made
            inputs = _storages(given)
            for (position, _, is_object), name in results:
                if is_object:
                    memory.objects[name] = several[position]
                else:
                    self._adopt(memory, name, several[position], inputs)

        return invoke

    def _adopt(self, memory: Memory, name: str, tensor: Any, inputs: set[int]) -> None:
        """Make a call's result the storage of a buffer; copied if it lies in another way."""
        spot, element = self.spots[name], self._element(name)
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.as_tensor(tensor, dtype=element)
        if tuple(tensor.shape) != spot.sizes and self.runner.place(name) is None:
            # Some operators return other sizes than they promise; calls get what they expect.
            memory.tensors[name] = tensor
            return
        is_same = tensor.dtype is element and _lies(tensor, spot) and not tensor.is_neg()
        if not is_same or tensor.untyped_storage()._cdata in inputs:
            moved = torch.empty_strided(spot.sizes, spot.strides, dtype=element)
            moved.copy_(tensor)
            tensor = moved
        self.put(memory, name, tensor)

    def _filler(self, arg: Any, op: Call) -> Callable[[Memory], Any]:
        """How to get one argument of a call at run time."""
        if isinstance(arg, Hole):
            return self._from_hole(op.args[arg.position])
        if isinstance(arg, Window):
            given = op.args[arg.position]
            assert isinstance(given, Ref)
            return self._window(given.buffer, arg.layout)
        if isinstance(arg, Held):
            name = arg.name
            return lambda memory: memory.objects[name]
        if isinstance(arg, list | tuple) and _has_holes(arg):
            kind, fills = type(arg), [self._filler(a, op) for a in arg]
            return lambda memory: kind([fill(memory) for fill in fills])
        if isinstance(arg, dict) and _has_holes(list(arg.values())):
            named = {key: self._filler(a, op) for key, a in arg.items()}
            return lambda memory: {key: fill(memory) for key, fill in named.items()}
        if isinstance(arg, slice):
            parts = [self._filler(a, op) for a in (arg.start, arg.stop, arg.step)]
            return lambda memory: slice(*[fill(memory) for fill in parts])
        return lambda memory: arg

    def _from_hole(self, given: Any) -> Callable[[Memory], Any]:
        if isinstance(given, Ref):
            name = given.buffer
            return lambda memory: memory.tensors[name]
        value = self.number(given)
        return lambda memory: value

    def _window(self, name: str, layout: Layout) -> Callable[[Memory], Any]:
        sizes, strides, offset = self.spot(layout)
        look = compat.reinterpret

        def window(memory: Memory) -> Any:
            return look(memory.tensors[name], sizes, strides, offset)

        return window

    # -- outputs ---------------------------------------------------------------------------
    def _giver(self, value: Any) -> Callable[[Memory], Any]:
        if isinstance(value, Realised):
            name = value.buffer.name
            if value.layout == value.buffer.layout:
                return lambda memory: memory.tensors[name]
            return self._window(name, value.layout)
        if isinstance(value, Opaque):
            held = value.name
            return lambda memory: memory.objects[held]
        if isinstance(value, Expr):
            number = self.number(value)
            return lambda memory: number
        return lambda memory: value


def as_expected(tensor: Any, spot: Spot) -> Any:
    """The tensor itself if it lies as the program expects, else a copy that does."""
    if _lies(tensor, spot) and not tensor.is_neg():
        return tensor
    moved = torch.empty_strided(spot.sizes, spot.strides, dtype=tensor.dtype)
    if 0 in spot.strides:
        # Elements that share memory cannot be written one by one.
        picks = [slice(0, 1) if s == 0 else slice(None) for s in spot.strides]
        for axis, pick in enumerate(picks):
            if pick.stop == 1:
                tensor, moved = tensor.narrow(axis, 0, 1), moved.narrow(axis, 0, 1)
        moved.copy_(tensor)
        return compat.reinterpret(moved, spot.sizes, spot.strides, 0)
    return moved.copy_(tensor)


def _lies(tensor: Any, spot: Spot) -> bool:
    if tuple(tensor.shape) != spot.sizes:
        return False
    if tuple(tensor.stride()) == spot.strides or 0 in spot.sizes:
        return True
    steps = zip(spot.sizes, tensor.stride(), spot.strides, strict=True)
    return all(a == b for n, a, b in steps if n > 1)


def _storages(given: Sequence[Any]) -> set[int]:
    found: set[int] = set()
    for x in given:
        if isinstance(x, torch.Tensor):
            found.add(x.untyped_storage()._cdata)
        elif isinstance(x, list | tuple):
            found |= _storages(x)
    return found


def _has_holes(args: Any) -> bool:
    return any(
        isinstance(a, Hole | Window | Held)
        or (isinstance(a, list | tuple) and _has_holes(a))
        or (isinstance(a, dict) and _has_holes(list(a.values())))
        for a in args
    )
