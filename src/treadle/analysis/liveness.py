"""Liveness: the one engine that says which storage lives when, and what that costs.

It turns a program into steps and storages and lets `timeline` keep the bytes. Decided here:

    a mutation belongs to the storage it changes, however many versions that has
    ordering-only dependences extend no life: only operations that touch a storage do
    outputs are never freed; inputs only if they were donated
    tensors of a tuple are allocated by the call that makes the tuple, and freed one by one
    a kernel's members are one step; what lives only inside a fused kernel may need no memory
    an output may take over the block of an input that dies there (see `inplace`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from treadle.analysis.access import accesses
from treadle.analysis.deps import Dependences, DepKind, dependences
from treadle.analysis.inplace import boundary, possible_pairs
from treadle.analysis.timeline import Storage, Timeline
from treadle.core.garbage import paused_collection
from treadle.ir.effects import effects
from treadle.ir.program import (
    Fused,
    Grouped,
    Kernel,
    MixOrder,
    MultiOutput,
    Operation,
    Program,
    Wait,
)
from treadle.ir.types import BufferKind


@dataclass(frozen=True)
class LivenessPolicy:
    """What is counted, and what may share memory."""

    include_inputs: bool = True
    """Inputs the caller owns count too (peers' estimates leave them out)."""
    drop_internal: bool = True
    """A buffer made and used up inside one fused kernel needs no memory."""
    in_place: bool = True
    """An output may take over the block of an input of the same kernel that dies there."""
    count_gaps: bool = True
    """Storage between strided elements counts; otherwise only elements do."""
    hold_until_wait: bool = True
    """What a collective reads lives until the wait, for until then it may still be read."""
    orderings_extend_life: bool = False
    """What an operation made lives on until its input is overwritten (peers without fake edges)."""


@dataclass(frozen=True)
class LiveRange:
    """One row of the live-range table."""

    storage: str
    bytes: int
    first: str | None
    """The operation that allocates it; None for inputs."""
    last: str | None
    """The last operation that touches it; None if nothing does."""
    freed: bool
    block: str | None
    """The storage whose block it lives in (its own, mostly); None if it needs no memory."""


@dataclass(frozen=True)
class PeakPoint:
    """The most bytes live at once and the operation during which they are."""

    bytes: int
    at: str | None


class Liveness:
    """Lives of all storages of a program over an order that can be changed and tried."""

    def __init__(self, program: Program, policy: LivenessPolicy | None = None) -> None:
        self.program = program
        self.policy = policy or LivenessPolicy()
        self.deps: Dependences = dependences(program)
        with paused_collection():
            merged = self._merged_steps()
            storages = _storages(program, self.policy)
            self.timeline = Timeline(len(program.leaves), storages, merged=merged)
            if self.policy.in_place:
                self._hand_over_blocks()

    # -- what is ---------------------------------------------------------------------------
    def peak(self) -> PeakPoint:
        """The peak of the present order, at the first operation that attains it."""
        peak = self.timeline.peak()
        return PeakPoint(peak.bytes, None if peak.step is None else self.name_of(peak.step))

    def curve(self) -> list[tuple[str, int, int]]:
        """(operation, bytes during it, bytes after it) in order."""
        return [(self.name_of(s.step), s.during, s.after) for s in self.timeline.curve()]

    def ranges(self) -> list[LiveRange]:
        """The live-range table, storages in order of declaration."""
        rows = []
        for s, life in self.timeline.lives():
            rows.append(
                LiveRange(
                    storage=s.name,
                    bytes=s.bytes,
                    first=None if life.first is None else self.name_of(life.first),
                    last=None if life.last is None else self.name_of(life.last),
                    freed=life.freed,
                    block=life.host,
                )
            )
        return rows

    def live_during(self, op: str) -> list[Storage]:
        """The storages that count while `op` runs."""
        return self.timeline.live_during(self.step_of(op))

    def working_set_bound(self) -> int:
        """No order of these steps can have a lower peak: the most any one of them needs.

        That is what it touches, and what is there from the beginning and never freed.
        """
        always = 0
        touched: dict[int, int] = {}
        # An output that could take over a block, in this order or another, may add nothing.
        movable = {p.out for p in possible_pairs(self.program)} if self.policy.in_place else set()
        for s, life in self.timeline.lives():
            if life.host is None or life.last is None:
                continue  # in registers, or never needed
            if s.producer is None and not s.freeable:
                always += s.bytes
                continue
            steps = {self.timeline.position(u) for u in _touching(s)}
            if s.name in movable and s.producer is not None:
                steps.discard(self.timeline.position(s.producer))
            for step in steps:
                touched[step] = touched.get(step, 0) + s.bytes
        return always + max(touched.values(), default=0)

    def in_place_reuse(self) -> dict[str, str]:
        """For each storage whose block is reused in place at its end: by which storage."""
        return {inp: out for out, inp in self.timeline.effective_hand_overs().items()}

    # -- what would be ---------------------------------------------------------------------
    def move_before(self, op: str, other: str) -> None:
        """Put `op` directly before `other`."""
        self.timeline.move_before(self.step_of(op), self.step_of(other))

    def move_after(self, op: str, other: str) -> None:
        """Put `op` directly behind `other`."""
        self.timeline.move_after(self.step_of(op), self.step_of(other))

    def merge(self, a: str, b: str, at: str, kernel: bool = True) -> None:
        """Make two steps one, standing where `at` stands; a kernel drops what stays inside."""
        drop = kernel and self.policy.drop_internal
        self.timeline.merge(
            self.step_of(a), self.step_of(b), at=self.step_of(at), drop_internal=drop
        )

    def order(self) -> list[tuple[str, ...]]:
        """The leaves in the present order, merged ones together."""
        names = self.deps.names
        return [tuple(names[m] for m in step) for step in self.timeline.order()]

    # -- names -----------------------------------------------------------------------------
    def step_of(self, op: str) -> int:
        """The step an operation (leaf or group) belongs to."""
        return self.deps.position[self._leaves_of(op)[0].name]

    def _leaves_of(self, op: str) -> tuple[Operation, ...]:
        return self.program.op_by_name[op].leaves

    def name_of(self, step: int) -> str:
        """The operation a step is: the group's name for a merged one of the program."""
        return self._step_names.get(step, self.deps.names[step])

    @cached_property
    def _step_names(self) -> dict[int, str]:
        return {
            self.deps.position[leaf.name]: op.name
            for op in self.program.ops
            if _is_one_step(op) or isinstance(op, Kernel)  # a nest is known by its kernel
            for leaf in op.leaves
        }

    def _merged_steps(self) -> list[tuple[list[int], bool]]:
        """The groups that run as one step, each with whether what stays inside needs no memory."""
        found = []
        for op in _steps(self.program.ops):
            members = [self.deps.position[leaf.name] for leaf in op.leaves]
            inside = isinstance(op, Fused | MixOrder) or _is_template(op)
            drop = self.policy.drop_internal and inside
            found.append((members, drop))
        return found

    def _hand_over_blocks(self) -> None:
        # The blocks of inputs that are not counted are not there to be taken over.
        inputs = self.program.derive(boundary).inputs
        absent = frozenset[str]() if self.policy.include_inputs else inputs
        position = self.deps.position
        # The rules looked at this kernel: one merged with others is another kernel.
        self.timeline.hand_over_all(
            (pair.out, pair.inp, [position[leaf.name] for leaf in self._leaves_of(pair.op)])
            for pair in possible_pairs(self.program)
            if pair.inp not in absent
        )


def program_peak(program: Program, policy: LivenessPolicy) -> int:
    """The peak of a program in its present order; computed once for each program and policy."""
    return program.derive(_peak_under(policy))


def remember_peak(live: Liveness) -> None:
    """Tell a program its peak, by a liveness in which nothing has been moved yet."""
    live.program.remember(_peak_under(live.policy), live.timeline.peak().bytes)


@lru_cache(maxsize=64)
def _peak_under(policy: LivenessPolicy) -> Callable[[Program], int]:
    return lambda program: Liveness(program, policy).timeline.peak().bytes


def _is_template(op: Operation) -> bool:
    """Whether it is a kernel around a call, whose slots hand values over without memory."""
    return isinstance(op, Kernel) and op.shape == "template"


def _is_one_step(op: Operation) -> bool:
    return len(op.leaves) > 1 and not isinstance(op, Grouped)


def _steps(ops: Iterable[Operation]) -> list[Operation]:
    """The groups that run as one step; a Grouped is looked into, it only keeps neighbours."""
    found = []
    for op in ops:
        if isinstance(op, Grouped):
            found.extend(_steps(op.members))
        elif _is_one_step(op):
            found.append(op)
    return found


def _touching(s: Storage) -> tuple[int, ...]:
    return s.users if s.producer is None else (s.producer, *s.users)


def _storages(program: Program, policy: LivenessPolicy) -> list[Storage]:
    deps = dependences(program)
    makers = _tuple_makers(program, deps)
    inputs = {program.storage_of(n) for n in program.inputs}
    donated = {program.storage_of(n) for n in program.donated}
    outputs = {program.storage_of(n) for n in program.outputs}
    lives_of = _uses(program, deps, policy)
    found = []
    for b in program.buffers:
        if b.view_of is not None or b.kind is not BufferKind.TENSOR:
            continue
        users = lives_of(b.name)
        is_input = b.name in inputs
        if not users and not is_input:
            continue  # declared, never touched
        if is_input and not policy.include_inputs:
            continue
        producer = None if is_input else min(users[0], makers.get(b.name, users[0]))
        freeable = b.name not in outputs and (not is_input or b.name in donated)
        size = b.storage_bytes if policy.count_gaps else b.tensor_bytes
        found.append(Storage(b.name, size, producer, users, freeable))
    return found


def _uses(
    program: Program, deps: Dependences, policy: LivenessPolicy
) -> Callable[[str], tuple[int, ...]]:
    """For a storage, the positions of the leaves that keep it alive."""
    more: dict[str, set[int]] = {}
    if policy.orderings_extend_life:
        for d in deps.deps:
            if d.kind is DepKind.WAR:
                for name in effects(program.leaves[d.source]).writes:
                    more.setdefault(program.storage_of(name), set()).add(d.target)
    held: dict[str, set[int]] = {}
    if not policy.hold_until_wait:
        for position, op in enumerate(program.leaves):
            if isinstance(op, Wait):
                for access in program.derive(accesses)[op.name]:
                    if access.storage != program.storage_of(op.buffer):
                        held.setdefault(access.storage, set()).add(position)

    def uses(name: str) -> tuple[int, ...]:
        found = deps.users.get(name, ())
        if name in held or name in more:
            kept = [u for u in found if u not in held.get(name, ())]
            return tuple(sorted({*kept, *more.get(name, ())}))
        return found

    return uses


def _tuple_makers(program: Program, deps: Dependences) -> dict[str, int]:
    """For each tensor taken out of a tuple, the call that made (and so allocated) it."""
    writer: dict[str, int] = {}
    makers: dict[str, int] = {}
    for position, op in enumerate(program.leaves):
        if isinstance(op, MultiOutput) and op.source in writer:
            makers[program.storage_of(op.target)] = writer[op.source]
        for name in effects(op).writes:
            writer[name] = position
    return makers
