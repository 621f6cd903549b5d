"""Programs that schedules once got wrong, stated small: they stay within their bound."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_scheduled_c import scheduled, stay_within

from treadle.core.errors import TreadleError
from treadle.core.options import Options
from treadle.ir.interp.compare import random_inputs
from treadle.ir.interp.dtypes import NUMPY_TYPES
from treadle.ir.loop_schedule import Bind, Binding, StageLoad
from treadle.ir.program import Nest, Program
from treadle.ir.text import parse_program
from treadle.runtime import compile_program

HEAD = """treadle 1
program p
inputs {inputs}
outputs {outputs}

{buffers}

"""


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def program_of(inputs: dict[str, str], outputs: dict[str, str], text: str) -> Program:
    buffers = [f"buffer {name} : {t} on cpu" for name, t in (inputs | outputs).items()]
    head = HEAD.format(
        inputs=", ".join(inputs), outputs=", ".join(outputs), buffers="\n".join(buffers)
    )
    return parse_program(head + text)


def nests_of(program: Program) -> list[Nest]:
    built = stay_within(program, {}, random_inputs(program))
    return [leaf for leaf in built.leaves if isinstance(leaf, Nest)]


def test_a_masked_value_has_a_place_for_each_lane() -> None:
    program = program_of(
        {"x": "f32[9, 40]", "c": "bool[40]", "z": "f32[40]"},
        {"y": "f32[40]"},
        """loop body on cpu for i in 40 reduce r in 9 {
  %0 = load c[i]
  %1 = masked %0 else 2.0 {
    %2 = load z[i]
    yield %2
  }
  %3 = load x[i + 40*r]
  %4 = mul %3, %1
  %5 = reduce sum %4
  store y[i] = %5
}
""",
    )
    (nest,) = nests_of(program)
    assert "i'" in " ".join(map(str, nest.schedule)), "lanes were what failed"


def test_nothing_is_looked_up_in_front_of_an_empty_loop() -> None:
    program = program_of(
        {"x": "f32[0]"},
        {"y": "f32[9, 0]"},
        """loop body on cpu for i in 9, j in 0 {
  %0 = load x[0]
  store y[i + j] = %0
}
""",
    )
    nests_of(program)


def kernel(loops: str, body: str) -> str:
    return f"launch k on cpu fused {{\n  nest n on cpu {loops} runs (n) {{\n{body}  }}\n}}\n"


def test_what_one_row_gives_is_there_when_the_last_nest_begins() -> None:
    program = program_of(
        {"x": "f32[20]"},
        {"y": "f32[1]", "z": "f32[5]"},
        kernel(
            "reduce r0 in 5, r1 in 20",
            """    %0 = load x[r1]
    %1 = reduce_part sum %0 over r1
    store y[0] = %1
    %2 = index r0 as i64
    %3 = cast f32 %2
    %4 = add %1, %3
    store z[r0] = %4
""",
        ),
    )
    # The sum has a nest of its own, and vectors; what follows is walked after it.
    assert len(nests_of(program)) == 2


def test_what_happens_once_does_not_happen_for_each_row() -> None:
    program = program_of(
        {"x": "f32[5, 20]", "w": "f32[20]", "acc": "f32[20]"},
        {"y": "f32[5]"},
        kernel(
            "reduce r0 in 5, r1 in 20",
            """    %0 = load x[20*r0 + r1]
    %1 = reduce_part sum %0 over r1
    store y[r0] = %1
    %2 = load w[r1]
    store acc[r1] = %2 mode atomic_add
""",
        ),
    )
    nests_of(program)


def test_rows_read_what_was_stored_before_them() -> None:
    program = program_of(
        {"x": "f32[5, 20]", "w": "f32[1]"},
        {"y": "f32[5]"},
        kernel(
            "reduce r0 in 5, r1 in 20",
            """    %0 = constant 2.0 f32
    store w[0] = %0
    %1 = load w[0]
    %2 = load x[20*r0 + r1]
    %3 = mul %1, %2
    %4 = reduce_part sum %3 over r1
    store y[r0] = %4
