"""Loop bodies: statement order, varying along loops, masks, empty domains, stores, regions."""

from collections.abc import Callable

import numpy as np
import pytest

from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.interp import run
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.types import DType

F32 = np.float32


def matrix(rows: int = 3, columns: int = 4) -> Array:
    return np.arange(rows * columns, dtype=F32).reshape(rows, columns)


def over_rows(
    body: Callable[[BodyBuilder, Value], Value],
    x: Array,
    element: str = "f32",
    reduced: bool = True,
) -> Array:
    b = ProgramBuilder("rows")
    given = b.input("x", next(d for d, n in NUMPY_TYPES.items() if n == x.dtype), x.shape)
    y = b.output("y", element, x.shape[:1] if reduced else x.shape)
    with b.loop("it", x.shape[:1], reduce=x.shape[1:]) as k:
        at = k.vars[:1] if reduced else k.vars
        k.store(y, at, body(k, k.load(given, *k.vars)))
    return run(b.build(), {"x": x}).outputs[0]


# --------------------------------------------------------------------------- order and levels


def test_a_load_sees_the_stores_above_it_and_not_those_below() -> None:
    b = ProgramBuilder("order")
    x = b.input("x", "f32", [3])
    before, after = b.output("before", "f32", [3]), b.output("after", "f32", [3])
    with b.loop("it", [3]) as k:
        k.store(before, k.vars, k.load(x, *k.vars))
        k.store(x, k.vars, k.load(x, *k.vars) * 2.0)
        k.store(after, k.vars, k.load(x, *k.vars))
    result = run(b.build(), {"x": np.ones(3, F32)})
    assert result.outputs[0].tolist() == [1, 1, 1]
    assert result.outputs[1].tolist() == [2, 2, 2]
    assert result.read("x").tolist() == [2, 2, 2]


def test_reduced_values_mix_with_those_that_vary() -> None:
    x = matrix()
    assert (over_rows(lambda k, v: v - k.max(v), x, reduced=False) == x - x.max(1)[:, None]).all()


def test_a_constant_counts_at_every_point_of_the_reduction() -> None:
    assert over_rows(lambda k, v: k.sum(k.constant(1.0, "f32")), matrix()).tolist() == [4, 4, 4]


def test_operands_of_a_reduction_may_vary_along_different_loops() -> None:
    b = ProgramBuilder("matvec")
    v, a, y = b.input("v", "f32", [4]), b.input("a", "f32", [3, 4]), b.output("y", "f32", [3])
    with b.loop("it", [3], reduce=[4]) as k:
        i, j = k.vars
        k.store(y, (i,), k.dot(k.load(v, j), k.load(a, i, j)))
    weights = np.array([1, 2, 3, 4], F32)
    found = run(b.build(), {"v": weights, "a": matrix()}).outputs[0]
    assert (found == matrix() @ weights).all()


def test_two_reductions_in_a_row_use_each_other() -> None:
    x = matrix()

    def variance(k: BodyBuilder, v: Value) -> Value:
        d = v - k.sum(v) / 4.0
        return k.sum(d * d) / 4.0

    assert np.allclose(over_rows(variance, x), x.var(1))


def test_several_reduction_loops_count_positions_in_row_major_order() -> None:
    x = np.zeros((2, 3, 4), F32)
    x[0, 1, 2] = x[0, 2, 0] = 5
    x[1, 0, 0] = np.nan
    x[1, 0, 1] = np.nan
    assert over_rows(lambda k, v: k.argmax(v), x, "i64").tolist() == [6, 0]


def test_a_body_without_loops_is_one_point() -> None:
    b = ProgramBuilder("scalar")
    x = b.input("x", "f32", [])
    y = b.output("y", "f32", [])
    with b.loop("it", []) as k:
        k.store(y, (), k.exp(k.load(x)) + 1.0)
    (found,) = run(b.build(), {"x": np.array(0.0, F32)}).outputs
    assert found.shape == ()
    assert found == 2


def test_a_body_with_only_reduction_loops_gives_one_value() -> None:
    b = ProgramBuilder("total")
    x = b.input("x", "i32", [2, 3])
    y = b.output("y", "i64", [])
    with b.loop("it", [], reduce=[2, 3]) as k:
        k.store(y, (), k.sum(k.load(x, *k.vars), element="i64"))
    (found,) = run(b.build(), {"x": np.arange(6, dtype=np.int32).reshape(2, 3)}).outputs
    assert found == 15


# -------------------------------------------------------------------------------- reductions

IDENTITIES = {
    "sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "any": False, "all": True,
}  # fmt: skip


