"""The derived bound: its tables are total, its rules hold on dense samples, and it can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.interp import run
from treadle.ir.interp.arithmetic import floor_divide, power, relu, remainder, sign, truncate_divide
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array, convert
from treadle.ir.interp.externs import COLLECTIVES, EXTERNS
from treadle.ir.numerics import EXACT, TORCH, Numerics
from treadle.ir.ops import OPS, POINTWISE, REDUCTIONS, SCAN_COMBINES, STORE_MODES
from treadle.ir.program import LEAF_KINDS, Program
from treadle.ir.roundings import rounded_next
from treadle.ir.types import DType
from treadle.testing.bounding.calls import CALL_BOUNDS, COPIES
from treadle.testing.bounding.functions import FUNCTIONS, MOVED, VALUES
from treadle.testing.bounding.pointwise import ARITHMETIC, DECISIONS, OWN
from treadle.testing.bounding.reductions import REDUCTION_SPREADS
from treadle.testing.bounding.rounding import converted, growth, ulp
from treadle.testing.bounding.scan_sort import SCAN_SPREADS
from treadle.testing.bounding.scatter import COMBINED
from treadle.testing.bounding.statements import SPREADS, TOGETHER
from treadle.testing.error_bound import OutOfBoundsError, assert_within, derive_bounds, outside

FLOATS = [d for d in DType if d.is_float]
F32 = Numerics("f32", function_ulps=4.0)

# ------------------------------------------------------------------------------- the tables


def test_every_statement_has_a_rule() -> None:
    valued = {name for name, op in OPS.items() if op.produces}
    assert set(SPREADS) | set(TOGETHER) == valued
    assert not set(SPREADS) & set(TOGETHER)


def test_every_pointwise_operation_has_one_rule() -> None:
    tables = (ARITHMETIC, DECISIONS, OWN)
    assert {name for table in tables for name in table} == set(POINTWISE)
    assert sum(map(len, tables)) == len(POINTWISE)
    assert set(MOVED) == set(VALUES)


def test_every_reduction_scan_store_and_call_has_a_rule() -> None:
    assert set(REDUCTION_SPREADS) == set(REDUCTIONS)
    assert set(SCAN_SPREADS) == set(SCAN_COMBINES) - {"region", "unknown"}
    floats = {m for m in STORE_MODES if m not in ("plain", "atomic_and", "atomic_or", "atomic_xor")}
    assert set(COMBINED) == floats
    assert set(CALL_BOUNDS) | COPIES == set(EXTERNS) | set(COLLECTIVES)
    assert LEAF_KINDS


# ------------------------------------------------------------------------- rules on samples

PLAIN: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "neg": np.negative, "abs": np.absolute, "square": np.square,
    "relu": relu, "sign": sign, "truediv": np.divide, "floordiv": floor_divide,
    "truncdiv": truncate_divide, "fmod": np.fmod, "remainder": remainder,
    "reciprocal": np.reciprocal, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "sqrt": np.sqrt, "copysign": np.copysign, "pow": power,
    "fma": lambda a, b, c: a * b + c,
}  # fmt: skip
POINTS = np.array([-7.25, -3.0, -1.5, -1.0, -0.9, -0.3, -1e-3, 0.0, 1e-4, 0.2, 0.5, 0.99, 1.0, 1.7,
                   2.5, 4.0, 9.0, 30.0])  # fmt: skip
SIZES = (0.0, 1e-7, 1e-3, 0.05, 0.6)


@pytest.mark.parametrize("name", sorted(FUNCTIONS | set(PLAIN)))
def test_no_value_inside_the_intervals_moves_further_than_the_rule_says(name: str) -> None:
    function = VALUES[name] if name in FUNCTIONS else PLAIN[name]
    rng, arity = np.random.default_rng(3), POINTWISE[name].arity or 1
    degrees = name.startswith(("chebyshev", "shifted", "hermite", "laguerre", "legendre"))
    bounded = 0
    for sizes in [rng.choice(SIZES, arity) for _ in range(12)]:
        xs = [rng.choice(POINTS, 200) for _ in range(arity)]
        if degrees:
            xs[1] = rng.integers(0, 6, 200).astype(np.float64)
        errors = [np.where(rng.random(200) < 0.2, 0.0, s) for s in sizes]
        with np.errstate(all="ignore"):
            if name in FUNCTIONS:
                value, error = np.asarray(function(*xs)), MOVED[name](xs, errors)
            else:
                value, error = ARITHMETIC[name](xs, errors)
            room = 1e-12 + 1e-12 * np.where(np.isfinite(value), np.abs(value), 0.0)
            for _ in range(60):
                sides = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], (arity, 200))
                moved = [x + e * s for x, e, s in zip(xs, errors, sides, strict=True)]
                other = function(*moved)
                apart = np.where((other == value) | (np.isnan(other) & np.isnan(value)), 0.0,
                                 np.abs(other - value))  # fmt: skip
                apart = np.where(np.isnan(apart), np.inf, apart)
                assert (apart <= error + room).all(), name
        bounded += int((np.isfinite(error) & (error > 0)).sum())
    assert bounded > 0 or degrees or name in ("polygamma", "zeta"), "the rule bounds nothing"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_unit_in_the_last_place_is_the_distance_to_the_next_number(dtype: DType) -> None:
    kind = NUMPY_TYPES[dtype]
    for start in (1.0, 1.5, 3.0, 100.0, 0.0625, 0.0):
        x = np.array(start).astype(kind)
        above = np.nextafter(x, np.array(np.inf).astype(kind) if dtype is not DType.F8E4M3
                             else np.array(448.0).astype(kind))  # fmt: skip
        step = above.astype(np.float64) - x.astype(np.float64)
        assert ulp(x.astype(np.float64), dtype) == step, start


def test_a_small_error_vanishes_in_a_rounding_and_one_near_a_border_does_not() -> None:
    x = np.array([1.0, 1.0 + 2.0**-8], np.float32)  # the second lies between two bf16 numbers
    _, error = converted(x, np.array([1e-6, 1e-6]), DType.BF16)
    assert error.tolist() == [0.0, 2.0**-7]


def test_an_integer_that_could_be_another_has_no_bound() -> None:
    x = np.array([2.5, 2.999999, 3.0, -0.2])
    _, error = converted(x, np.full(4, 1e-5), DType.I32)
    assert error.tolist() == [0.0, np.inf, np.inf, 0.0]


def test_roundings_add_up() -> None:
    assert growth(0, 2.0**-24) == 0
    assert 512 * 2.0**-24 < growth(512, 2.0**-24) < 513 * 2.0**-24
    assert growth(2.0**24, 2.0**-24) == np.inf


# ---------------------------------------------------------------------------- whole programs


def rows_program(
    write: Callable[[BodyBuilder, Value], Value], dtype: str = "f32", out: str = "f32", n: int = 64
) -> Program:
    """A loop over 8 rows of n elements with one result each."""
    b = ProgramBuilder("p", numerics=TORCH)
    x, y = b.input("x", dtype, [8, n]), b.output("y", out, [8])
    with b.loop("loop", [8], reduce=[n]) as k:
        i, j = k.vars
        k.store(y, (i,), write(k, k.load(x, i, j)))
    return b.build()


def point_program(
    write: Callable[[BodyBuilder, Value], Value], dtype: str = "f32", out: str = "f32"
) -> Program:
    """A loop over 256 points."""
    b = ProgramBuilder("p", numerics=TORCH)
    x, y = b.input("x", dtype, [256]), b.output("y", out, [256])
    with b.loop("loop", [256]) as k:
        k.store(y, k.vars, write(k, k.load(x, *k.vars)))
    return b.build()


def data(program: Program, seed: int = 0) -> dict[str, Array]:
    b = program.by_name["x"]
    shape = tuple(n.value or 0 for n in b.layout.sizes)
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return {"x": x.astype(NUMPY_TYPES[b.dtype])}


def exactly(program: Program, inputs: dict[str, Array]) -> Array:
    return run(program, inputs).outputs[0]


def test_exact_numerics_ask_for_the_same_bits() -> None:
    program = point_program(lambda k, x: k.exp(x) * x + 1.0)
    inputs = data(program)
    y = exactly(program, inputs)
    assert_within(program, inputs, {"y": y}, EXACT)
    y[7] = np.nextafter(y[7], np.float32(np.inf))
    with pytest.raises(
        OutOfBoundsError, match=r"y: 1 of 256 elements out of bounds, worst at \[7\]"
    ):
        assert_within(program, inputs, {"y": y}, EXACT)


@pytest.mark.parametrize("ulps, is_caught", [(1, False), (5, False), (24, True), (-24, True)])
def test_four_times_the_error_of_a_function_is_caught(ulps: int, is_caught: bool) -> None:
    program = point_program(lambda k, x: k.exp(x))
    inputs = data(program)
    y = exactly(program, inputs)
    y[3] += ulps * np.spacing(y[3])
    bounds = derive_bounds(program, inputs)
    assert bool(outside(bounds, {"y": y})) is is_caught
    assert not outside(bounds, {"y": y}, slack=8.0)


def test_a_unit_of_bf16_where_f32_is_promised_is_caught() -> None:
    program = point_program(lambda k, x: k.tanh(x) * x)
    inputs = data(program)
    y = exactly(program, inputs)
    wrong = convert(convert(y, DType.BF16), DType.F32)
    (line,) = outside(derive_bounds(program, inputs), {"y": wrong})
    assert "y: 2" in line
    assert "allowed" in line
    narrow = point_program(lambda k, x: (k.tanh(x) * x).to("bf16"), out="bf16")
    assert not outside(derive_bounds(narrow, inputs), {"y": convert(y, DType.BF16)})


@pytest.mark.parametrize("numerics", [EXACT, TORCH, F32], ids=str)
@pytest.mark.parametrize("kind", ["sum", "dot"])
def test_a_dropped_element_of_a_sum_is_caught(numerics: Numerics, kind: str) -> None:
    def write(k: BodyBuilder, x: Value) -> Value:
        return k.reduce_by("dot", x, x) if kind == "dot" else k.sum(x)

    program = rows_program(write, n=600)
    inputs = data(program)
    x = inputs["x"].astype(np.float64)
    terms = x * x if kind == "dot" else x
    whole = terms.sum(1).astype(np.float32)
    bounds = derive_bounds(program, inputs, numerics)
    assert not outside(bounds, {"y": whole})
    least = np.abs(terms).argsort(1)[:, 300]  # not even a large one
    dropped = terms.sum(1) - np.take_along_axis(terms, least[:, None], 1)[:, 0]
    lines = outside(bounds, {"y": dropped.astype(np.float32)})
    assert lines
    assert "8 of 8 elements" in lines[0]


def test_sums_may_be_blocked_and_not_longer() -> None:
    program = rows_program(lambda k, x: k.sum(x), n=4096)
    ones = {"x": np.random.default_rng(1).uniform(0.5, 1.5, (8, 4096)).astype(np.float32)}
    errors = {}
    for name, numerics in (("exact", EXACT), ("blocked", TORCH), ("f32", F32)):
        errors[name] = derive_bounds(program, ones, numerics).error("y").max()
    assert errors["exact"] <= 2.0**-12  # half a unit at 4096, if anything
    assert 7 * errors["blocked"] < errors["f32"] < 9 * errors["blocked"]


def test_a_narrow_result_needs_no_wide_function() -> None:
    program = point_program(lambda k, x: k.erf(x).to("bf16"), out="bf16")
    inputs = data(program)
    wide = VALUES["erf"](inputs["x"].astype(np.float64))
    off = convert((wide + 0.49 * ulp(wide, DType.BF16)).astype(np.float32), DType.BF16)
    assert not outside(derive_bounds(program, inputs), {"y": off})
    strict = derive_bounds(program, inputs, replace(TORCH, as_result=False))
    assert "out of bounds" in outside(strict, {"y": off})[0]


def test_a_contracted_sum_is_within_and_only_where_that_is_allowed() -> None:
    x = (1 + np.random.default_rng(0).uniform(-1e-3, 1e-3, 256)).astype(np.float32)
    fused = (x.astype(np.float64) ** 2 - 1).astype(np.float32)
    for write in (lambda k, x: x * x - 1.0, lambda k, x: abs(x * x) - 1.0):
        program = point_program(write)
        assert not outside(derive_bounds(program, {"x": x}), {"y": fused})
        assert outside(derive_bounds(program, {"x": x}, EXACT), {"y": fused})


def test_a_product_that_goes_into_no_sum_is_rounded() -> None:
    program = point_program(lambda k, x: k.floor(x * k.constant(1 / 3, "f32")))
    bounds = derive_bounds(program, {"x": np.arange(256).astype(np.float32)})
    assert not bounds.error("y").any()


def test_what_could_be_decided_otherwise_is_counted_and_too_much_of_it_fails() -> None:
    program = point_program(lambda k, x: k.to_int("floor", k.exp(x)).to("f32"))
    x = np.zeros(256, np.float32)
    x[1:] = np.linspace(0.1, 0.6, 255)  # exp is between 1 and 2; at 0 it is a whole number
    got = {"y": exactly(program, {"x": x})}
    assert np.isinf(derive_bounds(program, {"x": x}).error("y")).sum() == 1
    assert_within(program, {"x": x}, got)
    x[:8] = 0.0
    with pytest.raises(OutOfBoundsError, match=r"8 of 256 elements have no bound, more than 1\.0%"):
        assert_within(program, {"x": x}, got)


def test_a_choice_that_hardly_matters_is_bounded() -> None:
    def write(k: BodyBuilder, x: Value) -> Value:
        y = k.exp(x) - 1.0
        return k.where(y > k.constant(0.0, "f32"), y, k.constant(0.0, "f32"))

    program = point_program(write)
    error = derive_bounds(program, {"x": np.full(256, 1e-9, np.float32)}).error("y")
    assert 0 < error.max() < 2e-6


def test_positions_are_certain_unless_two_elements_are_too_close() -> None:
    program = rows_program(lambda k, x: k.argmax(k.exp(x)), out="i64")
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    x[0, 5] = 4.0
    x[0, 9] = np.nextafter(np.float32(4.0), np.float32(0))
    error = derive_bounds(program, {"x": x}).error("y")
    assert np.isinf(error).tolist() == [True] + [False] * 7


def test_errors_go_through_memory_from_loop_to_loop() -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, t, y = b.input("x", "f32", [8]), b.buffer("t", "f32", [8]), b.output("y", "f32", [8])
    with b.loop("first", [8]) as k:
        k.store(t, k.vars, k.exp(k.load(x, *k.vars)))
    with b.loop("second", [8]) as k:
        k.store(y, k.vars, k.load(t, *k.vars) * 1024.0)
    inputs = {"x": np.linspace(0.1, 0.5, 8).astype(np.float32)}
    bounds = derive_bounds(b.build(), inputs)
    assert np.allclose(bounds.error("y"), 1024 * bounds.error("t"), rtol=0.2)
    assert (bounds.error("t") >= 6 * 2.0**-23).all()


def test_a_matrix_product_is_bounded_by_the_product_of_sizes() -> None:
    b = ProgramBuilder("p")
    a, w, y = (
        b.input("a", "f32", [4, 300]),
        b.input("w", "f32", [300, 5]),
        b.output("y", "f32", [4, 5]),
    )
    b.extern("aten.mm", [a, w], [y])
    rng = np.random.default_rng(0)
    inputs = {"a": rng.standard_normal((4, 300)), "w": rng.standard_normal((300, 5))}
    inputs = {name: x.astype(np.float32) for name, x in inputs.items()}
    bounds = derive_bounds(b.build(), inputs)
    sizes = np.abs(inputs["a"]).astype(np.float64) @ np.abs(inputs["w"])
    assert (bounds.error("y") >= 300 * 2.0**-24 * sizes).all()
    assert (bounds.error("y") <= 310 * 2.0**-24 * sizes).all()
    assert not outside(bounds, {"y": inputs["a"] @ inputs["w"]})
    off = {"a": np.full((4, 300), 1e-3)}
    wider = derive_bounds(b.build(), inputs, input_errors=off).error("y")
    assert (wider > 1e-3 * np.abs(inputs["w"]).sum(0) * 0.99).all()


def test_a_call_nobody_knows_has_no_bound_once_its_arguments_are_not_exact() -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, t, y = b.input("x", "f32", [8]), b.buffer("t", "f32", [8]), b.output("y", "f32", [8])
    with b.loop("first", [8]) as k:
        k.store(t, k.vars, k.exp(k.load(x, *k.vars)))
    b.extern("mine", [t], [y])
    externs = {"mine": lambda ctx, op: ctx.write("y", ctx.args[0] * 2)}
    inputs = {"x": np.zeros(8, np.float32)}
    assert np.isinf(derive_bounds(b.build(), inputs, externs=externs).error("y")).all()
    bounded = {"mine": lambda call: (call.args[0] * 2.0, call.errors[0] * 2)}
    found = derive_bounds(b.build(), inputs, externs=externs, call_bounds=bounded).error("y")
    assert (found < 4e-6).all()


def test_memory_nobody_wrote_and_other_types_of_bytes_have_no_bound() -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [8])
    halves = b.view("halves", y, [16], element="f16")
    z = b.output("z", "f16", [16])
    with b.loop("first", [4]) as k:
        k.store(y, k.vars, k.exp(k.load(x, *k.vars)))
    with b.loop("second", [16]) as k:
        k.store(z, k.vars, k.load(halves, *k.vars))
    bounds = derive_bounds(b.build(), {"x": np.ones(4, np.float32)})
    assert np.isinf(bounds.error("y")).tolist() == [False] * 4 + [True] * 4
    assert np.isinf(bounds.error("z")).all()


def test_a_wrong_type_or_shape_is_a_difference() -> None:
    program = point_program(lambda k, x: x + 1.0)
    bounds = derive_bounds(program, data(program))
    assert outside(bounds, {"y": np.zeros(3, np.float32)}) == [
        "y: float32(256,) became float32(3,)"
    ]


# ------------------------------------------------------------------- infinite and very large

LARGE = float(np.finfo(np.float32).max) * 0.7


def one_row(kind: str, row: list[float], numerics: Numerics = TORCH) -> tuple[Array, Array]:
    """What a reduction of one row gives, and how far code may be from it."""
    b = ProgramBuilder("p", numerics=numerics)
    x, y = b.input("x", "f32", [1, len(row)]), b.output("y", "f32", [1])
    with b.loop("loop", [1], reduce=[len(row)]) as k:
        found = k.reduce_by(kind, k.load(x, *k.vars))
        k.store(y, k.domain.vars, found[0] if kind == "welford" else found)
    bounds = derive_bounds(b.build(), {"x": np.array([row], np.float32)})
    return bounds.value("y")[0], bounds.error("y")[0]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("sum", [np.inf, -LARGE, -LARGE]),  # the others may add up to the other infinity
        ("prod", [np.inf, 1e-30, 1e-30]),  # the others may become 0
        ("prod", [0.0, 1e30, 1e30]),  # the others may become infinite
        ("welford", [LARGE, -LARGE, 1.0, 1.0]),  # the distance of two is infinite
    ],
)
def test_what_overflows_on_the_way_has_no_bound_beside_infinity(
    kind: str, row: list[float]
) -> None:
    assert np.isinf(one_row(kind, row)[1])


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("sum", [np.inf, -1.0, 2.0]),
        ("sum", [np.nan, -LARGE, -LARGE]),
        ("prod", [np.inf, 0.5, 2.0]),
        ("prod", [np.nan, 1e30, 1e30]),
    ],
)
def test_infinity_and_nan_that_no_order_changes_are_certain(kind: str, row: list[float]) -> None:
    value, error = one_row(kind, row)
    assert not np.isfinite(value)
    assert error == 0


@pytest.mark.parametrize(
    ("mode", "start", "row", "is_open"),
    [
        ("atomic_add", np.inf, [-LARGE, -LARGE], True),
        ("atomic_add", np.inf, [-1.0, -1.0], False),
        ("atomic_mul", np.inf, [1e-30, 1e-30], True),
        ("atomic_mul", np.inf, [0.5, 0.5], False),
        ("atomic_mul", np.nan, [1e-30, 1e-30], False),
    ],
)
def test_what_is_combined_in_memory_overflows_as_well(
    mode: str, start: float, row: list[float], is_open: bool
) -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, y = b.input("x", "f32", [2]), b.input("y", "f32", [1])
    b.returns(y)
    with b.loop("loop", [2]) as k:
        k.store_at(y, 0, k.load(x, *k.vars), mode)
    inputs = {"x": np.array(row, np.float32), "y": np.array([start], np.float32)}
    error = derive_bounds(b.build(), inputs).error("y")[0]
    assert np.isinf(error) if is_open else error == 0


def test_a_whole_number_is_open_if_what_lies_between_the_ends_wraps() -> None:
    x = np.array([3.0, 3.0, 3.0, 2.0**70, 3.5])
    error = np.array([0.0, 2.0**70, 256.0, 2.0**60, 0.25])
    found = converted(x, error, DType.U8)[1]
    assert np.isinf(found).tolist() == [False, True, True, False, False]


def test_a_number_and_itself_may_be_a_product_that_overflows_later() -> None:
    program = point_program(lambda k, x: x + x - k.constant(LARGE, "f32"))
    error = derive_bounds(program, {"x": np.full(256, LARGE, np.float32)}).error("y")
    assert np.isinf(error).all()
    assert not derive_bounds(program, {"x": np.full(256, 1.0, np.float32)}).error("y").any()


def test_what_a_call_changes_it_may_have_read() -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, t = b.input("x", "f32", [8]), b.output("t", "f32", [8])
    with b.loop("first", [8]) as k:
        k.store(t, k.vars, k.exp(k.load(x, *k.vars)))
    b.extern("mine", [1.0], [], mutates=[t])
    externs = {"mine": lambda ctx, op: ctx.write("t", ctx.read("t") * 2)}
    assert np.isinf(
        derive_bounds(b.build(), {"x": np.ones(8, np.float32)}, externs=externs).error("t")
    ).all()


def test_which_bits_a_nan_has_is_open_where_they_are_read_as_another_type() -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, t, y = b.input("x", "f16", [4]), b.buffer("t", "f32", [2]), b.output("y", "f32", [2])
    halves = b.view("halves", t, [4], element="f16")
    with b.loop("first", [4]) as k:
        k.store(halves, k.vars, k.load(x, *k.vars))
    with b.loop("second", [2]) as k:
        k.store(y, k.vars, k.load(t, *k.vars))
    error = derive_bounds(b.build(), {"x": np.array([1, np.nan, 1, 1], np.float16)}).error("y")
    assert np.isinf(error).tolist() == [True, False]


def test_narrow_sums_of_several_stores_may_be_rounded_in_between_or_not() -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, y = b.input("x", "bf16", [4]), b.input("y", "bf16", [1])
    b.returns(y)
    with b.loop("loop", [4]) as k:
        k.store_at(y, 0, k.load(x, *k.vars), "atomic_add")
        k.store_at(y, 0, k.load(x, *k.vars), "atomic_add")
    inputs = {"x": np.full(4, 2.0**-10), "y": np.ones(1)}  # half of a last place, twice
    kind = NUMPY_TYPES[DType.BF16]
    bounds = derive_bounds(b.build(), {n: a.astype(kind) for n, a in inputs.items()})
    assert bounds.value("y") == 1.0
    assert not outside(bounds, {"y": np.array([1 + 2.0**-7], kind)})


def test_a_product_too_large_for_the_cache_is_made_and_bounded_by_parts() -> None:
    def product(rows: int) -> tuple[Array, Array]:
        b = ProgramBuilder("p", numerics=TORCH)
        x, w = b.input("x", "f32", [4, 300]), b.input("w", "f32", [300, 150])
        y = b.output("y", "f32", [rows, 150])
        with b.loop("loop", [rows, 150], reduce=[300]) as k:
            (i, j), (r,) = k.domain.vars, k.reduce.vars
            k.store(y, (i, j), k.reduce_by("dot", k.load(x, i, r), k.load(w, r, j)))
        rng = np.random.default_rng(0)
        inputs = {n: rng.standard_normal(s) for n, s in (("x", (4, 300)), ("w", (300, 150)))}
        bounds = derive_bounds(b.build(), {n: a.astype(np.float32) for n, a in inputs.items()})
        return bounds.value("y"), bounds.error("y")

    for whole, part in zip(product(4), product(1), strict=True):
        assert whole[:1].tobytes() == part.tobytes()


# -------------------------------------------------------------------------- next roundings


def test_a_value_is_as_exact_as_its_readers_need() -> None:
    b = ProgramBuilder("p")
    x, y, z = b.input("x", "f32", [8]), b.output("y", "bf16", [8]), b.output("z", "f16", [8])
    with b.loop("loop", [8]) as k:
        v = k.load(x, *k.vars)
        one = k.exp(v)  # goes to bf16 through a product
        two = k.sin(v)  # goes to bf16 and to f16
        three = k.tanh(v)  # is added to something first
        inside = k.masked(v > 0.0, 0.0, lambda: k.cos(v))
        k.store(y, k.vars, (one * v).to("bf16"))
        k.store(y, k.vars, k.maximum(two, v))
        k.store(z, k.vars, two)
        k.store(z, k.vars, three + v)
        k.store(z, k.vars, inside)
        numbers = [value.number for value in (one, two, three)]
        body = k.build()
    found = rounded_next(body, b.buffers)
    assert [found[n] for n in numbers] == [DType.BF16, DType.F16, None]
    cos = next(at.number for at in body.walk() if at.stmt.op == "cos")
    assert cos is not None
    assert found[cos] is DType.F16
