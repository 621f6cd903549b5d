"""Rows of the next tile are asked for while one tile is worked on, if their storage is large."""

from __future__ import annotations

import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import TORCH
from treadle.ir.program import Program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline


def turned(rows: int, columns: int) -> Program:
    """y[i, j] = x[j, i] + 1"""
    b = ProgramBuilder("turned", numerics=TORCH)
    x, y = b.input("x", "f32", [columns, rows]), b.output("y", "f32", [rows, columns])
    with b.loop("turn", [rows, columns]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(x, j, i) + 1.0)
    program = b.build()
    return run_pipeline(program, Ctx(Options(), Roofline(program), Journal()), KERNELS)


def text_of(program: Program) -> str:
    return compile_program(program).unit.kernels[0].text


def test_rows_of_a_large_storage_are_asked_for_ahead() -> None:
    lines = [line.strip() for line in text_of(turned(512, 512)).splitlines()]
    asked = [line for line in lines if "__builtin_prefetch" in line]
    assert len(asked) == 1
    # The last tile of a band of rows is followed by the first one of the next band.
    assert "(i1_n ? 0 : 16)" in asked[0]
    assert "const int64_t i1_n = i1_b + 64 < n1 ? i1_b + 64 : 0;" in lines


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 256)])
def test_should_not_ask_for_what_stays_in_a_cache(rows: int, columns: int) -> None:
    text = text_of(turned(rows, columns))
    assert "tr_turn" in text
    assert "__builtin_prefetch" not in text
