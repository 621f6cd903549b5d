"""Library calls of a plan as actions on torch tensors: arguments filled in, results adopted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch

from treadle.index import Symbol
from treadle.ir.effects import effects
from treadle.ir.program import Call, Collective, Ref
from treadle.ir.ranks import show_ranks
from treadle.ir.types import Layout
from treadle.runtime.hosts.torch_memory import Action, RunMemory, TensorMemory
from treadle.runtime.hosts.torch_tensors import lies, reinterpret, storage_key
from treadle.runtime.launch_plan import CallStep, WaitStep
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.layouts_at_sizes import layout_at, number_at
from treadle.runtime.library_calls import Held, Hole, LibraryCall, ViewHole, has_holes
from treadle.runtime.signature import Signature

Filler = Callable[[RunMemory], Any]
"""Gets one argument of a call at run time."""


class BoundCalls:
    """The calls of a program for one set of run-time sizes."""

    def __init__(
        self,
        shape: LaunchShape,
        signature: Signature,
        tensors: TensorMemory,
        values: Mapping[Symbol, int],
        places: Callable[[str], Sequence[str]] = lambda operation: (),
    ) -> None:
        self.shape, self.signature, self.tensors, self.values = shape, signature, tensors, values
        self.places = places
        """The user's places behind an operation."""
        self.broken: set[str] = set()
        """Results that were not what their operator had promised."""

    def action(self, step: CallStep) -> Action:
        """One call."""
        op = self.shape.program.op_by_name[step.operation]
        assert isinstance(op, Call), f"'{op.name}' is no call"
        call = self.signature.calls[op.name]
        args = [self._filler(a, op) for a in call.args]
        kwargs = {key: self._filler(a, op) for key, a in call.kwargs.items()}
        if step.event is not None:
            return self._begin(op, call, args, kwargs)
        if call.results and op.writes[0] not in self._by_torch:
            assert call.into is not None, f"'{op.name}' cannot be told where to write"
            names = op.writes[0] if call.is_single else op.writes
            return self._call_into(names, call.into, args, kwargs)
        return self._call(op, call, args, kwargs)

    def _call(
        self, op: Call, call: LibraryCall, args: Sequence[Filler], kwargs: Mapping[str, Filler]
    ) -> Action:
        results = self._results(op, call)
        function, is_single = call.function, call.is_single
        moved = op.mutates if call.moves_arguments else ()

        def invoke(memory: RunMemory) -> None:
            given = [fill(memory) for fill in args]
            made = function(*given, **{key: fill(memory) for key, fill in kwargs.items()})
            for name in moved:
                self.tensors.put(memory, name, memory.tensors[name])
            if not results:
                return
            several = (made,) if is_single else made
            inputs = _storages(given)
            for position, name, is_object in results:
                if is_object:
                    memory.objects[name] = several[position]
                else:
                    self.adopt(memory, name, several[position], inputs)

        return invoke

    def _call_into(
        self,
        names: str | tuple[str, ...],
        function: Any,
        args: Sequence[Filler],
        kwargs: Mapping[str, Filler],
    ) -> Action:
        """A call that writes into the places its results were given."""

        def invoke(memory: RunMemory) -> None:
            given = {key: fill(memory) for key, fill in kwargs.items()}
            out = told(memory.tensors, names)
            function(*[fill(memory) for fill in args], **given, out=out)

        return invoke

    # -- collectives -----------------------------------------------------------------------
    def _begin(
        self, op: Call, call: LibraryCall, args: Sequence[Filler], kwargs: Mapping[str, Filler]
    ) -> Action:
        """A collective: its results are not looked at before they are waited for."""
        function, is_single = call.function, call.is_single
        results = [
            (position, name) for (position, _, _), name in zip(call.results, op.writes, strict=True)
        ]
        assert call.wait is not None, f"nobody knows how to wait for '{op.name}'"

        def begin(memory: RunMemory) -> None:
            given = [fill(memory) for fill in args]
            named = {key: fill(memory) for key, fill in kwargs.items()}
            with self._named(op.name, "begun"):
                made = function(*given, **named)
            several = (made,) if is_single else made
            for position, name in results:
                memory.pending[name] = several[position]

        return begin

    def wait(self, step: WaitStep) -> Action:
        """Wait for a result of a collective, which then gets its place."""
        name, functions = step.storage, self._waits
        if step.event is None:
            return lambda memory: None
        operation, wait = functions[step.event]

        def wait_for(memory: RunMemory) -> None:
            if name in memory.pending:
                with self._named(operation, "waited for"):
                    arrived = wait(memory.pending.pop(name))
                self.adopt(memory, name, arrived, set())
            else:
                with self._named(operation, "waited for"):
                    wait(memory.tensors[name])  # it was changed in place

        return wait_for

    @contextmanager
    def _named(self, operation: str, what: str) -> Iterator[None]:
        """Let torch's error through, with a note that names the collective and the user's line."""
        try:
            yield
        except Exception as e:
            op = self.shape.program.op_by_name[operation]
            group = ""
            if isinstance(op, Collective):
                ranks = f" of ranks {show_ranks(op.ranks)}" if op.ranks else ""
                group = f", {op.target} in group '{op.group}'{ranks},"
            lines = "; ".join(self.places(operation))
            where = f"; your line: {lines}" if lines else ""
            e.add_note(f"while collective '{operation}'{group} was {what}{where}")
            raise

    @cached_property
    def _waits(self) -> dict[str, tuple[str, Callable[[Any], Any]]]:
        """The collective behind each event, and how to wait for it."""
        found = {}
        for step in self.shape.steps:
            if isinstance(step, CallStep) and step.event is not None:
                wait = self.signature.calls[step.operation].wait
                assert wait is not None, f"nobody knows how to wait for '{step.operation}'"
                found[step.event] = step.operation, wait
        return found

    # -- results ---------------------------------------------------------------------------
    @cached_property
    def _by_torch(self) -> set[str]:
        """Results that torch allocates, objects included."""
        told, layouts = self.shape.writes_where_told, self.tensors.layouts
        calls = [op for op in self.shape.program.ops if isinstance(op, Call)]
        names = [n for op in calls for n in effects(op).writes]
        return {n for n in names if n not in self.shape.made or not told(n, layouts)}

    def adopt(self, memory: RunMemory, name: str, tensor: Any, inputs: set[object]) -> None:
        """Make a call's result the storage of a buffer; copied if it lies in another way."""
        tensors = self.tensors
        if tensors.place(name) is None and not self._keeps_promise(name, tensor):
            # Some operators return other sizes than they promise, or nothing at all where nobody
            # looks; calls get what they expect.
            self.broken.add(name)
            memory.tensors[name] = tensor
            return
        tensors.put(memory, name, self.fitted(name, tensor, inputs))
        if name in tensors.pools:
            tensors.settle(memory, name)

    def _keeps_promise(self, name: str, tensor: Any) -> bool:
        if isinstance(tensor, torch.Tensor):
            return tuple(tensor.shape) == self.tensors.layouts[name].sizes
        return tensor is not None

    def fitted(self, name: str, tensor: Any, inputs: set[object]) -> Any:
        """A result as its buffer is to be: a copy, if it is not or lies in an argument."""
        layout, element = self.tensors.layouts[name], self.tensors.element(name)
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.as_tensor(tensor, dtype=element, device=self.tensors.device)
        is_same = tensor.dtype is element and lies(tensor, layout) and not tensor.is_neg()
        if is_same and storage_key(tensor) not in inputs:
            return tensor
        device = self.tensors.device
        moved = torch.empty_strided(layout.sizes, layout.strides, dtype=element, device=device)
        return moved.copy_(tensor)

    # -- called back -----------------------------------------------------------------------
    def called_back(self, step: CallStep) -> Callable[[dict[str, Any]], list[Any]]:
        """One call for a host in C: from tensors by storage to the results torch allocates."""
        op = self.shape.program.op_by_name[step.operation]
        assert isinstance(op, Call), f"'{op.name}' is no call"
        call = self.signature.calls[op.name]
        args = [self._filler(a, op) for a in call.args]
        kwargs = {key: self._filler(a, op) for key, a in call.kwargs.items()}
        results = [(position, name) for position, name, _ in self._results(op, call)]
        into = call.into if results and op.writes[0] not in self._by_torch else None

        def answer(tensors: dict[str, Any]) -> list[Any]:
            memory = RunMemory(0)
            memory.tensors = tensors
            given = [fill(memory) for fill in args]
            named = {key: fill(memory) for key, fill in kwargs.items()}
            if into is not None:
                names = op.writes[0] if call.is_single else op.writes
                into(*given, **named, out=told(tensors, names))
                return []
            made = call.function(*given, **named)
            several = (made,) if call.is_single else made
            inputs = _storages(given)
            return [self.fitted(name, several[position], inputs) for position, name in results]

        return answer

    def _results(self, op: Call, call: LibraryCall) -> list[tuple[int, str, bool]]:
        rows = zip(call.results, op.writes, strict=True)
        return [(position, name, is_object) for (position, _, is_object), name in rows]

    # -- arguments -------------------------------------------------------------------------
    def _filler(self, arg: Any, op: Call) -> Filler:
        """How to get one argument of a call at run time."""
        if isinstance(arg, Hole):
            return self._from_hole(op.args[arg.position])
        if isinstance(arg, ViewHole):
            given = op.args[arg.position]
            assert isinstance(given, Ref), f"a view of what is no buffer: {given}"
            return self._view(given.buffer, arg.layout)
        if isinstance(arg, Held):
            name = arg.name
            return lambda memory: memory.objects[name]
        if isinstance(arg, list | tuple) and has_holes(arg):
            kind, fills = type(arg), [self._filler(a, op) for a in arg]
            return lambda memory: kind([fill(memory) for fill in fills])
        if isinstance(arg, dict) and has_holes(list(arg.values())):
            named = {key: self._filler(a, op) for key, a in arg.items()}
            return lambda memory: {key: fill(memory) for key, fill in named.items()}
        if isinstance(arg, slice):
            parts = [self._filler(a, op) for a in (arg.start, arg.stop, arg.step)]
            return lambda memory: slice(*[fill(memory) for fill in parts])
        return lambda memory: arg

    def _from_hole(self, given: Any) -> Filler:
        if isinstance(given, Ref):
            name = given.buffer
            return lambda memory: memory.tensors[name]
        value = number_at(given, self.values)
        return lambda memory: value

    def _view(self, name: str, layout: Layout) -> Filler:
        sizes, strides, offset = layout_at(layout, self.values)
        return lambda memory: reinterpret(memory.tensors[name], sizes, strides, offset)


def told(tensors: Mapping[str, Any], names: str | tuple[str, ...]) -> Any:
    """The memory that a call is told to write into: of its one result, or of all of them."""
    return tensors[names] if isinstance(names, str) else [tensors[name] for name in names]


def _storages(given: Sequence[Any]) -> set[object]:
    found: set[object] = set()
    for x in given:
        if isinstance(x, torch.Tensor):
            found.add(storage_key(x))
        elif isinstance(x, list | tuple):
            found |= _storages(x)
    return found
