"""Moments of nothing and types without a kernel: as in eager mode. Known differences are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_strictly import compiled  # noqa: E402

from treadle.frontends.torch.lowering.eager_types import REFUSED  # noqa: E402
from treadle.frontends.torch.lowering.table import TABLE  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0"),
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["var_mean", "std_mean", "var", "std"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_moments_of_nothing_are_nan(name: str, shape: tuple[int, ...], dynamic: bool) -> None:
    def moments(x: Any) -> Any:
        asked = itertools.product((None, 0, -1), (1, 2.5))
        return [getattr(torch, name)(x, dim=dim, correction=by) for dim, by in asked]

    x = torch.empty(shape)
    ours = compiled(moments, dynamic=dynamic)(x)
    torch.testing.assert_close(ours, moments(x), equal_nan=True, check_stride=True)


def test_the_mean_of_a_size_that_becomes_zero_is_nan() -> None:
    def moments(x: Any) -> Any:
        return torch.var_mean(x, dim=0)

    fast = compiled(moments, dynamic=True)
    for n in (5, 3, 0, 1):
        x = torch.randn(n, 2)
        torch.testing.assert_close(fast(x), moments(x), equal_nan=True)


IMAGE, VOLUME, ROW, TABLE_OF = (2, 3, 9, 9), (2, 3, 9, 9, 9), (2, 3, 8), (2, 4)
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 3), ROW),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 4), IMAGE),
    "adaptive_avg_pool2d to one": (lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), VOLUME),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 3), ROW),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 3), IMAGE),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 3), VOLUME),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3), ROW),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3), IMAGE),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 3), VOLUME),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3), IMAGE),
    "max_pool3d": (lambda x: F.max_pool3d(x, 3), VOLUME),
    "softmax": (lambda x: F.softmax(x, -1), TABLE_OF),
    "log_softmax": (lambda x: F.log_softmax(x, -1), TABLE_OF),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, -1), TABLE_OF),
    "gelu": (F.gelu, TABLE_OF),
    "silu": (F.silu, TABLE_OF),
    "elu": (F.elu, TABLE_OF),
    "leaky_relu": (F.leaky_relu, TABLE_OF),
    "softplus": (F.softplus, TABLE_OF),
    "hardsigmoid": (F.hardsigmoid, TABLE_OF),
    "hardswish": (F.hardswish, TABLE_OF),
    "logsigmoid": (F.logsigmoid, TABLE_OF),
    "threshold": (lambda x: F.threshold(x, 1, 2), TABLE_OF),
    "frac": (torch.frac, TABLE_OF),
    "hypot": (lambda x: torch.hypot(x, x), TABLE_OF),
    "igamma": (lambda x: torch.igamma(x, x), TABLE_OF),
    "igammac": (lambda x: torch.igammac(x, x), TABLE_OF),
    "lerp": (lambda x: torch.lerp(x, x, 2), TABLE_OF),
    "lerp by a tensor": (lambda x: torch.lerp(x, x, x), TABLE_OF),
    "logaddexp": (lambda x: torch.logaddexp(x, x), TABLE_OF),
    "logaddexp2": (lambda x: torch.logaddexp2(x, x), TABLE_OF),
    "nextafter": (lambda x: torch.nextafter(x, x), TABLE_OF),
    "abs": (torch.abs, TABLE_OF),
    "ceil": (torch.ceil, TABLE_OF),
    "floor": (torch.floor, TABLE_OF),
    "round": (torch.round, TABLE_OF),
    "round to a place": (lambda x: torch.round(x, decimals=1), TABLE_OF),
    "trunc": (torch.trunc, TABLE_OF),
    "floor_divide": (lambda x: torch.floor_divide(x, x + x), TABLE_OF),
    "div, floored": (lambda x: torch.div(x, x + x, rounding_mode="floor"), TABLE_OF),
    "fmod": (lambda x: torch.fmod(x, x + x), TABLE_OF),
    "remainder": (lambda x: torch.remainder(x, x + x), TABLE_OF),
    "pow": (lambda x: torch.pow(x, x), TABLE_OF),
    "kthvalue": (lambda x: torch.kthvalue(x, 2).values, TABLE_OF),
    "median": (lambda x: torch.median(x), TABLE_OF),
    "median of rows": (lambda x: torch.median(x, -1).values, TABLE_OF),
    "nanmedian": (lambda x: torch.nanmedian(x), TABLE_OF),
    "nanmedian of rows": (lambda x: torch.nanmedian(x, -1).values, TABLE_OF),
}


def outcome(function: Callable[..., Any], x: Any) -> Any:
    try:
        return function(x)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("name", CASES)
def test_what_eager_has_no_kernel_for_is_refused_and_the_rest_agrees(name: str) -> None:
    function, shape = CASES[name]
    for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64):
        torch._dynamo.reset()
        x = torch.ones(shape).to(dtype)
        eager = outcome(function, x)
        ours = outcome(torch.compile(function, backend="treadle"), x)
        if isinstance(eager, type):
            # Shapes may be refused while the graph is captured, in torch's own words for it.
            assert isinstance(ours, type), (name, dtype)
            assert issubclass(ours, (eager, RuntimeError)), (name, dtype, ours)
        else:
            torch.testing.assert_close(ours, eager)


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "power": lambda x: x**1.7,
    "power of a number": lambda x: 1.7**x,
    "fmod": lambda x: torch.fmod(x, 0.3),
    "remainder": lambda x: torch.remainder(x, 0.3),
    "remainder of a number": lambda x: torch.remainder(3.3, x),
    "division rounded down": lambda x: torch.floor_divide(x, 0.3),
    "sum": lambda x: x + 0.3,
    "product": lambda x: x * 0.3,
    "quotient": lambda x: x / 0.3,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beside_narrow_floats_are_rounded_where_eager_rounds_them(
    name: str, dtype: Any
) -> None:
    x = torch.linspace(0.1, 9, 500).to(dtype)
    ours = torch.compile(NUMBERS[name], backend="treadle")(x)
    # Functions may be off by an ulp; a number that is not rounded is off by far more somewhere.
    loose = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 0} if "power" in name else {}
    torch.testing.assert_close(ours, NUMBERS[name](x), **(loose or {"rtol": 0, "atol": 0}))


def test_the_table_speaks_of_lowered_operators_only() -> None:
    assert [name for name in REFUSED if name not in TABLE] == []


# ------------------------------------------------------------------- differences that are known

LIMITS = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
ONES = torch.ones(2, 4, dtype=torch.int64)
KNOWN: dict[str, tuple[Callable[..., Any], Any]] = {
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x, x), torch.tensor([1.5, -0.5])),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), ONES),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), ONES[None]),
    "glu": (F.glu, ONES),
    "celu": (F.celu, ONES),
    "smooth_l1_loss": (lambda x: F.smooth_l1_loss(x, x), ONES),
    "huber_loss": (lambda x: F.huber_loss(x, x), ONES),
    "nll_loss": (lambda x: F.nll_loss(x, x[:, 0]), ONES),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_page_of_limits_says_of_errors_is_still_so(name: str) -> None:
    function, x = KNOWN[name]
    assert f"`{name}`" in LIMITS
    assert isinstance(outcome(function, x), type)
    assert not isinstance(outcome(torch.compile(function, backend="treadle"), x), type)


def test_the_strides_that_the_page_of_limits_speaks_of_are_still_so() -> None:
    def put(x: Any) -> Any:
        return torch.as_strided_scatter(x, torch.zeros(2, 2), (2, 2), (2, 1))

    x = torch.ones(1, 4).expand(3, 4)
    strides = put(x).stride(), torch.compile(put, backend="treadle")(x).stride()
    assert "`as_strided_scatter`" in LIMITS
    assert strides == ((4, 1), (0, 1))
