"""Reductions, scans, sorts, gathers and scatters of the reference agree with torch eager."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from interp_and_torch import distance, of_type, same_bits, to_numpy, to_torch, torch_type  # noqa: E402

from treadle.ir.build import BodyBuilder, ProgramBuilder  # noqa: E402
from treadle.ir.build_body import Value  # noqa: E402
from treadle.ir.interp import run  # noqa: E402
from treadle.ir.ops import REDUCTIONS, SCAN_COMBINES, STORE_MODES  # noqa: E402
from treadle.ir.types import DType  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

ROWS, COLUMNS = 5, 37
NATIVE_TO_TORCH = [
    d for d in DType if not (d.is_float and d.bits == 8) and not (d.cls == "uint" and d.bits > 8)
]
FLOATS = [DType.F16, DType.BF16, DType.F32, DType.F64]
Body = Callable[[BodyBuilder, Value], "Value | tuple[Value, ...]"]


def data(dtype: DType, seed: int = 0, specials: bool = True) -> np.ndarray:
    """A small matrix with equal elements and, in floats, NaN and infinities in separate rows."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        x = of_type(np.round(rng.normal(size=(ROWS, COLUMNS)) * 4) / 4, dtype)
        if specials:
            x[1, 5], x[2, 7], x[2, 9], x[3, 20] = np.inf, np.nan, np.nan, -np.inf
        return x
    if dtype is DType.BOOL:
        return rng.integers(0, 2, (ROWS, COLUMNS)).astype(bool)
    return of_type(rng.integers(-9 if dtype.cls == "int" else 0, 9, ROWS * COLUMNS), dtype).reshape(
        ROWS, COLUMNS
    )


def over_rows(x: np.ndarray, dtype: DType, body: Body, reduced: bool) -> list[np.ndarray]:
    """What `body` makes of the rows of x: one value per row, or one per element."""
    b = ProgramBuilder("rows")
    given = b.input("x", dtype, x.shape)
    with b.loop("it", x.shape[:1], reduce=x.shape[1:]) as k:
        i, j = k.vars
        found = body(k, k.load(given, i, j))
        for n, value in enumerate(found if isinstance(found, tuple) else (found,)):
            shape, at = (x.shape[:1], (i,)) if reduced else (x.shape, (i, j))
            k.store(b.output(f"y{n}", value.dtype, shape), at, value)
    return run(b.build(), {"x": x}).outputs


def agree(mine: np.ndarray, wanted: torch.Tensor, ulps: int = 0) -> None:
    theirs = to_numpy(wanted)
    far = distance(mine, theirs)
    assert (far <= ulps).all(), f"{mine[far > ulps]} is not {theirs[far > ulps]}"


# ------------------------------------------------------------------------------ reductions

# Kind -> torch's version over the last dimension, in the type of the operand.
REDUCED_BY_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: torch.sum(x, -1, dtype=x.dtype),
    "prod": lambda x: torch.prod(x, -1, dtype=x.dtype),
    "max": lambda x: torch.amax(x, -1),
    "min": lambda x: torch.amin(x, -1),
    "argmax": lambda x: torch.argmax(x, -1),
    "argmin": lambda x: torch.argmin(x, -1),
    "any": lambda x: torch.any(x != 0, -1),
    "all": lambda x: torch.all(x != 0, -1),
}
COMPARED_BELOW = {"xor_sum", "dot", "welford", "welford_combine", "online_softmax"}


def test_every_reduction_is_compared() -> None:
    assert set(REDUCED_BY_TORCH) | COMPARED_BELOW == set(REDUCTIONS)


