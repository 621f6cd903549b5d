"""Layouts in numbers: what the sizes, strides and offset of a buffer are in one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from treadle.index import Expr, Symbol, evaluate
from treadle.ir.program import Program
from treadle.ir.types import BufferKind, Layout


class PlacedLayout(NamedTuple):
    """A layout in numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def reach(self) -> int:
        """How many elements of its memory a tensor needs; an empty one still has its offset."""
        if 0 in self.sizes:
            return max(self.offset, 0)
        pairs = zip(self.sizes, self.strides, strict=True)
        return self.offset + 1 + sum((n - 1) * s for n, s in pairs if s > 0)

    @property
    def is_plain(self) -> bool:
        """Whether the elements lie row by row without gaps."""
        step = 1
        for n, s in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n != 1 and s != step:
                return False
            step *= n
        return self.offset == 0


def layouts_at(program: Program, values: Mapping[Symbol, int]) -> dict[str, PlacedLayout]:
    """The layouts of a program's storages in numbers, for some run-time sizes."""
    return {
        b.name: layout_at(b.layout, values)
        for b in program.buffers
        if b.kind is BufferKind.TENSOR and b.view_of is None
    }


def layout_at(layout: Layout, values: Mapping[Symbol, int]) -> PlacedLayout:
    """A layout in numbers."""
    sizes = tuple([number_at(n, values) for n in layout.sizes])
    strides = tuple([number_at(n, values) for n in layout.strides])
    return PlacedLayout(sizes, strides, number_at(layout.offset, values))


def number_at(e: Expr, values: Mapping[Symbol, int]) -> int:
    """What an expression stands for, for some run-time sizes."""
    return e.value if e.value is not None else int(evaluate(e, values))