@pytest.mark.parametrize("kind", IDENTITIES)
def test_nothing_reduces_to_the_identity(kind: str) -> None:
    found = over_rows(lambda k, v: k.reduce_by(kind, v).to("f32"), np.zeros((2, 0), F32))
    assert found.tolist() == [float(IDENTITIES[kind])] * 2


def test_nothing_of_whole_numbers_reduces_to_their_limits() -> None:
    nothing = np.zeros((1, 0), np.int8)
    assert over_rows(lambda k, v: k.max(v), nothing, "i8").tolist() == [-128]
    assert over_rows(lambda k, v: k.min(v), nothing, "i8").tolist() == [127]
    assert over_rows(lambda k, v: k.xor_sum(v), nothing, "i8").tolist() == [0]


def test_welford_and_online_softmax_of_nothing() -> None:
    nothing = np.zeros((1, 0), F32)
    for n, wanted in enumerate((0, 0, 0)):
        assert over_rows(lambda k, v, n=n: k.welford(v)[n], nothing).tolist() == [wanted]
    for n, limit in enumerate((-np.inf, 0)):
        assert over_rows(lambda k, v, n=n: k.online_softmax(v)[n], nothing).tolist() == [limit]


def test_a_sum_of_f32_does_not_depend_on_the_order() -> None:
    x = np.array([[1e8, 1, -1e8, 1e-3], [1, 1e-3, 1e8, -1e8]], F32)
    found = over_rows(lambda k, v: k.sum(v), x)
    assert found[0] == found[1] == F32(1 + float(F32(1e-3)))


def test_a_sum_of_bf16_is_rounded_once() -> None:
    x = np.full((1, 300), 1, NUMPY_TYPES[DType.BF16])
    assert float(over_rows(lambda k, v: k.sum(v), x, "bf16")[0]) == 300  # bf16 steps stop at 256


def test_whole_sums_wrap_unless_a_wider_type_is_asked_for() -> None:
    x = np.full((1, 4), 100, np.int8)
    assert over_rows(lambda k, v: k.sum(v), x, "i8").tolist() == [400 - 512]
    assert over_rows(lambda k, v: k.sum(v, element="i32"), x, "i32").tolist() == [400]


def test_bools_are_counted() -> None:
    x = np.array([[True, False, True]])
    assert over_rows(lambda k, v: k.sum(v), x, "i64").tolist() == [2]


def test_online_softmax_of_minus_infinity_has_no_weight() -> None:
    x = np.array([[-np.inf, -np.inf], [-np.inf, 0.0], [np.inf, 0.0], [np.nan, 0.0]], F32)
    tops = over_rows(lambda k, v: k.online_softmax(v)[0], x)
    sums = over_rows(lambda k, v: k.online_softmax(v)[1], x)
    np.testing.assert_array_equal(tops, [-np.inf, 0, np.inf, np.nan])
    np.testing.assert_array_equal(sums, [0, 1, np.nan, np.nan])


def test_welford_combine_ignores_parts_without_weight() -> None:
    b = ProgramBuilder("parts")
    names = ("mean", "m2", "weight")
    buffers = [b.input(n, "f32", [3]) for n in names]
    ys = [b.output(f"y_{n}", "f32", []) for n in names]
    with b.loop("it", [], reduce=[3]) as k:
        values = k.welford_combine(*[k.load(x, *k.vars) for x in buffers])
        for value, y in zip(values, ys, strict=True):
            k.store(y, (), value)
    parts = {"mean": [2, 9, 4], "m2": [0, 0, 2], "weight": [2, 0, 2]}
    found = run(b.build(), {n: np.array(v, F32) for n, v in parts.items()}).outputs
    assert [float(v) for v in found] == [3, 6, 4]


# ----------------------------------------------------------------------------- scan and sort


def test_a_region_scan_folds_all_first_then_all_second_partials() -> None:
    # Linear recurrences h = a*h + b compose as (a2*a1, a2*b1 + b2).
    b = ProgramBuilder("recurrence")
    a_in, b_in = b.input("a", "f32", [2, 3]), b.input("b", "f32", [2, 3])
    y = b.output("y", "f32", [2, 3])
    with b.loop("it", [2], reduce=[3]) as k:
        pair = [k.load(a_in, *k.vars), k.load(b_in, *k.vars)]
        found = k.scan_region(pair, lambda a1, b1, a2, b2: [a1 * a2, a2 * b1 + b2])
        k.store(y, k.vars, found[1])
    a, c = np.array([[2, 3, 4], [1, 0, 1]], F32), np.array([[1, 1, 1], [5, 6, 7]], F32)
    (mine,) = run(b.build(), {"a": a, "b": c}).outputs
    assert mine.tolist() == [[1, 4, 17], [5, 6, 13]]


