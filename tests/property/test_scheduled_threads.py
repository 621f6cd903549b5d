"""Programs whose nests are shared by threads stay within their bound, and give the same bits.

Random programs are compared with the interpreter: many leave elements of their outputs undefined,
which are rubbish of one kind or another in each run. Those written out here define all of them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from random_bodies import bodies
from small_programs import EXTERNS, inputs_for, size_choices, small_programs
from test_c_programs import reads_what_it_accumulates, shows_bits_of_nan
from test_scheduled_c import SORTED_MOVES, scheduled, stay_within

from treadle.index import Symbol
from treadle.ir.interp.compare import random_inputs
from treadle.ir.loop_schedule import Binding, plan_loops
from treadle.ir.numerics import TORCH
from treadle.ir.program import Nest, Program
from treadle.ir.run_error import RunError
from treadle.ir.text import parse_program, show_program
from treadle.kernel import choose_cpu, row_chunks
from treadle.runtime import compile_program
from treadle.runtime.kernels import Kernels, ThreadTable, thread_table
from treadle.testing.error_bound import derive_bounds, outside

COUNTS = (1, 2, 4)
EXAMPLES = 40


def runtime() -> Any:
    try:
        return ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("there is no OpenMP runtime")


@pytest.fixture(scope="module")
def tables() -> dict[int, ThreadTable]:
    """Tables that ask for so many threads."""
    process = ctypes.c_int64(os.getpid())
    kind = ctypes.CFUNCTYPE(ctypes.c_int)
    return {n: thread_table(runtime(), kind(lambda n=n: n), process) for n in COUNTS}


@pytest.fixture(autouse=True, scope="module")
def everything_is_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The smallest nest is taken to be worth as many threads as there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setattr(choose_cpu, "LEAST_SHARED_NS", 0)
        patch.setattr(choose_cpu, "ACCESS_PS", 10**9)
        patch.setattr(choose_cpu, "SHARED_BLOCK", 8)
        patch.setattr(choose_cpu, "LEAST_LANES", 8)
        patch.setattr(row_chunks, "LEAST_SHARED", 1)
        patch.setattr(row_chunks, "LEAST_CHUNK", 1)
        patch.setattr(row_chunks, "FEWEST_ROWS", 1)
        yield


def is_shared(program: Program) -> bool:
    nests = [leaf for leaf in program.leaves if isinstance(leaf, Nest) and leaf.schedule]
    plans = [plan_loops(n.body, n.schedule) for n in nests]
    return any(a.binding is Binding.THREADS for plan in plans for a in plan.axes)


def stay_within_shared(
    program: Program,
    sizes: dict[Symbol, int],
    inputs: dict[str, Any],
    table: ThreadTable,
    fuses: bool = False,
) -> None:
    built = scheduled(program, fuses)
    if not is_shared(built):
        return
    compiled = compile_program(built, externs=EXTERNS)
    assert isinstance(compiled.kernels, Kernels)
    compiled.kernels.use_threads(table)
    named = {s.name: n for s, n in sizes.items()}
    stated = replace(program, numerics=TORCH)
    bounds = derive_bounds(stated, inputs, sizes=named, externs=EXTERNS)
    result = compiled.run(inputs, sizes=named)
    got = {name: result.read(name) for name in (*program.outputs, *program.inputs)}
    found = outside(bounds, got, undecidable=1.0)
    if found:
        assume(not shows_bits_of_nan(program, inputs, named))
    assert not found, "\n".join([*map(str, found), show_program(built)])


@settings(max_examples=EXAMPLES)
@given(small_programs(moves=SORTED_MOVES))
def test_small_programs(tables: dict[int, ThreadTable], program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    for sizes in size_choices(program):
        stay_within_shared(program, sizes, inputs_for(program, sizes), tables[4], fuses=True)


@settings(max_examples=EXAMPLES)
@given(bodies())
def test_bodies(tables: dict[int, ThreadTable], program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    (s,) = program.sizes
    for count in (1, 5):
        inputs = random_inputs(program, sizes={s.name: count})
        stay_within_shared(program, {s: count}, inputs, tables[4])


def give_the_same(program: Program, inputs: dict[str, Any], tables: dict[int, ThreadTable]) -> bool:
    built = scheduled(program, fuses=False)
    if not is_shared(built):
        return False
    compiled = compile_program(built)
    assert isinstance(compiled.kernels, Kernels)
    found: list[Any] = []
    for table in (None, *tables.values()):
        compiled.kernels.use_threads(table)
        result = compiled.run(inputs)
        found.append([result.read(name).tobytes() for name in program.outputs])
    assert all(one == found[0] for one in found[1:])
    return True


ROWS = """treadle 1
program p
inputs x, k
outputs y, m

