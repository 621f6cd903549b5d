"""Running extremes are the same with and without the positions that nobody asks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from treadle.ir.interp import run
from treadle.ir.plain_scans import with_plain_scans
from treadle.ir.program import Loop, Program
from treadle.ir.text import parse_program

TEXT = """treadle 1
program p
inputs x
outputs y

buffer x : f32[5, 9] on cpu
buffer y : f32[5, 9] on cpu

loop y_ on cpu for i in 5 reduce r in 9 {
  %0 = load x[9*i + r]
  %1 = index r as f32
  %2 = add %0, %1
  %3 = index r as i64
  %4 = scan HOW %0, %3
  %5 = get 0 %4
  %6 = scan add %2
  %7 = add %5, %6
  store y[9*i + r] = %7
}
"""


def changed(p: Program) -> Program:
    (loop,) = p.ops
    assert isinstance(loop, Loop)
    return p.with_ops((replace(loop, body=with_plain_scans(loop.body)),))


@pytest.mark.parametrize(("how", "plain"), [("argmax", "max"), ("argmin", "min")])
def test_values_are_the_same_without_positions(how: str, plain: str) -> None:
    before = parse_program(TEXT.replace("HOW", how))
    after = changed(before)
    (loop,) = after.ops
    assert isinstance(loop, Loop)
    scans = [s.attr("combine") for s in loop.body.stmts if s.op == "scan"]
    assert scans == [plain, "add"]
    assert not any(s.op == "get" for s in loop.body.stmts)
    x = np.random.default_rng(3).standard_normal((5, 9)).round().astype(np.float32)
    x[1, 4], x[2, 0], x[3, 3] = np.nan, np.nan, -np.inf
    x[4] = [0.0, -0.0, -0.0, 0.0, 0.0, -0.0, 0.0, -0.0, -0.0]
    one, other = (run(p, {"x": x}).read("y") for p in (before, after))
    np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))


def test_should_not_touch_a_body_without_running_positions() -> None:
    (loop,) = parse_program(TEXT.replace("HOW", "argmax")).ops
    assert isinstance(loop, Loop)
    body = with_plain_scans(loop.body)
    assert with_plain_scans(body) is body
