"""Limits say between which numbers an index lies; what they do not say stays open."""

from __future__ import annotations

import pytest

from treadle.ir.body import Body
from treadle.ir.masks import MaskFacts
from treadle.ir.program import Loop
from treadle.ir.text import parse_program

TEXT = """treadle 1
program p
inputs x, k
outputs y

buffer x : f32[32] on cpu
buffer k : i64[8] on cpu
buffer y : f32[8] on cpu

loop body on cpu for i in 8 {{
  %0 = load k[i]
  %1 = constant 0 i64
  %2 = constant 31 i64
  %3 = index i + 3 as i64
  {made}
  %9 = indirect %8 size 32 check
  %10 = load x[%9]
  store y[i] = %10
}}
"""
INSIDE = {
    "between both": ("%7 = maximum %0, %1", "%8 = minimum %7, %2"),
    "the other way": ("%7 = minimum %2, %0", "%8 = maximum %1, %7"),
    "a loop above": ("%7 = maximum %0, %1", "%8 = minimum %7, %3"),
    "a loop by itself": ("%7 = maximum %3, %1", "%8 = minimum %7, %2"),
}
OPEN = {
    "nothing below": ("%7 = minimum %0, %2", "%8 = minimum %7, %2"),
    "nothing above": ("%7 = maximum %0, %1", "%8 = maximum %7, %1"),
    "moved away": ("%7 = maximum %0, %1", "%8 = add %7, %2"),
    "one too far": ("%7 = maximum %0, %1", "%8 = maximum %7, %2"),
}


def may_stop(lines: tuple[str, str]) -> bool:
    made = ["%4 = add %0, %1", "%5 = add %0, %1", "%6 = add %0, %1", *lines]
    loop = parse_program(TEXT.format(made="\n  ".join(made))).ops[0]
    assert isinstance(loop, Loop)
    body: Body = loop.body
    facts = MaskFacts(body)
    (found,) = [facts.may_stop(at.stmt) for at in body.walk() if at.stmt.op == "indirect"]
    return found


@pytest.mark.parametrize("name", INSIDE)
def test_what_limits_keep_inside_never_stops(name: str) -> None:
    assert not may_stop(INSIDE[name])


@pytest.mark.parametrize("name", OPEN)
def test_what_may_be_outside_stops(name: str) -> None:
    assert may_stop(OPEN[name])
