"""Whole rows that go through a tile, for bodies that walk over them several times.

for (int64_t i1_b = 0; i1_b < n1; i1_b += 16) {
    float t0[16 * 64];                             16 rows, of which memory has the columns
    tr_turn(x + i1_b + 128 * r0_t, 128, t0 + r0_t, 64);      for each 16 of r0
    for (int64_t i1_l = 0; i1_l < 16; ++i1_l) {
        ... t0[i1_l * 64 + r0] ...                 in every pass

Read across, each row would touch a line of memory for each of its elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.codegen.c.types import ALIGNED
from treadle.index import coefficient
from treadle.ir.loop_schedule import Axis, AxisPart
from treadle.ir.types import DType
from treadle.kernel.stages import Step

if TYPE_CHECKING:
    from treadle.codegen.c.scheduled import ScheduledWriter

SIDE = 16
"""Rows and columns of what is turned at once."""


class RowTiles:
    """The tiles of whole rows of one body."""

    def __init__(self, w: ScheduledWriter) -> None:
        self.w = w
        outer, vector = w.plan.outer, w.plan.vector
        self.across: Axis | None = outer[-1] if outer else None
        self.length = 0
        """The elements of a row; 0 if no rows go through tiles."""
        is_block = self.across is not None and self.across.part is AxisPart.WITHIN
        if is_block and vector is not None and vector.part is AxisPart.WHOLE and vector.reduces:
            self.length = dict(w.body.space.items())[vector.loop].value or 0

    def has(self, step: Step) -> bool:
        """Whether a load goes through a tile: 16 of its rows at a time can be turned."""
        w, across = self.w, self.across
        is_staged = step.op == "load" and step.number in w.plan.staged
        if not is_staged or across is None or not self.length or self.length % SIDE:
            return False
        is_full = across.size == SIDE and w.divides(across)
        along = coefficient(step.stmt.address, across.loop)
        is_next = along is not None and along.value == 1
        apart = coefficient(step.stmt.address, w.plan.axes[-1].loop)
        return is_full and is_next and apart is not None and w.type_of(step.number) is DType.F32

    def fill(self, steps: Sequence[Step]) -> None:
        """Turn the rows of a block, before it is opened."""
        w = self.w
        for step in filter(self.has, steps):
            across, vector = w.plan.outer[-1], w.plan.axes[-1]
            row, place = w._loop_names[across.loop], f"{w._loop_names[vector.loop]}_t"
            name, apart = f"t{step.number}", coefficient(step.stmt.address, vector.loop)
            assert apart is not None, "rows of a tile are linear in both of their loops"
            w.loops.innermost.add(f"float {name}[{SIDE * self.length}] {ALIGNED};")
            w.loops.open("", across.loop, f"{row}_b")
            opening = f"for (int64_t {place} = 0; {place} < {self.length}; {place} += {SIDE})"
            w.loops.open(opening, vector.loop, place)
            text, _ = w.place(step.stmt.address)
            w.loops.innermost.add(
                f"tr_turn({w.frame.pointer(step.stmt.buffer)} + {text}, {w.index.write(apart)}, "
                f"{name} + {place}, {self.length});"
            )
            w.loops.pop(2)
            w.frame.helpers.add("turn")

    def element(self, step: Step) -> str | None:
        """The value of a load that goes through a tile; None if it does not."""
        if not self.has(step):
            return None
        row = self.w._loop_names[self.w.plan.outer[-1].loop]
        along = self.w._loop_names[self.w.plan.axes[-1].loop]
        return f"t{step.number}[({self.length} * {row}_l + {along})]"
