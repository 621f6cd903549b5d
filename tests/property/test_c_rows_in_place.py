"""Kernels over rows that store several results, fused and placed in one another's memory, agree.

What goes over a row more than once reads its inputs again: a result must not stand there by then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_c_programs import EXAMPLES, agree_in_shared_memory

from treadle.analysis.cost import cost_model
from treadle.analysis.inplace import in_place_pairs
from treadle.analysis.one_walk import is_walked_once
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.program import Nest, Program
from treadle.ir.text import show_program
from treadle.ir.types import Buffer
from treadle.kernel.stages import plan_nests
from treadle.schedule.passes import KERNELS, PIPELINE
from treadle.schedule.pipeline import run_pipeline

ROWS, COLUMNS = 3, 5


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def loaded(rng: random.Random, k: BodyBuilder, made: list[Buffer]) -> Value:
    """The sum of one or two earlier results at this point."""
    values = []
    for source in rng.sample(made, min(len(made), rng.choice((1, 1, 2)))):
        at = k.vars if len(source.layout.sizes) == 2 else k.vars[:1]
        values.append(k.load(source, *at))
    return values[0] if len(values) == 1 else values[0] + values[1]


def kernel(rng: random.Random, b: ProgramBuilder, number: int, made: list[Buffer]) -> list[Buffer]:
    """One loop over elements, over rows, or over rows with a sum, that stores up to three times."""
    kind = rng.choice(("elements", "row", "sum", "sum", "sum"))
    stored: list[Buffer] = []

    def store(k: BodyBuilder, per_row: bool, value: Value) -> None:
        name, sizes = f"t{number}_{len(stored)}", [ROWS] if per_row else [ROWS, COLUMNS]
        make = b.output if rng.random() < 0.15 else b.buffer
        target = make(name, "f32", sizes)
        k.store(target, k.vars[:1] if per_row else k.vars, value)
        stored.append(target)

    rows = [m for m in made if len(m.layout.sizes) == 1]
    if kind == "row" and rows:
        with b.loop(f"k{number}", [ROWS]) as k:
            store(k, True, loaded(rng, k, rows) * 0.5)
    elif kind == "elements" or not made:
        with b.loop(f"k{number}", [ROWS, COLUMNS]) as k:
            store(k, False, loaded(rng, k, made) * 0.5)
    else:
        with b.loop(f"k{number}", [ROWS], reduce=[COLUMNS]) as k:
            value = loaded(rng, k, made)
            if rng.random() < 0.5:
                store(k, False, value * 2.0)
            total = k.sum(value)
            for _ in range(rng.randint(1, 3)):
                way = rng.choice(("value", "both", "total"))
                found = {"value": value * 2.0, "both": value - total, "total": total}[way]
                store(k, way == "total", found)
    return stored


def rows(seed: int) -> Program:
    """A few such kernels in a row over one donated input."""
    rng = random.Random(seed)
    b = ProgramBuilder("rows")
    made = [b.input("x", "f32", [ROWS, COLUMNS], donated=True)]
    for number in range(rng.randint(2, 6)):
        made += kernel(rng, b, number, made[-4:])
    b.returns(made[-1])
    return b.build()


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**20))
def test_fused_rows_agree_in_shared_memory(seed: int) -> None:
    program, options = rows(seed), Options(check=2)
    ctx = Ctx(options, cost_model(program, options), Journal(enabled=False))
    scheduled = run_pipeline(program, ctx, PIPELINE)
    agree_in_shared_memory(scheduled)
    agree_in_shared_memory(run_pipeline(scheduled, ctx, KERNELS))
    agree_in_shared_memory(program)


def test_these_programs_do_hand_memory_over() -> None:
    assert sum(bool(in_place_pairs(rows(seed))) for seed in range(60)) > 20


def nests(seed: int) -> Iterator[tuple[Program, Nest]]:
    """The nests of the kernels that such a program becomes."""
    program, options = rows(seed), Options()
    ctx = Ctx(options, cost_model(program, options), Journal(enabled=False))
    made = run_pipeline(run_pipeline(program, ctx, PIPELINE), ctx, KERNELS)
    yield from [(made, leaf) for op in made.ops for leaf in op.leaves if isinstance(leaf, Nest)]


def test_what_is_said_to_be_walked_once_has_one_pass() -> None:
    once, again = 0, 0
    for seed in range(150):
        for program, nest in nests(seed):
            if not len(nest.body.reduce) or not is_walked_once(nest.body):
                again += bool(len(nest.body.reduce))
                continue
            once += 1
            for in_any_order in (False, True):
                plan = plan_nests(nest.body, program.storage_of, in_any_order=in_any_order)
                assert len(plan.passes) <= 1, show_program(program)
    assert once > 20
    assert again > 20