def test_a_region_may_use_values_from_outside() -> None:
    def body(k: BodyBuilder, v: Value) -> Value:
        total = k.sum(v)
        return k.scan_region([v], lambda p, q: [k.minimum(p + q, total)])

    x = np.array([[1, 2, 3], [4, -6, 1]], F32)
    assert over_rows(body, x, reduced=False).tolist() == [[1, 3, 6], [4, -2, -1]]


def test_scans_run_through_several_loops_as_one() -> None:
    x = np.ones((1, 2, 3), F32)
    found = over_rows(lambda k, v: k.scan("add", v), x, reduced=False)
    assert found.tolist() == [[[1, 2, 3], [4, 5, 6]]]


@pytest.mark.parametrize("how", ["named", "region", "sort"])
def test_scans_and_sorts_of_nothing_are_nothing(how: str) -> None:
    def body(k: BodyBuilder, v: Value) -> Value:
        if how == "sort":
            return k.sort(v)
        if how == "named":
            return k.scan("add", v)
        return k.scan_region([v], lambda a, b: [a + b])

    assert over_rows(body, np.zeros((2, 0), F32), reduced=False).shape == (2, 0)


def test_the_latest_of_equal_maxima_is_remembered() -> None:
    x = np.array([[1, 3, 3, 2, np.nan, 5, np.nan, 1]], F32)

    def body(k: BodyBuilder, v: Value) -> Value:
        return k.scan("argmax", v, k.index(k.vars[1]))[1]

    assert over_rows(body, x, "i64", reduced=False).tolist() == [[0, 1, 2, 2, 4, 4, 6, 6]]


# ------------------------------------------------------------------------------------- masks


def test_nested_masks_guard_loads_checks_and_assertions() -> None:
    b = ProgramBuilder("nested")
    x, at = b.input("x", "f32", [4]), b.input("at", "i64", [6])
    y = b.output("y", "f32", [6])
    with b.loop("it", [6]) as k:
        (i,) = k.vars
        index = k.load(at, i)

        def inner() -> Value:
            k.check(k.index(i) < 4, "not guarded")
            return k.load(x, k.indirect(index, 4))

        def outer() -> Value:
            return k.masked(index >= 0, -1.0, inner)

        k.store(y, (i,), k.masked(k.index(i) < 4, -2.0, outer))
    inputs = {"x": np.arange(4, dtype=F32), "at": np.array([3, -7, 0, 1, 99, 99])}
    assert run(b.build(), inputs).outputs[0].tolist() == [3, -1, 0, 1, -2, -2]


def test_a_masked_load_of_an_empty_buffer_is_fine() -> None:
    b = ProgramBuilder("empty")
    x, y = b.input("x", "f32", [0]), b.output("y", "f32", [2])
    with b.loop("it", [2]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.masked(k.constant(False, "bool"), 7.0, lambda: k.load(x, i)))
    assert run(b.build(), {"x": np.zeros(0, F32)}).outputs[0].tolist() == [7, 7]


def test_a_mask_that_varies_more_than_the_load_widens_the_result() -> None:
    b = ProgramBuilder("wide")
    x, y = b.input("x", "f32", [1]), b.output("y", "f32", [2])
    with b.loop("it", [2]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.masked(k.index(i) < 1, 7.0, lambda: k.load(x, 5 * i)))
    assert run(b.build(), {"x": np.ones(1, F32)}).outputs[0].tolist() == [1, 7]


# ------------------------------------------------------------------------------ empty domains


def test_an_empty_domain_touches_nothing_but_defines_its_result() -> None:
    b = ProgramBuilder("empty")
    x = b.input("x", "f32", [0])
    t, y = b.buffer("t", "f32", [0]), b.output("y", "f32", [0])
    with b.loop("first", [0]) as k:
        k.check(k.constant(False, "bool"), "never looked at")
        k.store(t, k.vars, k.load_at(x, 5))
    with b.loop("second", [0]) as k:
        k.store(y, k.vars, k.load(t, *k.vars))
    assert run(b.build(), {"x": np.zeros(0, F32)}).outputs[0].shape == (0,)


def test_a_store_along_empty_reduction_loops_stores_nothing() -> None:
    x = np.zeros((2, 0), F32)
    assert over_rows(lambda k, v: v + k.sum(v), x, reduced=False).shape == (2, 0)


# ------------------------------------------------------------------------------------ stores


def test_an_atomic_store_happens_at_every_point_even_of_a_constant() -> None:
    b = ProgramBuilder("count")
    y = b.input("y", "i32", [1])
    with b.loop("it", [5, 2]) as k:
        k.store(y, (0,), k.constant(3, "i32"), mode="atomic_add")
    assert run(b.build(), {"y": np.array([1], np.int32)}).read("y").tolist() == [31]


