"""Who needs memory in a run of a graph, from which step to which, and whose it is.

    step         0      1      2      3
    x (saved)    =======+                     donated: ours to use after its last reader
    t                   #######+              a kernel's temporary: the arena, or a host
    conv                       #######+       made by an ATen call: torch allocates it
    out                               ####    given to the caller: memory of its own

Steps are those of the host program that run something. What a call may look at after it returned
(its result is a view, or the operator is not one of ATen's) is pinned: it lies in a tensor of its
own that nobody else uses, as in eager mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import torch

from treadle.analysis.liveness import Liveness
from treadle.codegen.host import (
    Alloc,
    CallStep,
    ClearStep,
    Free,
    HostProgram,
    Launch,
    TakeStep,
    WaitStep,
)
from treadle.frontends.torch.lowering.calls import Held, TorchCall, is_torchs, moves
from treadle.frontends.torch.lowering.graph import Lowered
from treadle.frontends.torch.lowering.values import Opaque
from treadle.frontends.torch.running.memory_owners import Owner
from treadle.index import Expr, Symbol, evaluate
from treadle.ir.effects import effects
from treadle.ir.program import Operation, Program
from treadle.ir.types import BufferKind, Layout
from treadle.memory.problem import ARENA

WorkStep: TypeAlias = "Launch | CallStep | WaitStep | TakeStep | ClearStep"
"""A step that runs something."""


class Role(Enum):
    """Whose memory a storage lies in, before anything is planned."""

    KEPT = "input"
    """an input that the caller keeps, or a tensor the graph holds"""
    DONATED = "donated input"
    TEMP = "temporary"
    OUTPUT = "output"
    """given to the caller, written by kernels or by a call that writes where it is told"""
    CALL = "result of a call"
    CALL_OUTPUT = "output made by a call"
    PINNED = "temporary of its own"


class Spot(NamedTuple):
    """A layout in numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def reach(self) -> int:
        """How many elements of its memory a tensor needs."""
        if 0 in self.sizes:
            return 0
        pairs = zip(self.sizes, self.strides, strict=True)
        return self.offset + 1 + sum((n - 1) * s for n, s in pairs if s > 0)

    @property
    def is_plain(self) -> bool:
        """Whether the elements lie row by row without gaps."""
        step = 1
        for n, s in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n != 1 and s != step:
                return False
            step *= n
        return self.offset == 0


def spots_at(program: Program, values: Mapping[Symbol, int]) -> dict[str, Spot]:
    """The layouts of a program's storages in numbers, for some run-time sizes."""
    return {
        b.name: spot_of(b.layout, values)
        for b in program.buffers
        if b.kind is BufferKind.TENSOR and b.view_of is None
    }


def spot_of(layout: Layout, values: Mapping[Symbol, int]) -> Spot:
    """A layout in numbers."""
    sizes = tuple([number_at(n, values) for n in layout.sizes])
    strides = tuple([number_at(n, values) for n in layout.strides])
    return Spot(sizes, strides, number_at(layout.offset, values))


def number_at(e: Expr, values: Mapping[Symbol, int]) -> int:
    """What an expression stands for, for some run-time sizes."""
    return e.value if e.value is not None else int(evaluate(e, values))


@dataclass(frozen=True, slots=True)
class Life:
    """One storage: its bytes, and the steps that touch it first and last."""

    storage: str
    role: Role
    bytes: int
    first: int
    """-1 for inputs."""
    last: int
    """The number of steps, if the caller keeps it; -1 if no step touches it."""
    is_whole: bool = True
    """Whether it is all that lies in its memory."""

    @property
    def upper(self) -> int:
        """The first step at which its bytes are not needed."""
        return self.last + 1


WRITES_WHERE_TOLD: Mapping[Any, Any] = {
    torch.ops.aten.mm.default: torch.ops.aten.mm.out,
    torch.ops.aten.bmm.default: torch.ops.aten.bmm.out,
    torch.ops.aten.addmm.default: torch.ops.aten.addmm.out,
    torch.ops.aten.baddbmm.default: torch.ops.aten.baddbmm.out,
}
"""Calls with a form that writes into memory it is given, with the very same arithmetic."""


