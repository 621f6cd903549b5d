"""One pass of a scheduled nest in C: loops, partial sums and where they flow.

    for (int64_t r0_b = 0; r0_b < n1; r0_b += 64) {    inner loops, opened anew by every pass
        float a5_p = 0;                                    partial sums
        ...
        a5[i0_l] += a5_p;                                  flow into wide ones

Where partial sums live, `scheduled.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.codegen.c.partial import PartialWalk, State
from treadle.codegen.c.products import ProductTiles
from treadle.codegen.c.types import ALIGNED
from treadle.ir.loop_schedule import Axis, AxisPart, Binding
from treadle.kernel.stages import InnerPass, Step

if TYPE_CHECKING:
    from treadle.codegen.c.scheduled import ScheduledWriter


@dataclass
class Acting:
    """A reduction in the pass that is being written."""

    step: Step
    walk: PartialWalk
    is_last: bool


class PassWriter:
    """Writes one pass: loops, partial sums and where they flow."""

    def __init__(
        self, w: ScheduledWriter, one: InnerPass, inner: Sequence[Axis], acting: Sequence[Acting]
    ) -> None:
        self.w, self.one, self.inner, self.acting = w, one, inner, acting
        lanes = [k for k, a in enumerate(inner) if not a.reduces]
        self.last_lane = lanes[-1] if lanes else -1
        behind = any(a.reduces for a in inner[self.last_lane + 1 :])
        flush = [k for k, a in enumerate(inner) if a.name == w.plan.flush]
        self.has_lanes, self.is_inside = bool(lanes), bool(lanes) and behind
        self.flush = flush[0] if flush and not self.is_inside and acting else -1
        self.has_parts = self.is_inside or self.flush >= 0
        """Whether partial states are apart from wide ones."""

    # -- names of states ----------------------------------------------------------------------
    def wide(self, name: str) -> str:
        """A state that lasts for the whole pass, or what a former pass found out."""
        if name not in self._states:
            return self.w.known_name(name)
        return f"{name}[{self.w.lane()}]" if self.has_lanes else name

    def part(self, name: str) -> str:
        """A state at a point."""
        if name not in self._states or not self.has_parts:
            return self.wide(name)
        return f"{name}_p" if self.is_inside or not self.has_lanes else f"{name}_p[{self.w.lane()}]"

    @property
    def states(self) -> list[State]:
        """All states of the pass."""
        return [s for a in self.acting for s in a.walk.states]

    # -- writing -------------------------------------------------------------------------------
    def write(self) -> None:
        """Write the pass."""
        w = self.w
        self._states = {s.name for s in self.states}
        w._scope = set()
        self._declare_wide()
        for step in self.one.needed:
            if step.op == "scan":
                w.declare_scan(step)
        self._fills_tiles = True
        made_before = set(w._done)
        for k, a in enumerate(self.inner):
            w.emit_fixed(self.one.needed, self.inner[k:])
            if a.part is AxisPart.WITHIN and self._fills_tiles:
                self._fills_tiles = False
                w.tiles.fill(self.one.needed)
            if k == len(self.inner) - 1:
                w.tiles.widen(self.one.needed, self.one.time)
            block = w.open_axis(a, self._combined(k))
            if k == self.last_lane:
                w._lane_block = block
                if self.is_inside:
                    self._declare_parts(lane=False)
            if k == self.flush:
                self._declare_parts(lane=self.has_lanes)
        for step in self.one.needed:
            if step.position in w._done:
                continue
            if step.op != "reduce":
                w.at_point(step, self.one)
                continue
            found = next(a for a in self.acting if a.step is step)
            for number in step.stmt.args:
                w.name_of(number)
            w.loops.innermost.add(*found.walk.at_point(self.part))
        w._done = made_before
        for k in reversed(range(len(self.inner))):
            w.loops.pop()
            if k == len(self.inner) - 1:
                w.tiles.drain()
            if k == self.last_lane + 1 and self.is_inside:
                self._join(lane=False)
            if k == self.last_lane:
                w._lane_block = None
            if k == self.flush + 1 and self.flush >= 0:
                self._join(lane=self.has_lanes)
        if self.acting:
            w.finish_later(self.acting, self.wide)

    def _combined(self, k: int) -> Mapping[str, str]:
        """What vectors combine at the end of their loop: states, and by which operator."""
        a = self.inner[k]
        if a.binding is not Binding.VECTOR or not a.reduces:
            return {}
        return {f"{s.name}_p" if self.has_parts else s.name: s.clause for s in self.states}

    def _declare_wide(self) -> None:
        w = self.w
        for s in self.states:
            kind = s.wide if self.has_parts else s.partial
            if self.has_lanes:
                w.home.add(f"{kind} {s.name}[{w.lane_count}] {ALIGNED};")
            else:
                w.loops.innermost.add(f"{kind} {s.name} = {s.start};")
        if self.has_lanes and self.states:
            self._over_lanes([f"{self.wide(s.name)} = {s.start};" for s in self.states])

    def _declare_parts(self, lane: bool) -> None:
        here = self.w.loops.innermost
        for s in self.states:
            if lane:
                here.add(f"{s.partial} {s.name}_p[{self.w.lane_count}] {ALIGNED};")
            else:
                here.add(f"{s.partial} {s.name}_p = {s.start};")
        if lane and self.states:
            self._over_lanes([f"{self.part(s.name)} = {s.start};" for s in self.states])

    def _join(self, lane: bool) -> None:
        lines = [s.joined(self.wide(s.name), self.part(s.name)) for s in self.states]
        if lane:
            self._over_lanes(lines)
        else:
            self.w.loops.innermost.add(*lines)

    def _over_lanes(self, lines: Sequence[str]) -> None:
        """Lines that are carried out for each lane."""
        w = self.w
        for a in w.plan.lanes:
            w.open_axis(a)
        w.loops.innermost.add(*lines)
        w.loops.pop(len(w.plan.lanes))


class ProductPassWriter(PassWriter):
    """Writes the one pass of a product: a tile of sums at a time."""

    def write_tile(self, product: ProductTiles) -> None:
        """Write the pass."""
        w = self.w
        (state,) = self.states
        self._states = {state.name}
        if self.flush < 0:
            w.home.add(f"{state.partial} {state.name}[{w.lane_count}] {ALIGNED};")
            w.loops.innermost.add(product.call(state.name, None))
        else:
            self._declare_wide()
            block = self.inner[self.flush]
            w.open_axis(block)
            name = f"{state.name}_p"
            w.loops.innermost.add(f"{state.partial} {name}[{w.lane_count}] {ALIGNED};")
            w.loops.innermost.add(product.call(name, block))
            self._join(lane=True)
            w.loops.pop()
        w.finish_later(self.acting, self.wide)
