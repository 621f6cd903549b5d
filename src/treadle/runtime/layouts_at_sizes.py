"""Layouts in numbers: what the sizes, strides and offset of a buffer are in one run."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.index import Expr, Symbol, evaluate
from treadle.ir.placed_layout import PlacedLayout
from treadle.ir.program import Program
from treadle.ir.types import BufferKind, Layout


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
