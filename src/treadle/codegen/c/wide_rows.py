"""Rows of f16 or bf16 that are floats while a loop works on them.

tr_widen_f16(t0, x + 768 * i0 + r0_b, r0_c);           before the loop
... t0[r0_l] ...  t9[r0_l] = v8;                         floats alone
tr_narrow_f16(y + 768 * i0 + r0_b, t9, r0_c);          behind it

A conversion in the middle of a loop is a call, before which all vectors go to memory. A load that
is kept for later passes is made floats once, in the row it is kept in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.codegen.c.types import ALIGNED, converted, held
from treadle.index import coefficient
from treadle.ir.loop_schedule import Axis, AxisPart
from treadle.ir.types import DType
from treadle.kernel.narrow_rows import ALL_NARROW
from treadle.kernel.stages import Step

if TYPE_CHECKING:
    from treadle.codegen.c.scheduled import ScheduledWriter


class WideRows:
    """The blocks of narrow floats of one body that go through tiles of floats."""

    def __init__(self, w: ScheduledWriter) -> None:
        self.w = w
        self.axis: Axis | None = w.plan.axes[-1] if w.plan.axes else None
        self._full: list[Step] = []
        """Stores that went into tiles, which are not stored yet."""

    def has(self, step: Step) -> bool:
        """Whether a load or a store of narrow floats along the innermost loop is staged."""
        a = self.axis
        if a is None or a.part is not AxisPart.WITHIN or len(self.w.plan.lanes) > 1:
            return False
        if step.op not in ("load", "store"):
            return False
        if step.op == "store" and step.stmt.mode != "plain":
            return False  # a tile would take the place of what is there
        number = step.number if step.op == "load" else step.stmt.args[0]
        if number not in self.w.plan.staged:
            return False
        along = coefficient(step.stmt.address, a.loop)
        is_narrow = self._type(step) in ALL_NARROW
        return is_narrow and along is not None and along.value == 1

    def is_row(self, step: Step) -> bool:
        """Whether the floats of a load are kept for later passes."""
        return step.kept and len(self.w.body.reduce.vars) == 1

    def fill(self, step: Step) -> None:
        """Make the block of a load floats, and room for that of a store."""
        w = self.w
        if step.op == "store":
            self._declare(self._tile(step))
            return
        to = f"t{step.number}"
        if self.is_row(step):
            to = f"{w._row(step.number, self._type(step))} + {self._name}_b"
        else:
            self._declare(to)
        w.frame.helpers.add("halves")
        w.loops.innermost.add(
            f"tr_widen_{self._type(step)}({to}, {self._place(step)}, {self._count()});"
        )

    def element(self, step: Step) -> str:
        """The float of a load at a point."""
        if self.is_row(step):
            return f"{self.w._row(step.number, self._type(step))}[{self.w.position()}]"
        return f"t{step.number}[{self._name}_l]"

    def put(self, step: Step) -> bool:
        """Write what a store stores into its tile; whether it has one."""
        if step.op != "store" or not self.has(step):
            return False
        self._full.append(step)
        self.w.loops.innermost.add(f"{self._tile(step)}[{self._name}_l] = {self._unrounded(step)};")
        return True

    def drain(self) -> None:
        """Store the tiles that are full; to narrow rounds."""
        for step in self._full:
            self.w.frame.helpers.add("halves")
            given = f"{self._place(step)}, {self._tile(step)}, {self._count()}"
            self.w.loops.innermost.add(f"tr_narrow_{self._type(step)}({given});")
        self._full = []

    def _type(self, step: Step) -> DType:
        return self.w.program.by_name[step.stmt.buffer].dtype

    # -- parts of lines -------------------------------------------------------------------------
    @property
    def _name(self) -> str:
        assert self.axis is not None, "rows are walked in blocks"
        return self.w._loop_names[self.axis.loop]

    def _tile(self, step: Step) -> str:
        return f"t{step.stmt.args[0]}_{step.position}"

    def _declare(self, name: str) -> None:
        assert self.axis is not None, "rows are walked in blocks"
        self.w.loops.innermost.add(f"float {name}[{self.axis.size}] {ALIGNED};")

    def _count(self) -> str:
        assert self.axis is not None, "rows are walked in blocks"
        return str(self.axis.size) if self.w.divides(self.axis) else f"{self._name}_c"

    def _place(self, step: Step) -> str:
        """Where the block begins in memory."""
        assert self.axis is not None, "rows are walked in blocks"
        start, _ = self.w.place(step.stmt.address - self.axis.loop)
        return f"{self.w.frame.pointer(step.stmt.buffer)} + ({start} + {self._name}_b)"

    def _unrounded(self, step: Step) -> str:
        """What is stored, before it was made narrow, if it was: in the same walk over the loops.

        A value of another walk has a place from which it is read; what it was made of has none.
        """
        w, (number,) = self.w, step.stmt.args
        made = w.masks.made_by(number)
        if made.op == "cast" and made.args[0] in w._scope and w.type_of(made.args[0]) is DType.F32:
            return w.name_of(made.args[0])
        given, name = w.type_of(number), w.name_of(number)
        return name if held(given) == "float" else converted(name, given, self._type(step))
