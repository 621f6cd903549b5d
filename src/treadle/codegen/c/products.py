"""Products of matrices in C: panels before the loops, a tile of sums in place of a pass.

    tr_panels(panels, 32, x, n0, 256, n2, 1);                the factor that is staged
    for (i1_b ...) for (i0_b ...) {
        float a2[512];
        tr_product_across(32, 16, n2, w + ..., panels + i0_b * n2, a2);
        ...                                                  what follows, for each lane of the tile

What is called is in `product.h`; which tiles, and what is staged, the schedule says. A few rows of
factors that both lie along the terms need no panels: vectors go along the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.codegen.c.body import BodyWriter
from treadle.codegen.c.types import ALIGNED
from treadle.index import Expr, Symbol
from treadle.ir.loop_schedule import Axis
from treadle.ir.products import Factor, MatrixProduct
from treadle.ir.types import DType

if TYPE_CHECKING:
    from treadle.codegen.c.scheduled import ScheduledWriter

MOST_ON_STACK = 1 << 15
"""Floats of panels that lie on the stack."""
LEAST_LANES = 8
"""Rows of a panel, where there are no more."""
LEAST_TERMS = 64
"""Terms from which on it is worth it to add up the lanes of vectors that go along them."""


class ProductTiles:
    """The tiles of one nest."""

    def __init__(self, w: ScheduledWriter, product: MatrixProduct) -> None:
        self.w, self.product = w, product
        self.rows, self.columns = w.plan.lanes
        staged = [f for f in (product.first, product.second) if f.number in w.plan.staged]
        self.staged: Factor | None = staged[0] if staged else None
        self.is_across = self.staged is product.first
        self.panels = ""
        self.is_along = self.is_across and self._lies_along()
        w.frame.helpers |= {"turn", "product"}
        self.kind = ""
        """The end of the names of what works on factors of other types than f32."""
        if w.type_of(product.first.number) is DType.F16:
            self.kind = "_f16"
            w.frame.helpers |= {"halves", "product_halves"}

    @property
    def loops(self) -> tuple[Symbol, Symbol]:
        """The loops that the tiles are cut from."""
        return self.product.rows, self.product.columns

    def _lies_along(self) -> bool:
        """Whether there are a few rows, and both factors lie along many terms."""
        extents = dict(self.w.body.space.items())
        rows, terms = extents[self.product.rows].value, extents[self.product.along].value
        is_few = rows is not None and rows <= LEAST_LANES
        is_long = terms is not None and terms >= LEAST_TERMS
        is_wide = self.w.type_of(self.product.first.number) is DType.F32
        return (
            is_few and is_long and is_wide and all(f.along.value == 1 for f in self.product.factors)
        )

    def _lanes(self) -> str:
        """How many elements stand side by side in a panel."""
        if not self.is_across:
            return str(self.columns.size)
        extent = self.w._extents[self.product.rows]
        return f"({extent} <= {LEAST_LANES} ? {LEAST_LANES} : {self.rows.size})"

    def pack(self, closed: Sequence[Axis]) -> None:
        """Write what puts the staged factor into panels, once the loops it lies along are open.

        `closed` are the outer loops that are not.
        """
        w, factor = self.w, self.staged
        if factor is None or self.panels or self.is_along:
            return
        own = self.product.rows if self.is_across else self.product.columns
        if ({a.loop for a in closed} - {own}) & factor.stmt.address.free:
            return
        axis = self.rows if self.is_across else self.columns
        count, n = w._extents[own], w._extents[self.product.along]
        self.panels = self._scratch(axis, own)
        start = self._place(factor.stmt.address, "0", "0", "0")
        steps = [w.index.write(e) for e in (factor.own, factor.along)]
        pointer = w.frame.pointer(factor.stmt.buffer)
        w.loops.innermost.add(
            f"tr_panels{self.kind}({self.panels}, {self._lanes()}, {pointer} + {start},"
            f" {count}, {steps[0]}, {n}, {steps[1]});"
        )

    def _scratch(self, axis: Axis, own: Symbol) -> str:
        """Memory for all panels."""
        w, extents = self.w, dict(self.w.body.space.items())
        sizes = [extents[v].value for v in (own, self.product.along)]
        if None not in sizes:
            total = -(-(sizes[0] or 1) // axis.size) * axis.size * (sizes[1] or 1)
            if total <= MOST_ON_STACK:
                name = w.names.fresh("panels")
                w.setup.add(f"float {name}[{total}] {ALIGNED};")
                return name
        whole = f"({w._extents[own]} + {axis.size - 1}) / {axis.size} * {axis.size}"
        count = f"({whole}) * {w._extents[self.product.along]} + 1"
        return BodyWriter.scratch(w, "panels", "float", count, f"panels of {w.operation}")

    def call(self, into: str, flush: Axis | None) -> str:
        """What computes a tile of sums, of a block of terms if there are blocks."""
        w, product = self.w, self.product
        names = {v: w._loop_names[v] for v in (*self.loops, product.along)}
        row, column = (f"{names[v]}_b" for v in self.loops)
        start = "0" if flush is None else f"{names[product.along]}_b"
        n = w._extents[product.along] if flush is None else self._count(flush)
        high, broad = self._count(self.rows), self._count(self.columns)
        second, total = product.second, w._extents[product.along]
        right = f"{w.frame.pointer(second.stmt.buffer)} + "
        right += self._place(second.stmt.address, row, column, start)
        across, along = (w.index.write(e) for e in (second.own, second.along))
        if self.is_across and not self.is_along:
            lanes = self._lanes()
            panel = f"{self.panels} + {row} * {total} + {start} * {lanes}"
            given = [lanes, broad, n, right, across, along, panel, into]
            return f"tr_product_across{self.kind}({', '.join(given)});"
        first = product.first
        left = f"{w.frame.pointer(first.stmt.buffer)} + "
        left += self._place(first.stmt.address, row, column, start)
        down, beside = (w.index.write(e) for e in (first.own, first.along))
        if self.is_along:
            given = [high, broad, n, left, down, right, across, into]
            return f"tr_product_along({', '.join(given)});"
        before = column
        if self.staged is not None:
            wide = self.columns.size
            right, along = f"{self.panels} + {column} * {total} + {start} * {wide}", str(wide)
            broad, before = f"tr_min({wide}, ({broad} + 7) / 8 * 8)", "0"
        return (
            f"tr_product({high}, {broad}, {before}, {n}, {left}, {down}, {beside},"
            f" {right}, {along}, {into}, {self.columns.size}, 0);"
        )

    def _count(self, a: Axis) -> str:
        """How many points the block at hand has."""
        return str(a.size) if self.w.divides(a) else f"{self.w._loop_names[a.loop]}_c"

    def _place(self, index: Expr, row: str, column: str, start: str) -> str:
        """An index where rows, columns and terms begin."""
        loops = self.w.loops
        for v, name in zip((*self.loops, self.product.along), (row, column, start), strict=True):
            loops.open("", v, name)
        text, _ = self.w.place(index)
        loops.pop(3)
        return text
