"""Runs a compiled program on torch tensors: kernels on their memory, calls in between.

Steps are bound once for each set of run-time sizes (numbers instead of expressions), with a memory
plan for just these sizes, and then walked. The arena belongs to one run: torch's allocator makes it
and takes it back, so that runs may overlap in threads and nothing is held in between.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch

from treadle.codegen.host import CallStep, Launch
from treadle.core.context import Ctx
from treadle.core.errors import TreadleError
from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.calls import Held, Hole, TorchCall, ViewHole, moves
from treadle.frontends.torch.lowering.graph import Lowered
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.origins import Provenance
from treadle.frontends.torch.lowering.values import Opaque, Realised
from treadle.frontends.torch.running.memory_lives import (
    WRITES_WHERE_TOLD,
    RunShape,
    Spot,
    number_at,
    spot_of,
    spots_at,
)
from treadle.frontends.torch.running.memory_owners import Owner
from treadle.frontends.torch.running.memory_plan import RunPlan, plan_run
from treadle.frontends.torch.running.memory_run import Homes, Memory, Step
from treadle.index import Expr, Symbol, hint
from treadle.ir.program import Call, Program, Ref
from treadle.ir.types import Layout
from treadle.runtime import CompiledProgram

MOST_BOUND = 64
OUT_OF_RANGE = ("RUN003", "RUN004")
OPERATION = re.compile(r"operation '([^']*)'")


class OutOfRangeError(IndexError, RuntimeError):
    """An index that leaves its tensor: eager mode raises one or the other, by operator."""


class Runner:
    """A graph that is ready to run: takes the graph's inputs as a list, gives its outputs."""

    def __init__(
        self,
        compiled: CompiledProgram,
        lowered: Lowered,
        ctx: Ctx | None = None,
    ) -> None:
        self.compiled, self.lowered, self.ctx = compiled, lowered, ctx
        self._likely: RunPlan | None = None
        self.owners: Mapping[str, Owner] = {}
        """Whose memory inputs lie in, where that is known; to be set before the first run."""
        self.provenance = Provenance()
        """Operator, line and module behind each node of the graph, for reports and errors."""
        self.program: Program = compiled.program
        self._place = {name: k for k, name in enumerate(compiled.unit.storages)}
        self._bound = lru_cache(maxsize=MOST_BOUND)(lambda sizes: Bound(self, sizes))

    @cached_property
    def shape(self) -> RunShape:
        """What of the memory of a run does not depend on sizes."""
        return RunShape(self.compiled.host, self.lowered, self.owners)

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run on the caller's tensors; the list is emptied so that they can die early."""
        given = list(args)
        args.clear()
        bound = self._bound(self._sizes(given))
        memory = Memory(len(self._place))
        with torch.no_grad():
            back = bound.take_inputs(memory, given)
            del given
            try:
                for step in bound.steps:
                    step(memory)
            except TreadleError as e:
                raise self._as_in_eager(e) from e
            for target, source in back:
                # AOTAutograd counts the change itself.
                with compat.uncounted(target):
                    target.copy_(source)
            return [give(memory) for give in bound.outputs]

    def _as_in_eager(self, error: TreadleError) -> Exception:
        """The error under the type that eager mode raises, with the user's line."""
        named = OPERATION.search(error.message)
        names = named[1].split("+") if named else []  # one nest may do the work of several
        places = self.provenance.blamed(error.code, names, self.program.by_name)
        if not places:
            ops = [op for n in names if (op := self.program.op_by_name.get(n)) is not None]
            found = [self.provenance.of(op.name, op.origins) for op in ops]
            places = list(dict.fromkeys(s.place for s in found if s is not None and s.place))
        words = "your line" if len(places) == 1 else "one of your lines"
        if not any(":" in place for place in places):
            words = "in your model"
        lines = [f"  {words}: {'; '.join(places)}"] if places else []
        kind = OutOfRangeError if error.code in OUT_OF_RANGE else RuntimeError
        return kind("\n".join([str(error), *lines]))

    @property
    def likely(self) -> RunPlan | None:
        """The plan for the likely sizes, once it is made: what others are made like."""
        return self._likely

    def bound(self, sizes: Mapping[str, int] | None = None) -> Bound:
        """The steps for some run-time sizes by name; those not given have their likely value."""
        known, own = sizes or {}, self.program.sizes
        found = self._bound(tuple([(s.name, known.get(s.name, hint(s))) for s in own]))
        self._likely = self._likely or found.plan
        return found

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
    """The steps and the memory of a program for one set of run-time sizes."""

    def __init__(self, runner: Runner, sizes: tuple[tuple[str, int], ...]) -> None:
        self.runner, self.program, self.shape = runner, runner.program, runner.shape
        values = dict(sizes)
        self.sizes: Mapping[str, int] = values
        self.values: Mapping[Symbol, int] = {s: values[s.name] for s in self.program.sizes}
        self.numbers = [values[s.name] for s in self.program.sizes]
        self.spots = spots_at(self.program, self.values)
        self.plan = plan_run(self.shape, self.spots, self.values, runner.ctx, runner.likely)
        self.homes = Homes(self.shape, self.plan, self.spots, runner.place)
        self.steps: list[Step] = list(self._steps())
        self._given: set[str] = set()
        self.outputs = [self._giver(one) for one in runner.lowered.outputs]

    def number(self, e: Expr) -> int:
        """What an expression stands for."""
        return number_at(e, self.values)

    # -- inputs ----------------------------------------------------------------------------
    def take_inputs(self, memory: Memory, given: list[Any]) -> list[tuple[Any, Any]]:
        """Put the inputs in place; gives pairs to copy back: tensors that had to be moved."""
        lowered, back = self.runner.lowered, []
        for position, name in lowered.tensors:
            tensor, spot = given[position], self.spots[name]
            if tensor is None:  # a token that orders effects: torch passes nothing for it
                element = self.homes.element(name)
                tensor = torch.empty_strided(spot.sizes, spot.strides, dtype=element)
            if tuple(tensor.shape) != spot.sizes and self.runner.place(name) is None:
                memory.tensors[name] = tensor  # saved by an operator that broke its promise
                continue
            placed = as_expected(tensor, spot)
            self.homes.put(memory, name, placed)
            if name in lowered.mutated and placed.data_ptr() != tensor.data_ptr():
                back.append((tensor, placed))
        for name, tensor in lowered.constants.items():
            self.homes.put(memory, name, tensor)
        for position, name in lowered.objects:
            memory.objects[name] = given[position]
        self.homes.settle_inputs(memory, given)
        return back

    # -- steps -----------------------------------------------------------------------------
    def _steps(self) -> Iterator[Step]:
        """Allocations, kernels, calls; what ends is let go of before memory is next needed."""
        number = {plan.name: k for k, plan in enumerate(self.runner.compiled.host.kernels)}
        objects: dict[int, list[str]] = {}
        for name, k in self.shape.objects().items():
            objects.setdefault(k, []).append(name)
        run: list[int] = []
        over = self.homes.ends.get(-1, [])
        for k, step in enumerate(self.shape.steps):
            taken = self.homes.allocations.get(k, [])
            is_next = isinstance(step, Launch) and (not run or number[step.kernel] == run[-1] + 1)
            if run and (taken or not is_next):
                yield self._launch(run)
                run = []
            if over and (taken or not isinstance(step, Launch)):
                yield self._letting_go(over, k)
                over = []
            yield from taken
            if isinstance(step, Launch):
                run.append(number[step.kernel])
            elif isinstance(step, CallStep):
                yield self._call(step.op)
            over = over + self.homes.ends.get(k, []) + objects.get(k, [])
        if run:
            yield self._launch(run)

    def _letting_go(self, names: Sequence[str], before: int) -> Step:
        arena = self.plan.arena
        is_over = arena is not None and arena.last < before

        def let_go(memory: Memory) -> None:
            for name in names:
                memory.tensors.pop(name, None)
                memory.objects.pop(name, None)
            if is_over:
                memory.arena = None

        return let_go

    def _launch(self, kernel_numbers: Sequence[int]) -> Step:
        kernels = self.runner.compiled.kernels
        first, last = kernel_numbers[0], kernel_numbers[-1] + 1
        assert kernels is not None
        start = kernels.launch
        sizes = (ctypes.c_int64 * max(len(self.numbers), 1))(*self.numbers)

        def launch(memory: Memory) -> None:
            start(memory.addresses, sizes, memory.error, first, last)

        return launch

    # -- calls -----------------------------------------------------------------------------
    def _call(self, op: Call) -> Step:
        call: TorchCall = self.runner.lowered.calls[op.name]
        args = [self._filler(a, op) for a in call.args]
        kwargs = {key: self._filler(a, op) for key, a in call.kwargs.items()}
        results = list(zip(call.results, op.writes, strict=True))
        function, is_single = call.function, call.is_single
        moved = op.mutates if moves(function) else ()
        if results and op.writes[0] not in self._by_torch:
            return self._call_into(op.writes[0], WRITES_WHERE_TOLD[function], args, kwargs)

        def invoke(memory: Memory) -> None:
            given = [fill(memory) for fill in args]
            made = function(*given, **{key: fill(memory) for key, fill in kwargs.items()})
            for name in moved:
                self.homes.put(memory, name, memory.tensors[name])
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

    @cached_property
    def _by_torch(self) -> set[str]:
        """Results that torch allocates, objects included."""
        told = self.shape.writes_where_told
        names = [n for s in self.shape.steps if isinstance(s, CallStep) for n in s.op.writes]
        return {n for n in names if n not in self.shape.made or not told(n, self.spots)}

    def _call_into(
        self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Step:
        """A call that writes into the place its result was given."""

        def invoke(memory: Memory) -> None:
            given = {key: fill(memory) for key, fill in kwargs.items()}
            function(*[fill(memory) for fill in args], **given, out=memory.tensors[name])

        return invoke

    def _adopt(self, memory: Memory, name: str, tensor: Any, inputs: set[object]) -> None:
        """Make a call's result the storage of a buffer; copied if it lies in another way."""
        spot, element = self.spots[name], self.homes.element(name)
        if tensor is None and self.runner.place(name) is None:
            memory.tensors[name] = None  # an operator that promised a tensor nobody looks at
            return
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.as_tensor(tensor, dtype=element)
        if tuple(tensor.shape) != spot.sizes and self.runner.place(name) is None:
            # Some operators return other sizes than they promise; calls get what they expect.
            memory.tensors[name] = tensor
            return
        is_same = tensor.dtype is element and _lies(tensor, spot) and not tensor.is_neg()
        if not is_same or compat.storage_key(tensor) in inputs:
            moved = torch.empty_strided(spot.sizes, spot.strides, dtype=element)
            moved.copy_(tensor)
            tensor = moved
        self.homes.put(memory, name, tensor)
        if name in self.homes.pools:
            self.homes.settle(memory, name)

    def _filler(self, arg: Any, op: Call) -> Callable[[Memory], Any]:
        """How to get one argument of a call at run time."""
        if isinstance(arg, Hole):
            return self._from_hole(op.args[arg.position])
        if isinstance(arg, ViewHole):
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

    def _window(
        self, name: str, layout: Layout, look: Callable[..., Any] = compat.reinterpret
    ) -> Callable[[Memory], Any]:
        sizes, strides, offset = spot_of(layout, self.values)

        def window(memory: Memory) -> Any:
            return look(memory.tensors[name], sizes, strides, offset)

        return window

    # -- outputs ---------------------------------------------------------------------------
    def _giver(self, value: Any) -> Callable[[Memory], Any]:
        if isinstance(value, Realised):
            name = value.buffer.name
            # A result is a tensor of its own, even where another one shows the same memory.
            if value.layout == value.buffer.layout and name not in self._given:
                self._given.add(name)
                return lambda memory: memory.tensors[name]
            kind = self.shape.lowered.kind
            is_inference = kind is GraphKind.INFERENCE and name not in self.shape.inputs
            look = compat.view_of if is_inference else compat.reinterpret
            return self._window(name, value.layout, look)
        if isinstance(value, Opaque):
            held = value.name
            return lambda memory: memory.objects[held]
        if isinstance(value, Expr):
            number = self.number(value)
            return lambda memory: number
        return lambda memory: value


def as_expected(tensor: Any, spot: Spot) -> Any:
    """The tensor itself if it lies as the program expects, else a copy that does."""
    if tensor.dim() == len(spot.sizes) == 1 and tensor.shape[0] > spot.sizes[0]:
        # What AOTAutograd puts in the place of inputs that overlap is the whole storage, of which
        # the graph was captured with as much as they reach.
        tensor = tensor[: spot.sizes[0]]
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


def _storages(given: Sequence[Any]) -> set[object]:
    found: set[object] = set()
    for x in given:
        if isinstance(x, torch.Tensor):
            found.add(compat.storage_key(x))
        elif isinstance(x, list | tuple):
            found |= _storages(x)
    return found


def _has_holes(args: Any) -> bool:
    return any(
        isinstance(a, Hole | ViewHole | Held)
        or (isinstance(a, list | tuple) and _has_holes(a))
        or (isinstance(a, dict) and _has_holes(list(a.values())))
        for a in args
    )
