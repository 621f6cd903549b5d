"""Loops on whole vectors: the same results on every kind of machine, and only where they can be."""

from __future__ import annotations

import platform
import re
import shutil

import ml_dtypes
import numpy as np
import pytest

from treadle.analysis.cost import Roofline
from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.held_lanes import hold_lanes
from treadle.codegen.c.lines import read_line
from treadle.codegen.c.narrow_values import numbers_within
from treadle.codegen.c.whole_vectors import VectorLoop, types_within, write_whole
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

NUMERICS = "numerics blocked 512, functions 6 ulp, as result, contract, reassociate"
MACHINES = ("", "-mno-avx512f", "-mno-avx2")
"""Flags that leave vectors of 16 floats where there are any, of 8, and none written by us."""

machines = pytest.mark.parametrize("machine", MACHINES)
needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None or platform.machine() not in ("x86_64", "AMD64"),
    reason="needs gcc on a machine with vectors",
)


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def run(text: str, machine: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """What scheduled code on such a machine gives."""
    program = parse_program(text)
    options = Options(check=2, cc=f"gcc {machine}".strip())
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, options=options, optimise=2)
    assert compiled.is_compiled
    assert "#ifdef TR_WHOLE" in compiled.unit.text
    found = compiled.run(inputs)
    return {name: found.read(name) for name in program.outputs}


REDUCTIONS = """treadle 1
program p
inputs x
outputs s, p, m, n
{numerics}

buffer x : f32[5, {n}] on cpu
buffer s : f32[5] on cpu
buffer p : f32[5] on cpu
buffer m : f32[5] on cpu
buffer n : f32[5] on cpu

loop all on cpu for i in 5 reduce r in {n} {{
  %0 = load x[{n}*i + r]
  %1 = reduce sum %0
  %2 = reduce prod %0
  %3 = reduce max %0
  %4 = reduce min %0
  store s[i] = %1
  store p[i] = %2
  store m[i] = %3
  store n[i] = %4
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [16, 17, 31, 64, 65, 100, 127, 131, 256])
def test_rows_of_any_length_are_reduced(machine: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x = (1 + 0.01 * rng.standard_normal((5, n))).astype(np.float32)
    x[1, -1], x[2, 0], x[3, n // 2] = np.nan, -np.inf, np.inf
    found = run(REDUCTIONS.format(n=n, numerics=NUMERICS), machine, x=x)
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found["s"], wide.sum(1), rtol=1e-6)
        np.testing.assert_allclose(found["p"], wide.prod(1), rtol=1e-4)
        np.testing.assert_array_equal(found["m"], x.max(1))
        np.testing.assert_array_equal(found["n"], x.min(1))


COUNTS = """treadle 1
program p
inputs x
outputs s, c
{numerics}

buffer x : f32[5, {n}] on cpu
buffer s : f32[5] on cpu
buffer c : i64[5] on cpu