def test_an_atomic_store_of_a_reduced_value_happens_once_per_row() -> None:
    b = ProgramBuilder("rows")
    x, y = b.input("x", "f32", [3, 4]), b.input("y", "f32", [1])
    with b.loop("it", [3], reduce=[4]) as k:
        k.store(y, (0,), k.sum(k.load(x, *k.vars)), mode="atomic_add")
    found = run(b.build(), {"x": np.ones((3, 4), F32), "y": np.zeros(1, F32)}).read("y")
    assert found.tolist() == [12]


def test_a_store_converts_to_the_type_of_the_buffer() -> None:
    b = ProgramBuilder("convert")
    x, y = b.input("x", "f32", [3]), b.output("y", "u8", [3])
    with b.loop("it", [3]) as k:
        k.store(y, k.vars, k.load(x, *k.vars))
    found = run(b.build(), {"x": np.array([-1.5, 300.9, 2.5], F32)}).outputs[0]
    assert found.tolist() == [255, 44, 2]


def test_the_last_point_in_loop_order_wins() -> None:
    b = ProgramBuilder("race")
    y = b.output("y", "i64", [2])
    with b.loop("it", [3, 2]) as k:
        i, j = k.vars
        k.store(y, (j,), k.index(10 * i + j))
    assert run(b.build(), {}).outputs[0].tolist() == [20, 21]


# ------------------------------------------------------------------------------ other values


def test_bits_are_read_as_another_type() -> None:
    b = ProgramBuilder("bits")
    x, y, z = b.input("x", "f32", [2]), b.output("y", "i32", [2]), b.output("z", "f32", [2])
    with b.loop("it", [2]) as k:
        bits = k.bitcast(k.load(x, *k.vars), "i32")
        k.store(y, k.vars, bits)
        k.store(z, k.vars, k.bitcast(bits & 0x7FFFFFFF, "f32"))
    found = run(b.build(), {"x": np.array([1.0, -2.0], F32)}).outputs
    assert found[0].tolist() == [0x3F800000, -0x40000000]
    assert found[1].tolist() == [1, 2]


@pytest.mark.parametrize(
    "how, wanted",
    [("floor", [-3, 2, 3]), ("ceil", [-2, 3, 4]), ("trunc", [-2, 2, 3]), ("round", [-2, 2, 4])],
)
def test_rounding_to_whole_numbers(how: str, wanted: list[int]) -> None:
    b = ProgramBuilder("round")
    x, y = b.input("x", "f32", [3]), b.output("y", "i32", [3])
    with b.loop("it", [3]) as k:
        k.store(y, k.vars, k.to_int(how, k.load(x, *k.vars), "i32"))
    assert run(b.build(), {"x": np.array([-2.5, 2.5, 3.5], F32)}).outputs[0].tolist() == wanted


def test_several_results_are_taken_by_position() -> None:
    b = ProgramBuilder("frexp")
    x, m, e = b.input("x", "bf16", [2]), b.output("m", "bf16", [2]), b.output("e", "i32", [2])
    with b.loop("it", [2]) as k:
        mantissa, exponent = k.frexp(k.load(x, *k.vars))
        k.store(m, k.vars, mantissa)
        k.store(e, k.vars, exponent)
    found = run(b.build(), {"x": np.array([6.0, -0.25], NUMPY_TYPES[DType.BF16])}).outputs
    assert found[0].astype(F32).tolist() == [0.75, -0.5]
    assert found[1].tolist() == [3, -1]


def test_bucketize_looks_only_at_the_boundaries_it_is_given() -> None:
    b = ProgramBuilder("buckets")
    x, edges = b.input("x", "i32", [3]), b.input("edges", "f32", [4])
    y = b.output("y", "i64", [3])
    with b.loop("it", [3]) as k:
        k.store(y, k.vars, k.bucketize(k.load(x, *k.vars), edges, size=2))
    inputs = {"x": np.array([0, 5, 99], np.int32), "edges": np.array([0.5, 6, 7, 8], F32)}
    assert run(b.build(), inputs).outputs[0].tolist() == [0, 1, 2]


def test_run_time_sizes_are_known_in_index_expressions() -> None:
    b = ProgramBuilder("sizes")
    n = b.size("n", 1, 100)
    x, y = b.input("x", "f32", [n]), b.output("y", "f32", [n])
    with b.loop("reverse", [n]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(x, n - 1 - i) * k.index(n, "f32"))
    result = run(b.build(), {"x": np.array([1, 2, 3], F32)})
    assert result.outputs[0].tolist() == [9, 6, 3]
    assert result.sizes == {"n": 3}
