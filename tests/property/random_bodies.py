"""Random bodies of one loop: reductions that feed on each other, scans, sorts, stores in between.

`bodies` draws a program of one operation in which nearly every statement of the table may stand.
Values are chosen so that no result hangs on the last bit of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from treadle.index import Expr, Symbol, as_expr
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.program import Loop, Program
from treadle.ir.spec import violations
from treadle.ir.types import Buffer, DType

T = TypeVar("T")

ELEMENTS = (DType.F32, DType.F32, DType.BF16, DType.F16, DType.I32, DType.U8, DType.BOOL, DType.F64)
BINARY = ("add", "mul", "maximum", "minimum")
UNARY = ("abs", "identity", "sigmoid", "sin", "logical_not", "square")
REDUCE = ("sum", "max", "min", "any", "all", "argmax", "argmin", "prod", "dot")
SEVERAL = ("welford", "online_softmax")
SCANS = ("add", "max", "min", "mul")


class Sketch:
    """A body under construction: values so far, each with the reduction loops it varies along."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.builder = draw, ProgramBuilder("body")
        b = self.builder
        extents: list[Expr] = [as_expr(n) for n in (1, 2, 3, 4)]
        extents.append(b.size("s", 0, 5, hint=3))
        outer = [self.one(extents) for _ in range(self.number(0, 2))]
        inner = [self.one(extents) for _ in range(self.number(1, 2))]
        self.k = BodyBuilder(b.buffers, outer, inner)
        self.values: list[tuple[Value, frozenset[Symbol]]] = []
        self.sources: list[tuple[Buffer, tuple[Symbol, ...]]] = []
        self.count = 0
        domain, reduce = self.k.domain.vars, self.k.reduce.vars
        for loops in (domain + reduce, domain + reduce, domain, reduce):
            name, element = self.fresh("x"), self.one(ELEMENTS)
            shape = [self.k.build().space.extent(v) for v in loops]
            self.sources.append((b.input(name, element, shape), loops))
        self.acc = b.input("acc", self.one(ELEMENTS), [6])

    def one(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def pick(self) -> tuple[Value, frozenset[Symbol]]:
        return self.values[-1 - self.number(0, min(len(self.values), 5) - 1)]

    def add(self, value: Value, along: frozenset[Symbol]) -> None:
        self.values.append((value, along))

    def reduce_vars(self) -> frozenset[Symbol]:
        return frozenset(self.k.reduce.vars)


def load(d: Sketch) -> None:
    buffer, loops = d.sources[d.number(0, len(d.sources) - 1)]
    d.add(d.k.load(buffer, *loops), frozenset(loops) & d.reduce_vars())


def combine(d: Sketch) -> None:
    (a, along), (b, other) = d.pick(), d.pick()
    d.add(d.k.op(d.one(BINARY), a, b), along | other)


def change(d: Sketch) -> None:
    value, along = d.pick()
    d.add(d.k.op(d.one(UNARY), value.to("f32")), along)


def choose(d: Sketch) -> None:
    (a, along), (b, other) = d.pick(), d.pick()
    d.add(d.k.where(a > d.k.constant(0, a.dtype), a, b), along | other)


def convert(d: Sketch) -> None:
    value, along = d.pick()
    d.add(value.to(d.one(ELEMENTS)), along)


def place(d: Sketch) -> None:
    v = d.k.vars[d.number(0, len(d.k.vars) - 1)]
    d.add(d.k.index(v * d.number(1, 3) + 1, "i32"), frozenset({v}) & d.reduce_vars())


def reduce(d: Sketch) -> None:
    kind = d.one(REDUCE)
    values = [d.pick()[0] for _ in range(2 if kind == "dot" else 1)]
    d.add(d.k.reduce_by(kind, *values), frozenset())


def reduce_to_several(d: Sketch) -> None:
    results = d.k.reduce_by(d.one(SEVERAL), d.pick()[0].to("f32"))
    for value in results:
        d.add(value, frozenset())


def scan(d: Sketch) -> None:
    d.add(d.k.scan(d.one(SCANS), d.pick()[0]), d.reduce_vars())


def scan_region(d: Sketch) -> None:
    value = d.pick()[0].to("f32")
    found = d.k.scan_region([value], lambda a, b: [d.k.maximum(a, b) * 0.5 + b])
    d.add(found, d.reduce_vars())


def sort(d: Sketch) -> None:
    key, other = d.pick()[0], d.pick()[0]
    for value in d.k.sort(key, other, descending=bool(d.number(0, 1))):
        d.add(value, d.reduce_vars())


def masked(d: Sketch) -> None:
    condition, along = d.pick()
    buffer, loops = d.sources[d.number(0, len(d.sources) - 1)]
    mask = condition.to("bool")
    other = float(d.number(-1, 1))
    varies = along | (frozenset(loops) & d.reduce_vars())
    d.add(d.k.masked(mask, other, lambda: d.k.load(buffer, *loops)), varies)


def store(d: Sketch) -> None:
    value, along = d.pick()
    loops = d.k.domain.vars + tuple(v for v in d.k.reduce.vars if v in along)
    extents = dict([*d.k.domain.items(), *d.k.reduce.items()])
    target = d.builder.output(d.fresh("y"), d.one(ELEMENTS), [extents[v] for v in loops])
    d.k.store(target, loops, value.to(target.dtype))


def overwrite(d: Sketch) -> None:
    buffer, loops = d.sources[d.number(0, 1)]
    d.k.store(buffer, loops, d.pick()[0].to(buffer.dtype))


def accumulate(d: Sketch) -> None:
    value, _ = d.pick()
    where = d.k.indirect(d.k.index(d.k.vars[0] % 6), 6)
    modes = ("atomic_max", "atomic_min", "atomic_add")
    d.k.store_at(d.acc, where, value.to(d.acc.dtype), d.one(modes))


MOVES: Mapping[Callable[[Sketch], None], int] = {
    load: 3, combine: 3, change: 1, choose: 1, convert: 1, place: 1, reduce: 3,
    reduce_to_several: 1, scan: 1, scan_region: 1, sort: 1, masked: 1, store: 2, overwrite: 1,
    accumulate: 1,
}  # fmt: skip
DECK = tuple(move for move, times in MOVES.items() for _ in range(times))


@st.composite
def bodies(draw: st.DrawFn) -> Program:
    """A program of one operation that the verifier accepts."""
    d = Sketch(draw)
    load(d)
    load(d)
    for _ in range(d.number(2, 14)):
        d.draw(st.sampled_from(DECK))(d)
    reduce(d)
    store(d)
    b = d.builder
    b.add(Loop(name="body", body=d.k.build()))
    program = b.build()
    assume(not violations(program))
    return program
