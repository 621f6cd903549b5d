"""From a program of kernels to the operations a host carries out, one step each.

A program that still has loops and groups gets its kernels first (see `kernel.build`). Around a
library call a template's nests are launches of their own; what is only kept side by side is taken
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from treadle.analysis.shared_memory import parameters_of
from treadle.codegen.host import HostProgram, KernelPlan
from treadle.codegen.names import Names
from treadle.core.errors import SpecError
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
from treadle.kernel.allowed_steps import kernel_violations
from treadle.kernel.build import with_kernels


def lower(program: Program) -> HostProgram:
    """The program as steps, and the kernels they launch."""
    lowering = _Lowering(_with_allowed_schedules(with_kernels(program)))
    for op in lowering.program.ops:
        lowering.add(op)
    apart = lowering.program.with_ops(tuple(lowering.ops))
    kernels = tuple([_kernel_plan(apart, launch) for launch in lowering.kernels])
    return HostProgram(apart, kernels, lowering.launches)


class _NamedLaunch(NamedTuple):
    """A launch of generated code: what it is called, its operation and its nests."""

    name: str
    shape: str
    op: Operation
    nests: tuple[Nest, ...]


def _with_allowed_schedules(program: Program) -> Program:
    """The program itself: what it states of its kernels holds, or a SpecError says what does not.

    The passes see to that; a program that was written by hand is looked at here.
    """
    bad = list(kernel_violations(program))
    if bad:
        raise SpecError(f"program {program.name} has kernels that cannot be run as they say", bad)
    return program


def _kernel_plan(program: Program, launch: _NamedLaunch) -> KernelPlan:
    """The plan of a launch, with the parameters that its kernel states, or that its nests show."""
    stated = launch.op.parameters if isinstance(launch.op, Kernel) else ()
    parameters = stated or parameters_of(program, launch.nests)
    return KernelPlan(launch.name, launch.shape, launch.nests, parameters, program.sizes)


class _Lowering:
    """The steps so far, and the kernels among them."""

    def __init__(self, program: Program) -> None:
        self.program, self.names = program, Names()
        self.kernels: list[_NamedLaunch] = []
        self.launches: dict[str, str] = {}
        self.ops: list[Operation] = []

    def add(self, op: Operation) -> None:
        """Append the steps of one operation."""
        LOWERED[type(op)](self, op)

    def members(self, op: Operation) -> None:
        """Append the steps of every member of a group."""
        assert isinstance(op, Group), f"'{op.name}' has no members"
        for m in op.members:
            self.add(m)

    def simple(self, op: Operation) -> None:
        """Append an operation that is no kernel."""
        self.ops.append(op)

    def kernel(self, op: Operation) -> None:
        """A kernel is one launch; one around a call is taken apart."""
        assert isinstance(op, Kernel), f"'{op.name}' is no kernel"
        nests = [m for m in op.members if isinstance(m, Nest)]
        if len(nests) < len(op.members):
            self.members(op)
        else:
            self._launch(op, op.shape, nests)

    def nest(self, op: Operation) -> None:
        """A nest beside a call is a launch by itself."""
        assert isinstance(op, Nest), f"'{op.name}' is no nest"
        self._launch(op, "loop", [op])

    def _launch(self, op: Operation, shape: str, nests: Sequence[Nest]) -> None:
        launch = _NamedLaunch(self.names.fresh("k", op.name), shape, op, tuple(nests))
        self.kernels.append(launch)
        self.launches[op.name] = launch.name
        self.ops.append(op)


SIMPLE: tuple[type[Operation], ...] = (
    Extern, Template, UserKernel, Collective, Wait, MultiOutput, Nop,
)  # fmt: skip
"""Operations that are a step of their own and no kernel."""

LOWERED: Mapping[type[Operation], Callable[[_Lowering, Operation], None]] = {
    **dict.fromkeys(SIMPLE, _Lowering.simple),
    Nest: _Lowering.nest,
    Kernel: _Lowering.kernel,
    Grouped: _Lowering.members,
}
"""How every kind of operation that is left when kernels are built is lowered."""