""",
        ),
    )
    nests_of(program)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("whole", ["i64", "i32", "u8"])
def test_a_whole_number_has_no_negative_zero(element: str, whole: str) -> None:
    program = program_of(
        {"x": f"{element}[64]"},
        {"y": f"{element}[64]"},
        f"""loop body on cpu for i in 64 {{
  %0 = load x[i]
  %1 = round_to_int {whole} %0
  %2 = cast {element} %1
  %3 = constant 1.0 {element}
  %4 = truediv %3, %2
  store y[i] = %4
}}
""",
    )
    x = np.linspace(-0.45, 0.45, 64).astype({"f32": np.float32, "f64": np.float64}[element])
    compiled = compile_program(scheduled(program, fuses=False))
    assert (compiled.run({"x": x}).read("y") == np.inf).all()


def test_columns_that_are_read_across_are_no_tiles() -> None:
    program = program_of(
        {"x": "f32[49, 16]"},
        {"y": "f32[16, 48]"},
        """loop body on cpu for i in 16, j in 48 reduce r in 2 {
  %0 = load x[i + 16*j + r]
  %1 = reduce sum %0
  store y[48*i + j] = %1
}
""",
    )
    (nest,) = nests_of(program)
    assert not any(isinstance(step, StageLoad) for step in nest.schedule)


def test_a_compiler_that_stumbles_over_vectors_does_without_them(tmp_path: Path) -> None:
    """A compiler that fails whenever it is asked for vectors, as gcc 12 does on some loops."""
    real = shutil.which("cc")
    assert real is not None
    picky = tmp_path / "picky"
    picky.write_text(f'#!/bin/sh\ncase "$*" in *-fopenmp-simd*) exit 1;; esac\nexec {real} "$@"\n')
    picky.chmod(0o755)
    text = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[64] on cpu
buffer y : f32[64] on cpu

launch k on cpu loop {
  nest n on cpu for i in 64 runs (n) schedule (order i, bind i to vector) {
    %0 = load x[i]
    %1 = exp %0
    store y[i] = %1
  }
}
"""
    options = Options(cc=str(picky), cache_dir=str(tmp_path / "cache"))
    compiled = compile_program(parse_program(text), options=options)
    assert compiled.is_compiled
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    assert np.allclose(compiled.run({"x": x})["y"], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("kind", ["f32", "i32", "bf16", "f64"])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (17, 100), (130, 33), (16, 80)])
def test_tiles_are_turned_whatever_their_edges(kind: str, rows: int, columns: int) -> None:
    """Blocks are turned by shuffles; what is left of them at the edges goes one by one."""
    program = program_of(
        {"x": f"{kind}[{columns}, {rows}]", "z": f"{kind}[{rows}, {columns}]"},
        {"y": f"{kind}[{rows}, {columns}]"},
        f"""loop body on cpu for i in {rows}, j in {columns} {{
  %0 = load x[i + {rows}*j]
  %1 = load z[{columns}*i + j]
  %2 = add %0, %1
  store y[{columns}*i + j] = %2
}}
""",
    )
    (nest,) = nests_of(program)
    assert any(isinstance(s, StageLoad) for s in nest.schedule)


@pytest.mark.parametrize("length", [1, 7, 8, 23, 64, 100])
def test_a_choice_between_calls_is_right_at_every_length(length: int) -> None:
    """One side of a choice calls a function on vectors; NaN and infinities go through both."""
    program = program_of(
        {"x": f"f32[3, {length}]"},
        {"y": f"f32[3, {length}]", "s": "f32[3]"},
        f"""loop body on cpu for i in 3 reduce r in {length} {{
  %0 = load x[{length}*i + r]
  %1 = constant 0.0 f32
  %2 = gt %0, %1
  %3 = exp %0
  %4 = tanh %0
  %5 = where %2, %3, %4
  store y[{length}*i + r] = %5
  %6 = sigmoid %0
  %7 = reduce sum %6
  store s[i] = %7
}}
""",
    )
    values = np.linspace(-100, 100, 3 * length, dtype=np.float32).reshape(3, length)
    values.flat[0], values.flat[1], values.flat[2] = np.nan, np.inf, -np.inf
    stay_within(program, {}, {"x": values})


