"""What a host function in C does, as plain data: a short list of kinds of instruction.

Addresses of storages lie in numbered slots, tensors that own memory in numbered handles, tensors
that only look at memory in numbered views. Every number that depends on run-time sizes lies in a
table that is given at run time, so one text serves all sizes whose plans have the same form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class TensorShape:
    """Sizes, strides and element type of a tensor: where they lie in the table of numbers."""

    dims: int
    at: int
    """Sizes first, then strides, then the code of the element type."""


@dataclass(frozen=True)
class Allocate:
    """A tensor of its own memory; its address goes into a slot."""

    handle: int
    slot: int
    shape: TensorShape
    is_result: bool = False
    """Whether the caller gets it, alone: its memory may be used again when nobody holds it."""


@dataclass(frozen=True)
class PlaceIn:
    """A slot gets the address of another one plus a number of bytes."""

    slot: int
    base: int
    offset_at: int


@dataclass(frozen=True)
class LetGo:
    """A tensor ends; its memory is freed if nobody else holds it."""

    handle: int


@dataclass(frozen=True)
class RunKernels:
    """Run kernels number `first` up to, not including, `last`."""

    first: int
    last: int


@dataclass(frozen=True)
class LookAt:
    """A view of the memory at a slot, `offset_at` bytes after its start; kept for later uses."""

    view: int
    slot: int
    offset_at: int
    shape: TensorShape


@dataclass(frozen=True)
class ViewArg:
    """A view as an argument."""

    view: int


@dataclass(frozen=True)
class OptionalArg:
    """A tensor that may be missing: a view, or none."""

    view: int | None


@dataclass(frozen=True)
class NumberArg:
    """A floating-point number."""

    value: float


@dataclass(frozen=True)
class OptionalNumberArg:
    """A floating-point number that may be missing, passed as a pointer."""

    value: float | None


@dataclass(frozen=True)
class WholeArg:
    """A whole number in the table."""

    at: int


@dataclass(frozen=True)
class OptionalWholeArg:
    """A whole number in the table that may be missing, passed as a pointer."""

    at: int | None


@dataclass(frozen=True)
class FlagArg:
    """A truth value."""

    value: bool


@dataclass(frozen=True)
class ListArg:
    """Whole numbers in the table, passed as a pointer and their count."""

    at: int
    count: int


@dataclass(frozen=True)
class MaskArg:
    """Truth values, passed as a pointer to 32-bit numbers and their count."""

    values: tuple[bool, ...]


@dataclass(frozen=True)
class OptionalListArg:
    """Whole numbers that may be missing, passed as a pointer to their pointer."""

    at: int
    count: int | None


LibraryArg: TypeAlias = (
    "ViewArg | OptionalArg | NumberArg | OptionalNumberArg | WholeArg | OptionalWholeArg | FlagArg"
    " | ListArg | MaskArg | OptionalListArg"
)


@dataclass(frozen=True)
class AdoptedTensor:
    """A tensor that a library call gives: it must lie as `shape` says, else a copy does."""

    handle: int
    slot: int
    shape: TensorShape


@dataclass(frozen=True)
class CallLibrary:
    """Call a function of the library's C interface; `step` is named if it fails."""

    function: str
    args: tuple[LibraryArg, ...]
    made: tuple[AdoptedTensor | None, ...]
    """What it gives, in order; None: nobody wants it."""
    step: int


@dataclass(frozen=True)
class GivenView:
    """A view of the memory at a slot that is made for one call and handed over to it."""

    slot: int
    shape: TensorShape


@dataclass(frozen=True)
class CallBack:
    """Go back to who called the function, for one step: it is given views and gives tensors."""

    given: tuple[GivenView, ...]
    made: tuple[AdoptedTensor, ...]
    step: int


Instruction: TypeAlias = "Allocate | PlaceIn | LetGo | RunKernels | LookAt | CallLibrary | CallBack"


@dataclass(frozen=True)
class HostFunction:
    """A whole function: what it is given, what it does, what it gives back."""

    slots: int
    given: tuple[int, ...]
    """The slots whose addresses it is given, in order."""
    owned: tuple[int, ...]
    """The handles it is given after them: tensors that are its to let go of."""
    handles: int
    views: int
    functions: tuple[str, ...]
    """What it calls of the library, in the order of the table, after what every host needs."""
    sizes_at: int
    """Where the run-time sizes lie that kernels are given."""
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    """The handles whose tensors the caller gets."""
    device: tuple[int, int] = (0, 0)
    """Where memory is allocated: the library's code of a kind of device, and which one."""