loop all on cpu for i in 5 reduce r in {n} {{
  %0 = load x[{n}*i + r]
  %1 = constant 0.0 f32
  %2 = gt %0, %1
  %3 = where %2, %0, %1
  %4 = reduce sum %3
  %5 = cast i64 %2
  %6 = reduce sum %5
  store s[i] = %4
  store c[i] = %6
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [16, 17, 31, 100, 127, 4096, 9001])
def test_conditions_are_counted_beside_a_sum(machine: str, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((5, n)).astype(np.float32)
    x[1], x[2], x[3, -1] = 1.0, -1.0, np.nan
    found = run(COUNTS.format(n=n, numerics=NUMERICS), machine, x=x)
    np.testing.assert_array_equal(found["c"], (x > 0).sum(1))
    np.testing.assert_allclose(found["s"], np.where(x > 0, x, 0).sum(1, np.float64), rtol=1e-6)


CHAIN = """treadle 1
program p
inputs x
outputs y, f
{numerics}

buffer x : {given}[{n}] on cpu
buffer y : {to}[{n}] on cpu
buffer f : bool[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast f32 %0
  %2 = abs %1
  %3 = cast {to} %2
  %4 = cast f32 %3
  %5 = gt %1, %4
  %6 = eq %1, %4
  %7 = logical_or %5, %6
  %8 = neg %4
  %9 = where %7, %4, %8
  %10 = cast {to} %9
  store y[i] = %10
  store f[i] = %7
}}
"""
NARROW = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


@needs_compiler
@machines
@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("rest", [0, 5])
def test_narrow_floats_are_rounded_once_and_nans_stay(machine: str, narrow: str, rest: int) -> None:
    dtype = NARROW[narrow]
    codes = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 50_000, dtype=np.uint32).view(np.float32)
    ties = (codes.view(np.uint32) | 0x8000).view(np.float32)
    special = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFFBFFFFF], np.uint32)
    x = np.concatenate([codes, ties, bits, special.view(np.float32)])
    x = x[: len(x) // 16 * 16 - (16 - rest if rest else 0)]
    text = CHAIN.format(n=len(x), given="f32", to=narrow, numerics=NUMERICS)
    found = run(text, machine, x=x)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(x).astype(dtype).astype(np.float32)
        flag = (x > size) | (x == size)
        wanted = np.where(flag, size, -size)
    np.testing.assert_array_equal(found["f"], flag)
    same = found["y"].astype(np.float32)
    np.testing.assert_array_equal(same, wanted)
    assert (np.signbit(same) == np.signbit(wanted))[~np.isnan(wanted)].all()


@needs_compiler
@machines
@pytest.mark.parametrize("n", [7, 16, 45])
def test_narrow_floats_go_in_and_out_at_any_length(machine: str, n: int) -> None:
    for narrow, dtype in NARROW.items():
        x = np.random.default_rng(n).standard_normal(n).astype(dtype)
        found = run(CHAIN.format(n=n, given=narrow, to=narrow, numerics=NUMERICS), machine, x=x)
        wide = x.astype(np.float32)
        np.testing.assert_array_equal(
            found["y"].astype(np.float32), np.where(wide >= 0, wide, wide)
        )
        np.testing.assert_array_equal(found["f"], wide >= 0)


# ------------------------------------------------------------------------------- which loops


def loop_of(
    *lines: str, extent: int | None = 64, **reductions: str
) -> tuple[VectorLoop, CodeBlock]:
    top = CodeBlock()
    top.add("float *const p0 = (float *)a0;", "uint16_t *const p1 = (uint16_t *)a1;")
    top.add("double *const p2 = (double *)a2;", "const float v90 = p0[0];", "float a1 = 0;")
    top.add("double a2 = 0;", "#pragma omp simd")
    block = top.open("for (int64_t r0 = 0; r0 < n1; ++r0)")
    block.add(*lines)
    return VectorLoop(top, block, reductions, extent), top


def written(*lines: str, extent: int | None = 64, **reductions: str) -> str:
    """The text of a loop on whole vectors; nothing if it stays as it is."""
    loop, top = loop_of(*lines, extent=extent, **reductions)
    is_whole = write_whole(loop, types_within(top))
    text = "\n".join(top.lines())
    assert is_whole == ("#ifdef TR_WHOLE" in text)
    return text.split("#else")[0].split("#ifdef TR_WHOLE")[1] if is_whole else ""


ADDED = ("const float v0 = p0[(64 * i0 + r0)];", "a1 += v0;")


def test_a_sum_has_several_parts() -> None:
    text = written(*ADDED, a1="+")
    assert "tr_w a1_w[4] = {[0 ... 3] = tr_w_all(0.0f)};" in text
    assert "a1 += tr_w_sum(a1_w[0] + a1_w[1] + a1_w[2] + a1_w[3]);" in text
    assert "tr_w_load(p0 + (64 * i0 + r0))" in text
    assert "_some(" not in text, "64 leaves nothing over"


def test_functions_take_fewer_parts() -> None:
    text = written(ADDED[0], "const float v1 = tr_vector_exp(v0);", "a1 += v1;", a1="+")
    assert "a1_w[2]" in text
    assert "TR_LANES_OF(exp)(v0)" in text


@pytest.mark.parametrize("extent", [None, 50])
def test_what_is_left_over_is_a_part_of_a_vector(extent: int | None) -> None:
    text = written(*ADDED, extent=extent, a1="+")
    assert "tr_w_load_some(r0_n, p0 + (64 * i0 + r0))" in text
    assert "a1_w[0] = tr_w_where(r0_m, v0 + a1_w[0], a1_w[0]);" in text


def test_what_is_the_same_for_all_is_a_number() -> None:
    text = written("const float v1 = tr_vector_exp(p0[r0]) * v90;", "p0[r0] = (v1);")
    assert "(TR_LANES_OF(exp)(tr_w_load(p0 + r0)) * v90)" in text
    assert "tr_w_store(p0 + r0, v1);" in text


@pytest.mark.parametrize(
    "lines",
    [
        ("const float v0 = p0[(3 * r0)];", "a1 += v0;"),
        ("const float v0 = p0[(64 - r0)];", "a1 += v0;"),
        ("const float v0 = p0[(r0 / 2)];", "a1 += v0;"),
        ("const int64_t v7 = p3[r0];", "const float v0 = p0[v7];", "a1 += v0;"),
        ("const double v0 = p2[r0];", "a1 += v0;"),
        ("const float v0 = (float)(r0);", "a1 += v0;"),
        ("const float v0 = p0[r0];", "p0[0] = (v0);", "a1 += v0;"),
        ("const float v0 = tr_floordiv_f32(p0[r0], v90);", "a1 += v0;"),
        ("const float v0 = unknown;", "a1 += v0;"),
        ("const float v0 = p0[r0];", "a1 = v0;"),
        ("const float v0 = p0[r0];", "a1 -= v0;"),
        ("const float v0 = p0[r0];", "a1 = v0 > a1 ? v0 : a1;"),
        ("const float v0 = p0[r0];", "a1 += a1;"),
        ("if (v90) p0[r0] = 0;", "a1 += v90;"),
    ],
)
def test_should_not_touch_a_loop_with_anything_else_in_it(lines: tuple[str, ...]) -> None:
    assert written(*lines, a1="+") == ""


def test_should_not_touch_sums_of_doubles() -> None:
    assert written("const float v0 = p0[r0];", "a2 += v0;", a2="+") == ""


def test_should_not_touch_what_a_compiler_does_as_well() -> None:
    assert written("const float v0 = p0[r0] * v90;", "p0[r0] = (v0);") == ""


def test_conditions_that_are_stored_go_on_whole_vectors() -> None:
    top = CodeBlock()
    top.add("float *const p0 = (float *)a0;", "uint8_t *const p1 = (uint8_t *)a1;")
    top.add("#pragma omp simd")
    block = top.open("for (int64_t r0 = 0; r0 < 16; ++r0)")
    block.add("const float v0 = p0[r0];", "const uint8_t v1 = (uint8_t)(v0 > 0);", "p1[r0] = (v1);")
    assert write_whole(VectorLoop(top, block, {}, 16), types_within(top))
    assert "tr_w_store_flags(p1 + r0, v1);" in "\n".join(top.lines())


@pytest.mark.parametrize("text", ["goto done;", "if (x) {", "v0 ? a : b;", "const float v0 = ;"])
def test_should_not_read_other_lines(text: str) -> None:
    assert read_line(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "const uint8_t v3 = (uint8_t)(v1 != 0 || !v2);",
        "a1 = a1_x > a1 ? a1_x : a1;",
        "p0[(64 * i0 + r0)] = tr_encode_bf16((v0));",
        "const float v1 = (float)-0x1.8p-3;",
    ],
)
def test_reads_the_lines_of_generated_loops(text: str) -> None:
    line = read_line(text)
    assert line is not None
    names = set(re.findall(r"\b(?:v|a|i|r)\d+(?:_x)?\b", text))
    assert all(f"'{name}'" in repr(line) or name in repr(line) for name in names)