SQUARE = """loop body on cpu for i in {n} reduce r in {n} {{
  %0 = load x[{n}*i + r]
  %1 = load w[r]
  %2 = mul %0, %1
  %3 = reduce sum %2
  %4 = sub %0, %3
  store y[{n}*i + r] = %4
  %5 = load x[i + {n}*r]
  %6 = load v[r]
  %7 = mul %5, %6
  %8 = reduce {kind} %7
  store c[i] = %8
}}
"""


@pytest.mark.parametrize("kind", ["sum", "max", "argmax"])
@pytest.mark.parametrize("n", [1, 9, 40, 100])
def test_rows_and_columns_of_a_square_go_along_rows(kind: str, n: int) -> None:
    """Joined because their loops are alike; columns become sums beside the rows."""
    element = "i64" if kind == "argmax" else "f32"
    program = program_of(
        {"x": f"f32[{n}, {n}]", "w": f"f32[{n}]", "v": f"f32[{n}]"},
        {"y": f"f32[{n}, {n}]", "c": f"{element}[{n}]"},
        SQUARE.format(n=n, kind=kind),
    )
    nests = nests_of(program)
    if kind != "argmax" and n > 1:
        assert len(nests) == 3, "columns begin, are added up beside the rows, and are stored"


def test_a_row_that_data_choose_is_checked_before_its_elements() -> None:
    program = program_of(
        {"x": "bf16[30, 37]", "at": "i64[30]", "y": "bf16[5, 37]"},
        {"z": "bf16[30, 37]"},
        """loop gather on cpu for i in 30, j in 37 {
  %0 = load at[i]
  %1 = indirect %0 size 5 wrap check
  %2 = load y[j + 37*%1]
  store z[37*i + j] = %2
}
loop scatter on cpu for i in 30, j in 37 {
  %0 = load at[i]
  %1 = indirect %0 size 5 wrap check
  %2 = load x[37*i + j]
  store y[j + 37*%1] = %2 mode atomic_add
}
""",
    )
    inputs = random_inputs(program)
    inputs["at"] = np.arange(30) % 10 - 5
    built = stay_within(program, {}, inputs)
    nests = [leaf for leaf in built.leaves if isinstance(leaf, Nest)]
    assert all(Bind("j", Binding.VECTOR) in n.schedule for n in nests)
    inputs["at"][17] = 5
    with pytest.raises(TreadleError, match=r"index %0 is 5, outside -5\.\.5"):
        compile_program(built).run(inputs)


def test_nothing_is_checked_for_rows_without_elements() -> None:
    program = parse_program(
        """treadle 1
program p
inputs x, at
outputs z

size t in 0..100 hint 8

buffer x : f32[5] on cpu
buffer at : i64[4] on cpu
buffer z : f32[4, t] on cpu

loop gather on cpu for i in 4, j in t {
  %0 = load at[i]
  %1 = indirect %0 size 5 check
  %2 = load x[%1]
  store z[t*i + j] = %2
}
"""
    )
    (size,) = program.sizes
    inputs = {"x": np.ones(5, np.float32), "at": np.full(4, 9)}
    built = stay_within(program, {size: 0}, inputs)
    with pytest.raises(TreadleError, match="index %0 is 9"):
        compile_program(built).run(inputs, sizes={"t": 3})


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_the_first_of_equal_extremes_is_found_in_rows_and_columns(kind: str, dtype: str) -> None:
    program = program_of(
        {"x": f"{dtype}[43, 37]"},
        {"rows": "i64[43]", "columns": "i64[37]"},
        f"""loop along on cpu for i in 43 reduce r in 37 {{
  %0 = load x[37*i + r]
  %1 = reduce {kind} %0
  store rows[i] = %1
}}
loop across on cpu for i in 37 reduce r in 43 {{
  %0 = load x[i + 37*r]
  %1 = reduce {kind} %0
  store columns[i] = %1
}}
""",
    )
    random = np.random.default_rng(7)
    x = random.integers(-3, 4, (43, 37)).astype(NUMPY_TYPES[program.by_name["x"].dtype])
    if dtype != "i32":
        x[random.random(x.shape) < 0.2] = -0.0
        x[random.random(x.shape) < 0.02] = np.nan
        x[5], x[:, 6] = -np.inf, np.inf
    built = scheduled(program, fuses=False)
    nests = [leaf for leaf in built.leaves if isinstance(leaf, Nest)]
    assert all(any(isinstance(s, Bind) for s in n.schedule) for n in nests)
    result = compile_program(built).run({"x": x})
    first = getattr(np, kind)
    assert (result["rows"] == first(x.astype(np.float64), 1)).all()
    assert (result["columns"] == first(x.astype(np.float64), 0)).all()


