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


def test_lines_of_a_large_storage_are_asked_for_ahead() -> None:
    lines = [line.strip() for line in text_of(turned(512, 512)).splitlines()]
    across, stored = [line for line in lines if "__builtin_prefetch" in line]
    # What is stored lies along the rows of the tile, what is turned across them.
    assert (
        stored
        == "__builtin_prefetch(p1_y + (512 * i0 + (i1_n + i1_t)) + (i1_n ? 0 : 32768), 1, 3);"
    )
    # The last tile of a band of rows is followed by the first one of the next band.
    assert "(i1_n ? 0 : 64)" in across
    assert "const int64_t i1_n = i1_b + 64 < n1 ? i1_b + 64 : 0;" in lines


@pytest.mark.parametrize(
    ("rows", "tile"), [(512, 64), (256, 32), (288, 32), (528, 16), (640, 64), (130, 16)]
)
def test_tiles_have_as_many_rows_as_come_out_even(rows: int, tile: int) -> None:
    assert f"i0_l < {'i0_c' if rows % tile else tile}; ++i0_l" in text_of(turned(rows, 512))


def test_tiles_of_many_loads_fit_into_the_first_cache() -> None:
    b = ProgramBuilder("many", numerics=TORCH)
    given = [b.input(f"x{k}", "f32", [512, 512]) for k in range(6)]
    y = b.output("y", "f32", [512, 512])
    with b.loop("turn", [512, 512]) as k:
        i, j = k.vars
        one, two, three = [
            k.load(x, j, i) * k.load(z, i, j) for x, z in zip(given[:3], given[3:], strict=True)
        ]
        k.store(y, (i, j), one + two + three)
    program = b.build()
    program = run_pipeline(program, Ctx(Options(), Roofline(program), Journal()), KERNELS)
    text = text_of(program)
    assert text.count("[2048] __attribute__") == 3
    assert "i0_l < 32; ++i0_l" in text


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 256)])
def test_should_not_ask_for_what_stays_in_a_cache(rows: int, columns: int) -> None:
    text = text_of(turned(rows, columns))
    assert "tr_turn" in text
    assert "__builtin_prefetch" not in text