@pytest.mark.parametrize("dtype", NATIVE_TO_TORCH, ids=str)
@pytest.mark.parametrize("kind", REDUCED_BY_TORCH)
def test_reductions_agree(kind: str, dtype: DType) -> None:
    x = data(dtype)
    if dtype.is_float and kind == "prod":
        x = np.where(x == 0, np.ones((), x.dtype), x)
    (mine,) = over_rows(x, dtype, lambda k, v: k.reduce_by(kind, v), reduced=True)
    tensor = to_torch(x)
    if dtype is DType.BOOL and kind in ("sum", "prod"):
        wanted = REDUCED_BY_TORCH[kind](tensor.to(torch.int64))
    elif dtype.is_float and kind in ("sum", "prod"):
        # Exactly rounded here; torch adds up in f32 in some order.
        wanted = REDUCED_BY_TORCH[kind](tensor.double()).to(torch_type(dtype))
    elif dtype is DType.BOOL and kind in ("argmax", "argmin"):
        wanted = REDUCED_BY_TORCH[kind](tensor.to(torch.uint8))
    else:
        wanted = REDUCED_BY_TORCH[kind](tensor)
    agree(mine, wanted, ulps=4 if dtype is DType.F64 and kind in ("sum", "prod") else 0)


@pytest.mark.parametrize("source, to", [("bf16", "f32"), ("i32", "i64"), ("f32", "f64")])
def test_a_sum_in_another_type_converts_first(source: str, to: str) -> None:
    given, wanted = (next(d for d in DType if d.text == t) for t in (source, to))
    x = data(given)
    (mine,) = over_rows(x, given, lambda k, v: k.sum(v, element=to), reduced=True)
    agree(mine, torch.sum(to_torch(x), -1, dtype=torch_type(wanted)), ulps=2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_variance_by_welford_agrees(dtype: DType) -> None:
    x = data(dtype, specials=False)
    mean, m2, weight = over_rows(x, dtype, lambda k, v: tuple(k.welford(v)), reduced=True)
    wide = to_torch(x).double()
    spread, middle = torch.var_mean(wide, -1, correction=0)
    agree(mean, middle.to(torch_type(dtype)), ulps=1 if dtype.bits < 64 else 4)
    agree(m2, (spread * COLUMNS).to(torch_type(dtype)), ulps=1 if dtype.bits < 64 else 16)
    assert (weight.astype(np.float64) == COLUMNS).all()


def test_welford_of_parts_combines_to_welford_of_the_whole() -> None:
    x = data(DType.F64, specials=False)
    parts = [x[:, :10], x[:, 10:30], x[:, 30:]]
    b = ProgramBuilder("parts")
    names = ("mean", "m2", "weight")
    triple = [b.input(n, "f64", [ROWS, len(parts)]) for n in names]
    results = [b.output(f"all_{n}", "f64", [ROWS]) for n in names]
    with b.loop("combine", [ROWS], reduce=[len(parts)]) as k:
        i, j = k.vars
        found = k.welford_combine(*[k.load(t, i, j) for t in triple])
        for value, into in zip(found, results, strict=True):
            k.store(into, (i,), value)
    mean = np.stack([p.mean(1) for p in parts], 1)
    m2 = np.stack([((p - p.mean(1, keepdims=True)) ** 2).sum(1) for p in parts], 1)
    weight = np.broadcast_to([p.shape[1] for p in parts], mean.shape).astype(np.float64)
    outputs = run(b.build(), {"mean": mean, "m2": m2, "weight": weight}).outputs
    spread, middle = torch.var_mean(to_torch(x), -1, correction=0)
    for mine, wanted in zip(outputs, (middle, spread * COLUMNS), strict=False):
        np.testing.assert_allclose(mine, to_numpy(wanted), rtol=1e-13)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_online_softmax_agrees_with_logsumexp(dtype: DType) -> None:
    x = data(dtype)
    x[4] = -np.inf
    x[1, 5] = 3
    top, total = over_rows(x, dtype, lambda k, v: tuple(k.online_softmax(v)), reduced=True)
    agree(top, torch.amax(to_torch(x), -1))
    with np.errstate(all="ignore"):
        mine = top.astype(np.float64) + np.log(total.astype(np.float64))
    wanted = to_numpy(torch.logsumexp(to_torch(x).double(), -1))
    np.testing.assert_allclose(mine, wanted, rtol=2.0 ** -(8 if dtype is DType.BF16 else 10))
    assert (top[4], total[4]) == (-np.inf, 0)


@pytest.mark.parametrize(
    "dtype", [DType.F16, DType.BF16, DType.F32, DType.I32, DType.BOOL], ids=str
)
def test_dot_agrees_with_a_matrix_product(dtype: DType) -> None:
    x, y = data(dtype, 1, specials=False), data(dtype, 2, specials=False)
    b = ProgramBuilder("dot")
    left, right = b.input("x", dtype, x.shape), b.input("y", dtype, y.shape)
    with b.loop("it", [ROWS], reduce=[COLUMNS]) as k:
        i, j = k.vars
        value = k.dot(k.load(left, i, j), k.load(right, i, j))
        k.store(b.output("z", value.dtype, [ROWS]), (i,), value)
    (mine,) = run(b.build(), {"x": x, "y": y}).outputs
    wide = torch.float64 if dtype.is_float else torch.int64
    wanted = (to_torch(x).to(wide) * to_torch(y).to(wide)).sum(-1)
    result = torch.int64 if dtype is DType.BOOL else torch_type(dtype)
    agree(mine, wanted.to(result))


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I64, DType.BOOL], ids=str)
def test_xor_sum_agrees_with_folding_xor(dtype: DType) -> None:
    x = data(dtype)
    (mine,) = over_rows(x, dtype, lambda k, v: k.xor_sum(v), reduced=True)
    wanted = to_torch(x)[:, 0]
    for j in range(1, COLUMNS):
        wanted = torch.bitwise_xor(wanted, to_torch(x)[:, j])
    agree(mine, wanted)