def test_what_a_position_is_found_by_is_rounded_once() -> None:
    """A product and a sum may become one step in one pass and two in the other: they are kept."""
    program = program_of(
        {"x": "f32[40, 515]", "z": "f32[515]"},
        {"y": "i64[40]", "w": "f32[40, 515]"},
        """loop body on cpu for i in 40 reduce r in 515 {
  %0 = load x[515*i + r]
  %1 = load z[r]
  %2 = mul %0, %1
  store w[515*i + r] = %2
  %3 = add %2, %1
  %4 = reduce argmax %3
  store y[i] = %4
}
""",
    )
    built = scheduled(program, fuses=False)
    (nest,) = [leaf for leaf in built.leaves if isinstance(leaf, Nest)]
    assert Bind("r", Binding.VECTOR) in nest.schedule
    compiled = compile_program(built)
    for seed in range(5):
        inputs = random_inputs(program, seed=seed)
        result = compiled.run(inputs)
        values = inputs["x"].astype(np.float64) * inputs["z"] + inputs["z"]
        chosen = np.take_along_axis(values, result["y"][:, None], 1)[:, 0]
        assert (chosen >= values.max(1) - 1e-6 * abs(values).max(1)).all()


@pytest.mark.parametrize("places", ["i8", "i32", "i64"])
def test_what_no_lane_decides_is_chosen_without_a_branch(places: str) -> None:
    """A pool's gradient: rows outside are masked for a whole loop on vectors."""
    program = program_of(
        {"g": "f32[6, 40]", "k": f"{places}[6, 40]"},
        {"y": "f32[13, 40]"},
        """loop body on cpu for i in 13, j in 40 {
  %0 = index ((i + 1) // 2) as i64
  %1 = index 6 as i64
  %2 = lt %0, %1
  %3 = masked %2 else -7.5 {
    %4 = load k[40*((i + 1) // 2) + j]
    %5 = cast i64 %4
    %6 = index i % 3 as i64
    %7 = eq %5, %6
    %8 = load g[40*((i + 1) // 2) + j]
    %9 = constant 0.0 f32
    %10 = where %7, %8, %9
    yield %10
  }
  store y[40*i + j] = %3
}
""",
    )
    built = stay_within(program, {}, random_inputs(program))
    (nest,) = [leaf for leaf in built.leaves if isinstance(leaf, Nest)]
    assert "bind j to vector" in " ".join(map(str, nest.schedule))
    text = compile_program(built, options=Options()).unit.kernels[0].text
    assert "tr_chosen_f32" in text
    assert "if (" not in text
    assert ("((int32_t)v5) == ((int32_t)v6)" in text) == (places != "i64")


def test_a_mask_that_lanes_decide_and_one_on_a_row_too_short_branch() -> None:
    program = program_of(
        {"x": "f32[3, 8]"},
        {"y": "f32[9, 15]"},
        """loop body on cpu for i in 9, j in 15 {
  %0 = index i as i64
  %1 = index 3 as i64
  %2 = lt %0, %1
  %3 = index j as i64
  %4 = index 8 as i64
  %5 = lt %3, %4
  %6 = logical_and %2, %5
  %7 = masked %6 else 0.0 {
    %8 = load x[8*i + j]
    yield %8
  }
  store y[15*i + j] = %7
}
""",
    )
    built = stay_within(program, {}, random_inputs(program))
    text = compile_program(built, options=Options()).unit.kernels[0].text
    assert "if (v6)" in text


