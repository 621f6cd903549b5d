"""The derived bound holds for every code that keeps the numerics, and for little else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from float_programs import float_inputs, float_programs
from free_machine import run_freely
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_bodies import bodies
from small_programs import EXTERNS, inputs_for, size_choices, small_programs

from treadle.ir.interp import run
from treadle.ir.interp.compare import random_inputs
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.errors import RunError
from treadle.ir.numerics import EXACT, TORCH, Numerics
from treadle.ir.program import Loop, Program
from treadle.ir.text import show_program
from treadle.testing.error_bound import derive_bounds, outside
from treadle.testing.strategies import programs

FREEDOMS = {
    "exact": EXACT,
    "torch": TORCH,
    "short blocks": replace(TORCH, block=2),
    "f32": Numerics("f32", function_ulps=2.0, contraction=True),
    "as result": Numerics(as_result=True, function_ulps=64.0),
}
EVERYTHING = 1.0
"""A share of elements without a bound that is never too large: here only what has one counts."""


def out_of_bounds(
    program: Program, inputs: dict[str, Array], sizes: dict[str, int], seed: int
) -> str:
    """What a machine that may compute freely gives beyond the bound, and the program."""
    for name, numerics in FREEDOMS.items():
        try:
            memory = run_freely(program, inputs, numerics, seed, sizes, EXTERNS)
            bounds = derive_bounds(program, inputs, numerics, sizes=sizes, externs=EXTERNS)
        except RunError:
            return ""  # an index that one computes in range and the other does not, or neither does
        seen = dict.fromkeys((*program.outputs, *program.inputs))
        got = {n: memory.tensor(n).copy() for n in seen}
        lines = outside(bounds, got, undecidable=EVERYTHING)
        if lines:
            return "\n".join([name, *lines, show_program(program)])
    return ""


@settings(max_examples=examples(80))
@given(programs(), st.integers(0, 9))
def test_the_bound_holds_for_programs(program: Program, seed: int) -> None:
    count = {s.name: 4 for s in program.sizes}
    assert out_of_bounds(program, random_inputs(program, seed, sizes=count), count, seed) == ""


@settings(max_examples=examples(80))
@given(bodies(), st.integers(0, 9))
def test_the_bound_holds_for_bodies(program: Program, seed: int) -> None:
    assert (
        out_of_bounds(program, random_inputs(program, seed, sizes={"s": 3}), {"s": 3}, seed) == ""
    )


@settings(max_examples=examples(40))
@given(small_programs(groups=True), st.integers(0, 9))
def test_the_bound_holds_for_programs_that_share_memory(program: Program, seed: int) -> None:
    for sizes in size_choices(program):
        assert (
            out_of_bounds(
                program, inputs_for(program, sizes), {s.name: n for s, n in sizes.items()}, seed
            )
            == ""
        )


@settings(max_examples=examples(120))
@given(float_programs(), st.integers(0, 99))
def test_the_bound_holds_for_long_chains_of_arithmetic(program: Program, seed: int) -> None:
    assert out_of_bounds(program, float_inputs(program, seed), {}, seed) == ""


# ------------------------------------------------------------------- it says something, too

OTHERS = {
    "add": "sub", "sub": "add", "mul": "add", "exp": "expm1", "tanh": "erf", "sqrt": "log1p",
    "maximum": "minimum", "sigmoid": "tanh", "truediv": "mul", "sin": "atan", "square": "abs",
}  # fmt: skip


def changed(program: Program, at: int) -> Program:
    """The program with one operation of one body exchanged for a similar one."""
    loops = [op for op in program.ops if isinstance(op, Loop)]
    places = [(op, k) for op in loops for k, s in enumerate(op.body.stmts) if s.op in OTHERS]
    op, k = places[at % len(places)]
    stmts = list(op.body.stmts)
    stmts[k] = stmts[k]._replace(op=OTHERS[stmts[k].op])
    new = replace(op, body=replace(op.body, stmts=tuple(stmts)))
    return program.with_ops(tuple(new if o is op else o for o in program.ops))


def test_wrong_programs_are_out_of_bounds_and_most_elements_have_a_bound() -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=250, database=None)
    @given(float_programs(), st.integers(0, 99))
    def try_one(program: Program, seed: int) -> None:
        inputs = float_inputs(program, seed)
        bounds = derive_bounds(program, inputs, TORCH)
        wrong = run(changed(program, seed), inputs)
        for name in program.outputs:
            right, other = bounds.value(name).astype(float), wrong.read(name).astype(float)
            has_bound = np.isfinite(bounds.error(name))
            count["elements"] += right.size
            count["bounded"] += int(has_bound.sum())
            with np.errstate(all="ignore"):
                far = has_bound & (np.abs(other - right) > 0.05 * np.abs(right))
            count["far off"] += bool(far.any())
            if far.any():
                lines = outside(bounds, {name: wrong.read(name)}, undecidable=EVERYTHING)
                count["caught"] += bool(lines)

    try_one()
    assert count["bounded"] > 0.8 * count["elements"], count
    assert count["far off"] > 100, count
    assert count["caught"] > 0.95 * count["far off"], count
