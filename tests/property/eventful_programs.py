"""Random programs in which there is something to do for every pass of the pipeline.

Wide chains, made short, and between their operations what passes look for:

    again      a loop that computes what an earlier one did, into a buffer of its own
    spread     one value, or one for each row, stored at every point: cheap to compute again
    both ways  the same data reduced by rows and by columns
    total      everything reduced to one value
    rows in a total   a total of what is made with sums of rows, both read once more
    reversed   indices written in a roundabout way
    stacked    what is read, and copied into a part of another buffer
    send       a collective that is waited for at once, though work could run meanwhile
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st
from wide_chains import Chain

from treadle.index import as_expr, maximum
from treadle.ir.body import Stmt
from treadle.ir.effects import effects
from treadle.ir.program import Loop, Program
from treadle.ir.rewrite import map_stmts
from treadle.ir.spec import violations
from treadle.ir.types import Buffer, DType

MERGING = ("sum", "max", "min", "prod")


class EventfulChain(Chain):
    """A short chain with events."""

    extents = (0, 1, 2, 4, 6, 12, 16, 24)
    most_points = 300

    def whole(self) -> Buffer:
        """A buffer with both loops that holds a value, in the order `a`, `b`."""
        return self.one([x for x, kind in self.made if kind == "ab"])

    def returns(self, buffer: Buffer) -> None:
        """Give a buffer to the caller, if that is not so already."""
        if buffer.name not in self.b.outputs:
            self.b.returns(buffer)

    def again(self) -> None:
        """A loop once more, into a new buffer."""
        loops = [op for op in self.b.build().ops if isinstance(op, Loop) and self.can_repeat(op)]
        if not loops:
            return
        op = self.one(loops)
        (old,) = effects(op).writes
        kind = next(kind for x, kind in self.made if x.name == old)
        new = self.buffer(kind, self.b.buffers[old].dtype)

        def renamed(stmt: Stmt) -> Stmt:
            return stmt.with_attr("buffer", new.name) if stmt.op == "store" else stmt

        body = replace(op.body, stmts=map_stmts(op.body.stmts, renamed))
        self.b.add(replace(op, name=f"again{len(self.made)}", body=body))
        self.difference(self.b.buffers[old], new, kind)

    def difference(self, one: Buffer, other: Buffer, kind: str) -> None:
        """Two buffers, read point by point."""
        made = self.buffer(kind, DType.F32)
        with self.b.loop(None, [self.sizes[c] for c in kind] or [1]) as k:
            values = [k.load(x, *k.vars).to(DType.F32) for x in (one, other)]
            k.store(made, k.vars, k.op("sub", *values))

    def can_repeat(self, op: Loop) -> bool:
        of = effects(op)
        names = {x.name for x, _ in self.made}
        return not of.mutates and len(of.writes) == 1 and of.writes[0] in names

    def spread(self) -> None:
        """One value, or one for each row, at every point."""
        made = self.buffer("ab", DType.F32)
        rows = [x for x, kind in self.made if kind == "a"]
        with self.b.loop(None, [self.sizes[c] for c in "ab"]) as k:
            value = k.constant(float(self.number(0, 3)), DType.F32)
            if self.number(0, 1):
                value = k.load(self.one(rows), k.vars[0]).to(DType.F32)
            k.store(made, k.vars, value)

    def both_ways(self) -> None:
        """The same data by rows and by columns."""
        source, how = self.whole(), self.one(MERGING)
        for kept, gone in (("a", "b"), ("b", "a")):
            made = self.buffer(kept, DType.F32)
            self.returns(made)
            with self.b.loop(None, [self.sizes[kept]], [self.sizes[gone]]) as k:
                at = {kept: k.domain.vars[0], gone: k.reduce.vars[0]}
                value = k.load(source, at["a"], at["b"]).to(DType.F32)
                k.store(made, k.domain.vars, k.reduce_by(how, value).to(DType.F32))

    def total(self) -> None:
        """Everything in one value."""
        source, made = self.whole(), self.buffer("", DType.F32)
        with self.b.loop(None, [], [self.sizes[c] for c in "ab"]) as k:
            value = k.load(source, *k.reduce.vars).to(DType.F32)
            k.store_at(made, 0, k.reduce_by(self.one(MERGING), value).to(DType.F32))

    def rows_in_a_total(self) -> None:
        """Sums of rows, a total of what is made with them, and a reader of both."""
        source, sizes = self.whole(), [self.sizes[c] for c in "ab"]
        rows, total = self.buffer("a", DType.F32), self.buffer("", DType.F32)
        with self.b.loop(None, sizes[:1], sizes[1:]) as k:
            value = k.reduce_by(self.one(MERGING), k.load(source, *k.vars).to(DType.F32))
            k.store(rows, k.domain.vars, value.to(DType.F32))
        with self.b.loop(None, [], sizes) as k:
            value = k.load(source, *k.vars).to(DType.F32) * k.load(rows, k.vars[0])
            k.store_at(total, 0, k.reduce_by(self.one(MERGING), value).to(DType.F32))
        if self.number(0, 1):
            made = self.buffer("a", DType.F32)
            with self.b.loop(None, sizes[:1]) as k:
                k.store(made, k.vars, k.load(rows, *k.vars) - k.load_at(total, 0))

    def roundabout(self) -> None:
        """Elements found by dividing their position, which the loops already say."""
        source, made = self.whole(), self.buffer("ab", DType.F32)
        width = maximum(as_expr(self.sizes["b"]), 1)
        with self.b.loop(None, [self.sizes[c] for c in "ab"]) as k:
            place = k.vars[0] * width + k.vars[1]
            value = k.load(source, place // width, place % width).to(DType.F32)
            k.store(made, k.vars, value * 0.5)

    def stacked(self) -> None:
        """Sums of rows that are read, and put before something else in a buffer of both."""
        source, rows = self.whole(), self.one([x for x, kind in self.made if kind == "a"])
        part = self.buffer("a", DType.F32)
        both = self.b.output(f"both{len(self.made)}", DType.F32, [2, self.sizes["a"]])
        with self.b.loop(None, [self.sizes["a"]], [self.sizes["b"]]) as k:
            value = k.reduce_by(self.one(MERGING), k.load(source, *k.vars).to(DType.F32))
            k.store(part, k.domain.vars, value.to(DType.F32))
        self.difference(rows, part, "a")
        for number, one in enumerate((part, rows)):
            with self.b.loop(None, [self.sizes["a"]]) as k:
                value = k.load(one, *k.vars)
                value = value if one.dtype is DType.F32 else value.to(DType.F32)
                k.store(both, [as_expr(number), *k.vars], value)

    def send(self) -> None:
        """A collective that is waited for at once, and work that could run meanwhile."""
        source = self.whole()
        made = self.buffer("ab", source.dtype)
        name = f"send{len(self.made)}"
        target = "_c10d_functional.all_gather_into_tensor"
        self.b.collective(target, [source], writes=[made], name=name, group="world")
        self.b.wait(made, name=f"wait{len(self.made)}")
        self.made.insert(0, self.made.pop())  # what comes next seldom needs it


EVENTS = ("operation", "operation", "operation", "again", "spread", "both_ways", "total",
          "rows_in_a_total", "roundabout", "stacked", "send")  # fmt: skip


@st.composite
def eventful_programs(draw: st.DrawFn) -> Program:
    """A program of up to ten events that the verifier accepts."""
    chain = EventfulChain(draw)
    for _ in range(chain.number(3, 10)):
        getattr(chain, chain.one(EVENTS))()
    made = [x for x, _ in chain.made if x.name not in chain.b.inputs]
    assume(made)
    chain.returns(made[-1])
    program = chain.b.build()
    assume(not violations(program))
    return program