# --------------------------------------------------------------------------- scans and sort


def _position(k: BodyBuilder) -> Value:
    return k.index(k.reduce.vars[0])


SCANNED_BY_TORCH: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "add": lambda x: (torch.cumsum(x, -1, dtype=x.dtype),),
    "mul": lambda x: (torch.cumprod(x, -1, dtype=x.dtype),),
    "max": lambda x: (torch.cummax(x, -1).values,),
    "min": lambda x: (torch.cummin(x, -1).values,),
    "logaddexp": lambda x: (torch.logcumsumexp(x, -1),),
    "argmax": lambda x: tuple(torch.cummax(x, -1)),
    "argmin": lambda x: tuple(torch.cummin(x, -1)),
}


def test_every_named_scan_is_compared() -> None:
    assert set(SCANNED_BY_TORCH) | {"region", "unknown"} == set(SCAN_COMBINES)


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.U8, *FLOATS], ids=str)
@pytest.mark.parametrize("combine", SCANNED_BY_TORCH)
def test_scans_agree(combine: str, dtype: DType) -> None:
    if combine == "logaddexp" and not dtype.is_float:
        return  # the logarithm of a sum is no whole number
    x = data(dtype)
    if combine == "mul" and dtype.is_float:
        x = np.where(np.abs(x) > 1, np.ones((), x.dtype), x)

    def body(k: BodyBuilder, v: Value) -> tuple[Value, ...]:
        if combine.startswith("arg"):
            return tuple(k.scan(combine, v, _position(k)))
        return (k.scan(combine, v),)

    mine = over_rows(x, dtype, body, reduced=False)
    is_sum = dtype.is_float and combine in ("add", "mul", "logaddexp")
    tensor = to_torch(x).double() if is_sum else to_torch(x)
    wanted = SCANNED_BY_TORCH[combine](tensor)
    for ours, theirs in zip(mine, wanted, strict=True):
        ulps = (16 if dtype is DType.F64 else 1) if is_sum else 0
        agree(ours, theirs.to(torch_type(dtype)) if is_sum else theirs, ulps)


