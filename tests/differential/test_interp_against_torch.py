"""The reference interpreter agrees with torch eager, operation by operation, type by type."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from interp_and_torch import (  # noqa: E402
    distance,
    interpret,
    of_type,
    same_bits,
    to_numpy,
    to_torch,
    torch_type,
)
from torch_table import (  # noqa: E402
    CLOSE,
    EXACT,
    NO_KERNEL,
    NOT_IN_TORCH,
    POINTS,
    ROUNDED_ONCE,
)

from treadle.ir.build import ProgramBuilder  # noqa: E402
from treadle.ir.interp import run  # noqa: E402
from treadle.ir.interp.dtypes import NUMPY_TYPES, convert, dtype_of  # noqa: E402
from treadle.ir.ops import POINTWISE  # noqa: E402
from treadle.ir.types import DType, promote  # noqa: E402
from treadle.ir.typing import ACCEPTS, as_float  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

F32 = np.finfo(np.float32)
FLOATS = [
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5,
    3.0, -3.0, 7.0, 3.14159265358979, -3.14159265358979, 1e-40, -1e-45, 1e-310, float(F32.max),
    -float(F32.max), float(F32.tiny), 1e-7, -1e-3, 0.1, -0.9999, 0.99999, 100.25, 87.5, -103.5,
    1e10, 12345.678, -20.3, 12.75, 8.5, 1e300,
]  # fmt: skip
WHOLE = [
    0, 1, -1, 2, -2, 3, 5, 7, -7, 8, 31, 32, 63, 64, 100, -100, 127, -128, 255, 32767, -32768,
    65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 10**6 + 7, -(10**9),
]  # fmt: skip
DEGREES = [0, 1, 2, 3, 4, 5, 6, 7, 8]
DIVISIONS = {"floordiv", "truncdiv", "fmod", "remainder"}
DEGREE_AT = {name: 1 for name in POINTWISE if "polynomial" in name} | {"ldexp": 1, "polygamma": 0}


def specials(dtype: DType) -> np.ndarray:
    if dtype is DType.BOOL:
        return np.array([False, True])
    return of_type(FLOATS if dtype.is_float else WHOLE, dtype)


def grid(op: str, dtype: DType) -> list[np.ndarray]:
    """Operands of `op`: every combination of the special values of the type."""
    axes = [specials(dtype)] * (POINTWISE[op].arity or 0)
    if op in DEGREE_AT:
        axes[DEGREE_AT[op]] = of_type(DEGREES, dtype)
    if op == "where":
        axes[0] = np.array([False, True])
    points = [x.ravel().copy() for x in np.meshgrid(*axes, indexing="ij")]
    if op in DIVISIONS and not dtype.is_float:
        # torch raises (or dies) here; the reference gives 0 and wraps, see the unit tests.
        fine = points[1] != 0
        if dtype.cls == "int":
            fine &= ~((points[1] == -1) & (points[0] == np.iinfo(points[0].dtype).min))
        points = [x[fine] for x in points]
    if op in POINTS:
        with np.errstate(all="ignore"):
            fine = POINTS[op][1](*[x.astype(np.float64) for x in points])
        points = [x[fine] for x in points]
    return points


def exact_reference(op: str, dtype: DType, points: list[np.ndarray]) -> list[np.ndarray]:
    """torch's results, computed in a wider type where torch has no kernel or rounds twice."""
    tensors = [to_torch(x) for x in points]
    own = torch_type(dtype)
    wide = own
    if dtype.is_float and (dtype.bits == 8 or (op in ROUNDED_ONCE and dtype.bits == 16)):
        wide = torch.float32
    elif dtype in (DType.U16, DType.U32, DType.U64):
        wide = torch.int64
    if op == "nextafter" and not dtype.is_float:
        wide = torch.float32
    if op == "abs" and dtype is DType.BOOL:
        wide = torch.uint8
    moved = [t if t.dtype != own else t.to(wide) for t in tensors]
    results = EXACT[op](*moved)
    results = list(results) if isinstance(results, tuple) else [results]
    back = wide is not own and op != "nextafter"
    return [to_numpy(r.to(own) if back and r.dtype == wide else r) for r in results]