buffer x : f32[{rows}, {columns}] on cpu
buffer k : i64[{rows}] on cpu
buffer y : f32[{rows}, {columns}] on cpu
buffer m : f32[{columns}] on cpu

loop rows on cpu for i in {rows} reduce r in {columns} {{
  %0 = load k[i]
  %1 = indirect %0 size {columns} check
  %2 = load x[{columns}*i + %1]
  %3 = load x[{columns}*i + r]
  %4 = sub %3, %2
  %5 = exp %4
  %6 = reduce sum %5
  %7 = truediv %5, %6
  store y[{columns}*i + r] = %7
}}

loop columns on cpu for i in {columns} reduce r in {rows} {{
  %0 = load y[i + {columns}*r]
  %1 = reduce max %0
  store m[i] = %1
}}
"""


@pytest.mark.parametrize(("rows", "columns"), [(1, 7), (3, 33), (64, 100), (301, 17)])
def test_rows_and_columns(tables: dict[int, ThreadTable], rows: int, columns: int) -> None:
    program = parse_program(ROWS.format(rows=rows, columns=columns))
    generator = np.random.default_rng(rows)
    x = generator.standard_normal((rows, columns), dtype=np.float32)
    k = generator.integers(0, columns, rows)
    assert give_the_same(program, {"x": x, "k": k}, tables) == (rows > 1 or columns > 8)


MIXED = """treadle 1
program p
inputs x, g
outputs z, m, n

buffer x : {dtype}[{rows}, 300] on cpu
buffer g : f32[{rows}, 300] on cpu
buffer z : {dtype}[{rows}, 300] on cpu
buffer m : f32[300] on cpu
buffer n : f32[300] on cpu

mixorder both on cpu {{
  loop rows on cpu for i in {rows} reduce r in 300 {{
    %0 = load x[300*i + r]
    %1 = cast f32 %0
    %2 = load g[300*i + r]
    %3 = mul %1, %2
    %4 = reduce sum %3
    %5 = sub %3, %4
    %6 = cast {dtype} %5
    store z[300*i + r] = %6
  }}

  loop columns on cpu for i in 300 reduce r in {rows} {{
    %0 = load x[i + 300*r]
    %1 = cast f32 %0
    %2 = load g[i + 300*r]
    %3 = mul %1, %2
    %4 = reduce {kind} %3
    store m[i] = %4
    %5 = reduce sum %2
    store n[i] = %5
  }}
}}
"""


@pytest.mark.parametrize(
    ("rows", "kind", "chunks"),
    [
        (48, "sum", 8), (64, "max", 8), (32, "prod", 8), (100, "min", 10), (37, "sum", 0),
        (4096, "sum", 8), (4099, "sum", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_rows_and_columns_in_one_walk(
    tables: dict[int, ThreadTable], rows: int, kind: str, chunks: int, dtype: str
) -> None:
    program = parse_program(MIXED.format(rows=rows, kind=kind, dtype=dtype))
    inputs = random_inputs(program)
    nests = [leaf for leaf in scheduled(program, fuses=False).leaves if isinstance(leaf, Nest)]
    found = [n for nest in nests for v, n in nest.body.domain.items() if v.name == "c_rows"]
    assert {n.value for n in found} == ({chunks} if chunks else set())
    give_the_same(program, inputs, tables)
    stay_within_shared(program, {}, inputs, tables[4])
    stay_within(program, {}, inputs)


def test_the_first_failure_is_the_one_that_is_told(tables: dict[int, ThreadTable]) -> None:
    program = parse_program(ROWS.format(rows=64, columns=100))
    k = np.zeros(64, dtype=np.int64)
    k[[9, 40, 63]] = 200, 300, 400
    built = compile_program(scheduled(program, fuses=False))
    assert isinstance(built.kernels, Kernels)
    for table in tables.values():
        built.kernels.use_threads(table)
        with pytest.raises(RunError, match="is 200, outside"):
            built.run({"x": np.zeros((64, 100), dtype=np.float32), "k": k})
