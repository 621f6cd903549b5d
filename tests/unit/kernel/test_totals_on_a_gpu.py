"""Totals on a GPU: programs wait for no other, have enough to do, and say what they add up."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.interp import run
from treadle.ir.interp.dtypes import Array
from treadle.ir.program import Kernel, Nest, Program
from treadle.ir.text import parse_program
from treadle.schedule.passes.schedule_loops import schedule_loops

HEAD = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

"""
ROWS_AND_A_TOTAL = (
    HEAD
    + """
buffer x : f32[40, 64] on cuda:0
buffer y : f32[] on cuda:0

launch k on cuda:0 fused {
  nest n on cuda:0 reduce r0 in 40, r1 in 64 runs (n) {
    %0 = load x[64*r0 + r1]
    %1 = reduce_part max %0 over r1
    %2 = load x[64*r0 + r1]
    %3 = sub %2, %1
    %4 = exp %3
    %5 = reduce KIND %4
    store y[0] = %5
  }
}
"""
)
TOTAL_OF_ROWS = ROWS_AND_A_TOTAL.replace(
    "    %5 = reduce KIND %4\n", "    %5 = reduce_part KIND %1 over r0\n"
)
PLACES_IN_TWO_LOOPS = (
    HEAD
    + """
buffer x : f32[16, 16, 16, 32] on cuda:0
buffer y : f32[32] on cuda:0

launch k on cuda:0 loop {
  nest n on cuda:0 for i in 32 reduce r0 in 16, r1 in 16, r2 in 16 runs (n) {
    %0 = load x[i + 8192*r0 + 512*((r1 + 1) // 2) + 32*((r2 + 1) // 2)]
    %1 = reduce sum %0
    store y[i] = %1
  }
}
"""
)


def scheduled(program: Program) -> Program:
    return schedule_loops(program, Ctx(Options(check=2), Roofline(program), Journal()))


def nests_of(program: Program) -> list[Nest]:
    found = [m for op in program.ops if isinstance(op, Kernel) for m in op.members]
    return [m for m in found if isinstance(m, Nest)]


def both(text: str, x: Array) -> tuple[Program, Array, Array]:
    """The program as a GPU runs it, and what is found with and without that."""
    program = parse_program(text)
    made = scheduled(program)
    plain, ours = (run(one, {"x": x}).outputs[0] for one in (program, made))
    return made, plain, ours


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("text", [ROWS_AND_A_TOTAL, TOTAL_OF_ROWS], ids=["points", "rows"])
def test_each_row_leaves_its_part(text: str, kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    made, plain, ours = both(text.replace("KIND", kind), x)
    rows, *_, last = nests_of(made)
    assert [n.value for n in rows.body.domain.extents] == [40]
    assert [n.value for n in rows.body.reduce.extents] == [64]
    assert not last.body.domain
    stores = [mode for nest in nests_of(made) for _, _, mode, _ in nest.body.stores()]
    assert set(stores) == {"plain"}
    np.testing.assert_allclose(ours, plain, rtol=1e-5)


@pytest.mark.parametrize(
    "total",
    [
        "%2 = reduce_part welford %1 over r0\n    %3 = get 1 %2",
        "%2 = mul %1, %1\n    %3 = reduce_part dot %1, %2 over r0",
    ],
    ids=["spread", "dot"],
)
def test_a_total_that_needs_more_of_rows_than_a_number_is_right(total: str) -> None:
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    body = f"    %1 = reduce_part sum %0 over r1\n    {total}\n    store y[0] = %3\n  }}\n}}\n"
    head, _, _ = ROWS_AND_A_TOTAL.partition("    %1 =")
    _, plain, ours = both(head + body, x)
    np.testing.assert_allclose(ours, plain, rtol=1e-4)


def test_two_loops_are_shared_out_where_one_has_too_few_steps() -> None:
    x = np.random.default_rng(0).standard_normal((16, 16, 16, 32)).astype(np.float32)
    made, plain, ours = both(PLACES_IN_TWO_LOOPS, x)
    part, last = nests_of(made)
    assert [n.value for n in part.body.domain.extents] == [32, 8, 16]
    assert len(last.body.reduce) == 2
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)


def test_should_not_cut_a_second_loop_where_one_is_enough() -> None:
    one = PLACES_IN_TWO_LOOPS.replace("r0 in 16", "r0 in 1024").replace("f32[16,", "f32[1024,")
    part, *_ = nests_of(scheduled(parse_program(one)))
    assert len(part.body.domain) == 2
