"""A fused kernel may run its points in any order: here it does, on random programs.

Every kernel that fusion makes is cut into points. For each outer point, in a shuffled order, the
members run at that point only: a reduction over all its steps, a pointwise loop at every step or
once, as its space says. What the caller sees must be what the program computed before fusion.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from focused_programs import relays
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from poisoned_memory import one_point_loops
from small_operations import LOOP_MOVES
from small_programs import run_small, seen_by_caller, size_choices, small_programs, ungrouped

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.index import Symbol, evaluate
from treadle.ir.program import Fused, Loop, Operation, Program
from treadle.schedule.choose import Search
from treadle.schedule.policy import POLICIES, Policy
from treadle.testing.costs import MACHINES

EAGER = replace(POLICIES["balanced"], name="eager", peak_factor=None)


def fused(program: Program, policy: Policy) -> Program:
    """The program with the kernels that the policy makes."""
    found = Search(program, Ctx(Options(), MACHINES, Journal(enabled=False)), policy).run()
    ops: list[Operation] = []
    for members in found.kernels:
        parts = tuple(found.ops[m] for m in members)
        name = "_".join(p.name for p in parts)
        ops.append(parts[0] if len(parts) == 1 else Fused(name=name, members=parts))
    return replace(program, ops=tuple(ops))


def by_points(program: Program, sizes: Mapping[Symbol, int], seed: int) -> Program:
    """The program with every fused kernel cut into points, in a shuffled order."""
    rng = random.Random(seed)
    ops: list[Operation] = []
    for op in program.ops:
        if isinstance(op, Fused):
            ops.extend(_points(op, sizes, rng))
        else:
            ops.append(op)
    return replace(program, ops=tuple(ops))


def _points(kernel: Fused, sizes: Mapping[Symbol, int], rng: random.Random) -> Iterator[Operation]:
    loops = [m for m in kernel.members if isinstance(m, Loop)]
    assert len(loops) == len(kernel.members)
    reducing = [m for m in loops if len(m.body.reduce)]
    outer = min(evaluate(m.body.domain.numel, sizes) for m in reducing or loops)
    cut = {m.name: list(one_point_loops(m, sizes)) for m in loops}
    order = list(range(outer))
    rng.shuffle(order)
    for x in order:
        for m in loops:
            points = cut[m.name]
            share = len(points) // outer
            assert share * outer == len(points), "a member does not fit the space of its kernel"
            inner = list(range(x * share, (x + 1) * share))
            if not len(reducing) > 1:
                rng.shuffle(inner)
            for k in inner:
                yield replace(points[k], name=f"{m.name}_{k}")


def assert_points_agree(program: Program, policy: Policy, seed: int) -> int:
    after = fused(program, policy)
    for sizes in size_choices(program):
        expected = seen_by_caller(program, run_small(program, sizes))
        assert seen_by_caller(after, run_small(after, sizes)) == expected
        exploded = by_points(after, sizes, seed)
        assert seen_by_caller(exploded, run_small(exploded, sizes)) == expected
    return sum(isinstance(op, Fused) for op in after.ops)


def _orders_points(program: Program) -> bool:
    """Whether a body's own points must keep their order: scatters that hit an element twice."""
    for op in program.leaves:
        if isinstance(op, Loop):
            for _, index, mode, _ in op.body.stores():
                if mode != "plain" or any(s.kind.name == "INDIRECT" for s in index.free):
                    return True
    return False


@pytest.mark.parametrize("policy", [EAGER, POLICIES["balanced"]], ids=lambda p: p.name)
@settings(max_examples=examples(80))
@given(small_programs(moves=LOOP_MOVES), st.integers(0, 1000))
def test_small_programs_by_points(policy: Policy, program: Program, seed: int) -> None:
    program = ungrouped(program)
    if not _orders_points(program):
        assert_points_agree(program, policy, seed)


@settings(max_examples=examples(80))
@given(relays(), st.integers(0, 1000))
def test_relays_by_points(program: Program, seed: int) -> None:
    program = ungrouped(program)
    if not _orders_points(program):
        assert_points_agree(program, EAGER, seed)
