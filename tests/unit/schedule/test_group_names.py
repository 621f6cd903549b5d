"""Groups have names of their own, also where joining their members' names gives the same twice."""

from __future__ import annotations

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import walk_operations
from treadle.ir.spec import violations
from treadle.ir.text import parse_program
from treadle.schedule.naming import JoinedNames
from treadle.schedule.pipeline import run_pipeline

TWICE = """treadle 1
program p
inputs x, y
outputs b_c, c

buffer x : f32[64] on cpu
buffer y : f32[9, 7] on cpu
buffer a : f32[64] on cpu
buffer b_c : f32[64] on cpu
buffer a_b : f32[9, 7] on cpu
buffer c : f32[9] on cpu

loop a on cpu for i0 in 64 {
  %0 = load x[i0]
  %1 = exp %0
  store a[i0] = %1
}

loop b_c on cpu for i0 in 64 {
  %0 = load a[i0]
  %1 = neg %0
  store b_c[i0] = %1
}

loop a_b on cpu for i0 in 9, i1 in 7 {
  %0 = load y[7*i0 + i1]
  %1 = exp %0
  store a_b[7*i0 + i1] = %1
}

loop c on cpu for i0 in 9 reduce r0 in 7 {
  %0 = load a_b[7*i0 + r0]
  %1 = reduce sum %0
  store c[i0] = %1
}
"""


def test_two_groups_whose_members_join_to_one_name_are_told_apart() -> None:
    before = parse_program(TWICE)
    for stop in range(20):
        options = Options(stop_after=stop, check=1)
        after = run_pipeline(before, Ctx(options, Roofline(before), Journal()))
        names = [op.name for op in walk_operations(after.ops)]
        assert len(set(names)) == len(names)
        assert not list(violations(after))


def test_a_name_that_is_free_is_not_numbered() -> None:
    program = parse_program(TWICE)
    a, b_c, a_b, c = program.leaves
    names = JoinedNames(program.leaves)
    assert [names.of([a, b_c]), names.of([a_b, c]), names.of([b_c, c])] == [
        "a_b_c",
        "a_b_c_2",
        "b_c_c",
    ]