@pytest.mark.parametrize("apart", [1, 2])
@pytest.mark.parametrize("shifted", [False, True])
def test_f16_that_is_rounded_where_it_is_encoded_is_rounded_as_ever(
    shifted: bool, apart: int
) -> None:
    used = "\n  %2 = cast f32 %1\n  store z[i] = %2" if shifted else ""
    program = program_of(
        {"x": "f32[4099]"},
        {"y": f"f16[{4099 * apart}]", **({"z": "f32[4099]"} if shifted else {})},
        f"""loop body on cpu for i in 4099 {{
  %0 = load x[i]
  %1 = cast f16 %0
  store y[{apart}*i] = %1{used}
}}
""",
    )
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32)
    bits[:64] = np.arange(0x477FEFE0, 0x477FF020)  # around the largest
    bits[64:128] = np.arange(0x32FFFFE0, 0x33000020)  # around half of the smallest
    bits[128:192] = np.arange(0x387FDFF0, 0x387FDFF0 + 64)
    x = bits.view(np.float32)
    compiled = compile_program(scheduled(program, fuses=False), optimise=2)
    found = compiled.run({"x": x}).read("y").view(np.uint16)[::apart]
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16)
    is_nan = np.isnan(wanted)
    assert (np.isnan(found.view(np.float16)) == is_nan).all()
    assert (found == wanted.view(np.uint16))[~is_nan].all()
    text = compiled.unit.kernels[0].text
    # One after the other they go through a tile; with gaps they are encoded one by one.
    way = "_l] = v0;" if apart == 1 else "tr_encode_f16_on_vectors(v0)"
    assert way in text
    assert ("tr_narrow_f16(" in text) == (apart == 1)


@pytest.mark.parametrize("columns, apart, goes", [(8, 1, False), (40, 2, False), (40, 1, True)])
def test_short_rows_of_f16_and_those_with_gaps_go_through_no_tile(
    columns: int, apart: int, goes: bool
) -> None:
    program = program_of(
        {"x": "f16[16, 160]"},
        {"y": f"f32[16, 2, {columns}]"},
        f"""loop body on cpu for i in 16, j in 2, k in {columns} {{
  %0 = load x[160*i + 80*j + {apart}*k]
  %1 = cast f32 %0
  store y[{2 * columns}*i + {columns}*j + k] = %1
}}
""",
    )
    (nest,) = nests_of(program)
    assert ("stage" in " ".join(map(str, nest.schedule))) is goes


@pytest.mark.parametrize("shift", [-7, -1, 3, 100])
def test_a_loop_that_wraps_at_an_open_size_wraps_where_it_should(shift: int) -> None:
    program = parse_program(
        f"""treadle 1
program p
inputs x
outputs y

size s in 1.. hint 64

buffer x : f32[3, s] on cpu
buffer y : f32[3, s] on cpu

loop roll on cpu for i in 3, j in s {{
  %0 = load x[i*s + ((j + {shift}) % s)]
  %1 = load x[i*s + j]
  %2 = sub %0, %1
  store y[i*s + j] = %2
}}
""".replace("+ -", "- ")
    )
    (size,) = program.sizes
    built = scheduled(program, fuses=False)
    compiled = compile_program(built, optimise=2)
    assert "tr_wrapped(" in compiled.unit.kernels[0].text
    for n in (1, 2, 6, 7, 8, 65):
        x = np.random.default_rng(n).standard_normal((3, n), dtype=np.float32)
        stay_within(program, {size: n}, {"x": x})
        found = compiled.run({"x": x}, sizes={"s": n}).read("y")
        np.testing.assert_array_equal(found, np.roll(x, -shift, 1) - x)
