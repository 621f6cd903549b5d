"""What a program does on the host, step by step, whatever the target of its kernels.

    alloc t        launch k0_softmax(x, t)        call aten.mm(t, w) -> y        free t

Buffers are named by the storage they live in. A generator turns each `KernelPlan` into a
`KernelSource`; a runtime walks the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from treadle.index import Symbol
from treadle.ir.program import Call, MultiOutput, Nest, Nop, Program, Wait


@dataclass(frozen=True)
class Alloc:
    """From here on the storage is in use."""

    storage: str


@dataclass(frozen=True)
class Free:
    """From here on nobody looks at the storage again."""

    storage: str


@dataclass(frozen=True)
class Launch:
    """Run a kernel."""

    kernel: str


@dataclass(frozen=True)
class CallStep:
    """Call something opaque: a library, a template, a user's kernel, a collective."""

    op: Call


@dataclass(frozen=True)
class WaitStep:
    """Wait for a collective."""

    op: Wait


@dataclass(frozen=True)
class TakeStep:
    """Take a tensor out of a tuple."""

    op: MultiOutput


@dataclass(frozen=True)
class ClearStep:
    """Buffers begin anew without a value."""

    op: Nop


HostStep: TypeAlias = "Alloc | Free | Launch | CallStep | WaitStep | TakeStep | ClearStep"


@dataclass(frozen=True)
class KernelPlan:
    """One kernel before it has text: its nests in order and the storages they touch."""

    name: str
    shape: str
    nests: tuple[Nest, ...]
    storages: tuple[str, ...]
    sizes: tuple[Symbol, ...]


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
    """The steps of a program and the kernels they launch."""

    program: Program
    steps: tuple[HostStep, ...]
    kernels: tuple[KernelPlan, ...]

    @property
    def storages(self) -> tuple[str, ...]:
        """Storages that are allocated, in order of their first use."""
        return tuple(s.storage for s in self.steps if isinstance(s, Alloc))
