"""Plans of random programs: valid, never below what lives, and the program runs in their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

import pytest
from focused_programs import relays
from how_many import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placed_memory import PlacedRun
from small_operations import LOOP_MOVES
from small_programs import EXTERNS, inputs_for, run_small, size_choices, small_programs
from test_c_programs import (
    EXAMPLES,
    OPTIMISE,
    SORTED_MOVES,
    reads_what_it_accumulates,
    shows_bits_of_nan,
)
from touched_bytes import all_cells, cells_of, touched

from treadle.analysis.liveness import LivenessPolicy
from treadle.index import Symbol
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.memory.from_program import PlanOptions, ProgramProblem, problem_of
from treadle.memory.plan_cache import PlanCache, plan_for_all_sizes
from treadle.memory.plan_program import plan_problem, plan_program
from treadle.memory.problem import Plan
from treadle.memory.validate import violations
from treadle.runtime import compile_program
from treadle.testing.differential import out_of_bounds

STEPS = 200
CHOICES = st.sampled_from(
    [
        PlanOptions(),
        PlanOptions(pack_into_outputs=True),
        PlanOptions(outputs_in_arena=True),
        PlanOptions(pack_into_donated=False, alignment=1),
        PlanOptions(pack_into_outputs=True, alignment=4),
    ]
)
POLICIES = st.builds(LivenessPolicy, drop_internal=st.booleans(), in_place=st.booleans())
PROGRAMS = st.one_of(
    relays(),
    small_programs(groups=True),
    small_programs(moves=("relay", "relay", "relay", *LOOP_MOVES), groups=True),
)


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def likely(program: Program) -> dict[Symbol, int]:
    return {s: s.hint or 1 for s in program.sizes}


def named(sizes: Mapping[Symbol, int]) -> dict[str, int]:
    return {s.name: n for s, n in sizes.items()}


def assert_runs_in_place(
    of: ProgramProblem, plan: Plan, sizes: Mapping[Symbol, int], random: Random
) -> None:
    """The caller sees what a plain run shows, wherever it holds a value."""
    program = of.program
    plain = run_small(program, sizes)
    placed = PlacedRun(of, plan, sizes, random)
    placed.run()
    written = {c for n in program.inputs for c in all_cells(program, n, sizes)}
    for op in program.leaves:
        written |= touched(program, op, sizes).certain
    kept = [n for n in program.inputs if n not in program.donated]
    shown = {c for n in (*program.outputs, *kept) for c in cells_of(program, n, sizes)}
    for storage in dict.fromkeys(s for s, _ in shown & written):
        expected = plain._memory.elements(storage).tobytes()
        found = placed.cells(storage)
        wrong = [b for s, b in shown & written if s == storage and expected[b] != found[b]]
        assert not wrong, f"bytes {sorted(wrong)} of {storage}\n{plan}\n{show_program(program)}"


@settings(max_examples=examples(80))
@given(PROGRAMS, POLICIES, CHOICES, st.randoms(use_true_random=False))
def test_a_program_runs_in_the_bytes_of_its_plan(
    program: Program, policy: LivenessPolicy, options: PlanOptions, random: Random
) -> None:
    planned = plan_program(program, policy=policy, options=options, steps=STEPS)
    assert violations(planned.of.problem, planned.plan) == ()
    assert planned.arena_bytes >= planned.lower_bound
    assert sum(row.bytes for row in planned.breakdown) == planned.peak.bytes
    assert_runs_in_place(planned.of, planned.plan, likely(program), random)


@settings(max_examples=examples(60))
@given(PROGRAMS)
def test_an_arena_with_the_outputs_holds_what_lives_at_the_peak(program: Program) -> None:
    policy = LivenessPolicy(include_inputs=False)
    options = PlanOptions(outputs_in_arena=True, alignment=1)
    planned = plan_program(program, policy=policy, options=options, steps=STEPS)
    assert planned.total_bytes >= planned.total_lower_bound >= planned.peak.bytes


@settings(max_examples=EXAMPLES)
@given(
    st.one_of(relays(), small_programs(groups=True, moves=SORTED_MOVES)),
    CHOICES.filter(lambda o: not o.outputs_in_arena),
)
def test_compiled_programs_run_in_the_bytes_of_their_plan(
    program: Program, options: PlanOptions
) -> None:
    assume(not reads_what_it_accumulates(program))
    cache = PlanCache(program, options=options, steps=STEPS)
    compiled = compile_program(program, plan=cache, externs=EXTERNS, optimise=OPTIMISE)
    for sizes in size_choices(program):
        inputs = inputs_for(program, sizes)
        found = out_of_bounds(compiled, inputs, sizes=named(sizes), undecidable=1.0)
        seen = [line for line in found if line.partition(":")[0] not in program.donated]
        if seen:
            assume(not shows_bits_of_nan(program, inputs, named(sizes)))
        assert not seen, "\n".join([*seen, str(cache(named(sizes))), show_program(program)])


@settings(max_examples=examples(40))
@given(small_programs(groups=True).filter(lambda p: bool(p.sizes)), CHOICES, st.randoms())
def test_one_plan_serves_every_size(program: Program, options: PlanOptions, random: Random) -> None:
    of = problem_of(program, options=options)
    general = plan_for_all_sizes(of, steps=STEPS)
    for sizes in size_choices(program):
        own = plan_problem(of, sizes=named(sizes), steps=STEPS).plan
        assert_runs_in_place(of, own, sizes, random)
        if general is not None:
            fits = {name: general.placements[name] for name in own.placements}
            problem = of.at(named(sizes))
            found = [
                v for v in violations(problem, Plan(fits, general.height)) if v.code != "MEM011"
            ]
            assert not found, found
            assert_runs_in_place(of, general, sizes, random)
