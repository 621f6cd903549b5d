"""Rows that follow each other in one program: what they add up for columns stays in registers.

c0 = tl.full([4096], 0, tl.float32)
w = tl.load(p1 + r0)                                  the same for all rows
for i in tl.range(0, 128, num_stages=3):
    x = tl.load(p0 + (4096 * (128 * c + i) + r0))     the next rows are on their way
    ...
    c0 = c0 + x * y
tl.atomic_add(p2 + (4096 * c + r0), c0)               nobody else adds there

Short rows follow each other several at a time: a tile has some, and so have the sums until the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.codegen.triton.types import converted, held
from treadle.index import Expr, Symbol
from treadle.ir.body import Stmt
from treadle.ir.loop_schedule import Axis, AxisPart
from treadle.ir.ops import POINTWISE
from treadle.kernel.stages import Step

if TYPE_CHECKING:
    from treadle.codegen.triton.writer import TritonWriter

COMBINED = {
    "atomic_add": ("0", "{a} + {b}", "tl.sum({a}, {axis}, keep_dims=True)", "tl.atomic_add"),
    "atomic_max": ('-float("inf")', "tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)",
                   "tl.reduce({a}, {axis}, tr_max, keep_dims=True)", "tl.atomic_max"),
    "atomic_min": ('float("inf")', "tl.minimum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)",
                   "tl.reduce({a}, {axis}, tr_min, keep_dims=True)", "tl.atomic_min"),
}  # fmt: skip
"""How stores that add to memory begin, go on, are put together along a tile, and end."""


class RowLoop:
    """The statements of a nest around a loop over rows."""

    def __init__(self, w: TritonWriter, rows: Sequence[Axis]) -> None:
        self.w, self.rows = w, rows
        self.loops = frozenset(a.loop for a in rows)
        self.sums: dict[int, str] = {}
        """Accumulators by the place of their store."""

    def write(self) -> None:
        """What is the same for all rows, the loop, and what was added up."""
        w = self.w
        early = self._early()
        w.statements([s for s in w.stages.steps if id(s) in early])
        late = [s for s in w.stages.steps if id(s) not in early]
        for step in late:
            if self._adds_up(step):
                self._begin(step)
        depth = w.lines.depth
        for a in self.rows:
            self._open(a)
        for step in late:
            if id(step) in self.sums:
                self._add(step)
            else:
                w.statements([step])
        w.lines.depth = depth
        for step in late:
            if id(step) in self.sums:
                self._end(step)

    def _open(self, a: Axis) -> None:
        w, name = self.w, a.loop.name
        stages = w.plan.knob("pipeline", 2)
        many = f", {a.size}" if a.part is AxisPart.BLOCKS else ""
        how = f"range(0, {w.index.write(w.extents[a.loop])}{many})"
        if a is self.rows[-1]:
            how = f"tl.{how[:-1]}, num_stages={stages})"
        own = f"{name}_b" if many else f"{name}_i"
        w.lines.add(f"for {own} in {how}:")
        w.lines.depth += 1
        if not many:
            w.lines.add(f"{name} = tl.full([], 0, tl.int32) + {name}_i")
        for tile in w.plan.tiles:
            if tile.loop is a.loop:
                w.bind_tile(tile)

    # -- what is the same for all rows -----------------------------------------------------------
    def _early(self) -> set[int]:
        written = {self.w.program.storage_of(n) for n, _, _, _ in self.w.body.stores()}
        known: set[int] = set()
        found: set[int] = set()
        for step in self.w.stages.steps:
            if self._is_early(step.stmt, known, written):
                known.add(step.number)
                found.add(id(step))
        return found

    def _is_early(self, stmt: Stmt, known: set[int], written: set[str]) -> bool:
        if stmt.op == "load" and self.w.program.storage_of(stmt.buffer) in written:
            return False
        if stmt.op not in POINTWISE and stmt.op not in ("load", "constant", "cast", "index"):
            return False
        places = [a for a in stmt.attrs if isinstance(a, Expr)]
        varies = any(not self._is_plain(e) for e in places)
        return not varies and all(a in known for a in stmt.args)

    def _is_plain(self, e: Expr) -> bool:
        """Whether an index is made of loops, none of them over rows."""
        own: frozenset[Symbol] = frozenset(self.w.extents) - self.loops
        return all(s in own or s in self.w.program.sizes for s in e.free)

    # -- sums ------------------------------------------------------------------------------------
    def _adds_up(self, step: Step) -> bool:
        stmt = step.stmt
        return (
            stmt.op == "store"
            and str(stmt.attr("mode")) in COMBINED
            and self._is_plain(stmt.address)
        )

    def _shape(self, put_together: bool = False) -> str:
        sizes = [self.w.tile_size(a) for a in self.w.plan.tiles]
        for k in self._axes() if put_together else ():
            sizes[k] = 1
        return ", ".join(map(str, sizes))

    def _axes(self) -> list[int]:
        """The axes of a tile along rows."""
        return [k for k, a in enumerate(self.w.plan.tiles) if a.loop in self.loops]

    def _begin(self, step: Step) -> None:
        kind = held(self.w.program.by_name[step.stmt.buffer].dtype)
        name = f"c{len(self.sums)}"
        self.sums[id(step)] = name
        start = COMBINED[str(step.stmt.attr("mode"))][0]
        self.w.lines.add(f"{name} = tl.full([{self._shape()}], {start}, {kind})")

    def _add(self, step: Step) -> None:
        w, name, (a,) = self.w, self.sums[id(step)], step.stmt.args
        to = w.program.by_name[step.stmt.buffer].dtype
        value = f"tl.broadcast_to({converted(w.name_of(a), w.type_of(a), to)}, [{self._shape()}])"
        start, form, _, _ = COMBINED[str(step.stmt.attr("mode"))]
        there = w.mask(self.loops)
        if there != "None":  # rows that do not exist add nothing
            value = f"tl.where({there}, {value}, {start})"
        w.lines.add(f"{name} = {form.format(a=name, b=value)}")

    def _end(self, step: Step) -> None:
        w, stmt = self.w, step.stmt
        at = w.address(stmt.buffer, stmt.address)
        _, _, together, store = COMBINED[str(stmt.attr("mode"))]
        name = self.sums[id(step)]
        for k in self._axes():
            w.lines.add(f"{name} = {together.format(a=name, axis=k)}")
        mask = w.mask(w.loops_of(stmt.address))
        place = f"tl.broadcast_to({at}, [{self._shape(put_together=True)}])"
        w.lines.add(f'{store}({place}, {name}, {mask}, sem="relaxed")')