def close_reference(op: str, dtype: DType, points: list[np.ndarray]) -> np.ndarray:
    """torch in f64 on operands converted as the table says, rounded to the type of the result."""
    result = as_float(dtype) if POINTWISE[op].result == "float" else dtype
    tensors = [to_torch(x).to(torch_type(result)).to(torch.float64) for x in points]
    return to_numpy(CLOSE[op].function(*tensors).to(torch_type(result)))


def operand_types(op: str, dtype: DType) -> list[DType]:
    types = [dtype] * (POINTWISE[op].arity or 0)
    return [DType.BOOL, *types[1:]] if op == "where" else types


def accepted(op: str) -> list[DType]:
    return [d for d in DType if ACCEPTS[POINTWISE[op].accepts](d)]


def show(points: list[np.ndarray], at: int, ours: np.ndarray, theirs: np.ndarray) -> str:
    return f"at {[x[at] for x in points]}: ours {ours[at]!r}, torch {theirs[at]!r}"


def is_close_case(op: str, dtype: DType) -> bool:
    return op in CLOSE and (dtype.is_float or POINTWISE[op].result == "float")


# ------------------------------------------------------------------------------- pointwise


def test_every_pointwise_operation_is_compared() -> None:
    assert {*EXACT, *CLOSE, *NOT_IN_TORCH} == set(POINTWISE)
    assert {op for op, _ in NO_KERNEL} | set(POINTS) <= set(POINTWISE)


@pytest.mark.parametrize("op", EXACT)
def test_exact_operations_agree_in_every_bit(op: str) -> None:
    for dtype in accepted(op):
        if is_close_case(op, dtype) or (op, dtype.text) in NO_KERNEL:
            continue
        points = grid(op, dtype)
        ours = interpret(op, points, operand_types(op, dtype))
        theirs = exact_reference(op, dtype, points)
        for mine, wanted in zip(ours, theirs, strict=True):
            wrong = np.flatnonzero(~same_bits(mine, wanted))
            assert not wrong.size, f"{op} {dtype} {show(points, wrong[0], mine, wanted)}"


@pytest.mark.parametrize("op", CLOSE)
def test_functions_agree_within_the_stated_tolerance(op: str) -> None:
    row = CLOSE[op]
    for dtype in accepted(op):
        if not is_close_case(op, dtype):
            continue
        points = grid(op, dtype)
        (mine,) = interpret(op, points, operand_types(op, dtype))
        wanted = close_reference(op, dtype, points)
        ulps = row.ulps if dtype is DType.F64 else 1
        near = distance(mine, wanted) <= ulps
        near |= np.abs(mine.astype(np.float64) - wanted.astype(np.float64)) <= row.absolute
        wrong = np.flatnonzero(~near)
        assert not wrong.size, f"{op} {dtype} {show(points, wrong[0], mine, wanted)}"


# The vector kernels of torch in f32, in units of the last place; what flushes to 0 may differ.
F32_KERNELS = {
    "pow": 2, "rsqrt": 2, "exp": 2, "exp2": 2, "expm1": 2, "log": 2, "log2": 2, "log10": 2,
    "log1p": 2, "sin": 2, "cos": 2, "tan": 2, "asin": 2, "acos": 2, "atan": 2, "sinh": 2,
    "cosh": 2, "tanh": 4, "asinh": 2, "acosh": 2, "atanh": 2, "atan2": 2, "hypot": 2,
    "sigmoid": 2, "erf": 2, "erfc": 2, "erfinv": 4, "lgamma": 8,
}  # fmt: skip


@pytest.mark.parametrize("op", F32_KERNELS)
def test_f32_functions_agree_with_the_f32_kernels(op: str) -> None:
    points = grid(op, DType.F32)
    (mine,) = interpret(op, points, [DType.F32] * len(points))
    wanted = to_numpy(CLOSE[op].function(*[to_torch(x) for x in points]))
    near = distance(mine, wanted) <= F32_KERNELS[op]
    near |= np.abs(mine - wanted) <= F32.tiny
    wrong = np.flatnonzero(~near)
    assert not wrong.size, f"{op} {show(points, wrong[0], mine, wanted)}"


