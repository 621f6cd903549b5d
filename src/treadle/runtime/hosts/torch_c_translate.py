"""From a launch plan to the instructions of a host function in C, or the reason why not.

Everything the plan says is said again in slots, handles, views and numbers: allocations where
memory begins, frees where it ends, kernels in runs, library calls on views of the memory. A call
that the library's C interface lacks, or whose arguments it cannot take, is `NotInC`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from treadle.codegen.host_c.instructions import (
    AdoptedTensor,
    Allocate,
    CallBack,
    CallLibrary,
    FlagArg,
    GivenView,
    HostFunction,
    Instruction,
    LetGo,
    LibraryArg,
    ListArg,
    LookAt,
    MaskArg,
    NumberArg,
    OptionalArg,
    OptionalListArg,
    OptionalNumberArg,
    OptionalWholeArg,
    PlaceIn,
    RunKernels,
    TensorShape,
    ViewArg,
    WholeArg,
)
from treadle.codegen.host_c.render import BACK_AT, NEEDED
from treadle.index import Symbol
from treadle.ir.placed_layout import PlacedLayout
from treadle.ir.program import Call, Ref
from treadle.ir.types import Layout
from treadle.memory.problem import ARENA
from treadle.runtime.device_memory import Role, Span
from treadle.runtime.hosts.torch_c_library import (
    MAKING,
    WRITING,
    addresses_of,
    function_for,
    type_code,
)
from treadle.runtime.hosts.torch_tensors import TORCH_TYPES
from treadle.runtime.launch_plan import CallStep, LaunchPlan, LaunchStep, Step
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.layouts_at_sizes import layout_at, number_at
from treadle.runtime.library_calls import Hole, LibraryCall, ViewHole
from treadle.runtime.signature import Signature, TensorResult

MOST_FUNCTIONS = 16
"""Room in the table of numbers for what a function calls beside what every one needs."""
DEVICE_CODES = {"cpu": 0, "cuda": 1}
"""How the library's C interface calls kinds of device."""
LEAST_LET_GO = 1 << 20
"""Inputs that the caller may have given away are let go of early from this many bytes on."""


class NotInC(Exception):  # noqa: N818
    """This plan, or a part of it, cannot be carried out in C; the message says why."""


@dataclass(frozen=True)
class Back:
    """A call that goes back to Python."""

    given: tuple[str, ...]
    """The storages it is given views of."""
    reason: str


@dataclass(frozen=True)
class InC:
    """A host function and what calls it needs to know."""

    function: HostFunction
    numbers: tuple[int, ...]
    """The table behind the addresses of functions."""
    inputs: tuple[str, ...]
    """Storages whose addresses are given, in order."""
    owned: tuple[str, ...]
    """Inputs that are handed over as handles."""
    results: tuple[str, ...]
    """Storages whose tensors come back."""
    pools_of_inputs: tuple[str, ...]
    """Inputs that others lie in: nobody else may look at their memory."""
    back: Mapping[int, Back]
    """The steps that go back to Python."""