CAUSAL = """treadle 1
program p
inputs x
outputs y
{numerics}

buffer x : f32[9, {n}] on cpu
buffer y : f32[9, {n}] on cpu

loop y_ on cpu for i in 9 reduce r in {n} {{
  %0 = load x[{n}*i + r]
  %1 = index r as i64
  %2 = index 5*i as i64
  %3 = le %1, %2
  %4 = constant -inf f32
  %5 = where %3, %0, %4
  %6 = exp %5
  %7 = reduce sum %6
  %8 = truediv %6, %7
  %9 = log1p %8
  %10 = constant 1.5 f32
  %11 = pow %9, %10
  store y[{n}*i + r] = %11
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [32, 41])
def test_places_are_compared_and_functions_of_the_library_called(machine: str, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((9, n)).astype(np.float32)
    found = run(CAUSAL.format(n=n, numerics=NUMERICS), machine, x=x)["y"]
    seen = np.where(np.arange(n) <= 5 * np.arange(9)[:, None], np.exp(x.astype(np.float64)), 0)
    wanted = np.log1p(seen / seen.sum(1, keepdims=True)) ** 1.5
    np.testing.assert_allclose(found, wanted, rtol=3e-5)


def test_a_comparison_of_places_is_one_of_32_bits() -> None:
    text = written(
        "const int64_t v3 = (2 * r0 + 5);",
        "const uint8_t v4 = (uint8_t)(((int32_t)v3) <= ((int32_t)n1));",
        "p0[r0] = (v4 ? tr_vector_exp(p0[r0]) : v90);",
    )
    assert "(tr_wi)(tr_w_places(((int32_t)v3), 2) <= ((int32_t)n1))" in text


def test_should_not_compare_places_of_64_bits() -> None:
    assert written("const uint8_t v4 = (uint8_t)(r0 <= n1);", "p0[r0] = (v4 ? v90 : v90);") == ""


BYTES = """treadle 1
program p
inputs x, u, w
outputs y, z, b
{numerics}

buffer x : f32[5, {n}] on cpu
buffer u : u8[5] on cpu
buffer w : u8[5] on cpu
buffer y : f32[5, {n}] on cpu
buffer z : u8[5, {n}] on cpu
buffer b : bool[5, {n}] on cpu

