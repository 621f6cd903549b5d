"""The table of numbers a host function reads: expressions of the run-time sizes, each kept once."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.index import Expr, as_expr, maximum
from treadle.ir.types import Layout


class NumberTable:
    """Numbers that lie one after the other, behind what takes up `base` places."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.numbers: list[Expr] = []
        self._known: dict[tuple[Expr, ...], int] = {}

    def at(self, *values: Expr | int) -> int:
        """Where some numbers lie in the table; the same ones lie there once."""
        row = tuple([as_expr(v) for v in values])
        if row not in self._known:
            self._known[row] = self.base + len(self.numbers)
            self.numbers.extend(row)
        return self._known[row]

    def layout(self, layout: Layout) -> int:
        """Where the sizes of a layout lie, its strides behind them."""
        return self.at(*layout.sizes, *layout.strides)


def bytes_of(sizes: Sequence[Expr], strides: Sequence[Expr], offset: Expr, itemsize: int) -> Expr:
    """How many bytes from its first element a tensor reaches over; some also if it is empty."""
    last = offset
    for n, step in zip(sizes, strides, strict=True):
        last = last + maximum(n - 1, as_expr(0)) * step
    return (last + 1) * itemsize