def test_a_region_scan_agrees_with_the_named_one() -> None:
    x = data(DType.I64)

    def body(k: BodyBuilder, v: Value) -> Value:
        return k.scan_region([v], lambda a, b: [k.maximum(a, b)])

    (mine,) = over_rows(x, DType.I64, body, reduced=False)
    agree(mine, torch.cummax(to_torch(x), -1).values)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", NATIVE_TO_TORCH, ids=str)
def test_sort_agrees_and_moves_positions_along(dtype: DType, descending: bool) -> None:
    x = data(dtype)

    def body(k: BodyBuilder, v: Value) -> tuple[Value, ...]:
        return tuple(k.sort(v, _position(k), descending=descending))

    values, positions = over_rows(x, dtype, body, reduced=False)
    wanted = torch.sort(to_torch(x), dim=-1, descending=descending, stable=True)
    assert same_bits(values, to_numpy(wanted.values)).all()
    agree(positions, wanted.indices)


# ------------------------------------------------------------- indirect, scatter, bucketize


@pytest.mark.parametrize("right", [False, True])
def test_bucketize_agrees(right: bool) -> None:
    borders = np.array([-1.0, 0.0, 0.0, 2.0, 5.0], np.float32)
    x = data(DType.F32)
    b = ProgramBuilder("buckets")
    given, edges = b.input("x", "f32", x.shape), b.input("edges", "f32", borders.shape)
    y = b.output("y", "i32", x.shape)
    with b.loop("it", x.shape) as k:
        value = k.bucketize(k.load(given, *k.vars), edges, right=right, element="i32")
        k.store(y, k.vars, value)
    (mine,) = run(b.build(), {"x": x, "edges": borders}).outputs
    agree(mine, torch.bucketize(to_torch(x), to_torch(borders), right=right, out_int32=True))


def test_an_embedding_through_an_indirect_index_agrees() -> None:
    table, ids = data(DType.BF16, 3), np.array([[4, 0, 1], [-1, 2, -5]], np.int64)
    b = ProgramBuilder("embedding")
    weights, which = b.input("w", "bf16", table.shape), b.input("ids", "i64", ids.shape)
    y = b.output("y", "bf16", [*ids.shape, COLUMNS])
    with b.loop("it", [*ids.shape, COLUMNS]) as k:
        row = k.indirect(k.load(which, *k.vars[:2]), ROWS, wrap=True)
        k.store(y, k.vars, k.load(weights, row, k.vars[2]))
    (mine,) = run(b.build(), {"w": table, "ids": ids}).outputs
    agree(mine, to_torch(table)[to_torch(ids)])


SCATTERED_BY_TORCH = {
    "atomic_add": "sum",
    "atomic_mul": "prod",
    "atomic_min": "amin",
    "atomic_max": "amax",
}
FOLDED_BY_TORCH = {
    "atomic_and": torch.bitwise_and,
    "atomic_or": torch.bitwise_or,
    "atomic_xor": torch.bitwise_xor,
}


def scatter(mode: str, dtype: DType, into: np.ndarray, at: np.ndarray, x: np.ndarray) -> np.ndarray:
    b = ProgramBuilder("scatter")
    target = b.input("into", dtype, into.shape)
    places, source = b.input("at", "i64", at.shape), b.input("x", dtype, x.shape)
    with b.loop("it", x.shape) as k:
        place = k.indirect(k.load(places, *k.vars), into.shape[0])
        k.store(target, (place,), k.load(source, *k.vars), mode=mode)
    return run(b.build(), {"into": into, "at": at, "x": x}).read("into")


def test_every_store_mode_is_compared() -> None:
    assert {"plain", *SCATTERED_BY_TORCH, *FOLDED_BY_TORCH} == set(STORE_MODES)


