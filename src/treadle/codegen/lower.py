"""From a program to host steps: which kernels there are, in which order, who lives when.

Fused kernels become one body where their members' loops allow it (see `merge`). Members of the
other groups of loops follow each other inside one kernel; groups that also hold library calls are
taken apart. What became a value inside a kernel is never allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from treadle.codegen.host import (
    Alloc,
    CallStep,
    ClearStep,
    Free,
    HostProgram,
    HostStep,
    KernelPlan,
    Launch,
    TakeStep,
    WaitStep,
)
from treadle.codegen.merge import Merged, Part, merge_members
from treadle.codegen.names import Names
from treadle.ir.effects import effects
from treadle.ir.program import (
    Collective,
    Extern,
    Foreach,
    Fused,
    Group,
    Grouped,
    Loop,
    MixOrder,
    MultiOutput,
    Nop,
    Operation,
    Program,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import BufferKind


def lower(program: Program) -> HostProgram:
    """The host steps of a program, allocation included."""
    lowering = _Lowering(program)
    for op in program.ops:
        lowering.add(op)
    return HostProgram(program, tuple(lowering.with_lives()), tuple(lowering.kernels))


class _Lowering:
    """Steps so far, each with the storages it touches."""

    def __init__(self, program: Program) -> None:
        self.program, self.names = program, Names()
        self.kernels: list[KernelPlan] = []
        self.steps: list[tuple[HostStep, tuple[str, ...]]] = []
        self._users = _leaves_of_storages(program)

    def add(self, op: Operation) -> None:
        """Append the steps of one operation."""
        LOWERED[type(op)](self, op)

    def members(self, op: Operation) -> None:
        """Append the steps of every member of a group."""
        assert isinstance(op, Group)
        for m in op.members:
            self.add(m)

    def simple(self, op: Operation) -> None:
        """Append the one step of an operation that is no kernel."""
        self.steps.append((STEPS[type(op)](op), self._touched((op,))))

    def loop(self, op: Operation) -> None:
        """A loop is a kernel by itself."""
        self._kernel(op, self._one_by_one((op,)))

    def kernel_of_group(self, op: Operation) -> None:
        """A group of loops is one kernel; one with other members is taken apart."""
        assert isinstance(op, Group)
        if not all(isinstance(leaf, Loop) for leaf in op.leaves):
            self.members(op)
        else:
            members = [op] if isinstance(op, Fused) else list(op.members)
            found = [self._merged(m) for m in members]
            parts = tuple([p for m in found for p in m.parts])
            apart = tuple([v for m in found for v in m.apart])
            dropped = frozenset[str]().union(*[m.dropped for m in found])
            self._kernel(op, Merged(parts, dropped, apart))

    def _merged(self, op: Operation) -> Merged:
        loops = [leaf for leaf in op.leaves if isinstance(leaf, Loop)]
        if isinstance(op, Fused):
            return merge_members(self.program, loops, self._internal(op))
        return self._one_by_one(loops)

    def _one_by_one(self, loops: Sequence[Operation]) -> Merged:
        parts = tuple([Part((x.name,), x.body) for x in loops if isinstance(x, Loop)])
        return Merged(parts, frozenset(), ())

    def _internal(self, group: Group) -> frozenset[str]:
        """Storages that only members of the group touch and the caller never sees."""
        inside = {leaf.name for leaf in group.leaves}
        program = self.program
        border = {program.storage_of(n) for n in (*program.inputs, *program.outputs)}
        touched = set(self._touched(group.leaves))
        return frozenset(s for s in touched - border if self._users[s] <= inside)

    def _touched(self, leaves: Sequence[Operation]) -> tuple[str, ...]:
        names = [n for leaf in leaves for n in effects(leaf).touched]
        return tuple(dict.fromkeys(self.program.storage_of(n) for n in names))

    def _kernel(self, op: Operation, merged: Merged) -> None:
        touched = self._touched(op.leaves)
        plan = KernelPlan(
            name=self.names.fresh("k", op.name),
            kind=type(op).__name__,
            parts=merged.parts,
            storages=tuple(s for s in touched if s not in merged.dropped),
            sizes=self.program.sizes,
            dropped=merged.dropped,
            apart=merged.apart,
        )
        self.kernels.append(plan)
        self.steps.append((Launch(plan.name), plan.storages))

    # -- lives -----------------------------------------------------------------------------
    def with_lives(self) -> Iterator[HostStep]:
        """The steps, with each storage allocated before its first use and freed after its last."""
        program = self.program
        kept = {program.storage_of(n) for n in (*program.outputs, *program.inputs)}
        last: dict[str, int] = {}
        for k, (_, touched) in enumerate(self.steps):
            last.update(dict.fromkeys(touched, k))
        begun = {program.storage_of(n) for n in program.inputs}
        for k, (step, touched) in enumerate(self.steps):
            real = [s for s in touched if program.by_name[s].kind is BufferKind.TENSOR]
            for s in real:
                if s not in begun:
                    begun.add(s)
                    yield Alloc(s)
            yield step
            for s in real:
                if last[s] == k and s not in kept:
                    yield Free(s)


def _leaves_of_storages(program: Program) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for leaf in program.leaves:
        for n in effects(leaf).touched:
            found.setdefault(program.storage_of(n), set()).add(leaf.name)
    return found


STEPS: Mapping[type[Operation], Callable[..., HostStep]] = {
    Extern: CallStep,
    Template: CallStep,
    UserKernel: CallStep,
    Collective: CallStep,
    Wait: WaitStep,
    MultiOutput: TakeStep,
    Nop: ClearStep,
}
"""The step of every operation that is not a kernel."""

LOWERED: Mapping[type[Operation], Callable[[_Lowering, Operation], None]] = {
    Loop: _Lowering.loop,
    **dict.fromkeys(STEPS, _Lowering.simple),
    Fused: _Lowering.kernel_of_group,
    MixOrder: _Lowering.kernel_of_group,
    Foreach: _Lowering.kernel_of_group,
    Grouped: _Lowering.members,
}
"""How every kind of operation is lowered."""
