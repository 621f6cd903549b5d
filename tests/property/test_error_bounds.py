"""The derived bound holds for every code that keeps the numerics, and for little else."""

from __future__ import annotations

from dataclasses import replace

from float_programs import float_inputs, float_programs
from free_machine import run_freely
from hypothesis import given, settings
from hypothesis import strategies as st
from random_bodies import bodies
from small_programs import EXTERNS, inputs_for, size_choices, small_programs

from treadle.ir.interp.compare import random_inputs
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.errors import RunError
from treadle.ir.numerics import EXACT, TORCH, Numerics
from treadle.ir.program import Program
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


def holds(program: Program, inputs: dict[str, Array], sizes: dict[str, int], seed: int) -> None:
    for name, numerics in FREEDOMS.items():
        try:
            memory = run_freely(program, inputs, numerics, seed, sizes, EXTERNS)
            bounds = derive_bounds(program, inputs, numerics, sizes=sizes, externs=EXTERNS)
        except RunError:
            return  # an index that one computes in range and the other does not, or neither does
        seen = dict.fromkeys((*program.outputs, *program.inputs))
        got = {n: memory.tensor(n).copy() for n in seen}
        lines = outside(bounds, got, undecidable=EVERYTHING)
        assert not lines, "\n".join([name, *lines, show_program(program)])


@settings(max_examples=150)
@given(programs(), st.integers(0, 9))
def test_the_bound_holds_for_programs(program: Program, seed: int) -> None:
    count = {s.name: 4 for s in program.sizes}
    holds(program, random_inputs(program, seed, sizes=count), count, seed)


@settings(max_examples=150)
@given(bodies(), st.integers(0, 9))
def test_the_bound_holds_for_bodies(program: Program, seed: int) -> None:
    holds(program, random_inputs(program, seed, sizes={"s": 3}), {"s": 3}, seed)


@settings(max_examples=80)
@given(small_programs(groups=True), st.integers(0, 9))
def test_the_bound_holds_for_programs_that_share_memory(program: Program, seed: int) -> None:
    for sizes in size_choices(program):
        holds(program, inputs_for(program, sizes), {s.name: n for s, n in sizes.items()}, seed)


@settings(max_examples=300)
@given(float_programs(), st.integers(0, 99))
def test_the_bound_holds_for_long_chains_of_arithmetic(program: Program, seed: int) -> None:
    holds(program, float_inputs(program, seed), {}, seed)