# --------------------------------------------------------------------- types and conversions

PROMOTED_BY_TORCH = [
    d for d in DType if d.bits != 8 or not d.is_float if d.cls != "uint" or d.bits == 8
]


@pytest.mark.parametrize("a", PROMOTED_BY_TORCH, ids=str)
@pytest.mark.parametrize("op", ["add", "mul", "maximum", "lt", "eq"])
def test_mixed_types_are_promoted_as_torch_does(op: str, a: DType) -> None:
    for b in PROMOTED_BY_TORCH:
        axes = np.meshgrid(specials(a), specials(b), indexing="ij")
        points = [x.ravel().copy() for x in axes]
        (mine,) = interpret(op, points, [a, b])
        wanted = EXACT[op](*[to_torch(x) for x in points])
        assert wanted.dtype in (torch.bool, torch_type(promote(a, b)))
        same = distance(mine, to_numpy(wanted)) == 0
        assert same.all(), f"{op} {a} {b} {show(points, np.flatnonzero(~same)[0], mine, wanted)}"


CAST_VALUES = [
    *FLOATS, *WHOLE, 1 + 2.0**-11 + 2.0**-40, 447.9, 463.9, 464.0, 465.0, 480.0, 60000.0, 65504.0,
    65519.9, 65520.0, 61439.9, 61440.0, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-17, 3.0**-15, 257.0,
    255.5, -0.75, 16777217.0, 2.0**24 + 3, 2**53 + 1, 2**62 + 2**38, 2**62 + 2**38 + 1,
]  # fmt: skip


def fits(values: np.ndarray, to: DType) -> np.ndarray:
    """Where a float to integer cast is defined in C; torch's results differ by kernel elsewhere."""
    source = dtype_of(values)
    assert source is not None
    if not (source.is_float and to.is_int):
        return np.ones(values.shape, np.bool_)
    limits, whole = np.iinfo(NUMPY_TYPES[to]), np.trunc(values.astype(np.float64))
    return (whole >= limits.min) & (whole < float(limits.max) + 1)


@pytest.mark.parametrize("source", DType, ids=str)
def test_casts_agree_between_all_pairs_of_types(source: DType) -> None:
    whole = [v for v in CAST_VALUES if np.isfinite(v) and v == int(v)]
    values = of_type(CAST_VALUES if source.is_float else whole, source)
    for target in DType:
        x = values[fits(values, target)]
        mine = cast_by_program(x, source, target)
        wanted = to_numpy(to_torch(x).to(torch_type(target)))
        for ours in mine:
            wrong = np.flatnonzero(~same_bits(ours, wanted))
            assert not wrong.size, f"{source} to {target} {show([x], wrong[0], ours, wanted)}"


def cast_by_program(x: np.ndarray, source: DType, target: DType) -> list[np.ndarray]:
    """Both ways to convert: the cast operation, and a store into a buffer of the type."""
    b = ProgramBuilder("cast")
    given = b.input("x", source, x.shape)
    cast, stored = (b.output(n, target, x.shape) for n in ("cast", "stored"))
    with b.loop("it", x.shape) as k:
        value = k.load(given, *k.vars)
        k.store(cast, k.vars, value.to(target))
        k.store(stored, k.vars, value)
    return run(b.build(), {"x": x}).outputs


@pytest.mark.parametrize("target", [d for d in DType if d.is_low_precision], ids=str)
def test_rounding_to_narrow_floats_agrees_on_every_pattern_of_the_upper_bits(target: DType) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    tails = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0x0FFF], np.uint32)
    x = (upper[:, None] | tails).ravel().view(np.float32)
    with np.errstate(all="ignore"):
        mine = convert(x, target)
    assert same_bits(mine, to_numpy(to_torch(x).to(torch_type(target)))).all()
