"""Reductions of few results are cut into chunks that threads share, if they take long enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.loop_schedule import plan_loops
from treadle.ir.numerics import TORCH, Numerics
from treadle.ir.program import Kernel, Nest, Program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline


def scheduled(program: Program) -> Program:
    return run_pipeline(program, Ctx(Options(), Roofline(program), Journal()), KERNELS)


def total(*sizes: int, kind: str = "sum", numerics: Numerics = TORCH) -> Program:
    """y = the sum of all of x"""
    b = ProgramBuilder("total", numerics=numerics)
    x, y = b.input("x", "f32", list(sizes)), b.output("y", "f32", [1])
    with b.loop("add", [1], list(sizes)) as k:
        point, *along = k.vars
        k.store(y, (point,), k.reduce_by(kind, k.load(x, *along)))
    return scheduled(b.build())


def square(n: int) -> Program:
    """Sums of rows and of columns of one square, in one loop."""
    b = ProgramBuilder("square", numerics=TORCH)
    x = b.input("x", "f32", [n, n])
    rows, columns = b.output("rows", "f32", [n]), b.output("columns", "f32", [n])
    with b.loop("add", [n], [n]) as k:
        i, r = k.vars
        k.store(rows, (i,), k.reduce_by("sum", k.load(x, i, r)))
        k.store(columns, (i,), k.reduce_by("sum", k.load(x, r, i)))
    return scheduled(b.build())


def nests(program: Program) -> list[Nest]:
    found = [m for op in program.ops if isinstance(op, Kernel) for m in op.members]
    assert all(isinstance(m, Nest) for m in found)
    return [m for m in found if isinstance(m, Nest)]


def shared(program: Program) -> list[int | None]:
    """How many points the loop has that threads share, for each nest that has one."""
    plans = [(nest, plan_loops(nest.body, nest.schedule)) for nest in nests(program)]
    return [
        dict(nest.body.space.items())[plan.threads.loop].value
        for nest, plan in plans
        if plan.threads is not None
    ]


@pytest.mark.parametrize(
    ("sizes", "chunks"), [((1 << 21,), 8), ((1024, 1050), 8), ((7, 300007), 7)]
)
def test_a_long_sum_is_cut_into_chunks(sizes: tuple[int, ...], chunks: int) -> None:
    program = total(*sizes)
    assert len(nests(program)) == 2
    assert shared(program) == [chunks]


@pytest.mark.parametrize("sizes", [(1 << 14,), (1048573,)])
def test_should_not_cut_what_is_short_or_has_no_even_chunks(sizes: tuple[int, ...]) -> None:
    program = total(*sizes)
    assert len(nests(program)) == 1
    assert shared(program) == []


def test_should_not_cut_what_is_added_up_exactly() -> None:
    exact = replace(TORCH, accumulation="exact")
    assert len(nests(total(1 << 21, numerics=exact))) == 1


def test_rows_and_columns_of_a_square_are_walked_in_chunks() -> None:
    program = square(1024)
    assert shared(program) == [8]
    assert [len(n.body.domain) for n in nests(program)] == [2, 2, 1]


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_chunks_come_to_what_the_whole_does(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    found = compile_program(total(1 << 20, kind=kind)).run({"x": x}).read("y")
    wide = x.astype(np.float64)
    expected = {"sum": wide.sum(), "max": wide.max(), "min": wide.min()}[kind]
    assert abs(float(found[0]) - expected) <= 1e-6 * np.abs(wide).sum()
    if kind != "sum":
        assert float(found[0]) == expected


def test_a_nan_in_one_chunk_is_the_maximum_of_all() -> None:
    x = np.zeros(1 << 20, np.float32)
    x[700_001] = np.nan
    found = compile_program(total(1 << 20, kind="max")).run({"x": x}).read("y")
    assert np.isnan(found[0])


def test_sums_of_a_square_come_out_right() -> None:
    x = np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)
    found = compile_program(square(1024)).run({"x": x})
    wide = x.astype(np.float64)
    for name, axis in (("rows", 1), ("columns", 0)):
        bound = 1e-6 * np.abs(wide).sum(axis)
        assert (np.abs(found.read(name) - wide.sum(axis)) <= bound).all()
