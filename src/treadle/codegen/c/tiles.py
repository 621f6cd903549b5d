"""Loads that go through a tile: read along the memory, used across it.

for (r0_l ...) for (i0_l ...) t3[i0_l * 64 + r0_l] = x[i0 + 1024 * r0];     filled along i0
... t3[i0_l * 64 + r0_l] ...                                                  used along r0

Each row of a tile lies in another page, where no processor looks ahead by itself. So while one tile
is worked on, the lines of the next are asked for, a few with every lane: asked for all at once they
would wait for each other. Those that lie along the rows are as far apart from row to row, and what
is stored is fetched as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.codegen.c.types import ALIGNED, STORED, loaded
from treadle.codegen.c.wide_rows import WideRows
from treadle.index import Expr, coefficient
from treadle.ir.loop_schedule import Axis, AxisPart, Binding
from treadle.ir.spec_facts import storage_limit
from treadle.ir.types import DType
from treadle.kernel.stages import Step

if TYPE_CHECKING:
    from treadle.codegen.c.scheduled import ScheduledWriter


BLOCK = 16
"""Elements along a side of a block that is turned at once."""
LINE = 64
"""Bytes of a line of a cache."""
TURNED = frozenset({DType.F32, DType.I32})
"""Types of 32 bits, that blocks of can be turned."""
WIDENED = frozenset({DType.BF16, DType.F16})
"""Types of 16 bits, whose tiles hold 32 for each."""
ALWAYS = "1"
ASKED_AHEAD = 1 << 18
"""Bytes of a storage from which on its tiles are asked for: smaller ones stay in a cache."""


class Tiles:
    """The tiles of one body."""

    def __init__(self, w: ScheduledWriter) -> None:
        self.w = w
        self.axes: tuple[Axis, ...] = tuple([a for a in w.plan.axes if a.part is AxisPart.WITHIN])

        self.wide = WideRows(w)
        self._unasked: list[Step] = []
        """What the next tile loads and stores, until it is asked for."""

    def fill(self, steps: Sequence[Step]) -> None:
        """Write the loops that fill the tiles of these statements, where blocks are known."""
        turned = False
        for step in steps:
            is_load = step.number in self.w.plan.staged and step.op == "load"
            if is_load and not self.wide.has(step) and self._fill(step):
                turned = True
        if turned and self._comes_next():
            self._unasked = [s for s in steps if s.op in ("load", "store") and self._is_large(s)]

    def _comes_next(self) -> bool:
        """Whether the tile after this one comes next along the rows."""
        blocks = [a for a in self.w.plan.axes if a.part is AxisPart.BLOCKS]
        return blocks[-1].loop is self.axes[-1].loop

    def _is_large(self, step: Step) -> bool:
        """Whether a storage is too large to stay in a cache."""
        w = self.w
        buffer = w.program.by_name[step.stmt.buffer]
        elements = storage_limit(buffer, w.program).value
        return elements is None or elements * buffer.dtype.itemsize >= ASKED_AHEAD

    def ask_ahead(self, lane: Axis) -> None:
        """Ask for some lines of the next tiles, at a point of the loop across the present ones."""
        if not self._unasked or lane.loop is not self.axes[0].loop:
            return
        wanted, self._unasked = self._unasked, []
        w, along = self.w, self.axes[1]
        name, extent = w._loop_names[along.loop], w._extents[along.loop]
        after = f"{name}_b + {along.size}"
        w.loops.innermost.add(f"const int64_t {name}_n = {after} < {extent} ? {after} : 0;")
        groups: dict[tuple[bool, int], list[Step]] = {}
        for step in wanted:
            steps = [coefficient(step.stmt.address, a.loop) for a in self.axes]
            strides = [None if one is None else one.value for one in steps]
            size = w.program.by_name[step.stmt.buffer].dtype.itemsize
            if strides[0] == 1 and strides[1] != 0:
                groups.setdefault((True, LINE // size), []).append(step)
            elif strides[1] == 1 and steps[0] is not None and strides[0] != 0:
                groups.setdefault((False, LINE // size), []).append(step)
        for (is_across, line), steps_of in groups.items():
            self._ask(steps_of, line, is_across=is_across)

    def _ask(self, wanted: Sequence[Step], line: int, *, is_across: bool) -> None:
        """Ask for the lines of the next tile that lie along rows, or those across them."""
        w, (across, along) = self.w, self.axes
        own, name = w._loop_names[across.loop], w._loop_names[along.loop]
        at = f"{name}_t"
        opened = 1
        if is_across:
            rows = -(-along.size // across.size)
            until = f"tr_min({rows} * ({own}_l + 1), {along.size})"
            opening = f"for (int64_t {at} = {rows} * {own}_l; {at} < {until}; ++{at})"
            w.loops.open(opening, along.loop, f"({name}_n + {at})")
            opening = f"for (int64_t {own}_t = 0; {own}_t < {across.size}; {own}_t += {line})"
            w.loops.open(opening)
            opened = 2
        else:
            opening = f"for (int64_t {at} = 0; {at} < {along.size}; {at} += {line})"
            w.loops.open(opening, along.loop, f"({name}_n + {at})")
        for step in wanted:
            e = step.stmt.address
            further = coefficient(e, across.loop)
            assert further is not None, "what is asked for ahead goes by steps that are known"
            text, _ = w.place(e)
            below = w.index.write(further * across.size)
            text = f"{text} + ({own}_t - {own}_l)" if is_across else text
            here = f"{w.frame.pointer(step.stmt.buffer)} + {text} + ({name}_n ? 0 : {below})"
            how = "1, 3" if step.op == "store" else "0, 2"
            w.loops.innermost.add(f"__builtin_prefetch({here}, {how});")
        w.loops.pop(opened)

    def widen(self, steps: Sequence[Step], time: int = 0) -> None:
        """Make rows of f16 floats, right before the loop on vectors.

        What an earlier pass than the one at `time` kept is there already.
        """
        for step in steps:
            if self.wide.has(step) and not (step.kept and time > step.time):
                self.wide.fill(step)

    def takes(self, step: Step) -> bool:
        """Whether a store goes into a tile; if so, it is written."""
        return self.wide.put(step)

    def drain(self) -> None:
        """Store what went into tiles, once their loop is closed."""
        self.wide.drain()

    def is_row(self, step: Step) -> bool:
        """Whether a kept load was made a whole row when its block began."""
        return self.wide.has(step) and self.wide.is_row(step)

    def _fill(self, step: Step) -> bool:
        """Fill the tile of a load; gives whether blocks of it are turned."""
        from dataclasses import replace

        w = self.w
        name, e = str(step.stmt.attr("buffer")), step.stmt.attr("index")
        assert isinstance(e, Expr), "a load has an index"
        kind = self._kind(w.type_of(step.number), STORED[w.program.by_name[name].dtype])
        size = 1
        for a in self.axes:
            size *= a.size
        w.loops.innermost.add(f"{kind} t{step.number}[{size}] {ALIGNED};")

        def stride(a: Axis) -> int:
            found = coefficient(e, a.loop)
            return 1 << 60 if found is None or found.value is None else abs(found.value)

        order = sorted(self.axes, key=stride, reverse=True)
        can_turn = w.type_of(step.number) in TURNED | WIDENED
        is_whole = self._turn(step.number, name, e) if can_turn else ""
        if is_whole == ALWAYS:
            return True
        if is_whole:
            w.loops.open("else")
        for a in order:
            w.open_axis(replace(a, binding=Binding.SERIAL))
        text, _ = w.place(e)
        w.loops.innermost.add(f"t{step.number}[{self._at()}] = {w.frame.pointer(name)}[{text}];")
        w.loops.pop(len(order) + bool(is_whole))
        return bool(is_whole)

    def _turn(self, number: int, name: str, e: Expr) -> str:
        """Fill a tile by turning blocks of it; gives the condition, nothing if it cannot be."""
        w = self.w
        if len(self.axes) != 2 or any(a.size % BLOCK for a in self.axes):
            return ""
        _, along = self.axes
        steps = [coefficient(e, a.loop) for a in self.axes]
        if steps[0] is None or steps[0].value != 1 or steps[1] is None:
            return ""
        names = [w._loop_names[a.loop] for a in self.axes]
        short = [
            f"{n}_c == {a.size}" for n, a in zip(names, self.axes, strict=True) if not w.divides(a)
        ]
        condition = " && ".join(short)
        places = [f"{n}_t" for n in names]
        w.loops.open(f"if ({condition})" if condition else "")
        for place, n, a in zip(places, names, self.axes, strict=True):
            opening = f"for (int64_t {place} = 0; {place} < {a.size}; {place} += {BLOCK})"
            w.loops.open(opening, a.loop, f"({n}_b + {place})")
        text, _ = w.place(e)
        tile = f"t{number} + {places[0]} * {along.size} + {places[1]}"
        apart = w.index.write(steps[1])
        turn = "tr_turn_16" if w.type_of(number) in WIDENED else "tr_turn"
        w.loops.innermost.add(
            f"{turn}({w.frame.pointer(name)} + {text}, {apart}, {tile}, {along.size});"
        )
        w.loops.pop(3)
        w.frame.helpers.add("turn")
        return condition or ALWAYS

    def element(self, step: Step) -> str | None:
        """The value of a load that went through a tile; None if it did not."""
        number = step.number
        if number not in self.w.plan.staged:
            return None
        if self.wide.has(step):
            return self.wide.element(step)
        kind, place = self.w.type_of(number), f"t{number}[{self._at()}]"
        return loaded(kind, f"(uint16_t){place}" if kind in WIDENED else place)

    def _kind(self, element: DType, own: str) -> str:
        """The C type of a tile's elements: blocks of 16 bits are turned as 32."""
        return "int32_t" if element in WIDENED else own

    def _at(self) -> str:
        total = ""
        for a in self.axes:
            own = f"{self.w._loop_names[a.loop]}_l"
            total = f"({total} * {a.size} + {own})" if total else own
        return total
