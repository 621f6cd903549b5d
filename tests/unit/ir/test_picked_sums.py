"""Sums with one term are that term, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from treadle.ir.interp import RunError, run
from treadle.ir.picked_sums import with_picked_sums
from treadle.ir.program import Kernel, Nest, Program
from treadle.ir.text import parse_program

TEXT = """treadle 1
program p
inputs k, g
outputs y

buffer k : i64[6] on cpu
buffer g : f32[6] on cpu
buffer y : f32[6] on cpu

launch pick on cpu fused {
  nest pick_nest on cpu for i0 in 6 reduce r0 in 16 runs (pick) {
    %0 = load k[i0]
    %1 = indirect %0 size SIZE CHECK
    %2 = index r0 as i32
    %3 = index %1 as i32
    %4 = eq %2, %3
    %5 = constant -3.0 f32
    %6 = constant NONE f32
    %7 = where %4, %5, %6
    %8 = load g[i0]
    %9 = mul %8, %7
    %10 = neg %9
    %11 = reduce sum %10
    store y[i0] = %11
  }
}
"""


def program(size: str = "16", check: str = "check", none: str = "0.0") -> Program:
    words = {"SIZE": size, "CHECK": check, "NONE": none}
    text = TEXT
    for word, value in words.items():
        text = text.replace(word, value)
    return parse_program(text)


def changed(p: Program) -> Program:
    (kernel,) = p.ops
    assert isinstance(kernel, Kernel)
    (nest,) = kernel.members
    assert isinstance(nest, Nest)
    body = with_picked_sums(nest.body, p.by_name)
    return p.with_ops((replace(kernel, members=(replace(nest, body=body),)),))


def reductions(p: Program) -> int:
    (nest,) = [m for op in p.ops if isinstance(op, Kernel) for m in op.members]
    assert isinstance(nest, Nest)
    return sum(at.stmt.op == "reduce" for at in nest.body.walk())


def test_the_term_is_the_sum_also_of_what_is_not_finite() -> None:
    p = program()
    new = changed(p)
    assert reductions(p) == 1
    assert reductions(new) == 0
    inputs = {
        "k": np.array([0, 15, 3, 7, 7, 1]),
        "g": np.array([1.5, -2.0, np.inf, np.nan, 0.0, -np.inf], dtype=np.float32),
    }
    np.testing.assert_array_equal(run(new, inputs).outputs[0], run(p, inputs).outputs[0])


def test_a_place_outside_is_still_an_error() -> None:
    inputs = {"k": np.array([0, 15, 3, 7, 16, 1]), "g": np.ones(6, dtype=np.float32)}
    for p in (program(), changed(program())):
        with pytest.raises(RunError):
            run(p, inputs)


@pytest.mark.parametrize(
    "other",
    [program(size="17"), program(check=""), program(none="1.0")],
    ids=["may lie outside", "is not checked", "is not zero elsewhere"],
)
def test_other_sums_stay(other: Program) -> None:
    assert reductions(changed(other)) == 1