loop y_ on cpu for i in 5, j in {n} {{
  %0 = load x[{n}*i + j]
  %1 = exp %0
  %2 = load u[i]
  %3 = load w[i]
  %4 = cast bool %2
  %5 = cast bool %3
  %6 = bitwise_and %4, %5
  %7 = where %4, %1, %0
  store y[{n}*i + j] = %7
  {bytes}store z[{n}*i + j] = %2
  store b[{n}*i + j] = %6
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [32, 41])
@pytest.mark.parametrize("bytes_", ["", "# "])
def test_bytes_that_all_lanes_share_are_no_conditions(machine: str, n: int, bytes_: str) -> None:
    x = np.random.default_rng(n).standard_normal((5, n)).astype(np.float32)
    u, w = np.array([0, 1, 2, 7, 255], np.uint8), np.array([1, 1, 1, 8, 0], np.uint8)
    text = BYTES.format(n=n, numerics=NUMERICS, bytes=bytes_)
    if bytes_:
        text = "\n".join(
            line.replace("outputs y, z, b", "outputs y, b")
            for line in text.splitlines()
            if not line.startswith(("buffer z", "  #"))
        )
    program = parse_program(text)
    options = Options(check=2, cc=f"gcc {machine}".strip())
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, options=options, optimise=2)
    found = compiled.run({"x": x, "u": u, "w": w})
    rows = u[:, None] != 0
    np.testing.assert_allclose(found.read("y"), np.where(rows, np.exp(x), x), rtol=1e-6)
    both = np.broadcast_to(rows & (w[:, None] != 0), (5, n))
    np.testing.assert_array_equal(found.read("b"), both)
    if not bytes_:
        np.testing.assert_array_equal(found.read("z"), np.broadcast_to(u[:, None], (5, n)))


def test_should_not_store_a_shared_byte_as_a_condition() -> None:
    top = CodeBlock()
    top.add("float *const p0 = (float *)a0;", "uint8_t *const p1 = (uint8_t *)a1;")
    top.add("const uint8_t v8 = p1[0];", "const uint8_t v9 = (uint8_t)(v8 != 0);")
    types = types_within(top)
    assert (types["v8"], types["v9"]) == ("uint8_t", "condition")

    def is_whole(stored: str) -> bool:
        around = top.open("{")
        around.add("#pragma omp simd")
        block = around.open("for (int64_t r0 = 0; r0 < n1; ++r0)")
        block.add("p0[r0] = (tr_vector_exp(p0[r0]));", f"p1[r0] = ({stored});")
        return write_whole(VectorLoop(around, block, {}, None), types)

    assert is_whole("v9")
    assert not is_whole("v8")
    assert not is_whole("p1[3]")
    assert not is_whole("v8 & v9")
    assert is_whole("v8 && v9")


