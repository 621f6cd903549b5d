"""What is the same for every set of run-time sizes: the steps of a run, lives, who may lie where.

Steps are the operations of the lowered program, in order. Lives come from the liveness engine
(`analysis/live_table`), and nothing is walked again here. What a call may look at after it returned
is pinned: it lies in memory of its own that nobody else uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby

from treadle.analysis.live_table import live_table
from treadle.codegen.host import HostProgram
from treadle.index import Symbol, evaluate
from treadle.ir.effects import effects
from treadle.ir.placed_layout import PlacedLayout
from treadle.ir.program import (
    Call,
    Collective,
    Extern,
    Kernel,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Program,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import BufferKind
from treadle.memory.problem import ARENA
from treadle.runtime.device_memory import Role, StorageLife
from treadle.runtime.launch_plan import (
    CallStep,
    ClearStep,
    LaunchStep,
    RecordedSteps,
    Step,
    Stream,
    TakeStep,
    WaitStep,
)
from treadle.runtime.run_facts import NO_FACTS, PLAIN_CALL, CallFacts, ResultsAre, RunFacts
from treadle.schedule.partition import can_be_recorded


class LaunchShape:
    """A lowered program with what its planner asks again for every set of sizes."""

    def __init__(self, host: HostProgram, facts: RunFacts = NO_FACTS) -> None:
        self.host, self.program, self.facts = host, host.program, facts
        self.table = live_table(self.program)
        self.rows = {n: row for n, row in self.table.rows.items() if row.last >= 0}
        """The storages that some step touches."""
        of = self.program.storage_of
        self.inputs = {of(n) for n in self.program.inputs}
        self.outputs = {of(n) for n in self.program.outputs}
        self.donated = {of(n) for n in self.program.donated} - self.outputs
        self.made, self.pinned, self.seen_by_calls = self._calls()
        self.families = self._families()
        self.shared = {n for names in self.families.values() for n in names if len(names) > 1}
        self.reuses = self._reuses()

    @property
    def end(self) -> int:
        """How many steps there are."""
        return len(self.program.ops)

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """One queue for each device, in order of first use."""
        devices = dict.fromkeys(op.device for op in self.program.ops)
        return tuple([Stream(k, device) for k, device in enumerate(devices or ("cpu",))])

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The operations as steps that name storages, events and streams."""
        return tuple(_Steps(self.host, {s.device: s.number for s in self.streams}).all())

    @cached_property
    def recordings(self) -> tuple[RecordedSteps, ...]:
        """Runs of steps that a device can record and replay."""
        if all(s.device.startswith("cpu") for s in self.streams):
            return ()
        ops = enumerate(self.program.ops)
        runs = groupby(ops, key=lambda one: self._can_be_recorded(one[1]))
        found = []
        for is_recorded, run in runs:
            places = [k for k, _ in run]
            if is_recorded:
                found.append(RecordedSteps(places[0], places[-1]))
        return tuple(found)

    def _can_be_recorded(self, op: Operation) -> bool:
        return bool(can_be_recorded(self.program, op, self.draws(op.name)))

    def draws(self, operation: str) -> bool:
        """Whether a call draws random numbers, other ones whenever it is replayed."""
        return self.facts.calls.get(operation, PLAIN_CALL).draws

    def facts_of(self, op: Operation) -> CallFacts | None:
        """What is known of a call; None for what is no call."""
        return self.facts.calls.get(op.name, PLAIN_CALL) if isinstance(op, Call) else None

    def last(self, storage: str) -> int:
        """The last step that touches a storage, -1 if none does."""
        row = self.rows.get(storage)
        return -1 if row is None else row.last

    def _calls(self) -> tuple[dict[str, int], set[str], set[str]]:
        """Who is made by which call, what calls may keep looking at, and what they look at."""
        made: dict[str, int] = {}
        pinned = {ARENA}  # a storage that is called like the arena cannot be told from it
        seen: set[str] = set()
        for k, op in enumerate(self.program.ops):
            facts = self.facts_of(op)
            if facts is None:
                continue
            made.update({n: k for n in effects(op).writes if n in self.rows})
            touched = set(tensors_of(self.program, effects(op).touched))
            seen |= touched
            if facts.keeps_arguments:
                pinned |= touched
        return made, pinned, seen

    def _reuses(self) -> dict[str, str]:
        """Who may be written over whom, of those that are there at run time and free to be."""
        there = self.rows.keys() - self.pinned - self.shared
        return {
            inp: out
            for inp, out in self.table.reuses.items()
            if inp in there and out in there and self.rows[inp].last == self.rows[out].first
        }

    def _families(self) -> dict[object, list[str]]:
        """The inputs by the memory they are views of."""
        found: dict[object, list[str]] = {}
        for name in dict.fromkeys(map(self.program.storage_of, self.program.inputs)):
            if self.program.by_name[name].kind is not BufferKind.TENSOR:
                continue
            owner = self.facts.owners.get(name)
            found.setdefault(name if owner is None else owner.key, []).append(name)
        return found

    @cached_property
    def objects(self) -> dict[str, int]:
        """For each object of the run that the caller does not get, its last step."""
        last: dict[str, int] = {}
        for k, op in enumerate(self.program.ops):
            facts = self.facts_of(op)
            if facts is not None:
                last.update(dict.fromkeys(facts.objects, k))
        return {name: k for name, k in last.items() if name not in self.facts.kept_objects}

    # -- at some sizes ---------------------------------------------------------------------
    def writes_where_told(self, name: str, layouts: Mapping[str, PlacedLayout]) -> bool:
        """Whether the call that makes a storage can be given its memory."""
        facts = self.facts_of(self.program.ops[self.made[name]])
        assert facts is not None, f"'{name}' is made by a call"
        if facts.results is ResultsAre.WHERE_TOLD:
            return True
        is_asked = facts.results is ResultsAre.WHERE_TOLD_IF_PLAIN
        return is_asked and name not in self.pinned and layouts[name].is_plain

    def lives(
        self, layouts: Mapping[str, PlacedLayout], values: Mapping[Symbol, int]
    ) -> Iterator[StorageLife]:
        """Every storage that needs memory, for layouts and run-time sizes in numbers."""
        for names in self.families.values():
            yield from self._family(names, layouts, values)
        for name, layout in layouts.items():
            if name in self.rows and name not in self.inputs:
                row, role = self.rows[name], self._role(name, layouts)
                last = self.end if name in self.outputs else row.last
                size = self._bytes(name, layout)
                yield StorageLife(name, self._device(name), role, size, row.first, last)

    def _family(
        self,
        names: Sequence[str],
        layouts: Mapping[str, PlacedLayout],
        values: Mapping[Symbol, int],
    ) -> Iterator[StorageLife]:
        """Views of one piece of memory: the one that is needed longest counts for all of them."""
        free = [n for n in names if n in self.donated and n not in self.pinned]
        role = Role.DONATED if len(free) == len(names) else Role.KEPT
        last = {n: self.last(n) if role is Role.DONATED else self.end for n in names}
        longest = max(names, key=lambda n: (last[n], n))
        known = self.facts.owners.get(longest)
        size = sum(self._bytes(n, layouts[n]) for n in names)
        if known is not None and known.bytes is not None:
            size = max(int(evaluate(known.bytes, values)), 0)
        whole = len(names) == 1 and self._bytes(longest, layouts[longest]) == size
        for name in names:
            own = size if name == longest else 0
            yield StorageLife(name, self._device(name), role, own, -1, last[name], whole)

    def _device(self, name: str) -> str:
        return self.program.by_name[name].device

    def _bytes(self, name: str, layout: PlacedLayout) -> int:
        return layout.reach * self.program.by_name[name].dtype.itemsize

    def _role(self, name: str, layouts: Mapping[str, PlacedLayout]) -> Role:
        if name in self.made and not self.writes_where_told(name, layouts):
            return Role.CALL_OUTPUT if name in self.outputs else Role.CALL
        if name in self.outputs:
            return Role.OUTPUT
        return Role.PINNED if name in self.pinned else Role.TEMP


