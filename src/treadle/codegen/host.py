"""What a program is made of when it is to run: operations one by one, and the kernels among them.

    program    op 0 kernel softmax      op 1 aten.mm      op 2 kernel relu
    kernels    k0_softmax                                 k1_relu

Every operation of the program here is one step of a run. A generator turns each `KernelPlan` into
a `KernelSource`; what memory the steps need and when is for the planner of launches to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from treadle.index import Symbol
from treadle.ir.parameters import KernelParameter
from treadle.ir.program import Nest, Program


@dataclass(frozen=True)
class KernelPlan:
    """One kernel before it has text: its nests in order and the storages they touch."""

    name: str
    shape: str
    nests: tuple[Nest, ...]
    parameters: tuple[KernelParameter, ...]
    sizes: tuple[Symbol, ...]

    @property
    def storages(self) -> tuple[str, ...]:
        """The storages it is given, in order."""
        return tuple([p.storage for p in self.parameters])


@dataclass(frozen=True)
class KernelSource:
    """One kernel as text: its function, its arguments in order, and facts about it."""

    name: str
    text: str
    args: tuple[str, ...]
    """Storages, then sizes, in the order of the parameters."""
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class HostProgram:
    """A program whose operations are the steps of a run, and the kernels that some of them are."""

    program: Program
    kernels: tuple[KernelPlan, ...]
    launches: Mapping[str, str]
    """Operation -> the name of its kernel, for those that are launches."""

    @cached_property
    def kernel_by_name(self) -> Mapping[str, KernelPlan]:
        """The kernels by name."""
        return {plan.name: plan for plan in self.kernels}