MIDDLE = """treadle 1
program p
inputs x, w
outputs y
{numerics}

buffer x : f32[3, 37, {n}] on cpu
buffer w : f32[3, 37] on cpu
buffer y : f32[3, {n}] on cpu

loop y_ on cpu for i in 3, j in {n} reduce r in 37 {{
  %0 = load x[37*{n}*i + {n}*r + j]
  %1 = load w[37*i + r]
  %2 = mul %0, %1
  %3 = reduce sum %2
  store y[{n}*i + j] = %3
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [16, 64, 128, 192])
def test_sums_over_the_middle_are_held_in_vectors(machine: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, 37, n)).astype(np.float32)
    w = rng.standard_normal((3, 37)).astype(np.float32)
    program = parse_program(MIDDLE.format(n=n, numerics=NUMERICS))
    options = Options(check=2, cc=f"gcc {machine}".strip())
    built = run_pipeline(program, Ctx(options, Roofline(program), Journal()), KERNELS)
    compiled = compile_program(built, options=options, optimise=2)
    assert ("which hold the sums" in compiled.unit.text) == (n <= 128)
    found = compiled.run({"x": x, "w": w}).read("y")
    wanted = (x.astype(np.float64) * w[:, :, None]).sum(1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def held(*lines: str, extent: int = 64, before: tuple[str, ...] = ()) -> str:
    """The text around a loop over lanes; nothing if its sums stay in memory."""
    top = CodeBlock()
    top.add("float *const p0 = (float *)a0;", "float a1[64];", "double a2[64];")
    around = top.open("for (int64_t r0 = 0; r0 < n1; ++r0)")
    around.add("const float v9 = p0[r0];", *before, "#pragma omp simd")
    block = around.open(f"for (int64_t i0_l = 0; i0_l < {extent}; ++i0_l)")
    block.add(*lines)
    loop = VectorLoop(around, block, {}, extent, top)
    is_held = hold_lanes(loop, types_within(top))
    text = "\n".join(top.lines())
    assert is_held == ("which hold the sums" in text)
    return text if is_held else ""


def test_sums_of_lanes_are_loaded_once_and_stored_once() -> None:
    text = held("const float v0 = p0[(64 * r0 + i0_l)] * v9;", "a1[i0_l] += v0;").split("#else")[0]
    assert text.count("tr_w_load(a1 + k * TR_W)") == 1
    assert text.count("tr_w_store(a1 + k * TR_W, a1_h[k]);") == 1
    assert "a1_h[k] = v0 + a1_h[k];" in text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("a2[i0_l] += p0[i0_l];",), {}),  # doubles
        (("a1[(i0_l + 1)] += p0[i0_l];",), {}),  # another place
        (("a1[i0_l] += p0[i0_l];", "const float v1 = a1[i0_l];"), {}),  # read besides
        (("a1[i0_l] += p0[i0_l];",), {"extent": 40}),
        (("a1[i0_l] += p0[i0_l];",), {"extent": 256}),
        (("a1[i0_l] += p0[i0_l];",), {"before": ("const float v8 = a1[0];",)}),
        (("p0[i0_l] = (v9);",), {}),
    ],
)
def test_should_not_hold_what_is_needed_in_memory(
    lines: tuple[str, ...], said: dict[str, object]
) -> None:
    assert held(*lines, **said) == ""  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- narrow floats


NARROW_LINES = (
    "const float v0 = tr_decode_bf16(p1[r0]);",
    "const float v1 = tr_decode_bf16(p1[(r0 + 64)]);",
)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        ("fabsf(v0)", "tr_w_abs(v0)"),
        ("-v0", "(-v0)"),
        ("tr_maximum_f32(v0, v91)", "tr_w_at_least_nonzero(v0, tr_w_all(v91))"),
        ("v0 < v1 ? v0 : v1", "tr_w_where((tr_wi)(v0 < v1), v0, v1)"),
        ("v0 * v91", "tr_w_apart((v0 * v91))"),  # 2: not rounded with a sum only
        ("-fabsf(v0 * v91)", "tr_w_apart((-tr_w_abs((v0 * v91))))"),
        ("-tr_round_bf16(v0 * v92)", "(-tr_w_round_mild_bf16((v0 * v92)))"),
        ("v0 * v92", "tr_w_round_mild_bf16((v0 * v92))"),  # 3
        ("v0 * v93", "tr_w_round_mild_bf16((v0 * v93))"),  # 1/2: a subnormal loses its last bit
        ("v0 + v1", "tr_w_round_mild_bf16((v0 + v1))"),
        ("v0 / v92 - sqrtf(v1)", "tr_w_round_mild_bf16(((v0 / v92) - tr_w_sqrt(v1)))"),
        (
            "tr_maximum_f32(v0, v94)",
            "tr_w_round_mild_bf16(tr_w_at_least_nonzero(v0, tr_w_all(v94)))",
        ),
        ("v0 + v90", "tr_w_round_bf16((v0 + v90))"),  # maybe a NaN with a lower half
        ("v0 + p0[r0]", "tr_w_round_bf16((v0 + tr_w_load(p0 + r0)))"),
        ("tr_vector_exp(v0)", "tr_w_round_bf16(TR_LANES_OF(exp)(v0))"),
    ],
)
def test_bf16_is_rounded_as_far_as_it_needs_to_be(value: str, rounded: str) -> None:
    outside = (
        "const float v91 = (float)0x1.0000000000000p+1;",
        "const float v92 = (float)0x1.8000000000000p+1;",
        "const float v93 = (float)0x1.0000000000000p-1;",
        "const float v94 = (float)0x1.0101010101010p+0;",
    )
    line = f"const float v2 = tr_round_bf16({value});"
    stored = "p1[r0] = tr_encode_bf16((v2));"
    loop, top = loop_of(*NARROW_LINES, line, stored, extent=16)
    top.head += outside
    assert write_whole(loop, types_within(top), numbers_within(top))
    assert f"const tr_w v2 = {rounded};" in "\n".join(top.lines())


def test_should_not_take_what_is_declared_twice_for_a_number() -> None:
    top = CodeBlock()
    top.add("const float v1 = (float)0x1.0p+1;", "const float v2 = (float)(-0x1.0p+0);")
    top.open("{").add("const float v1 = p0[3];")
    assert numbers_within(top) == {"v2": -1.0}


def test_two_vectors_of_bf16_share_one_of_32_places() -> None:
    line = "const float v2 = tr_round_bf16(v0 + v1);"
    text = written(*NARROW_LINES, line, "p1[r0] = tr_encode_bf16((v2));")
    for said in (
        "const int64_t r0_x1 = r0_v + 0 * TR_W;",
        "const int64_t r0_x3 = r0_v + 2 * TR_W;",
        "const tr_w v0_x2 = tr_w_load_even_bf16(p1 + r0_x2);",
        "const tr_w v1_x3 = tr_w_load_odd_bf16(p1 + (r0_x3 + 64));",
        "tr_w_store_pair_bf16(p1 + r0_x2, v2_x2, v2_x3);",
    ):
        assert said in text
    assert "_some(" not in text


def test_functions_leave_room_for_one_pair_only() -> None:
    line = "const float v2 = tr_round_bf16(tr_vector_exp(v0));"
    text = written(*NARROW_LINES, line, "p1[r0] = tr_encode_bf16((v2));")
    assert "v2_x1" in text
    assert "v2_x2" not in text


@pytest.mark.parametrize(
    "line",
    [
        "const float v2 = tr_round_bf16(v0 + p0[r0]);",
        "const float v2 = tr_round_bf16(v0 + tr_decode_f16(p1[r0]));",
        "const float v2 = tr_round_bf16(((int32_t)r0) < ((int32_t)n1) ? v0 : v1);",
        "p0[r0] = (tr_round_bf16(v0 + v1));",
    ],
)
def test_should_not_move_lanes_where_other_things_have_places(line: str) -> None:
    text = written(*NARROW_LINES, line, "p1[r0] = tr_encode_bf16((v0));")
    assert "const int64_t r0_x3 = r0_v + 3 * TR_W;" in text
    assert "const tr_w v0_x3 = tr_w_load_bf16(p1 + r0_x3);" in text
    assert "tr_w_store_bf16(p1 + r0_x3, v0_x3);" in text


MILD = """treadle 1
program p
inputs x, y
outputs s, d, q, t, u
{numerics}

