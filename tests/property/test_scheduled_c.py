"""Random programs whose loops are scheduled for vectors stay within the bound of their numerics.

The same programs as in test_c_programs, but stated with torch's numerics, so that schedule-loops
gives them vectors, lanes, tiles, partial sums and rows of totals. What the C code computes is
compared with the interpreter by the bound derived from the program and its data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from focused_programs import crowds, relays
from how_many import until
from hypothesis import assume, given, settings
from random_bodies import bodies
from small_operations import MOVES
from small_programs import EXTERNS, inputs_for, size_choices, small_programs
from test_c_programs import EXAMPLES, OPTIMISE, reads_what_it_accumulates, shows_bits_of_nan
from wide_programs import wide_programs

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.index import Symbol
from treadle.ir.interp.compare import random_inputs
from treadle.ir.interp.dtypes import Array
from treadle.ir.numerics import TORCH
from treadle.ir.program import Loop, Nest, Program
from treadle.ir.text import parse_program, show_program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS, SCHEDULING
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.error_bound import derive_bounds, outside
from treadle.testing.strategies import programs

FULLY = 2
SORTED_MOVES = tuple(m for m in MOVES if m != "bucket")


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def scheduled(program: Program, fuses: bool) -> Program:
    ctx = Ctx(Options(check=2), Roofline(program), Journal())
    stated = replace(program, numerics=TORCH)
    return run_pipeline(stated, ctx, (*SCHEDULING, *KERNELS) if fuses else KERNELS)


def stay_within(
    program: Program, sizes: Mapping[Symbol, int], inputs: dict[str, Array], fuses: bool = False
) -> Program:
    """The program as it was built, if what its code computes is within the bound."""
    built, found = compared(program, sizes, inputs, fuses, optimise=FULLY)
    assert not found, "\n".join([*found, show_program(built)])
    return built


def compared(
    program: Program,
    sizes: Mapping[Symbol, int],
    inputs: dict[str, Array],
    fuses: bool = False,
    optimise: int = OPTIMISE,
) -> tuple[Program, list[str]]:
    """The program as it was built, and what its code computes out of bounds.

    Small programs leave next to nothing for vectors, so that the quick run compiles them quickly.
    """
    built = scheduled(program, fuses)
    assert parse_program(show_program(built)) == built
    compiled = compile_program(built, externs=EXTERNS, optimise=optimise)
    assert compiled.is_compiled
    named = {s.name: n for s, n in sizes.items()}
    bounds = derive_bounds(replace(program, numerics=TORCH), inputs, sizes=named, externs=EXTERNS)
    result = compiled.run(inputs, sizes=named)
    got = {name: result.read(name) for name in (*program.outputs, *program.inputs)}
    # Elements that nothing defines have no bound; small programs have many of them.
    found = outside(bounds, got, undecidable=1.0)
    if found:
        assume(not shows_bits_of_nan(program, inputs, named))
    return built, [str(line) for line in found]


def asks_for_a_position(program: Program) -> bool:
    stmts = [at.stmt for op in program.leaves if isinstance(op, Loop) for at in op.body.walk()]
    return any(s.op == "reduce" and s.attr("kind") in ("argmax", "argmin") for s in stmts)


@settings(max_examples=EXAMPLES)
@given(programs())
def test_programs_stay_within(program: Program) -> None:
    for count in (1, 4) if program.sizes else (0,):
        sizes = dict.fromkeys(program.sizes, count)
        named = {s.name: count for s in program.sizes}
        assert compared(program, sizes, random_inputs(program, sizes=named))[1] == []


@settings(max_examples=EXAMPLES)
@given(small_programs(moves=SORTED_MOVES))
def test_small_programs_stay_within(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    for sizes in size_choices(program):
        assert compared(program, sizes, inputs_for(program, sizes), fuses=True)[1] == []


@settings(max_examples=EXAMPLES)
@given(bodies())
def test_bodies_stay_within(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    assume(not asks_for_a_position(program))  # of nothing there is no largest element
    (s,) = program.sizes
    assert compared(program, {s: 3}, random_inputs(program, sizes={"s": 3}))[1] == []
    assert compared(program, {s: 0}, random_inputs(program, sizes={"s": 0}))[1] == []


@settings(max_examples=EXAMPLES)
@given(relays())
def test_programs_that_hand_values_on_stay_within(program: Program) -> None:
    assert compared(program, {}, inputs_for(program, {}), fuses=True)[1] == []


@settings(max_examples=EXAMPLES)
@given(crowds())
def test_programs_that_crowd_one_storage_stay_within(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    assert compared(program, {}, inputs_for(program, {}), fuses=True)[1] == []


def test_wide_programs_stay_within() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=2 * EXAMPLES)
    @given(wide_programs())
    def every_program(program: Program) -> None:
        assume(not reads_what_it_accumulates(program))
        for count in (48, 5) if program.sizes else (0,):
            named = {s.name: count for s in program.sizes}
            inputs = random_inputs(program, sizes=named)
            built = stay_within(program, dict.fromkeys(program.sizes, count), inputs)
        for leaf in built.leaves:
            if isinstance(leaf, Nest):
                seen.update({str(s).split()[0] for s in leaf.schedule})

    rare = ("split", "stage", "flush")
    assert until(lambda: min(seen[word] for word in rare) > 0, every_program), seen
    assert seen["bind"] > EXAMPLES / 2, seen
