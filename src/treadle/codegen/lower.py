"""From a program of kernels to host steps: what is launched and called, in order, who lives when.

A program that still has loops and groups gets its kernels first (see `kernel.build`). Around a
library call a template's nests are launches of their own.
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
from treadle.codegen.names import Names
from treadle.ir.effects import effects
from treadle.ir.program import (
    Collective,
    Extern,
    Group,
    Grouped,
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
from treadle.kernel.build import with_kernels


def lower(program: Program) -> HostProgram:
    """The host steps of a program, allocation included."""
    lowering = _Lowering(with_kernels(program))
    for op in lowering.program.ops:
        lowering.add(op)
    return HostProgram(lowering.program, tuple(lowering.with_lives()), tuple(lowering.kernels))


class _Lowering:
    """Steps so far, each with the storages it touches."""

    def __init__(self, program: Program) -> None:
        self.program, self.names = program, Names()
        self.kernels: list[KernelPlan] = []
        self.steps: list[tuple[HostStep, tuple[str, ...]]] = []

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

    def kernel(self, op: Operation) -> None:
        """A kernel is one launch; one around a call is taken apart."""
        assert isinstance(op, Kernel)
        nests = [m for m in op.members if isinstance(m, Nest)]
        if len(nests) < len(op.members):
            self.members(op)
        else:
            self._launch(op, nests)

    def nest(self, op: Operation) -> None:
        """A nest beside a call is a launch by itself."""
        assert isinstance(op, Nest)
        self._launch(op, [op])

    def _touched(self, leaves: Sequence[Operation]) -> tuple[str, ...]:
        names = [n for leaf in leaves for n in effects(leaf).touched]
        return tuple(dict.fromkeys(self.program.storage_of(n) for n in names))

    def _launch(self, op: Operation, nests: Sequence[Nest]) -> None:
        plan = KernelPlan(
            name=self.names.fresh("k", op.name),
            shape=op.shape if isinstance(op, Kernel) else "loop",
            nests=tuple(nests),
            storages=self._touched(nests),
            sizes=self.program.sizes,
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
    **dict.fromkeys(STEPS, _Lowering.simple),
    Nest: _Lowering.nest,
    Kernel: _Lowering.kernel,
    Grouped: _Lowering.members,
}
"""How every kind of operation that is left when kernels are built is lowered."""
