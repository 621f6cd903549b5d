"""Sums within sums: those that lie across memory are columns of a nest of their own."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.body import Body
from treadle.ir.program import Kernel, Nest, Program
from treadle.ir.text import parse_program
from treadle.kernel.renest import sums_across
from treadle.runtime import compile_program
from treadle.schedule.passes.schedule_loops import schedule_loops

TOTALS = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[8, 20, 64] on cpu
buffer y : f32[8] on cpu

launch k on cpu loop {{
  nest n on cpu for i in 8 reduce r0 in {rows}, r1 in {inner} runs (n) {{
    %0 = load x[1280*i + {steps}]
    %1 = reduce_part sum %0 over r1
    %2 = square %1
    %3 = reduce_part sum %2 over r0
    store y[i] = %3
  }}
}}
"""
ACROSS = TOTALS.format(rows=64, inner=20, steps="64*r1 + r0")
ALONG = TOTALS.format(rows=20, inner=64, steps="64*r0 + r1")


def nests_of(program: Program) -> list[Nest]:
    return [
        m for op in program.ops if isinstance(op, Kernel) for m in op.members if isinstance(m, Nest)
    ]


def scheduled(text: str) -> Program:
    program = parse_program(text)
    return schedule_loops(program, Ctx(Options(check=2), Roofline(program), Journal()))


def body_of(text: str) -> Body:
    (nest,) = nests_of(parse_program(text))
    return nest.body


def test_what_is_summed_up_across_memory_is_known() -> None:
    assert sums_across(body_of(ACROSS))
    assert not sums_across(body_of(ALONG))


def test_columns_within_a_total_are_a_nest_of_their_own() -> None:
    first, last = nests_of(scheduled(ACROSS))
    assert [n.value for n in first.body.domain.extents] == [8, 64]
    assert [n.value for n in last.body.reduce.extents] == [64]
    assert first.schedule
    assert last.schedule


def test_should_not_take_rows_within_a_total_apart() -> None:
    """They are added up row by row, as long as they are at hand."""
    _, rows, _ = nests_of(scheduled(ALONG))
    assert [mode for _, _, mode, _ in rows.body.stores()] == ["atomic_add"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("text", [ACROSS, ALONG])
def test_both_give_the_same(text: str) -> None:
    x = np.random.default_rng(3).standard_normal((8, 20, 64)).astype(np.float32)
    found = compile_program(scheduled(text)).run({"x": x})["y"]
    sums = x.astype(np.float64).sum(1 if text is ACROSS else 2)
    np.testing.assert_allclose(found, np.square(sums).sum(-1), rtol=1e-5)