buffer x : bf16[{n}] on cpu
buffer y : bf16[{n}] on cpu
buffer s : bf16[{n}] on cpu
buffer d : bf16[{n}] on cpu
buffer q : bf16[{n}] on cpu
buffer t : bf16[{n}] on cpu
buffer u : bf16[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = load y[i]
  %2 = cast f32 %0
  %3 = cast f32 %1
  %4 = mul %2, %3
  %5 = cast bf16 %4
  %6 = add %2, %3
  %7 = cast bf16 %6
  %8 = truediv %2, %3
  %9 = cast bf16 %8
  %10 = constant 2.0 f32
  %11 = mul %2, %10
  %12 = cast bf16 %11
  %13 = constant 4.0 f32
  %14 = mul %2, %13
  %15 = cast bf16 %14
  %16 = cast f32 %15
  %17 = sub %16, %2
  %18 = cast bf16 %17
  store s[i] = %7
  store d[i] = %5
  store q[i] = %9
  store t[i] = %12
  store u[i] = %18
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [7, 16, 45, 64, 99, 127, 192])
def test_bf16_goes_in_and_out_in_pairs_at_any_length(machine: str, n: int) -> None:
    x, y = np.random.default_rng(n).standard_normal((2, n)).astype(ml_dtypes.bfloat16)
    text = MILD.format(n=n, numerics=NUMERICS.replace("as result, ", ""))
    found = run(text, machine, x=x, y=y)
    a, b = x.astype(np.float32), y.astype(np.float32)
    for name, wide in {"s": a + b, "d": a * b, "q": a / b, "t": a * 2, "u": a * 3}.items():
        np.testing.assert_array_equal(found[name], wide.astype(x.dtype), err_msg=name)


@needs_compiler
@machines
def test_all_bf16_and_their_results_are_rounded_to_even(machine: str) -> None:
    bf16 = ml_dtypes.bfloat16
    x = np.arange(1 << 16, dtype=np.uint16)
    y = np.random.default_rng(1).permutation(x)
    y[:64] = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7FFF, 0x0001, 0x8000, 0x7F7F] * 8
    text = MILD.format(n=1 << 16, numerics=NUMERICS.replace("as result, ", ""))
    found = run(text, machine, x=x.view(bf16), y=y.view(bf16))
    a, b = x.view(bf16).astype(np.float32), y.view(bf16).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = {"s": a + b, "d": a * b, "q": a / b, "t": a * np.float32(2)}
        wanted["u"] = a * np.float32(4) - a  # what is too large stays so
        for name, wide in wanted.items():
            got, want = found[name].astype(np.float32), wide.astype(bf16).astype(np.float32)
            np.testing.assert_array_equal(got, want, err_msg=name)
            signs = np.signbit(got) == np.signbit(want)
            assert signs[~np.isnan(want)].all(), name


# ------------------------------------------------------------------------------- rows of f16


ROWS = (
    "float t0[64] __attribute__((aligned(64)));",
    "tr_widen_f16(t0, p1 + (64 * i0), 64);",
    "float t3_4[64] __attribute__((aligned(64)));",
)
EMPTIED = ("tr_narrow_f16(p1 + (64 * i0 + 64), t3_4, 64);",)


def of_rows(*lines: str, before: tuple[str, ...] = ROWS, behind: tuple[str, ...] = EMPTIED) -> str:
    """The text of a block whose loop goes through rows of f16; nothing if it stays as it is."""
    top = CodeBlock()
    top.add("uint16_t *const p1 = (uint16_t *)a1;", "float *const p0 = (float *)a0;")
    inner = top.open("for (int64_t i0 = 0; i0 < n0; ++i0)")
    inner.add(*before, "#pragma omp simd")
    block = inner.open("for (int64_t r0 = 0; r0 < 64; ++r0)")
    block.add(*lines)
    inner.add(*behind)
    is_whole = write_whole(VectorLoop(inner, block, {}, 64), types_within(top))
    return "\n".join(top.lines()) if is_whole else ""


