"""Scatters, pooling and sorting through the backend: like eager, and without calls of ATen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_fuzz_interp import Watching  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402

pytestmark = pytest.mark.torch


def calls_of(function: Callable[..., Any], *inputs: Any) -> dict[str, str]:
    """Compare with eager, forward and gradients; the operators that stayed calls."""
    calls: dict[str, str] = {}
    settings = Settings(Options.from_env(), True, lambda done: calls.update(done.fallbacks))
    backend = Watching(settings)
    results = []
    for f in (function, torch.compile(function, backend=backend)):
        given = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
        made = f(*given)
        flat = made if isinstance(made, tuple) else (made,)
        total = sum((y.float() * 0.1).sin().sum() for y in flat if y.requires_grad)
        wanted = [x for x in given if x.requires_grad]
        grads = torch.autograd.grad(total, wanted) if wanted and flat[0].requires_grad else ()
        results.append([*[y.detach() for y in flat], *grads])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b, a, rtol=2e-5, atol=2e-5, equal_nan=True)
    assert backend.problem is None
    return calls


X, SQUARE = torch.linspace(-1, 1, 20).reshape(4, 5), torch.linspace(-2, 2, 72).sin()
PLANE = SQUARE.reshape(1, 2, 6, 6)
VOLUME = torch.randn(2, 3, 4, 5, 7, requires_grad=True)
ROWS = torch.tensor([2, 0, 2])
ORDER = torch.tensor([[0], [2]])
PLACES = torch.tensor([[0, 1, 3, 3, 2], [1, 1, 0, 2, 3]])
TWICE = torch.tensor([[3.0, 1.0, 3.0, float("nan"), 0.0, 3.0], [0.0, 0.0, -1.0, 2.0, 2.0, 1.0]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "adding at repeated rows": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (X, ROWS, X[:3].clone()),
    ),
    "putting at pairs of places": (
        lambda x, i, v: x.index_put((i, i + 1), v),
        (X, torch.tensor([2, -4, 1]), X[0, :3].clone()),
    ),
    "putting behind a dimension": (
        lambda x, i: torch.ops.aten.index_put(x, [None, i], x[:, :2] * 3),
        (X, torch.tensor([4, 1])),
    ),
    "a number under a mask": (lambda x: (x * 2).index_put((x > 0,), torch.tensor(7.0)), (X,)),
    "scatter": (
        lambda x, i: x.scatter(0, i, x[:2] * 2),
        (X, PLACES.sort(0)[0][[0, 1]] // 3 + ORDER),
    ),
    "scatter of a number": (lambda x, i: x.scatter(0, i, 2.5), (X, PLACES)),
    "scatter add": (lambda x, i: x.scatter_add(0, i, x[2:] * 2), (X, PLACES)),
    "index add": (lambda x, i, v: x.index_add(0, i, v, alpha=3), (X, ROWS, X[1:].clone())),
    "the gradient of an embedding": (
        lambda w, i: F.embedding(i, w, padding_idx=2),
        (X, PLACES),
    ),
    "max pooling": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[0], (PLANE,)),
    "max pooling with steps between": (lambda x: F.max_pool2d(x, 2, 1, 0, 2), (PLANE,)),
    "average pooling": (lambda x: F.avg_pool2d(x, 3, 2, 1), (PLANE,)),
    "average pooling of what is there": (
        lambda x: F.avg_pool2d(x, 4, 3, 1, ceil_mode=True, count_include_pad=False),
        (PLANE,),
    ),
    "average pooling with a divisor": (
        lambda x: F.avg_pool2d(x, (2, 3), divisor_override=-4),
        (PLANE,),
    ),
    "adaptive pooling": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (PLANE,)),
    "the largest of parts": (lambda x: F.adaptive_max_pool2d(x, (5, 4)), (PLANE,)),
    "the largest of parts of a volume": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 3)), (VOLUME,)),
    "max pooling of volumes": (
        lambda x: F.max_pool3d(x, (2, 3, 2), 2, 1, return_indices=True)[0],
        (VOLUME,),
    ),
    "max pooling of volumes with steps between": (
        lambda x: F.max_pool3d(x, 2, 1, 0, (1, 2, 3)),
        (VOLUME,),
    ),
    "average pooling of volumes": (lambda x: F.avg_pool3d(x, 3, 2, 1), (VOLUME,)),
    "average pooling of what is there of volumes": (
        lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (VOLUME,),
    ),
    "sort": (lambda x: torch.sort(x, dim=1, stable=True), (TWICE,)),
    "sort downwards": (lambda x: torch.sort(x, dim=1, descending=True, stable=True), (TWICE,)),
    "sort along the first": (lambda x: torch.sort(x.detach(), 0)[0] * 2, (X,)),
    "the largest three": (lambda x: torch.topk(x.detach(), 3, 1)[0], (X,)),
    "the smallest two down": (lambda x: torch.topk(x.detach(), 2, 0, largest=False)[0], (X,)),
    "running maximum": (lambda x: torch.cummax(x, 1), (TWICE,)),
    "running minimum": (lambda x: torch.cummin(x, 0), (TWICE,)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_operator_is_all_loops_and_agrees_with_eager(name: str) -> None:
    function, inputs = CASES[name]
    assert calls_of(function, *inputs) == {}


UNEVEN = {
    "parts that overlap": (lambda x: F.adaptive_avg_pool2d(x, (5, 4)), PLANE),
    "more places": (lambda x: F.adaptive_avg_pool2d(x, (9, 20)), PLANE),
    "volumes": (lambda x: F.adaptive_avg_pool3d(x, (2, 2, 3)), VOLUME),
}


@pytest.mark.parametrize("name", list(UNEVEN))
def test_averages_of_uneven_parts_are_loops_and_their_gradient_is_the_librarys(name: str) -> None:
    function, x = UNEVEN[name]
    ((call, reason),) = calls_of(function, x).items()
    assert re.fullmatch(r"aten\._adaptive_avg_pool[23]d_backward\.default", call)
    assert "uneven parts" in reason
    assert calls_of(lambda x: function(x.detach()), x) == {}


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_scatter_reduce_with_what_was_there_is_all_loops(reduce: str) -> None:
    def function(x: Any, i: Any) -> Any:
        return x.scatter_reduce(0, i, x.flip(0)[:2] * 2, reduce)

    with torch.no_grad():
        assert calls_of(lambda x, i: function(x.detach(), i), X, PLACES) == {}


@pytest.mark.parametrize("descending", [False, True])
def test_a_stable_sort_of_narrow_floats_keeps_equal_ones_in_eagers_order(descending: bool) -> None:
    x = torch.randint(-9, 9, (3, 200)).bfloat16()

    def function(x: Any) -> Any:
        return torch.sort(x.detach(), dim=1, descending=descending, stable=True)

    assert calls_of(function, x) == {}


UNSTABLE: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: torch.sort(x, 1),
    "topk": lambda x: torch.topk(x, 5, 1),
    "kthvalue": lambda x: torch.kthvalue(x, 3, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", UNSTABLE)
def test_of_equal_elements_eager_chooses_where_somebody_looks(name: str, dtype: Any) -> None:
    x = torch.randint(0, 3, (4, 84)).to(dtype)
    calls = calls_of(lambda x: tuple(UNSTABLE[name](x.detach())), x)
    assert "up to eager" in calls[f"aten.{name}.default"]
    short = x[:, :24].contiguous()
    assert calls_of(lambda x: UNSTABLE[name](x.detach())[0] * 2, short) == {}


def test_long_rows_are_not_put_in_order_for_the_first_few() -> None:
    for sizes, dtype in (((4, 1300), torch.float32), ((4, 84), torch.float64)):
        calls = calls_of(
            lambda x: torch.topk(x.detach(), 5, 1)[0] * 2, torch.randn(sizes).to(dtype)
        )
        assert "for the first few" in calls["aten.topk.default"]
    for count, largest in ((5, True), (200, False)):
        torch._dynamo.reset()
        x = torch.randn(4, 1300 if count == 200 else 250)
        x[:, [3, 50]] = torch.tensor([float("nan"), -0.0])

        def first(x: Any, count: int = count, largest: bool = largest) -> Any:
            return torch.topk(x.detach(), count, 1, largest)[0] * 2

        assert calls_of(first, x) == {}


def test_max_pooling_of_nothing_but_minus_infinity_gives_a_place_inside() -> None:
    x = torch.full((1, 1, 4, 4), float("-inf"))
    pool = lambda x: F.max_pool2d(x.detach(), 3, 2, 1, return_indices=True)  # noqa: E731
    assert calls_of(pool, x) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [16, 33, 128])
def test_narrow_rows_are_added_just_as_they_are_loaded(dtype: Any, columns: int) -> None:
    """A row that becomes floats at once is no tile of what it is added to."""
    torch._dynamo.reset()
    where = torch.tensor([3, 3, 5, 0, 3])
    rows = torch.arange(5 * columns).reshape(5, columns).div(8).to(dtype)
    table = torch.full((8, columns), 2.0, dtype=dtype)

    def function(table: Any, rows: Any) -> Any:
        return table.index_add(0, where, rows), table.index_put((where,), rows, accumulate=True)

    fast = torch.compile(function, backend="treadle")
    wanted = table.double().index_add(0, where, rows.double()).to(dtype)
    for found in fast(table, rows):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