class Translation:
    """One plan on its way to C."""

    most_functions = MOST_FUNCTIONS

    def __init__(
        self,
        shape: LaunchShape,
        plan: LaunchPlan,
        layouts: Mapping[str, PlacedLayout],
        signature: Signature,
        values: Mapping[Symbol, int],
        kernel_storages: Sequence[str],
    ) -> None:
        self.shape, self.plan, self.memory = shape, plan, plan.main
        self.layouts, self.signature, self.values = layouts, signature, values
        names = dict.fromkeys([*kernel_storages, *self.memory.lives, ARENA])
        self.slots = {name: k for k, name in enumerate(names)}
        self.handles: dict[str, int] = {}
        self.views: dict[tuple[int, int, TensorShape], int] = {}
        self.functions: dict[str, int] = {}
        self.back: dict[int, Back] = {}
        place = torch.device(self.memory.device)
        self.device = DEVICE_CODES[place.type], place.index or 0
        self.kind = place.type
        self.base = BACK_AT + 1 + MOST_FUNCTIONS
        self.numbers: list[int] = []
        self._known: dict[tuple[int, ...], int] = {}
        self.code: list[Instruction] = []
        self.run: list[int] = []

    # -- numbers ---------------------------------------------------------------------------
    def at(self, *values: int) -> int:
        """Where some numbers lie in the table; the same ones lie there once."""
        if values not in self._known:
            self._known[values] = self.base + len(self.numbers)
            self.numbers.extend(values)
        return self._known[values]

    def sized(
        self, sizes: Sequence[int], strides: Sequence[int], element: torch.dtype
    ) -> TensorShape:
        """A shape whose numbers are in the table."""
        code = type_code(element)
        if code is None:
            raise NotInC(f"the C interface has no element type {element}")
        return TensorShape(len(sizes), self.at(*sizes, *strides, code))

    def shape_of(self, name: str) -> TensorShape:
        """The shape of a storage."""
        layout = self.layouts[name]
        return self.sized(layout.sizes, layout.strides, self._element(name))

    def _element(self, name: str) -> torch.dtype:
        return TORCH_TYPES[self.shape.program.by_name[name].dtype]

    # -- the whole -------------------------------------------------------------------------
    def translated(self) -> InC:
        """The function; NotInC if some step cannot be carried out in C."""
        sizes_at = self.sizes_at()
        inputs = [n for n, life in self.memory.lives.items() if life.first < 0]
        owned = list(self._owned())
        for name in owned:
            self._handle(name)
        self._end(-1)
        for name in inputs:
            self._settle(name)
        for k, step in enumerate(self.plan.steps):
            self._begin(k)
            self._step(k, step)
            self._end(k)
        self._flush()
        results = tuple(self._results())
        ended = [n for n in self.handles if self._span(n).last < self.plan.main.end]
        self._let_go_of_all_but((*results, *ended))
        function = HostFunction(
            slots=len(self.slots),
            given=tuple([self.slots[n] for n in inputs]),
            owned=tuple([self.handles[n] for n in owned]),
            handles=len(self.handles),
            views=len(self.views),
            functions=tuple(self.functions),
            sizes_at=sizes_at,
            instructions=tuple(self.code),
            results=tuple([self.handles[n] for n in results]),
            device=self.device,
        )
        pools = [n for n in inputs if n in self.memory.suballocations]
        given = tuple(inputs), tuple(owned)
        return InC(function, tuple(self.numbers), *given, results, tuple(pools), self.back)

    def sizes_at(self) -> int:
        """Where that lies in the table which kernels are given: the run-time sizes."""
        return self.at(*[self.values[s] for s in self.shape.program.sizes])

    def _let_go_of_all_but(self, names: Sequence[str]) -> None:
        for name, handle in list(self.handles.items()):
            if name not in names:
                self.code.append(LetGo(handle))

    def _span(self, name: str) -> Span:
        if name == ARENA:
            assert self.memory.arena is not None, "an arena that has a handle has a life"
            return self.memory.arena
        return self.memory.spans[name]

    def _owned(self) -> Iterator[str]:
        """The inputs that end before the run does."""
        given = {name for _, name in self.signature.tensors}
        kept = {r.storage for r in self.signature.results if isinstance(r, TensorResult)}
        for name, life in self.memory.lives.items():
            if name not in given or name in kept or name in self.memory.places:
                continue
            is_over = life.role is Role.DONATED and self._span(name).last < self.memory.end
            if is_over or (life.role is Role.KEPT and self._may_be_given_away(name)):
                yield name

    def _may_be_given_away(self, name: str) -> bool:
        """Whether an input that the caller need not keep is large and not needed to the end."""
        is_large = self.memory.lives[name].bytes >= LEAST_LET_GO
        is_over = self.shape.last(name) + 1 < self.memory.end
        return self.signature.is_inference and is_large and is_over

    def _results(self) -> Iterator[str]:
        """Storages that C allocated and the caller gets, or that such ones lie in."""
        names = [r.storage for r in self.signature.results if isinstance(r, TensorResult)]
        homes = [self.memory.places[n].pool if n in self.memory.places else n for n in names]
        yield from [n for n in dict.fromkeys(homes) if n in self.handles]

    def _handle(self, name: str) -> int:
        return self.handles.setdefault(name, len(self.handles))

    # -- memory ----------------------------------------------------------------------------
    def _begin(self, k: int) -> None:
        """Allocate what begins at a step."""
        arena = self.memory.arena
        if arena is not None and arena.first == k:
            shape = self.sized((self.memory.arena_bytes,), (1,), torch.uint8)
            self._do(Allocate(self._handle(ARENA), self.slots[ARENA], shape))
            self._settle(ARENA)
        for name, span in self.memory.spans.items():
            role = self.memory.lives[name].role
            if span.first == k and role in (Role.OUTPUT, Role.TEMP, Role.PINNED):
                is_result = role is Role.OUTPUT
                shape = self.shape_of(name)
                self._do(Allocate(self._handle(name), self.slots[name], shape, is_result))
                self._settle(name)

    def _settle(self, pool: str) -> None:
        """Give those who lie in a pool their addresses."""
        for name in self.memory.suballocations.get(pool, ()):
            offset = self.at(self.memory.places[name].offset)
            self._do(PlaceIn(self.slots[name], self.slots[pool], offset))

    def _end(self, k: int) -> None:
        """Let go of what ends at a step."""
        for name, handle in self.handles.items():
            is_kept = name != ARENA and self.memory.lives[name].role is Role.KEPT
            last = self.shape.last(name) if is_kept else self._span(name).last
            if last == k:
                self._do(LetGo(handle))

    # -- steps -----------------------------------------------------------------------------
    def _do(self, one: Instruction) -> None:
        self._flush()
        self.code.append(one)

    def _flush(self) -> None:
        if self.run:
            self.code.append(RunKernels(self.run[0], self.run[-1] + 1))
            self.run = []

    def _step(self, k: int, step: Step) -> None:
        if isinstance(step, LaunchStep):
            self.run.append(self._kernel_number(step.kernel))
        elif isinstance(step, CallStep):
            called = self._call(k, step)
            self._do(called)
            for name in step.writes:
                if name in self.handles and name in self.memory.suballocations:
                    self._settle(name)
        else:
            raise NotInC(f"'{step.operation}' is neither a kernel nor a call")

    def _kernel_number(self, name: str) -> int:
        return [plan.name for plan in self.shape.host.kernels].index(name)

    def _call(self, k: int, step: CallStep) -> Instruction:
        op = self.shape.program.op_by_name[step.operation]
        assert isinstance(op, Call), f"'{op.name}' is no call"
        call = self.signature.calls[op.name]
        try:
            return self._library_call(k, op, call)
        except NotInC as e:
            return self._call_back(k, step, call, str(e))

    def _library_call(self, k: int, op: Call, call: LibraryCall) -> Instruction:
        function = function_for(call.function, self.kind)
        if function is None or op.mutates:
            raise NotInC(f"the C interface has no function for '{op.target}'")
        if function not in self.functions and len(self.functions) == self.most_functions:
            raise NotInC(f"more than {self.most_functions} functions of the library")
        args = [self._arg(a, value, op) for a, value in _arguments(call)]
        if call.function in WRITING:
            (name,) = op.writes
            if self.memory.lives[name].role in (Role.CALL, Role.CALL_OUTPUT):
                raise NotInC(f"the result of '{op.name}' does not lie row by row")
            out = ViewArg(self._view(name, self.layouts[name]))
            self.functions.setdefault(function, len(self.functions))
            return CallLibrary(function, (out, *args), (), k)
        if any(self._is_told_where(name) for name in op.writes):
            raise NotInC(f"'{op.target}' is told where to write by Python")
        self.functions.setdefault(function, len(self.functions))
        return CallLibrary(function, tuple(args), tuple(self._made(call, op)), k)

    def _is_told_where(self, name: str) -> bool:
        """Whether the plan has a place for a result of a call."""
        life = self.memory.lives.get(name)
        return life is not None and life.role not in (Role.CALL, Role.CALL_OUTPUT)

    def _call_back(self, k: int, step: CallStep, call: LibraryCall, reason: str) -> Instruction:
        """A call from Python: its arguments are views that it must not keep."""
        keeps = call.keeps_arguments or call.facts.objects or step.mutates or step.event
        names = [n for n in (*step.reads, *step.writes) if n in self.memory.lives]
        roles = {n: self.memory.lives[n].role for n in step.writes if n in names}
        by_torch = [n for n, role in roles.items() if role in (Role.CALL, Role.CALL_OUTPUT)]
        if keeps or len(roles) < len(step.writes):
            raise NotInC(reason)
        given = [n for n in names if n not in by_torch]
        self.back[k] = Back(tuple(given), reason)
        views = [GivenView(self.slots[n], self.shape_of(n)) for n in given]
        made = [AdoptedTensor(self._handle(n), self.slots[n], self.shape_of(n)) for n in by_torch]
        return CallBack(tuple(views), tuple(made), k)

    def _made(self, call: LibraryCall, op: Call) -> Iterator[AdoptedTensor | None]:
        assert call.function in MAKING, "a function that writes gives nothing"
        names = dict(zip([position for position, _, _ in call.results], op.writes, strict=True))
        function: Any = call.function
        for position in range(len(function._schema.returns)):
            name = names.get(position)
            if name is None or name not in self.memory.lives:
                yield None
            else:
                yield AdoptedTensor(self._handle(name), self.slots[name], self.shape_of(name))

    # -- arguments -------------------------------------------------------------------------
    def _arg(self, about: Any, value: Any, op: Call) -> LibraryArg:
        kind = str(about.type)
        if kind in ("Tensor", "Optional[Tensor]"):
            view = None if value is None else self._tensor(value, op)
            return OptionalArg(view) if kind != "Tensor" else ViewArg(_there(view))
        if kind == "number" or kind == "float":
            return NumberArg(_finite(self._number(value, op)))
        if kind == "Optional[float]":
            number = None if value is None else _finite(self._number(value, op))
            return OptionalNumberArg(number)
        if kind == "int":
            return WholeArg(self.at(self._whole(value, op)))
        if kind == "Optional[int]":
            return OptionalWholeArg(None if value is None else self.at(self._whole(value, op)))
        if kind == "bool" and isinstance(value, bool):
            return FlagArg(value)
        if kind in ("List[int]", "Optional[List[int]]"):
            return self._list(kind, value, op)
        if kind == "List[bool]" and all(isinstance(x, bool) for x in value):
            return MaskArg(tuple(value))
        raise NotInC(f"an argument of type {kind} of '{op.target}'")

    def _list(self, kind: str, value: Any, op: Call) -> LibraryArg:
        numbers = None if value is None else [self._whole(x, op) for x in value]
        at = self.at(*(numbers or [0]))
        if kind == "List[int]":
            return ListArg(at, len(_there(numbers)))
        return OptionalListArg(at, None if numbers is None else len(numbers))

    def _whole(self, value: Any, op: Call) -> Any:
        return int(self._number(value, op))

    def _number(self, value: Any, op: Call) -> float:
        if isinstance(value, Hole):
            given = op.args[value.position]
            if isinstance(given, Ref):
                raise NotInC(f"a tensor stands for a number in '{op.target}'")
            return number_at(given, self.values)  # type: ignore[arg-type]
        if not isinstance(value, int | float):
            raise NotInC(f"an argument of '{op.target}' is known to Python only")
        return value

    def _tensor(self, value: Any, op: Call) -> int:
        if not isinstance(value, Hole | ViewHole):
            raise NotInC(f"an argument of '{op.target}' is known to Python only")
        given = op.args[value.position]
        if not isinstance(given, Ref):
            raise NotInC(f"a number stands for a tensor in '{op.target}'")
        name = given.buffer
        if isinstance(value, ViewHole):
            return self._view(name, self._seen_as(value.layout))
        return self._view(name, self.layouts[name])

    def _seen_as(self, layout: Layout) -> Any:
        return layout_at(layout, self.values)

    def _view(self, name: str, layout: PlacedLayout) -> int:
        """A view of a storage, made before its first use."""
        if not self.shape.program.by_name[name].dtype.is_float:
            raise NotInC(f"'{name}' does not hold floating-point numbers")
        element = self._element(name)
        is_whole = layout == self.layouts[name]
        offset = self.at(0 if is_whole else layout.offset * element.itemsize)
        shape = self.sized(layout.sizes, layout.strides, element)
        key = self.slots[name], offset, shape
        if key not in self.views:
            self.views[key] = len(self.views)
            self._do(LookAt(self.views[key], *key))
        return self.views[key]


def _arguments(call: LibraryCall) -> Iterator[tuple[Any, Any]]:
    """Every argument of an operator by its schema, with what it is given or stands for."""
    function: Any = call.function
    for k, about in enumerate(function._schema.arguments):
        if k < len(call.args):
            yield about, call.args[k]
        elif about.name in call.kwargs:
            yield about, call.kwargs[about.name]
        else:
            yield about, about.default_value


def _there(value: Any) -> Any:
    if value is None:
        raise NotInC("an argument that must be there is missing")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise NotInC(f"{value} cannot be written in C")
    return float(value)


def table_of(made: InC, kernels: int, back: int, empty: int | None = None) -> list[int]:
    """The whole table of numbers a host function is given, addresses of functions first.

    `empty` is the address of what hands out memory for results, if that is not torch's own.
    """
    needed, own = addresses_of(NEEDED), addresses_of(made.function.functions)
    if empty is not None:
        needed[-1] = empty
    room = [0] * (MOST_FUNCTIONS - len(own))
    functions = [*map(_there, needed), back, *map(_there, own)]
    return [kernels, *functions, *room, *made.numbers]