THROUGH = ("const float v0 = t0[r0];", "const float v1 = v0 * v0;", "t3_4[r0] = v1;")


def test_a_loop_on_whole_vectors_converts_its_own_rows() -> None:
    whole, plain = of_rows(*THROUGH).split("#else")
    assert "tr_w_load_f16(p1 + (64 * i0) + r0_x2);" in whole
    assert "tr_w_store_f16(p1 + (64 * i0 + 64) + r0_x2, v1_x2);" in whole
    assert "t0" not in whole
    assert "t3_4" not in whole
    for line in (*ROWS, *EMPTIED, *THROUGH):
        assert f"{line}\n" in plain


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (("const float v9 = t0[3];",), ()),  # read besides
        (("p0[3] = (0.0f);",), ()),  # stored before the row was read
        ((), ("p0[3] = t3_4[2];",)),
    ],
)
def test_should_not_do_without_rows_that_others_read(
    before: tuple[str, ...], behind: tuple[str, ...]
) -> None:
    assert of_rows(*THROUGH, before=(*ROWS, *before), behind=(*EMPTIED, *behind)) == ""


def test_should_not_store_sooner_than_others_read() -> None:
    behind = ("const float v8 = p0[3];", *EMPTIED)
    assert of_rows(*THROUGH, behind=behind) == ""


def test_should_not_read_a_row_anywhere_else() -> None:
    assert of_rows("const float v0 = t0[(2 * r0)];", *THROUGH[1:]) == ""
    assert of_rows("const float v0 = t0[0];", *THROUGH[1:]) == ""


CLAMPED = """treadle 1
program p
inputs x
outputs y, z
{numerics}

buffer x : f16[{n}] on cpu
buffer y : f16[{n}] on cpu
buffer z : f16[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast f32 %0
  %2 = constant 0.0 f32
  %3 = maximum %1, %2
  %4 = constant 6.0 f32
  %5 = minimum %3, %4
  %6 = cast f16 %5
  %7 = mul %1, %1
  %8 = cast f16 %7
  store y[i] = %6
  store z[i] = %8
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [1 << 16, 45, 1100])
def test_limits_keep_nans_and_the_zero_that_they_are(machine: str, n: int) -> None:
    x = np.random.default_rng(n).permutation(np.arange(1 << 16, dtype=np.uint16))[:n]
    x[:3] = [0x8000, 0x0000, 0x7E00]
    found = run(CLAMPED.format(n=n, numerics=NUMERICS), machine, x=x.view(np.float16))
    wide = x.view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = np.where(wide <= 0, 0, np.where(wide >= 6, 6, wide)).astype(np.float16)
        squares = (wide * wide).astype(np.float16)
    np.testing.assert_array_equal(found["y"], wanted)
    assert not np.signbit(found["y"][~np.isnan(wanted)]).any()
    np.testing.assert_array_equal(found["z"], squares)


# ------------------------------------------------------------------------------- 8 bits


ZEROS = """treadle 1
program p
inputs x, s
outputs y, z
{numerics}

buffer x : bf16[{n}] on cpu
buffer s : bf16[1] on cpu
buffer y : bf16[{n}] on cpu
buffer z : bf16[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast f32 %0
  %2 = constant 1.0 f32
  %3 = gt %1, %2
  %4 = constant -0.0 f32
  %5 = where %3, %1, %4
  %6 = cast bf16 %5
  %7 = load s[0]
  %8 = cast f32 %7
  %9 = where %3, %1, %8
  %10 = cast bf16 %9
  store y[i] = %6
  store z[i] = %10
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [16, 45, 1100])
def test_a_zero_that_all_lanes_share_keeps_its_sign(machine: str, n: int) -> None:
    x = np.random.default_rng(n).uniform(0.5, 1.5, n).astype(ml_dtypes.bfloat16)
    for zero in (-0.0, 0.0):
        s = np.array([zero], x.dtype)
        found = run(ZEROS.format(n=n, numerics=NUMERICS), machine, x=x, s=s)
        np.testing.assert_array_equal(np.signbit(found["y"]), x <= 1)
        np.testing.assert_array_equal(np.signbit(found["z"]), (x <= 1) & np.signbit(s))


def test_a_limit_that_is_no_zero_takes_one_instruction() -> None:
    loop, top = loop_of(
        "const float v0 = tr_vector_exp(p0[r0]);",
        "const float v1 = tr_minimum_f32(tr_maximum_f32(v0, v91), v92);",
        "p0[r0] = (v1);",
        extent=16,
    )
    top.head += ["const float v91 = (float)0x0.0p+0;", "const float v92 = (float)0x1.8p+1;"]
    assert write_whole(loop, types_within(top), numbers_within(top))
    low = "tr_w_at_least(v0, tr_w_all(v91))"
    assert f"tr_w_at_most_nonzero({low}, tr_w_all(v92))" in "\n".join(top.lines())


