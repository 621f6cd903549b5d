"""Loads that go through a tile: read along the memory, used across it.

for (r0_l ...) for (i0_l ...) t3[i0_l * 64 + r0_l] = x[i0 + 1024 * r0];     filled along i0
... t3[i0_l * 64 + r0_l] ...                                                  used along r0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.codegen.c.types import STORED, loaded
from treadle.index import Expr, coefficient
from treadle.ir.loop_schedule import Axis, AxisPart, Binding
from treadle.kernel.stages import Step

if TYPE_CHECKING:
    from treadle.codegen.c.scheduled import ScheduledWriter


class Tiles:
    """The tiles of one body."""

    def __init__(self, w: ScheduledWriter) -> None:
        self.w = w
        self.axes: tuple[Axis, ...] = tuple([a for a in w.plan.axes if a.part is AxisPart.WITHIN])

    def fill(self, steps: Sequence[Step]) -> None:
        """Write the loops that fill the tiles of these statements, where blocks are known."""
        for step in steps:
            if step.number in self.w.plan.staged and step.op == "load":
                self._fill(step)

    def _fill(self, step: Step) -> None:
        from dataclasses import replace

        w = self.w
        name, e = str(step.stmt.attr("buffer")), step.stmt.attr("index")
        assert isinstance(e, Expr), "a load has an index"
        kind = STORED[w.program.by_name[name].dtype]
        size = 1
        for a in self.axes:
            size *= a.size
        w.loops.innermost.add(f"{kind} t{step.number}[{size}] __attribute__((aligned(64)));")

        def stride(a: Axis) -> int:
            found = coefficient(e, a.loop)
            return 1 << 60 if found is None or found.value is None else abs(found.value)

        order = sorted(self.axes, key=stride, reverse=True)
        for a in order:
            w.open_axis(replace(a, binding=Binding.SERIAL))
        text, _ = w.place(e)
        w.loops.innermost.add(f"t{step.number}[{self._at()}] = {w.frame.pointer(name)}[{text}];")
        w.loops.pop(len(order))

    def element(self, number: int) -> str | None:
        """The value of a load that went through a tile; None if it did not."""
        if number not in self.w.plan.staged:
            return None
        return loaded(self.w.type_of(number), f"t{number}[{self._at()}]")

    def _at(self) -> str:
        total = ""
        for a in self.axes:
            own = f"{self.w._loop_names[a.loop]}_l"
            total = f"({total} * {a.size} + {own})" if total else own
        return total
