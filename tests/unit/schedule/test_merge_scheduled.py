"""Loops of nests whose walk is written down stay as they are."""

from __future__ import annotations

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program, show_program
from treadle.schedule.passes.merge_loops import merge_loops
from treadle.testing.costs import MACHINES

TEXT = """\
treadle 1
program p
inputs x
outputs y

buffer x : f32[17, 64] on cpu
buffer y : f32[17, 64] on cpu

launch copy on cpu loop {
  nest copy_nest on cpu for i0 in 17, i1 in 1 runs (first)%s {
    %%0 = constant 0.0 f32
    store y[64*i0] = %%0
  }
}
"""


def merged(steps: str) -> str:
    program = parse_program(TEXT % steps)
    return show_program(merge_loops(program, Ctx(Options(), MACHINES, Journal())))


def test_a_loop_that_a_schedule_names_is_kept() -> None:
    assert "i1 in 1" in merged(" schedule (order i0 i1, bind i1 to vector)")


def test_a_loop_that_runs_once_goes_where_nothing_is_decided() -> None:
    assert "i1 in 1" not in merged("")