@pytest.mark.parametrize("dtype", [DType.I32, DType.U8, *FLOATS], ids=str)
@pytest.mark.parametrize("mode", SCATTERED_BY_TORCH)
def test_scatters_agree_with_scatter_reduce(mode: str, dtype: DType) -> None:
    x = data(dtype)[0]
    into = data(dtype, 5)[1, :7]
    at = np.random.default_rng(4).integers(0, 7, x.shape)
    mine = scatter(mode, dtype, into, at, x)
    wide = torch.float64 if dtype.is_float else torch_type(dtype)
    wanted = to_torch(into).to(wide)
    wanted.scatter_reduce_(0, to_torch(at), to_torch(x).to(wide), SCATTERED_BY_TORCH[mode])
    agree(mine, wanted.to(torch_type(dtype)), ulps=1 if dtype is DType.F64 else 0)


@pytest.mark.parametrize("mode", FOLDED_BY_TORCH)
def test_bitwise_scatters_agree_with_one_after_the_other(mode: str) -> None:
    x, into = data(DType.I32)[0], data(DType.I32, 5)[1, :7]
    at = np.random.default_rng(4).integers(0, 7, x.shape)
    wanted = to_torch(into)
    for place, value in zip(at.tolist(), x.tolist(), strict=True):
        wanted[place] = FOLDED_BY_TORCH[mode](wanted[place], torch.tensor(value))
    agree(scatter(mode, DType.I32, into, at, x), wanted)


def test_the_last_of_several_plain_stores_wins() -> None:
    x, into = data(DType.I32)[0], data(DType.I32, 5)[1, :7]
    at = np.random.default_rng(4).integers(0, 7, x.shape)
    wanted = into.copy()
    for place, value in zip(at.tolist(), x.tolist(), strict=True):
        wanted[place] = value
    assert (scatter("plain", DType.I32, into, at, x) == wanted).all()


@pytest.mark.parametrize("value", [0.0, -1.5, float("-inf")])
def test_masked_loads_agree_with_constant_padding(value: float) -> None:
    x = data(DType.F32)
    before, after = 2, 3
    b = ProgramBuilder("pad")
    given = b.input("x", "f32", x.shape)
    wide = COLUMNS + before + after
    y = b.output("y", "f32", [ROWS, wide])
    with b.loop("it", [ROWS, wide]) as k:
        i, j = k.vars
        at = k.index(j)
        inside = k.logical_and(at >= before, at < COLUMNS + before)
        k.store(y, (i, j), k.masked(inside, value, lambda: k.load(given, i, j - before)))
    (mine,) = run(b.build(), {"x": x}).outputs
    agree(mine, torch.nn.functional.pad(to_torch(x), (before, after), value=value))


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32, DType.I64], ids=str)
def test_matrix_products_agree(dtype: DType) -> None:
    a, c = data(dtype, 1, specials=False), data(dtype, 2, specials=False).T.copy()
    bias = data(dtype, 3, specials=False)[0, :ROWS].copy()
    b = ProgramBuilder("products")
    left, right = b.input("a", dtype, a.shape), b.input("c", dtype, c.shape)
    add = b.input("bias", dtype, [ROWS])
    y, z = b.output("y", dtype, [ROWS, ROWS]), b.output("z", dtype, [ROWS, ROWS])
    b.extern("aten.mm.default", [left, right], [y])
    b.extern("extern_kernels.addmm", [add, left, right], [z], attrs={"alpha": 2, "beta": 3})
    mine = run(b.build(), {"a": a, "c": c, "bias": bias}).outputs
    wide = torch.float64 if dtype.is_float else torch.int64
    ta, tc, tb = (to_torch(v).to(wide) for v in (a, c, bias))
    agree(mine[0], (ta @ tc).to(torch_type(dtype)))
    agree(mine[1], torch.addmm(tb, ta, tc, beta=3, alpha=2).to(torch_type(dtype)))
