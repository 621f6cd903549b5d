"""Liveness against memory that bites: a program runs in just the bytes the engine grants it.

Promised, and checked here on random programs, in their own order and after random legal moves and
merges, with blocks handed over and internals of kernels left without memory:

    results   the caller sees the same bytes as after a plain run
    curve     what is allocated during and after every step is what the engine says
    lives     no operation touches a storage that is not there
"""

from __future__ import annotations

from random import Random

from focused_programs import relays
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from poisoned_memory import PoisonedRun
from small_operations import LOOP_MOVES
from small_programs import run_small, small_programs
from touched_bytes import Cell, all_cells, cells_of, touched

from treadle.analysis.deps import dependences
from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.analysis.timeline import LifeError
from treadle.index import Symbol
from treadle.ir.program import Loop, Program
from treadle.ir.text import show_program

POLICIES = st.builds(LivenessPolicy, drop_internal=st.booleans(), in_place=st.booleans())


def likely_sizes(program: Program) -> dict[Symbol, int]:
    """The sizes that the engine counts with."""
    return {s: s.hint for s in program.sizes if s.hint is not None}


def seen_cells(program: Program) -> set[Cell]:
    """Bytes the caller can rely on: of outputs and of inputs it kept, where they hold a value."""
    sizes = likely_sizes(program)
    written = {c for n in program.inputs for c in all_cells(program, n, sizes)}
    for op in program.leaves:
        written |= touched(program, op, sizes).certain
    kept = [n for n in program.inputs if n not in program.donated]
    return {c for n in (*program.outputs, *kept) for c in cells_of(program, n, sizes)} & written


def assert_same_results(live: Liveness, random: Random) -> None:
    program = live.program
    sizes = likely_sizes(program)
    plain = run_small(program, sizes)
    poisoned = PoisonedRun(live, sizes, random)
    poisoned.run()
    cells = seen_cells(program)
    for storage in dict.fromkeys(s for s, _ in cells):
        expected = plain._memory.elements(storage).tobytes()
        found = poisoned.cells(storage)
        wrong = [byte for s, byte in cells if s == storage and expected[byte] != found[byte]]
        assert not wrong, f"bytes {sorted(wrong)} of {storage} in {live.order()}\n" + show_program(
            program
        )


def is_legal(live: Liveness, order: list[tuple[str, ...]]) -> bool:
    """Whether every dependence runs forward in an order of steps."""
    deps = live.deps
    place = {name: k for k, name in enumerate(n for step in order for n in step)}
    return all(place[deps.names[s]] < place[deps.names[t]] for s, t in deps.edges)


def move_something(live: Liveness, random: Random) -> None:
    """One random move that the dependences allow."""
    order = live.order()
    if len(order) < 2:
        return
    step, other = random.sample(range(len(order)), 2)
    rest = [cell for k, cell in enumerate(order) if k != step]
    moved = list(rest)
    moved.insert(rest.index(order[other]), order[step])
    if not is_legal(live, moved):
        return
    try:
        live.move_before(order[step][0], order[other][0])
    except LifeError:
        # Legal, but a storage would be used before the operation that is said to allocate it.
        assert live.order() == order
        return
    assert live.order() == moved


def merge_something(live: Liveness, random: Random) -> None:
    """Two random neighbours made one step."""
    order = live.order()
    if len(order) < 2:
        return
    at = random.randrange(len(order) - 1)
    first, second = order[at], order[at + 1]
    loops = all(isinstance(live.program.op_by_name[n], Loop) for n in (*first, *second))
    place = random.choice((first[0], second[0]))
    live.merge(first[0], second[0], at=place, kernel=loops and random.random() < 0.7)
    assert live.order() == [*order[:at], first + second, *order[at + 2 :]]


@settings(max_examples=examples(70))
@given(small_programs(groups=True), POLICIES, st.randoms(use_true_random=False))
def test_a_program_runs_in_the_memory_of_its_own_order(
    program: Program, policy: LivenessPolicy, random: Random
) -> None:
    assert_same_results(Liveness(program, policy), random)


@settings(max_examples=examples(70))
@given(small_programs(groups=True), POLICIES, st.randoms(use_true_random=False))
def test_a_program_runs_in_the_memory_of_any_legal_order(
    program: Program, policy: LivenessPolicy, random: Random
) -> None:
    live = Liveness(program, policy)
    for _ in range(random.randrange(1, 6)):
        random.choice((move_something, move_something, merge_something))(live, random)
    assert_same_results(live, random)


KERNELS = small_programs(moves=("relay", "relay", "relay", *LOOP_MOVES), groups=True)


@settings(max_examples=examples(120))
@given(st.one_of(relays(), relays(), KERNELS), st.randoms(use_true_random=False))
def test_loops_that_take_over_blocks_give_the_same(program: Program, random: Random) -> None:
    live = Liveness(program)
    for _ in range(random.randrange(0, 4)):
        random.choice((move_something, merge_something))(live, random)
    assert_same_results(live, random)
    assert dependences(program) is live.deps
