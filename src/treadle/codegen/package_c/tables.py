"""What a package holds, as plain data: sizes, tensors, where they lie, what is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.codegen.host_c.instructions import HostFunction
from treadle.index import Expr, Symbol
from treadle.ir.types import DType, Layout

TYPE_CODES: Mapping[DType, int] = {
    DType.BOOL: 0, DType.U8: 1, DType.I8: 2, DType.I16: 3, DType.I32: 4, DType.I64: 5,
    DType.F16: 6, DType.F32: 7, DType.F64: 8, DType.BF16: 9, DType.F8E4M3: 10, DType.F8E5M2: 11,
    DType.U16: 12, DType.U32: 13, DType.U64: 14,
}  # fmt: skip
"""The numbers by which the C interface of packages knows element types; never changed."""
MOST_DIMS = 16
ALIGNMENT = 64


@dataclass(frozen=True)
class PackedSize:
    """A run-time size: what people call it, and the least and the most it may be."""

    symbol: Symbol
    shown: str
    low: int
    high: int | None
    shown_by: tuple[int, int]
    """The input and its dimension that tell it."""
    divisor: int = 1
    """What it must be a multiple of."""


@dataclass(frozen=True)
class Constraint:
    """What must hold between sizes: `left relation right`."""

    left: Expr
    relation: str
    right: Expr


@dataclass(frozen=True)
class PackedTensor:
    """An input, a weight or a result."""

    name: str
    storage: str
    dtype: DType
    layout: Layout
    changes: bool = False
    """For an input or a weight: whether a run writes into it."""
    is_direct: bool = False
    """For a result: whether kernels can write it where the caller wants it."""


@dataclass(frozen=True)
class PackedBlock:
    """Memory of a run that some storages share, and the steps between which it is needed."""

    storages: tuple[str, ...]
    bytes: tuple[Expr, ...]
    """Of each storage; the block has room for the largest."""
    first: int
    last: int
    likely_offset: int
    """Where it lies at the likely sizes."""


@dataclass(frozen=True)
class PackedGraph:
    """Everything that the C text of a package is written from."""

    name: str
    sizes: tuple[PackedSize, ...]
    constraints: tuple[Constraint, ...]
    inputs: tuple[PackedTensor, ...]
    weights: tuple[PackedTensor, ...]
    outputs: tuple[PackedTensor, ...]
    blocks: tuple[PackedBlock, ...]
    likely_sizes: tuple[int, ...]
    likely_bytes: int
    """How many bytes all blocks need at the likely sizes."""
    host: HostFunction
    given: tuple[str, ...]
    """The storages whose addresses the host function is given, in order."""
    adopted: tuple[str, ...]
    """The storages whose tensors it gives back: calls of the library made them."""
    base: int
    """Where numbers begin in its table; functions come before."""
    numbers: tuple[Expr, ...]
    """Its table of numbers, in terms of the sizes."""
    torch_version: str | None = None
    """Whose C interface it calls; None: it calls nothing."""
