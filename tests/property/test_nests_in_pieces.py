"""Nests that are cut where indices and masks change compute what they did, on random indices.

Remainders that wrap, minima and maxima, quotients, masks at edges, in nests of odd sizes and of
sizes known at run time only. The interpreter runs the pieces (level 3 of the checks, bit for bit),
and what the C code computes is compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scheduled_c import compared

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.index import Expr, Symbol, as_expr, maximum, minimum
from treadle.ir.build import ProgramBuilder
from treadle.ir.build_body import BodyBuilder, Value
from treadle.ir.interp.compare import random_inputs
from treadle.ir.numerics import TORCH
from treadle.ir.program import Nest, Program
from treadle.ir.types import Buffer, DType
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

TYPES = ("f32", "f32", "bf16", "i32", "i8", "f64", "bool")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


class Draw:
    """Indices and values of one random nest over rows i and a line j."""

    def __init__(self, data: st.DataObject, extent: int) -> None:
        self.data, self.extent = data, extent

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        return self.data.draw(st.integers(low, high))

    def inside(self, j: Expr, n: Expr, depth: int = 0) -> Expr:
        """An index that is surely in 0..n, of which at least 8 are there."""
        kind = self.number(0, 6 if depth < 2 else 3)
        shift = self.number(-9, 9)
        if kind == 0:
            return (j + shift) % n
        if kind == 1:
            return minimum(maximum(j * self.number(1, 2) + shift, 0), n - 1)
        if kind == 2:
            away = maximum(j - abs(shift), abs(shift) - j)
            return maximum(minimum(away, (n - 1) * 2 - away), 0) % n
        if kind == 3:
            return (n - 1 - j) % n
        if kind == 4:
            return (self.inside(j, n, depth + 1) * self.number(1, 3)) // self.number(3, 5)
        if kind == 5:
            times = self.number(1, 3)
            return ((j * times + abs(shift)) // self.number(2, 5)) % n
        return (self.inside(j, n, depth + 1) + self.number(0, 3)) % n

    def mask(self, k: BodyBuilder, i: Expr, j: Expr, n: Expr) -> Value:
        """Whether the point is on one side of something."""
        kind = self.number(0, 5)
        if kind == 0:
            parts = [self.mask(k, i, j, n) for _ in range(2)]
            return k.op(self.data.draw(st.sampled_from(("logical_and", "logical_or"))), *parts)
        if kind == 1:
            return k.logical_not(self.mask(k, i, j, n))
        op = self.data.draw(st.sampled_from(COMPARED))
        left = j * self.number(-2, 3) + self.number(-9, 9) + (i if kind == 2 else 0)
        if kind == 3:
            left = left // self.number(2, 3)
        right = n - self.number(0, 9) if kind == 4 else as_expr(self.number(-9, self.extent))
        width = self.data.draw(st.sampled_from(("i64", "i32")))
        return k.op(op, k.index(left, width), k.index(right, width))

    def loaded(self, k: BodyBuilder, x: Buffer, i: Expr, j: Expr, n: Expr) -> Callable[[], Value]:
        """A load of some element of the row."""
        place = self.inside(j, n)
        is_proved = k.domain.facts.within(x.layout.index((i, place)), x.layout.span)
        return lambda: k.load(x, i, place, unproven=not is_proved)

    def value(self, k: BodyBuilder, x: Buffer, i: Expr, j: Expr, n: Expr) -> Value:
        """An element, perhaps under a mask or chosen by one."""
        load, kind = self.loaded(k, x, i, j, n), self.number(0, 3)
        if kind == 0:
            return load()
        if kind == 1:
            other = self.number(0, 1)
            instead = bool(other) if x.dtype is DType.BOOL else other
            return k.masked(self.mask(k, i, j, n), instead, load)
        return k.where(self.mask(k, i, j, n), load(), self.loaded(k, x, i, j, n)())


def program_of(data: st.DataObject) -> tuple[Program, dict[Symbol, int]]:
    """A program of one nest, and its sizes."""
    extent = data.draw(st.sampled_from((8, 16, 17, 24, 33, 40, 61, 64)))
    draw = Draw(data, extent)
    b = ProgramBuilder("p")
    sizes: dict[Symbol, int] = {}
    n: Expr = as_expr(extent)
    if data.draw(st.integers(0, 3)) == 0:
        size = b.size("s", lo=8, hint=extent)
        sizes, n = {size: extent}, size
    rows = draw.number(1, 3)
    length = n + draw.number(0, 5)
    kind = data.draw(st.sampled_from(TYPES))
    x = b.input("x", kind, [rows, n])
    outputs = [b.output(f"y{q}", kind, [rows, length]) for q in range(draw.number(1, 2))]
    with b.loop("body", [rows, length]) as k:
        i, j = k.vars
        for y in outputs:
            found = draw.value(k, x, i, j, n)
            if draw.number(0, 1):
                found = k.maximum(found, draw.value(k, x, i, j, n))
            k.store(y, (i, j), found)
    return b.build(), sizes


def test_pieces_compute_what_the_nest_did() -> None:
    seen: Counter[int] = Counter()

    @settings(max_examples=examples(60), deadline=None)
    @given(st.data())
    def every_program(data: st.DataObject) -> None:
        program, sizes = program_of(data)
        stated = replace(program, numerics=TORCH)
        ctx = Ctx(Options(check=3), Roofline(stated), Journal())
        built = run_pipeline(stated, ctx, KERNELS)
        seen[sum(isinstance(leaf, Nest) for leaf in built.leaves)] += 1
        inputs = random_inputs(program, sizes={s.name: count for s, count in sizes.items()})
        _, found = compared(program, sizes, inputs, optimise=2)
        assert not found, "\n".join(found)

    every_program()
    assert sum(count for nests, count in seen.items() if nests > 1) > sum(seen.values()) // 8, seen