def test_whole_numbers_of_8_bits_are_floats_again_and_stored() -> None:
    top = CodeBlock()
    top.add(
        "float *const p0 = (float *)a0;", "int8_t *const p1 = (int8_t *)a1;", "#pragma omp simd"
    )
    block = top.open("for (int64_t r0 = 0; r0 < 16; ++r0)")
    block.add(
        "const float v0 = nearbyintf(p0[r0]);",
        "const int8_t v1 = (int8_t)tr_to_8_bits(v0);",
        "const float v2 = (float)v1;",
        "p1[r0] = (v1);",
        "p0[r0] = (v2 * v2);",
    )
    assert write_whole(VectorLoop(top, block, {}, 16), types_within(top))
    text = "\n".join(top.lines())
    assert "const tr_wi v1 = tr_w_i8(tr_w_to_8_bits(v0));" in text
    assert "const tr_w v2 = __builtin_convertvector(v1, tr_w);" in text
    assert "tr_w_store_bytes((uint8_t *)(p1 + r0), v1);" in text


@pytest.mark.parametrize(
    "lines",
    [
        ("const int8_t v1 = (int8_t)tr_to_8_bits(p0[r0]);", "p0[r0] = (v1 ? v90 : v90);"),
        ("const uint8_t v1 = (uint8_t)tr_to_8_bits(p0[r0]);", "p0[r0] = (!v1 ? v90 : v90);"),
        ("const uint8_t v1 = (uint8_t)tr_to_8_bits(p0[r0]);", "p0[r0] = (v1 && v1 ? v90 : v90);"),
        ("const int16_t v1 = (int16_t)tr_to_8_bits(p0[r0]);", "p0[r0] = ((float)v1);"),
    ],
)
def test_should_not_take_8_bits_for_a_condition_or_more(lines: tuple[str, ...]) -> None:
    assert written(*lines) == ""


QUANTISED = """treadle 1
program p
inputs x
outputs y, z, f, g
{numerics}

buffer x : f32[{n}] on cpu
buffer y : i8[{n}] on cpu
buffer z : u8[{n}] on cpu
buffer f : f32[{n}] on cpu
buffer g : f32[{n}] on cpu

loop y_ on cpu for i in {n} {{
  %0 = load x[i]
  %1 = cast i8 %0
  %2 = cast u8 %0
  %3 = round %0
  %4 = constant -128.0 f32
  %5 = maximum %3, %4
  %6 = constant 127.0 f32
  %7 = minimum %5, %6
  %8 = cast i8 %7
  %9 = cast f32 %8
  %10 = cast f32 %2
  store y[i] = %1
  store z[i] = %2
  store f[i] = %9
  store g[i] = %10
}}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [7, 45, 4096, 5001])
def test_floats_become_whole_numbers_of_8_bits(machine: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    x[: n // 2] = rng.uniform(-400, 400, n // 2)
    special = [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31), 2.5, -0.0]
    x[-7:] = special
    found = run(QUANTISED.format(n=n, numerics=NUMERICS), machine, x=x)
    is_held = np.abs(x) < 2.0**31  # larger floats end in eight zeros
    whole = np.where(is_held, x, 0).astype(np.int64)
    np.testing.assert_array_equal(found["y"], whole.astype(np.int8))
    np.testing.assert_array_equal(found["z"], whole.astype(np.uint8))
    np.testing.assert_array_equal(found["g"], whole.astype(np.uint8).astype(np.float32))
    limited = np.clip(np.rint(np.where(np.isnan(x), 0, x)), -128, 127)
    np.testing.assert_array_equal(found["f"], limited)


EVERY_OTHER = """treadle 1
program p
inputs x
outputs y
NUMERICS

buffer x : f32[3, WIDE] on cpu
buffer y : f32[3, N] on cpu

loop l on cpu for i in 3, j in N {
  %0 = load x[WIDE*i + 2*j]
  %1 = exp %0
  store y[N*i + j] = %1
}
"""


@needs_compiler
@machines
@pytest.mark.parametrize("n", [5, 16, 17, 31, 32, 47])
def test_every_other_element_is_loaded_at_any_length(machine: str, n: int) -> None:
    wide = 2 * n - 1
    text = EVERY_OTHER.replace("NUMERICS", NUMERICS).replace("WIDE", str(wide))
    x = np.random.default_rng(n).standard_normal((3, wide), np.float32)
    found = run(text.replace("N", str(n)), machine, x=x)["y"]
    np.testing.assert_allclose(found, np.exp(x[:, ::2]), rtol=1e-6)