def tensors_of(program: Program, names: Sequence[str]) -> tuple[str, ...]:
    """The storages that hold elements, of buffers by name."""
    storages = dict.fromkeys(map(program.storage_of, names))
    return tuple([s for s in storages if program.by_name[s].kind is BufferKind.TENSOR])


class _Steps:
    """Turns the operations of a lowered program into steps, one each."""

    def __init__(self, host: HostProgram, stream_of: Mapping[str, int]) -> None:
        self.host, self.program, self.stream_of = host, host.program, stream_of
        self.pending: dict[str, str] = {}
        """Storage or tuple -> the event that says when it may be read."""

    def all(self) -> Iterator[Step]:
        """Every step, in order."""
        for op in self.program.ops:
            yield STEPS[type(op)](self, op)

    def launch(self, op: Operation) -> Step:
        kernel = self.host.kernel_by_name[self.host.launches[op.name]]
        return LaunchStep(op.name, kernel.name, kernel.storages, self._stream(op))

    def call(self, op: Operation) -> Step:
        assert isinstance(op, Call), f"'{op.name}' is no call"
        of, roots = effects(op), self._roots
        event = f"{op.name} is done" if isinstance(op, Collective) else None
        if event is not None:
            self.pending.update(dict.fromkeys(roots((*of.writes, *of.mutates)), event))
        rows = roots(of.reads), roots(of.writes), roots(of.mutates)
        return CallStep(op.name, op.target, *rows, event, self._stream(op))

    def wait(self, op: Operation) -> Step:
        assert isinstance(op, Wait), f"'{op.name}' is no wait"
        storage = self.program.storage_of(op.buffer)
        return WaitStep(op.name, storage, self.pending.get(storage), self._stream(op))

    def take(self, op: Operation) -> Step:
        assert isinstance(op, MultiOutput), f"'{op.name}' takes nothing out of a tuple"
        storage, event = self.program.storage_of(op.target), self.pending.get(op.source)
        if event is not None:
            self.pending[storage] = event
        return TakeStep(op.name, op.source, op.position, storage, event, self._stream(op))

    def clear(self, op: Operation) -> Step:
        return ClearStep(op.name, self._roots(effects(op).writes), self._stream(op))

    def _roots(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.program.storage_of, names)))

    def _stream(self, op: Operation) -> int:
        return self.stream_of[op.device]


STEPS: Mapping[type[Operation], Callable[[_Steps, Operation], Step]] = {
    Kernel: _Steps.launch,
    Nest: _Steps.launch,
    Extern: _Steps.call,
    Template: _Steps.call,
    UserKernel: _Steps.call,
    Collective: _Steps.call,
    Wait: _Steps.wait,
    MultiOutput: _Steps.take,
    Nop: _Steps.clear,
}
"""The step of every kind of operation that is left when a program is lowered."""
