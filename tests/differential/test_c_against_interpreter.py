"""Generated C gives what the interpreter gives: every operation, type, reduction, cast, access.

Many operations share a translation unit, so that compiling takes little of the time. Operations
that are rounded correctly must agree to the bit; functions of the mathematical library and special
functions may differ in the last places of a double, and so rarely in the last place of the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from treadle.codegen.c.ops import NATIVE, WIDE
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.interp import from_arrays
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.ops import POINTWISE, REDUCTIONS
from treadle.ir.program import Foreach, Fused, Grouped, MixOrder, Program
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import ACCEPTS
from treadle.runtime import compile_program
from treadle.testing.differential import differences, out_of_bounds

FLOATS = [d for d in DType if d.is_float]
PLAIN = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 100.0, 0.001, 6e-8, -3e4, 448.0]
WILD = [np.inf, -np.inf, np.nan, 1e20, 3.4e38, -1e-40, 464.0, 65519.0]
MODERATE = [0.0, 1.0, -1.0, 0.5, -0.25, 0.9375, 2.0, 3.0, -3.5, 7.0, -6.5, 12.0, 25.0, 1e-4]
ENDS = [np.inf, -np.inf, np.nan]


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def values(dtype: DType, moderate: bool = False) -> Array:
    """Values of a type that corners are made of."""
    kind = NUMPY_TYPES[dtype]
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.array(MODERATE + ENDS if moderate else PLAIN + WILD).astype(kind)
    info = np.iinfo(kind)
    small = [0, 1, 2, 3, 5, 7, 8, 31, 63, 100] + [n for n in (-1, -2, -7, -8) if info.min < 0]
    ends = [] if moderate else [info.min, info.min + 1, info.max, info.max - 1]
    return np.array([*small, *ends], kind)


def grid(dtype: DType, count: int, moderate: bool = False) -> list[Array]:
    """Every combination of `count` values, as that many rows of one length."""
    rows = list(itertools.product(values(dtype, moderate), repeat=min(count, 2)))
    columns = [np.array([r[k] for r in rows], NUMPY_TYPES[dtype]) for k in range(min(count, 2))]
    return columns + [np.roll(columns[0], 3)] * (count - len(columns))


def agree(
    program: Program, inputs: dict[str, Array], bounded: bool = False, **rest: object
) -> None:
    """The same values; `bounded`: within the derived bound, which leaves room where f64 does."""
    compiled = compile_program(program, optimise=0)
    assert compiled.is_compiled
    compare = out_of_bounds if bounded else differences
    found = compare(compiled, inputs, **rest)  # type: ignore[arg-type]
    assert not found, "\n".join(found)


class Sheet:
    """A program of one loop per call over rows of input, each with many results."""

    def __init__(self, name: str) -> None:
        self.builder, self.inputs = ProgramBuilder(name), {}

    def loop(self, rows: Sequence[Array], dtypes: Sequence[DType], write: object) -> None:
        b, at = self.builder, len(self.inputs)
        sources = []
        for k, (row, t) in enumerate(zip(rows, dtypes, strict=True)):
            sources.append(b.input(f"x{at}_{k}", t, [len(row)]))
            self.inputs[f"x{at}_{k}"] = row
        with b.loop(f"loop{at}", [len(rows[0])]) as k:
            operands = [k.load(s, k.vars[0]) for s in sources]
            for label, value in write(k, operands):  # type: ignore[operator]
                target = b.output(f"{label}_{at}", value.dtype, [len(rows[0])])
                k.store(target, k.vars[0], value)

    def check(self, bounded: bool = False) -> None:
        agree(self.builder.build(), self.inputs, bounded)


def legal(name: str, dtype: DType) -> bool:
    if name == "where":
        return True
    return ACCEPTS[POINTWISE[name].accepts](dtype)


def apply(k: BodyBuilder, name: str, operands: list[Value]) -> list[tuple[str, Value]]:
    given = operands[: POINTWISE[name].arity]
    if name == "where":
        given = [operands[0] > operands[1], operands[1], operands[2]]
    found = k.op(name, *given)
    return [(f"{name}{j}", v) for j, v in enumerate(found)] if name == "frexp" else [(name, found)]


# -------------------------------------------------------------------------------- pointwise

EXACT = [n for n in POINTWISE if n not in WIDE and n not in ("pow", "ldexp")]


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_operations_that_round_once_agree_to_the_bit(dtype: DType) -> None:
    sheet = Sheet("exact")
    names = [n for n in EXACT if legal(n, dtype)]

    def write(k: BodyBuilder, operands: list[Value]) -> list[tuple[str, Value]]:
        return [r for n in names for r in apply(k, n, operands)]

    sheet.loop(grid(dtype, 3), [dtype] * 3, write)
    sheet.check()


def test_functions_computed_in_double_agree() -> None:
    for dtype in FLOATS:
        sheet = Sheet("wide")

        def write(k: BodyBuilder, operands: list[Value]) -> list[tuple[str, Value]]:
            return [r for n in (*WIDE, "pow", "ldexp") for r in apply(k, n, operands)]

        sheet.loop(grid(dtype, 2, moderate=True), [dtype] * 2, write)
        sheet.check(bounded=True)


def test_functions_of_whole_numbers_are_computed_as_floats() -> None:
    sheet = Sheet("whole")
    for dtype in (DType.BOOL, DType.I8, DType.U16, DType.I64):

        def write(
            k: BodyBuilder, operands: list[Value], t: DType = dtype
        ) -> list[tuple[str, Value]]:
            names = [n for n in ("exp", "rsqrt", "atan2", "sigmoid", "pow", "erf") if legal(n, t)]
            return [r for n in names for r in apply(k, n, operands)]

        sheet.loop(grid(dtype, 2, moderate=True), [dtype] * 2, write)
    sheet.check(bounded=True)


def test_operands_of_different_types_are_promoted_alike() -> None:
    sheet = Sheet("mixed")
    pairs = [(a, b) for a in DType for b in (DType.I16, DType.U8, DType.BF16, DType.F32, DType.U64)]
    for a, b in pairs:
        first, second = values(a), values(b)
        count = max(len(first), len(second))

        def write(k: BodyBuilder, operands: list[Value]) -> list[tuple[str, Value]]:
            x, y = operands
            return [("add", x + y), ("lt", x < y), ("where", k.where(x > y, x, y))]

        sheet.loop([np.resize(first, count), np.resize(second, count)], [a, b], write)
    sheet.check()


def test_casts_between_all_pairs_of_types_agree() -> None:
    sheet = Sheet("casts")
    for source in DType:

        def write(k: BodyBuilder, operands: list[Value], t: DType = source) -> list:
            (x,) = operands
            found = [(f"to_{d.text}", x.to(d)) for d in DType]
            found += [(f"bits_{d.text}", k.bitcast(x, d)) for d in DType if d.bits == t.bits]
            for how in ("floor", "ceil", "trunc", "round"):
                found += [(f"{how}_{d.text}", k.to_int(how, x, d)) for d in (DType.I64, DType.U8)]
            return found

        sheet.loop([values(source)], [source], write)
    sheet.check()


@pytest.mark.parametrize("dtype", [DType.F8E4M3, DType.F8E5M2, DType.F16, DType.BF16], ids=str)
def test_every_value_of_a_narrow_float_is_read_and_written_exactly(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}")
    sheet = Sheet("codes")

    def write(k: BodyBuilder, operands: list[Value]) -> list[tuple[str, Value]]:
        (x,) = operands
        up = k.nextafter(x, k.constant(1e30, dtype))
        back = x.to("f32").to(dtype)
        return [("same", x), ("wide", x.to("f32")), ("next", up), ("half", x * 0.3), ("back", back)]

    sheet.loop([codes.view(NUMPY_TYPES[dtype])], [dtype], write)
    sheet.check()


def test_narrowing_rounds_every_kind_of_tie_to_even() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32)
    bits[::2] &= np.uint32(0xFFFF8000)  # many exact ties
    bits[::3] &= np.uint32(0xFFFFF000)
    sheet = Sheet("ties")

    def write(k: BodyBuilder, operands: list[Value]) -> list[tuple[str, Value]]:
        return [(d.text, operands[0].to(d)) for d in FLOATS]

    sheet.loop([bits.view(np.float32)], [DType.F32], write)
    sheet.check()


def test_constants_of_every_type_agree() -> None:
    sheet = Sheet("constants")
    given = [0, 1, -1, 300, 2**63 - 1, 0.1, -2.5, 1e300, "inf", "-inf", "nan", True]
    for dtype in DType:

        def write(k: BodyBuilder, operands: list[Value], t: DType = dtype) -> list:
            return [(f"c{n}_{t.text}", k.constant(v, t)) for n, v in enumerate(given)]

        sheet.loop([np.zeros(1, np.float32)], [DType.F32], write)
    sheet.check()


def test_random_numbers_are_the_same_numbers() -> None:
    b = ProgramBuilder("random")
    x = b.input("x", "i64", [64])
    outputs = [b.output(f"y{k}", t, [64]) for k, t in enumerate(("f32", "f64", "bf16", "i64"))]
    normal = b.output("normal", "f32", [64])
    with b.loop("draw", [64]) as k:
        seed, at = k.load(x, k.vars[0]), k.index(k.vars[0] * 1000003 - 7)
        for y in outputs[:3]:
            k.store(y, k.vars[0], k.random("rand", seed, at, y.dtype))
        low, high = k.constant(-5, "i64"), k.constant(2**40, "i64")
        k.store(outputs[3], k.vars[0], k.randint(seed, at, low, high))
        k.store(normal, k.vars[0], k.random("randn", seed, at))
    seeds = np.random.default_rng(1).integers(-(2**62), 2**62, 64)
    agree(b.build(), {"x": seeds}, bounded=True)


# ------------------------------------------------------------------------------- reductions


def rows_of(dtype: DType, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((7, 6, 5)) * 4
    with np.errstate(all="ignore"):
        found = found.astype(NUMPY_TYPES[dtype]) if dtype is not DType.BOOL else found > 2
    if dtype.is_float:
        found[1, 2, 3], found[2] = np.nan, 0.0
        found[3, 0, 0], found[3, 5, 4], found[4, 2, 2] = np.inf, np.inf, -np.inf
        if dtype is not DType.F8E4M3:
            found[5] = -np.inf
        found[6, 1, 1], found[6, 4, 4] = np.nan, np.nan
    return found


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_reduction_agrees(dtype: DType) -> None:
    b = ProgramBuilder("reductions")
    operands = [b.input(f"x{k}", dtype, [7, 6, 5]) for k in range(3)]
    kinds = [d for d in REDUCTIONS.values() if ACCEPTS[d.accepts](dtype)]
    with b.loop("all", [7], reduce=[6, 5]) as k:
        loaded = [k.load(x, *k.vars) for x in operands]
        for d in kinds:
            for element in (None, "f64", "i32") if d.name in ("sum", "max") else (None,):
                found = k.reduce_by(d.name, *loaded[: d.operands], element=element)
                for j, v in enumerate(found if d.results > 1 else [found]):
                    y = b.output(f"{d.name}{j}_{element}", v.dtype, [7])
                    k.store(y, k.vars[0], v)
    arrays = {f"x{k}": rows_of(dtype, k) for k in range(3)}
    agree(b.build(), arrays, bounded=True)


def test_reductions_over_nothing_give_their_identity() -> None:
    b = ProgramBuilder("nothing")
    s = b.size("s", 0, 8)
    x = b.input("x", "f32", [3, s])
    with b.loop("all", [3], reduce=[s]) as k:
        v = k.load(x, *k.vars)
        for d in REDUCTIONS.values():
            if d.operands == 1 and not d.name.startswith("arg") and d.name != "xor_sum":
                found = k.reduce_by(d.name, v)
                for j, r in enumerate(found if d.results > 1 else [found]):
                    k.store(b.output(f"{d.name}{j}", r.dtype, [3]), k.vars[0], r)
    for n in (0, 1, 5):
        agree(b.build(), {"x": np.ones((3, n), np.float32)}, sizes={"s": n})


def test_a_position_in_nothing_is_the_same_error() -> None:
    b = ProgramBuilder("nowhere")
    s = b.size("s", 0, 8)
    x = b.input("x", "f32", [3, s])
    with b.loop("first", [3], reduce=[s]) as k:
        k.store(b.output("y", "i64", [3]), k.vars[0], k.argmax(k.load(x, *k.vars)))
    agree(b.build(), {"x": np.ones((3, 0), np.float32)}, sizes={"s": 0})


def test_results_of_reductions_are_used_in_the_same_body() -> None:
    b = ProgramBuilder("softmax")
    x = b.input("x", "f32", [6, 33])
    y, z = b.output("y", "f32", [6, 33]), b.output("z", "f32", [6])
    with b.loop("softmax", [6], reduce=[33]) as k:
        v = k.load(x, *k.vars)
        e = k.exp(v - k.max(v))
        total = k.sum(e)
        mean, m2, weight = k.welford(e / total)
        k.store(y, k.vars, (e / total - mean) / k.sqrt(m2 / weight))
        k.store(z, k.vars[0], total)
    agree(b.build(), {"x": rows(6, 33)}, bounded=True)


def rows(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_a_row_changed_in_place_is_read_before_it_is_overwritten() -> None:
    b = ProgramBuilder("in_place")
    x, y = b.input("x", "f32", [4, 9]), b.output("y", "f32", [4])
    with b.loop("twice", [4], reduce=[9]) as k:
        v = k.load(x, *k.vars)
        total = k.sum(v)
        k.store(x, k.vars, v * 2.0 - total)
        again = k.sum(v * v - total)  # needs the old values after they were overwritten
        k.store(y, k.vars[0], again)
    agree(b.build(), {"x": rows(4, 9)}, bounded=True)


# ---------------------------------------------------------------------------- scans and sorts

SCANS = ("add", "mul", "max", "min", "logaddexp")


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.I8, DType.I64, *FLOATS], ids=str)
def test_every_scan_agrees(dtype: DType) -> None:
    b = ProgramBuilder("scans")
    x = b.input("x", dtype, [7, 6, 5])
    shape = [7, 6, 5]
    with b.loop("scan", [7], reduce=[6, 5]) as k:
        v = k.load(x, *k.vars)
        for name in SCANS:
            k.store(b.output(name, dtype, shape), k.vars, k.scan(name, v))
        place = k.index(k.vars[1] * 5 + k.vars[2], "i32")
        for name in ("argmax", "argmin"):
            best, at = k.scan(name, v, place)
            k.store(b.output(f"{name}0", dtype, shape), k.vars, best)
            k.store(b.output(f"{name}1", "i32", shape), k.vars, at)
    agree(b.build(), {"x": rows_of(dtype)}, bounded=True)


def test_a_scan_by_a_region_agrees() -> None:
    b = ProgramBuilder("region")
    x, a = b.input("x", "f32", [3, 8]), b.input("a", "f32", [3, 8])
    y, z = b.output("y", "f32", [3, 8]), b.output("z", "f32", [3, 8])
    with b.loop("linear", [3], reduce=[8]) as k:

        def combine(a0: Value, b0: Value, a1: Value, b1: Value) -> list[Value]:
            return [a0 * a1, a1 * b0 + b1]

        decay, state = k.scan_region([k.load(a, *k.vars), k.load(x, *k.vars)], combine)
        k.store(y, k.vars, state)
        k.store(z, k.vars, decay - k.sum(state))
    agree(b.build(), {"x": rows(3, 8), "a": rows(3, 8)}, bounded=True)


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.I16, DType.U64, *FLOATS], ids=str)
def test_sorting_is_stable_and_knows_where_nan_goes(dtype: DType) -> None:
    b = ProgramBuilder("sort")
    x = b.input("x", dtype, [7, 6, 5])
    for down in (False, True):
        with b.loop(f"sort{down}", [7], reduce=[6, 5]) as k:
            v = k.load(x, *k.vars)
            key, at = k.sort(v, k.index(k.vars[1] * 5 + k.vars[2]), descending=down)
            k.store(b.output(f"key{down}", dtype, [7, 6, 5]), k.vars, key)
            k.store(b.output(f"at{down}", "i64", [7, 6, 5]), k.vars, at)
            k.store(b.output(f"n{down}", "f64", [7]), k.vars[0], k.sum(key.to("f64")))
    agree(b.build(), {"x": rows_of(dtype)}, bounded=True)


# ------------------------------------------------------------- scatters, gathers and masks

MODES = ("plain", "atomic_add", "atomic_mul", "atomic_min", "atomic_max")


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_store_mode_combines_alike_at_repeated_places(dtype: DType) -> None:
    b = ProgramBuilder("scatter")
    x, at = b.input("x", dtype, [40]), b.input("at", "i32", [40])
    modes = MODES if dtype.is_float else (*MODES, "atomic_and", "atomic_or", "atomic_xor")
    arrays = {"x": np.resize(rows_of(dtype)[0].reshape(-1), 40)}
    arrays["at"] = np.random.default_rng(0).integers(-6, 6, 40).astype(np.int32)
    for mode in modes:
        y = b.input(f"y_{mode}", dtype, [6])
        arrays[y.name] = np.resize(rows_of(dtype, 5)[0].reshape(-1), 6)
        with b.loop(f"by_{mode}", [40]) as k:
            place = k.indirect(k.load(at, k.vars[0]), 6, wrap=True)
            k.store_at(y, place, k.load(x, k.vars[0]), mode)
    b.returns("y_plain")
    agree(b.build(), arrays, bounded=True)


def test_narrow_numbers_combined_by_several_stores_are_held_wider() -> None:
    """Many small steps are lost if each is rounded, also where another store combines there."""
    b = ProgramBuilder("several")
    x, acc = b.input("x", "bf16", [2, 64]), b.input("acc", "bf16", [2])
    b.returns(acc)
    with b.loop("loop", [2], reduce=[64]) as k:
        (i,), (r,) = k.domain.vars, k.reduce.vars
        k.store_at(acc, i, k.load(x, i, r), "atomic_add")
        k.store_at(acc, i, k.load(x, i, r), "atomic_add")
    inputs = {"x": np.full((2, 64), 2.0**-9), "acc": np.ones(2)}
    narrow = {name: a.astype(NUMPY_TYPES[DType.BF16]) for name, a in inputs.items()}
    compiled = compile_program(b.build(), optimise=0)
    assert compiled.run(narrow).read("acc").tolist() == [1.25, 1.25]
    agree(b.build(), narrow, bounded=True)


def test_combining_halves_of_numbers_leaves_the_others_alone() -> None:
    """A half may look like a NaN, whose bits nothing touched."""
    b = ProgramBuilder("halves")
    x = b.input("x", "f32", [8])
    b.returns(x)
    halves = b.view("halves", x, [16], element="f16")
    with b.loop("loop", [2]) as k:
        k.store_at(halves, k.vars[0] * 2 + 1, k.constant(1.0, "f16"), "atomic_add")
    bits = np.arange(8, dtype=np.uint32) * 0x1000 + 0x3F807C01  # low halves are signalling NaN
    result = compile_program(b.build(), optimise=0).run({"x": bits.view(np.float32)})
    found = result.read("x").view(np.uint32)
    assert (found[2:] == bits[2:]).all()
    assert (found & 0xFFFF == bits & 0xFFFF).all()


def test_stores_happen_once_along_loops_they_do_not_vary_over() -> None:
    b = ProgramBuilder("once")
    x, acc = b.input("x", "f32", [4, 3]), b.input("acc", "f32", [4])
    part = b.input("part", "f32", [3])
    with b.loop("sums", [4], reduce=[3, 5]) as k:
        i, r, q = k.vars
        v = k.load(x, i, r)
        k.store(acc, i, k.constant(1.0, "f32"), "atomic_add")
        k.store(part, r, v, "atomic_add")
        k.store(b.output("y", "f32", [4]), i, k.sum(v + k.index(q, "f32")))
    arrays = {"x": rows(4, 3), "acc": rows(4), "part": rows(3)}
    agree(b.build(), arrays, bounded=True)


def test_masks_guard_loads_checks_and_assertions() -> None:
    b = ProgramBuilder("masked")
    x, at = b.input("x", "f32", [8]), b.input("at", "i64", [8])
    y = b.output("y", "f32", [8, 4])
    with b.loop("pad", [8, 4]) as k:
        i, j = k.vars
        place = k.index(i + j - 2)
        inside = k.logical_and(place >= 0, place < 8)

        def region() -> Value:
            where = k.indirect(k.load_at(at, i + j - 2), 8)
            inner = k.load_at(x, where) > 0
            k.check(k.load_at(at, i + j - 2) < 8, "small")
            return k.masked(inner, 7.0, lambda: k.load_at(x, i + j - 2, unproven=True))

        k.store(y, (i, j), k.masked(inside, -1.0, region))
    agree(b.build(), {"x": rows(8), "at": np.arange(8)[::-1].copy()})


def failing(
    write: Callable[[ProgramBuilder, BodyBuilder, Buffer, Buffer, Buffer], None],
) -> Program:
    b = ProgramBuilder("failing")
    x, at = b.input("x", "f32", [4]), b.input("at", "i64", [4])
    y = b.output("y", "f32", [4])
    with b.loop("loop", [4]) as k:
        write(b, k, x, at, y)
    return b.build()


def bad_gather(b: ProgramBuilder, k: BodyBuilder, x: Buffer, at: Buffer, y: Buffer) -> None:
    k.store(y, k.vars[0], k.load_at(x, k.indirect(k.load(at, k.vars[0]), 4, wrap=True)))


def bad_load(b: ProgramBuilder, k: BodyBuilder, x: Buffer, at: Buffer, y: Buffer) -> None:
    where = k.indirect(k.load(at, k.vars[0]), 4, check=False)
    k.store(y, k.vars[0], k.load_at(x, where, unproven=True))


def bad_store(b: ProgramBuilder, k: BodyBuilder, x: Buffer, at: Buffer, y: Buffer) -> None:
    where = k.indirect(k.load(at, k.vars[0]), 4, check=False)
    k.store_at(y, where, k.load(x, k.vars[0]), unproven=True)


def bad_assert(b: ProgramBuilder, k: BodyBuilder, x: Buffer, at: Buffer, y: Buffer) -> None:
    k.check(k.load(at, k.vars[0]) < 3, "below three")
    k.store(y, k.vars[0], k.load(x, k.vars[0]))


@pytest.mark.parametrize(
    ("write", "code"),
    [(bad_gather, "RUN004"), (bad_load, "RUN003"), (bad_store, "RUN003"), (bad_assert, "RUN007")],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_failures_are_the_errors_of_the_interpreter(write: Callable, code: str) -> None:
    from treadle.ir.interp import RunError, run

    program = failing(write)
    inputs = {"x": rows(4), "at": np.array([0, 1, 9, -2])}
    with pytest.raises(RunError) as expected:
        run(program, inputs)
    with pytest.raises(RunError) as found:
        compile_program(program, optimise=0).run(inputs)
    assert expected.value.code == found.value.code == code
    assert str(expected.value) == str(found.value)


def test_buckets_are_found_by_the_same_search() -> None:
    b = ProgramBuilder("buckets")
    x = b.input("x", "f32", [30])
    edges = b.input("edges", "bf16", [5], strides=[2], offset=1)
    for right in (False, True):
        with b.loop(f"find{right}", [30]) as k:
            found = k.bucketize(k.load(x, k.vars[0]), edges, right=right, element="i32")
            k.store(b.output(f"y{right}", "i32", [30]), k.vars[0], found)
    sorted_edges = np.array([-1, 0, 0, 1, np.nan]).astype(NUMPY_TYPES[DType.BF16])
    x_values = np.resize(np.array([-2, -1, 0, 0.5, 1, 2, np.nan, np.inf], np.float32), 30)
    agree(b.build(), {"x": x_values, "edges": sorted_edges})


# ------------------------------------------------------------------------- layouts and sizes


def test_views_of_every_kind_are_walked_alike() -> None:
    b = ProgramBuilder("views")
    x = b.input("x", "f32", [4, 6])
    flipped = b.view("flipped", x, [6, 4], [-1, 6], 5)
    bits = b.view("bits", x, [48], element="i16")
    column = b.view("column", x, [4, 3], [6, 0], 2)
    shapes = {"flipped": [6, 4], "bits": [48], "column": [4, 3]}
    for view in (flipped, bits, column):
        y = b.output(f"y_{view.name}", view.dtype, shapes[view.name])
        with b.loop(f"copy_{view.name}", shapes[view.name]) as k:
            k.store(y, k.vars, k.load(view, *k.vars))
    with b.loop("change", [48]) as k:
        k.store(bits, k.vars[0], k.load(bits, k.vars[0]) ^ k.constant(1, "i16"))
    b.returns(flipped)
    agree(b.build(), {"x": rows(4, 6)})


def test_indices_divide_as_python_does() -> None:
    b = ProgramBuilder("indices")
    s = b.size("s", 1, 9)
    x = b.input("x", "f32", [s, 7])
    y = b.output("y", "i64", [s, 7, 6])
    with b.loop("divide", [s, 7]) as k:
        i, j = k.vars
        e = 3 * i - 5 * j + 2
        shown = [e // 4, e % 4, e // s, e % s, (e // 3) * s - (j % 2) * i, (i * 7 + j) % s]
        for n, one in enumerate(shown):
            k.store(y, (i, j, n), k.index(one))
        k.store(b.output("z", "f32", [s, 7]), (i, j), k.load_at(x, (i * 7 + j) % (s * 7)))
    program = b.build()
    for n in (1, 3, 9):
        agree(program, {"x": rows(n, 7)}, sizes={"s": n})


def test_one_compilation_serves_every_size() -> None:
    b = ProgramBuilder("sizes")
    n, m = b.size("n", 0, 64), b.size("m", 1, 64)
    x = b.input("x", "bf16", [n, m])
    t, y = b.buffer("t", "f32", [n]), b.output("y", "f32", [m, n])
    with b.loop("total", [n], reduce=[m]) as k:
        k.store(t, k.vars[0], k.sum(k.load(x, *k.vars).to("f32")))
    with b.loop("spread", [m, n]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(t, j) + k.load(x, j, i))
    compiled = compile_program(b.build(), optimise=0)
    for shape in ((0, 3), (1, 1), (5, 7), (64, 2)):
        x_values = rows(*shape).astype(NUMPY_TYPES[DType.BF16])
        assert not out_of_bounds(compiled, {"x": x_values})


def test_tensors_without_dimensions_and_without_elements_work() -> None:
    b = ProgramBuilder("small")
    scalar, empty = b.input("scalar", "f64", []), b.input("empty", "f32", [0, 3])
    y, z = b.output("y", "f64", []), b.output("z", "f32", [3, 0])
    with b.loop("point", []) as k:
        k.store(y, (), k.load(scalar) * 2.0)
    with b.loop("none", [3, 0]) as k:
        k.store(z, k.vars, k.load(empty, k.vars[1], k.vars[0]))
    agree(b.build(), {"scalar": np.array(1.5), "empty": np.zeros((0, 3), np.float32)})


# ----------------------------------------------------------------------------------- groups


def chain(b: ProgramBuilder, x: Buffer, kind: type) -> None:
    n, m = x.layout.sizes
    t, u = b.buffer("t", "bf16", [n, m]), b.buffer("u", "f32", [n])
    y = b.output("y", "f32", [n, m])
    with b.group(kind, "group"):
        with b.loop("scale", [n, m]) as k:
            k.store(t, k.vars, k.load(x, *k.vars) * 1.7)
        with b.loop("total", [n], reduce=[m]) as k:
            k.store(u, k.vars[0], k.sum(k.load(t, *k.vars).to("f32")))
        with b.loop("shift", [n, m]) as k:
            k.store(y, k.vars, k.load(t, *k.vars) - k.load(u, k.vars[0]))


@pytest.mark.parametrize("kind", [Fused, Grouped, MixOrder])
def test_groups_mean_what_their_members_mean(kind: type) -> None:
    b = ProgramBuilder("groups")
    chain(b, b.input("x", "f32", [5, 8]), kind)
    agree(b.build(), {"x": rows(5, 8)}, bounded=True)


def test_members_that_walk_differently_follow_each_other() -> None:
    b = ProgramBuilder("transposed")
    x, y = b.input("x", "f32", [5, 8]), b.output("y", "f32", [8, 5])
    t = b.buffer("t", "f32", [5, 8])
    with b.group(Fused, "group"):
        with b.loop("first", [5, 8]) as k:
            k.store(t, k.vars, k.load(x, *k.vars) + 1.0)
        with b.loop("second", [8, 5]) as k:
            i, j = k.vars
            k.store(y, (i, j), k.load(t, j, i) * k.load(t, 4 - j, 7 - i))
    agree(b.build(), {"x": rows(5, 8)})


def test_kernels_of_one_launch_are_independent() -> None:
    b = ProgramBuilder("foreach")
    inputs = {f"x{n}": rows(3 + n) for n in range(3)}
    sources = [b.input(name, "f32", list(x.shape)) for name, x in inputs.items()]
    with b.group(Foreach, "each"):
        for n, x in enumerate(sources):
            with b.loop(f"k{n}", [3 + n]) as k:
                k.store(b.output(f"y{n}", "f32", [3 + n]), k.vars[0], k.load(x, k.vars[0]) * 2.0)
    agree(b.build(), inputs)


def test_library_calls_run_between_kernels() -> None:
    b = ProgramBuilder("calls")
    x, w = b.input("x", "f32", [4, 6]), b.input("w", "f32", [6, 3])
    t, p = b.buffer("t", "f32", [4, 6]), b.buffer("p", "f32", [4, 3])
    y = b.output("y", "f32", [4, 3])
    with b.loop("before", [4, 6]) as k:
        k.store(t, k.vars, k.relu(k.load(x, *k.vars)))
    b.extern("aten.mm.default", [t, w], [p])
    b.extern("mylib.norm", [p], [y])
    with b.loop("after", [4, 3]) as k:
        k.store(y, k.vars, k.load(y, *k.vars) + 1.0)
    norm = from_arrays(lambda a: a / np.abs(a).max())
    compiled = compile_program(b.build(), externs={"mylib.norm": norm}, optimise=0)
    assert not differences(compiled, {"x": rows(4, 6), "w": rows(6, 3)})


def test_every_native_row_of_the_table_was_looked_at() -> None:
    assert set(EXACT) | set(WIDE) | {"pow", "ldexp"} == set(POINTWISE)
    assert set(NATIVE) <= set(POINTWISE)
