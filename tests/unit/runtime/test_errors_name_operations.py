"""An error of a run has the operations it happened in as data: whatever they are called."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.ir.interp import run
from treadle.ir.run_error import RunError
from treadle.ir.text import parse_program
from treadle.runtime import compile_program

TEXT = """treadle 1
program p
inputs x, k
outputs y

buffer x : f32[4] on cpu
buffer k : i64[2] on cpu
buffer y : f32[2] on cpu

loop @"it's gathered" on cpu for i in 2 {
  %0 = load k[i]
  %1 = indirect %0 size 4 check
  %2 = load x[%1]
  store y[i] = %2
}
"""
GIVEN = {"x": np.zeros(4, np.float32), "k": np.array([1, 9])}


def test_by_the_interpreter_and_in_c() -> None:
    program = parse_program(TEXT)
    compiled = compile_program(program)
    assert compiled.is_compiled
    for attempt in (lambda: run(program, GIVEN), lambda: compiled.run(GIVEN)):
        with pytest.raises(RunError) as caught:
            attempt()
        assert caught.value.code == "RUN004"
        assert caught.value.operations == ("it's gathered",)
