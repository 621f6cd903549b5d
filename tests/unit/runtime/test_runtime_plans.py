"""Compiled programs in planned memory: small arenas, sizes that change, memory of the caller."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from treadle.index import Symbol
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.memory.from_program import PlanOptions
from treadle.memory.plan_cache import PlanCache
from treadle.memory.plan_program import plan_program
from treadle.runtime import NumpyTensor, compile_program


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def turns(count: int, size: int | Symbol, donated: bool = False) -> Program:
    """Each step reads the one before backwards, so no block is handed over in place."""
    b = ProgramBuilder("turns")
    s = b.size("s", 1, None, hint=8) if size == 0 else size
    last = b.input("x", "f32", [s], donated=donated)
    for k in range(count):
        is_last = k == count - 1
        target = (b.output if is_last else b.buffer)(f"t{k}", "f32" if is_last else "f64", [s])
        with b.loop(f"turn{k}", [s]) as body:
            (i,) = body.vars
            value = body.load(last, s - 1 - i).to("f64") + 1.0
            body.store(target, (i,), value.to("f32") if is_last else value)
        last = target
    return b.build()


def expected(x: np.ndarray, count: int) -> np.ndarray:
    return (x[::-1] if count % 2 else x) + np.float32(count)


def test_the_arena_is_what_the_plan_says() -> None:
    program = turns(7, 100)
    x = np.arange(100, dtype=np.float32)
    planned = plan_program(program, steps=100)
    compiled = compile_program(program, plan=planned.plan, optimise=0)
    result = compiled.run({"x": x}, poison=True)
    np.testing.assert_array_equal(result["t6"], expected(x, 7))
    assert compiled.arena_bytes == planned.arena_bytes
    assert planned.arena_bytes == planned.lower_bound <= 2 * 832


def test_every_size_gets_a_plan_of_its_own() -> None:
    program = turns(6, 0)
    cache = PlanCache(program, options=PlanOptions(pack_into_outputs=True))
    compiled = compile_program(program, plan=cache, optimise=0)
    for n in (3, 100, 3, 41):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(compiled.run({"x": x})["t5"], expected(x, 6))
    assert cache.planned == 3
    assert compiled.arena_bytes == cache({"s": 100}).height


def test_guests_of_a_donated_input_need_not_fit_its_alignment() -> None:
    b = ProgramBuilder("guest")
    x = b.input("x", "f32", [64], donated=True)
    a, t, y = b.buffer("a", "f32", [1]), b.buffer("t", "f64", [16]), b.output("y", "f64", [16])
    with b.loop("fold", [1], reduce=[64]) as body:
        i, r = body.vars
        body.store(a, (i,), body.sum(body.load(x, r)))
    with b.loop("spread", [16]) as body:
        (i,) = body.vars
        body.store(t, (i,), body.load(a, 0).to("f64"))
    with b.loop("back", [16]) as body:
        (i,) = body.vars
        body.store(y, (i,), body.load(t, 15 - i) + 1.0)
    planned = plan_program(b.build(), steps=100)
    assert planned.plan.placements["t"].pool == "x"
    compiled = compile_program(b.build(), plan=planned.plan, optimise=0)
    for shift in (0, 1):
        row = np.ones(70, np.float32)[shift : shift + 64]
        result = compiled.run_on({"x": NumpyTensor(row)})
        np.testing.assert_array_equal(result["y"], np.full(16, 65.0))