class RunShape:
    """What is the same for every set of run-time sizes: steps, touches, hand-overs."""

    def __init__(
        self, host: HostProgram, lowered: Lowered, owners: Mapping[str, Owner] | None = None
    ) -> None:
        self.host, self.lowered, self.program = host, lowered, host.program
        self.owners = owners or {}
        plans = {plan.name: plan for plan in host.kernels}
        self.steps: list[WorkStep] = []
        self.touched: list[tuple[str, ...]] = []
        for step in host.steps:
            if isinstance(step, Launch):
                self._add(step, plans[step.kernel].storages)
            elif not isinstance(step, Alloc | Free):
                self._add(step, _touched(self.program, step.op))
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        for k, names in enumerate(self.touched):
            for name in names:
                self.first.setdefault(name, k)
                self.last[name] = k
        self.inputs = {self.program.storage_of(n) for n in self.program.inputs}
        self.outputs = {self.program.storage_of(n) for n in self.program.outputs}
        self.donated = {self.program.storage_of(n) for n in self.program.donated} - self.outputs
        self.made, self.pinned, self.seen_by_calls = self._calls()
        self.families = self._families()
        self.shared = {n for names in self.families.values() for n in names if len(names) > 1}
        self.heirs = self._heirs()

    @property
    def end(self) -> int:
        """How many steps there are."""
        return len(self.steps)

    def _add(self, step: WorkStep, touched: Sequence[str]) -> None:
        is_tensor = self.program.by_name
        real = [s for s in touched if is_tensor[s].kind is BufferKind.TENSOR]
        self.steps.append(step)
        self.touched.append(tuple(real))

    def call_at(self, k: int) -> TorchCall | None:
        """The call that step `k` is, if it is one."""
        step = self.steps[k]
        return self.lowered.calls[step.op.name] if isinstance(step, CallStep) else None

    def _calls(self) -> tuple[dict[str, int], set[str], set[str]]:
        """Who is made by which call, what calls may keep looking at, and what they look at."""
        made: dict[str, int] = {}
        pinned = {ARENA}  # a storage that is called like the arena cannot be told from it
        seen: set[str] = set()
        for k, step in enumerate(self.steps):
            call = self.call_at(k)
            if call is None or not isinstance(step, CallStep):
                continue
            made.update({n: k for n in step.op.writes if n in self.first})
            seen.update(self.touched[k])
            is_plain = is_plain_aten(call.function) and not sees_storage(call.function)
            if not is_plain or any(o for _, _, o in call.results):
                pinned.update(self.touched[k])
        return made, pinned, seen

    def _heirs(self) -> dict[str, str]:
        """Who may be written over whom, of those that are there at run time and free to be."""
        pairs = Liveness(self.program).in_place_reuse().items()
        there = self.first.keys() - self.pinned - self.shared
        return {
            inp: out
            for inp, out in pairs
            if inp in there and out in there and self.last[inp] == self.first[out]
        }

    def _families(self) -> dict[object, list[str]]:
        """The inputs by the storage of torch's they lie in."""
        found: dict[object, list[str]] = {}
        for name in dict.fromkeys(map(self.program.storage_of, self.program.inputs)):
            owner = self.owners.get(name)
            found.setdefault(name if owner is None else owner.key, []).append(name)
        return found

    def objects(self) -> dict[str, int]:
        """For each Python object of the run that the caller does not get, its last step."""
        kept = {v.name for v in self.lowered.outputs if isinstance(v, Opaque)}
        last: dict[str, int] = {}
        for k in range(self.end):
            call = self.call_at(k)
            if call is not None:
                names = [name for _, name, is_object in call.results if is_object]
                names += list(_held([*call.args, *call.kwargs.values()]))
                last.update(dict.fromkeys(names, k))
        return {name: k for name, k in last.items() if name not in kept}

    def writes_where_told(self, name: str, spots: Mapping[str, Spot]) -> bool:
        """Whether the call that makes a storage can be given its memory."""
        call = self.call_at(self.made[name])
        assert call is not None
        is_known = call.function in WRITES_WHERE_TOLD and call.is_single
        return is_known and name not in self.pinned and spots[name].is_plain

    def lives(self, spots: Mapping[str, Spot], values: Mapping[Symbol, int]) -> Iterator[Life]:
        """Every storage that needs memory, for layouts and run-time sizes in numbers."""
        for names in self.families.values():
            yield from self._family(names, spots, values)
        for name, spot in spots.items():
            if name in self.first and name not in self.inputs:
                role = self._role(name, spots)
                is_kept = name in self.outputs
                last = self.end if is_kept else self.last[name]
                yield Life(name, role, self._bytes(name, spot), self.first[name], last)

    def _family(
        self, names: Sequence[str], spots: Mapping[str, Spot], values: Mapping[Symbol, int]
    ) -> Iterator[Life]:
        """Inputs in one storage: the one that is needed longest counts for all of them."""
        free = [n for n in names if n in self.donated and n not in self.pinned]
        role = Role.DONATED if len(free) == len(names) else Role.KEPT
        last = {n: self.last.get(n, -1) if role is Role.DONATED else self.end for n in names}
        longest = max(names, key=lambda n: (last[n], n))
        known = self.owners.get(longest)
        size = sum(self._bytes(n, spots[n]) for n in names)
        if known is not None and known.bytes is not None:
            size = max(int(evaluate(known.bytes, values)), 0)
        whole = len(names) == 1 and self._bytes(longest, spots[longest]) == size
        for name in names:
            yield Life(name, role, size if name == longest else 0, -1, last[name], whole)

    def _bytes(self, name: str, spot: Spot) -> int:
        return spot.reach * self.program.by_name[name].dtype.itemsize

    def _role(self, name: str, spots: Mapping[str, Spot]) -> Role:
        if name in self.made and not self.writes_where_told(name, spots):
            return Role.CALL_OUTPUT if name in self.outputs else Role.CALL
        if name in self.outputs:
            return Role.OUTPUT
        return Role.PINNED if name in self.pinned else Role.TEMP


def is_plain_aten(function: Any) -> bool:
    """Whether a call is known to keep nothing: an operator of ATen, not of a library or a user."""
    is_overload = isinstance(function, torch._ops.OpOverload)
    return is_overload and is_torchs(function)


def sees_storage(function: Any) -> bool:
    """Whether an operator knows of the storage behind a tensor, where others may lie.

    It counts elements from its start, or makes it the storage of another tensor.
    """
    if moves(function):
        return True
    return any(a.name == "storage_offset" for a in function._schema.arguments)


def _touched(program: Program, op: Operation) -> tuple[str, ...]:
    return tuple(dict.fromkeys(program.storage_of(n) for n in effects(op).touched))


def _held(args: Sequence[Any]) -> Iterator[str]:
    for a in args:
        if isinstance(a, Held):
            yield a.name
        elif isinstance(a, list | tuple):
            yield from _held(a)
        elif isinstance(a, dict):
            yield from _held(list(a.values()))
