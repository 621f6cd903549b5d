"""The types of data: element types, layouts, buffers.

A buffer is a named view of a storage. Most buffers own theirs; a view names another buffer's
storage and only differs in layout. Indices in loop bodies count elements of the storage, so a view
and its root address the same element by the same index. Tokens and tuples carry order and packing
of values but no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from treadle.core.once import once
from treadle.index import Const, Expr, Facts, IntLike, as_expr, hint, maximum, product_of


class DType(Enum):
    """An element type: (text, torch name, class, bits)."""

    BOOL = ("bool", "bool", "bool", 8)
    I8 = ("i8", "int8", "int", 8)
    I16 = ("i16", "int16", "int", 16)
    I32 = ("i32", "int32", "int", 32)
    I64 = ("i64", "int64", "int", 64)
    U8 = ("u8", "uint8", "uint", 8)
    U16 = ("u16", "uint16", "uint", 16)
    U32 = ("u32", "uint32", "uint", 32)
    U64 = ("u64", "uint64", "uint", 64)
    F8E4M3 = ("f8e4m3fn", "float8_e4m3fn", "float", 8)
    F8E5M2 = ("f8e5m2", "float8_e5m2", "float", 8)
    F16 = ("f16", "float16", "float", 16)
    BF16 = ("bf16", "bfloat16", "float", 16)
    F32 = ("f32", "float32", "float", 32)
    F64 = ("f64", "float64", "float", 64)

    def __init__(self, text: str, torch_name: str, cls: str, bits: int) -> None:
        self.text = text
        self.torch_name = torch_name
        self.cls = cls
        self.bits = bits
        self.itemsize = bits // 8

    @property
    def is_float(self) -> bool:
        """Whether values have a fraction."""
        return self.cls == "float"

    @property
    def is_int(self) -> bool:
        """Whether values are whole numbers (not bool)."""
        return self.cls in ("int", "uint")

    @property
    def is_low_precision(self) -> bool:
        """Whether arithmetic is done in f32 and rounded back after every operation."""
        return self.is_float and self.bits < 32

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"DType.{self.name}"


DTYPES: dict[str, DType] = {d.text: d for d in DType} | {d.torch_name: d for d in DType}


def dtype(name: str | DType) -> DType:
    """The element type called `name`, in our text or in torch's (`f32`, `torch.float32`)."""
    if isinstance(name, DType):
        return name
    found = DTYPES.get(str(name).removeprefix("torch."))
    if found is None:
        known = ", ".join(d.text for d in DType)
        raise ValueError(f"unknown element type '{name}'; known are {known}")
    return found


_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def promote(a: DType, b: DType) -> DType:
    """The element type in which a and b are combined: torch's rules, made total."""
    if a is b:
        return a
    if _RANK[a.cls] != _RANK[b.cls]:
        return a if _RANK[a.cls] > _RANK[b.cls] else b
    if a.cls == "float":
        if a.bits == b.bits:
            return DType.F32  # f16 with bf16, or the two fp8 forms: neither holds the other
        return a if a.bits > b.bits else b
    if a.cls == b.cls:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.cls == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return DTYPES[f"i{min(unsigned.bits * 2, 64)}"]


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor lie in its storage."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr = field(default_factory=lambda: Const(0))

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.strides):
            raise ValueError(f"{len(self.sizes)} sizes but {len(self.strides)} strides")
        for n in self.sizes:
            if n.value is not None and n.value < 0:
                raise ValueError(f"negative size {n.value}")

    @classmethod
    def contiguous(cls, sizes: Iterable[IntLike]) -> Layout:
        """The row-major layout of `sizes`."""
        return _contiguous(tuple([as_expr(n) for n in sizes]))

    @once
    def numel(self) -> Expr:
        """How many elements the tensor has."""
        return product_of(self.sizes)

    @once
    def is_contiguous(self) -> bool:
        """Whether the elements fill the storage row by row from its start."""
        return self.offset.value == 0 and self.strides == row_major_strides(self.sizes)

    @once
    def span(self) -> Expr:
        """How many storage elements are needed to reach the last element (0 for empty tensors)."""
        if any(n.value == 0 for n in self.sizes):
            return self.offset
        last = self.offset
        for n, s in zip(self.sizes, self.strides, strict=True):
            if s.value is None or s.value > 0:
                last = last + (n - 1) * s
        end = last + 1
        if end.value is not None or Facts().at_most(self.offset, end):
            return end
        return maximum(self.offset, end)  # a size that turns out to be 0 must not count backwards

    @property
    def lowest(self) -> Expr:
        """The smallest storage index of an element (the offset, unless it is walked backwards)."""
        first = self.offset
        for n, s in zip(self.sizes, self.strides, strict=True):
            if s.value is not None and s.value < 0 and n.value != 0:
                first = first + (n - 1) * s
        return first

    def index(self, at: Sequence[IntLike]) -> Expr:
        """The storage index of the element at the given coordinates."""
        if len(at) != len(self.sizes):
            raise ValueError(f"{len(at)} coordinates for a tensor of {len(self.sizes)} dimensions")
        result = self.offset
        for x, s in zip(at, self.strides, strict=True):
            result = result + s * x
        return result


@lru_cache(maxsize=4096)
def _contiguous(sizes: tuple[Expr, ...]) -> Layout:
    # Buffers of one shape share one layout, and with it what is computed from it.
    return Layout(sizes, row_major_strides(sizes))


def row_major_strides(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Strides of a dense row-major tensor; empty dimensions count as one, as torch does."""
    strides: list[Expr] = []
    step: Expr = Const(1)
    for n in reversed(sizes):
        strides.append(step)
        step = step * (n if n.value is None or n.value > 0 else 1)
        if n.value is None and not Facts().interval(n).positive:
            step = strides[-1] * maximum(n, 1)
    return tuple(reversed(strides))


class BufferKind(Enum):
    """What a buffer holds."""

    TENSOR = "tensor"
    """elements in memory"""
    TOKEN = "token"
    """nothing: it only orders operations"""
    TUPLE = "tuple"
    """several tensors, taken out by MultiOutput operations"""


@dataclass(frozen=True)
class Buffer:
    """A named tensor, token or tuple."""

    name: str
    dtype: DType
    layout: Layout
    device: str = "cpu"
    view_of: str | None = None
    kind: BufferKind = BufferKind.TENSOR

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a buffer needs a name")
        if self.view_of == self.name:
            raise ValueError(f"buffer {self.name} is a view of itself")

    @property
    def storage_numel(self) -> Expr:
        """How many elements its own storage holds (0 for tokens and tuples)."""
        return self.layout.span if self.kind is BufferKind.TENSOR else Const(0)

    @property
    def numel(self) -> Expr:
        """How many elements the tensor has."""
        return self.layout.numel if self.kind is BufferKind.TENSOR else Const(0)

    @once
    def storage_bytes(self) -> int:
        """Bytes of its storage; run-time sizes count with their hints."""
        return hint(self.storage_numel) * self.dtype.itemsize

    @once
    def tensor_bytes(self) -> int:
        """Bytes of its elements, gaps between them not counted."""
        return hint(self.numel) * self.dtype.itemsize
