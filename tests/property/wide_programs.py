"""Random programs of one loop that are wide enough for vectors, lanes, tiles and partial sums.

Like `random_bodies`, with long and odd extents and with sources that lie in any order of the loops,
so that walking along one loop is now contiguous, now strided, now the same element over and over.
"""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st
from random_bodies import (
    Sketch,
    change,
    choose,
    combine,
    convert,
    load,
    masked,
    place,
    reduce,
    reduce_to_several,
    store,
)

from treadle.index import Expr, as_expr
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.program import Loop, Program
from treadle.ir.spec import violations
from treadle.ir.types import DType

EXTENTS = (1, 2, 7, 16, 17, 33, 64, 70, 130)
LONG = (600, 1111, 4100)
MOST_POINTS = 20_000
ELEMENTS = (
    DType.F32,
    DType.F32,
    DType.F32,
    DType.BF16,
    DType.F16,
    DType.F64,
    DType.I32,
    DType.I64,
    DType.BOOL,
)
MOVES = (
    load, load, load, combine, combine, combine, change, change, choose, convert, place, reduce,
    reduce, reduce_to_several, masked, store, store,
)  # fmt: skip


class WideSketch(Sketch):
    """A body whose loops are long and whose sources lie in any order."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.builder = draw, ProgramBuilder("wide")
        b = self.builder
        outer: list[Expr] = [as_expr(self.one(EXTENTS)) for _ in range(self.number(0, 2))]
        inner: list[Expr] = [as_expr(self.one(EXTENTS)) for _ in range(self.number(0, 2))]
        if self.number(0, 3) == 0:
            long = as_expr(self.one(LONG))
            (inner if self.number(0, 1) and inner else outer).append(long)
        if self.number(0, 3) == 0:
            (inner if self.number(0, 1) else outer).append(b.size("s", 0, 300, hint=48))
        if not outer and not inner:
            outer.append(as_expr(33))
        points = 1
        for n in (*outer, *inner):
            points *= n.value if n.value is not None else 48
        assume(points <= MOST_POINTS)
        self.k = BodyBuilder(b.buffers, outer, inner)
        self.values = []
        self.sources = []
        self.count = 0
        loops = self.k.domain.vars + self.k.reduce.vars
        for kept in (loops, loops, loops, self.k.domain.vars or loops, self.k.reduce.vars or loops):
            order = tuple(self.draw(st.permutations(kept)))
            name, element = self.fresh("x"), self.one(ELEMENTS)
            shape = [self.k.build().space.extent(v) for v in order]
            self.sources.append((b.input(name, element, shape), order))
        self.acc = b.input("acc", self.one(ELEMENTS), [6])

    def has_reduction(self) -> bool:
        return bool(self.k.reduce.vars)


def add_up(d: WideSketch) -> None:
    """Add to an element for each point of some loops: what columns and totals do."""
    value, along = d.pick()
    if not isinstance(value, Value) or along:
        return
    loops = tuple([v for v in d.k.domain.vars if d.number(0, 1)])
    extents = dict(d.k.domain.items())
    target = d.builder.input(d.fresh("sum"), "f64", [extents[v] for v in loops] or [1])
    index = target.layout.index(loops) if loops else as_expr(0)
    d.k.store_at(target, index, value.to("f64"), "atomic_add")


@st.composite
def wide_programs(draw: st.DrawFn) -> Program:
    """A program of one wide loop that the verifier accepts."""
    d = WideSketch(draw)
    load(d)
    load(d)
    for _ in range(d.number(2, 12)):
        move = d.draw(st.sampled_from(MOVES))
        if move in (reduce, reduce_to_several) and not d.has_reduction():
            continue
        move(d)
    if d.number(0, 2) == 0:
        add_up(d)
    if d.has_reduction():
        reduce(d)
    store(d)
    b = d.builder
    b.add(Loop(name="body", body=d.k.build()))
    program = b.build()
    assume(not violations(program))
    return program
