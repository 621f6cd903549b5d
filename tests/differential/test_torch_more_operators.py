"""Lists of tensors, searches, medians and resizing: generated, and like eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_fuzz_interp import Watching  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

Function = Callable[..., Any]


def agree(function: Function, *inputs: Any, calls: tuple[str, ...] = ()) -> None:
    """Results and gradients are those of eager, and only the given operators are called."""
    called: set[str] = set()
    settings = Settings(
        Options.from_env(), True, lambda done: called.update(name for name, _ in done.fallbacks)
    )
    backend = Watching(settings)

    def run(f: Function) -> list[Any]:
        given = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        results = torch.utils._pytree.tree_leaves(f(*given))
        wanted = [x for x in given if x.requires_grad]
        scalars = [r.sin().sum() for r in results if r.requires_grad]
        if wanted and scalars:
            total = sum(scalars[1:], scalars[0])
            results += torch.autograd.grad(total, wanted, allow_unused=True)
        return results

    for a, b in zip(run(torch.compile(function, backend=backend)), run(function), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5, equal_nan=True)
    assert backend.problem is None
    assert called == set(calls)


LISTS: dict[str, Function] = {
    "add": lambda a, b: torch._foreach_add([a, b], [b, a], alpha=0.5),
    "add numbers": lambda a, b: torch._foreach_add([a, b], [1.0, 2.0]),
    "add one number": lambda a, b: torch._foreach_add([a, b], 3),
    "sub": lambda a, b: torch._foreach_sub([a, b], [b, b], alpha=2),
    "mul by a tensor": lambda a, b: torch._foreach_mul([a, b], torch.tensor(2.0)),
    "div": lambda a, b: torch._foreach_div([a, b], [b * b + 1, a * a + 1]),
    "sqrt": lambda a, b: torch._foreach_sqrt(torch._foreach_abs([a, b])),
    "addcmul": lambda a, b: torch._foreach_addcmul([a, b], [b, a], [a, a], 0.5),
    "addcdiv": lambda a, b: torch._foreach_addcdiv([a, b], [b, a], [a * a + 1, b * b + 1], [2, 3]),
    "lerp": lambda a, b: torch._foreach_lerp([a, b], [b, a], 0.75),
    "lerp each": lambda a, b: torch._foreach_lerp([a, b], [b, a], [b, a]),
    "pow": lambda a, b: torch._foreach_pow([a, b], 2),
    "pow each": lambda a, b: torch._foreach_pow(torch._foreach_abs([a, b]), [1.5, 2.5]),
    "bounds": lambda a, b: torch._foreach_clamp_max(torch._foreach_clamp_min([a, b], -0.5), [b, a]),
    "functions": lambda a, b: torch._foreach_exp(torch._foreach_neg([a, b])),
}


@pytest.mark.parametrize("what", LISTS)
def test_every_tensor_of_a_list_is_generated(what: str) -> None:
    agree(LISTS[what], torch.randn(3, 4), torch.randn(3, 4))


def test_tensors_of_a_list_may_have_their_own_sizes_and_types() -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        made = torch._foreach_mul([a, b, c], [2.0, 0.5, 3.0])
        return made, torch._foreach_neg(made)

    agree(function, torch.randn(3), torch.randn(2, 5).double(), torch.randn(()))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_an_optimiser_with_lists_makes_the_steps_of_eager(name: str) -> None:
    def trained(compile_it: bool) -> list[Any]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        how = {"momentum": 0.9} if name == "SGD" else {}
        optimiser = getattr(torch.optim, name)(model.parameters(), lr=0.1, foreach=True, **how)
        step = optimiser.step
        if compile_it:
            step = torch.compile(step, backend="treadle", options={"strict": True})
        for _ in range(3):
            optimiser.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            step()
        return [p.detach() for p in model.parameters()]

    for a, b in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


EDGES = torch.tensor([-1.0, 0.0, 0.0, 1.5])
SEARCHES: dict[str, Function] = {
    "buckets": lambda x: torch.bucketize(x, EDGES),
    "buckets, closed on the right": lambda x: torch.bucketize(x, EDGES, right=True, out_int32=True),
    "one number": lambda x: torch.bucketize(0.0, x.sort().values[0]),
    "places": lambda x: torch.searchsorted(EDGES, x),
    "places to the right": lambda x: torch.searchsorted(EDGES, x, side="right"),
    "every other edge": lambda x: torch.searchsorted(
        x.nan_to_num().flatten().sort().values[::2], x * 2
    ),
}


@pytest.mark.parametrize("what", SEARCHES)
def test_searches_in_sorted_sequences_are_generated(what: str) -> None:
    x = torch.randn(3, 5)
    x[0, 0], x[0, 1], x[1, 1], x[2, 0] = 0.0, 1.5, math.inf, math.nan
    function = SEARCHES[what]
    agree(function, x)


RANKS: dict[str, Function] = {
    "median": lambda x: x.median(),
    "median along": lambda x: (*x.median(1), *x.median(0, keepdim=True)),
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian along": lambda x: (*x.nanmedian(1), *x.nanmedian(0, keepdim=True)),
    "third smallest": lambda x: (
        x.detach().kthvalue(3, 1)[0] + x[:, 0],
        x.detach().kthvalue(1, 0, keepdim=True)[0],
    ),
}


@pytest.mark.parametrize("has_nan", [False, True])
@pytest.mark.parametrize("what", RANKS)
def test_elements_by_rank_are_generated(what: str, has_nan: bool) -> None:
    x = torch.randn(4, 5)
    if has_nan:
        x[1, 2], x[1, 3], x[3, 0] = math.nan, math.nan, math.nan
    agree(RANKS[what], x.requires_grad_(not has_nan))


SHAPES = {
    "linear": (1, 2, 5),
    "bilinear": (2, 1, 4, 3),
    "bicubic": (1, 2, 4, 5),
    "trilinear": (1, 1, 3, 2, 4),
    "nearest": (2, 1, 3, 4),
    "nearest-exact": (1, 1, 5, 3),
}


@pytest.mark.parametrize("scale", [2.0, 0.6, 1.7])
@pytest.mark.parametrize("mode", SHAPES)
def test_resizing_and_its_gradient_are_generated(mode: str, scale: float) -> None:
    x = torch.randn(SHAPES[mode], requires_grad=True)
    agree(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), x)


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "trilinear"])
def test_resizing_with_aligned_corners_is_generated(mode: str) -> None:
    x = torch.randn(SHAPES[mode], requires_grad=True)
    size = [n + 2 for n in SHAPES[mode][2:]]
    agree(lambda x: F.interpolate(x, size=size, mode=mode, align_corners=True), x)


@pytest.mark.parametrize("what", ["hardshrink", "softshrink", "logsigmoid"])
def test_gradients_of_these_activations_are_generated(what: str) -> None:
    agree(getattr(F, what), torch.randn(4, 5, requires_grad=True))


def test_repeated_edges_hand_their_gradients_to_the_edge() -> None:
    agree(
        lambda x: F.pad(x, (2, 1, 1, 0), mode="replicate"),
        torch.randn(1, 3, 4, requires_grad=True)[None],
    )


def test_mantissa_and_exponent_are_generated() -> None:
    agree(lambda x: (*torch.frexp(x), torch.ldexp(x, torch.tensor([3]))), torch.randn(5) * 100)


# ------------------------------------------------------------------------- where a mask says so


@pytest.mark.parametrize("layout", ["dense", "transposed", "broadcast mask"])
def test_masked_scatter_and_its_gradients_are_loops(layout: str) -> None:
    x, mask = torch.randn(4, 6, requires_grad=True), torch.rand(4, 6) > 0.4
    source = torch.randn(5, 6, requires_grad=True)
    if layout == "transposed":
        agree(lambda x, m, s: x.t().masked_scatter(m.t(), s), x, mask, source)
    elif layout == "broadcast mask":
        agree(lambda x, m, s: x.masked_scatter(m[:, :1], s), x, mask, source)
    else:
        agree(lambda x, m, s: x.clone().masked_scatter_(m, s), x, mask, source)


def test_masked_scatter_from_too_few_elements_is_an_error_as_in_eager() -> None:
    run = torch.compile(lambda x, m, s: x.masked_scatter(m, s), backend="treadle")
    with pytest.raises(RuntimeError):
        run(torch.randn(4), torch.ones(4, dtype=torch.bool), torch.randn(2))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_common_divisors_and_multiples_are_loops(dtype: Any) -> None:
    a = torch.randint(-120, 120, (40,)).to(dtype)
    b = torch.cat([torch.zeros(3), torch.randint(-9, 9, (37,))]).to(dtype)
    agree(lambda a, b: (torch.gcd(a, b), torch.lcm(a // 9, b), torch.gcd(a, a)), a, b)


def test_a_product_and_a_sum_that_are_rounded_once_are_generated() -> None:
    prims = pytest.importorskip("torch._inductor.inductor_prims")
    if not hasattr(prims, "fma"):
        pytest.skip("this torch has no such operator")
    agree(lambda x: prims.fma(x.detach(), x.detach() * 3, x.detach() + 1), torch.randn(7))


@pytest.mark.parametrize("dim", [0, 2])
def test_the_backward_of_weight_norm_is_generated(dim: int) -> None:
    v, g = torch.randn(3, 4, 5), torch.rand([n if d == dim else 1 for d, n in enumerate((3, 4, 5))])
    agree(lambda v, g: torch._weight_norm(v, g, dim), v.requires_grad_(), g.requires_grad_())


WINDOWS: dict[str, Function] = {
    "all of it": lambda x: torch.as_strided_scatter(x * 2, x.reshape(5, 4) + 1, (5, 4), (4, 1)),
    "the middle": lambda x: torch.as_strided_scatter(x * 2, x[:2, :3] + 1, (2, 3), (3, 1), 6),
    "the end": lambda x: torch.as_strided_scatter(x * 2, x[0] + 1, (5,), (1,), 15),
}


@pytest.mark.parametrize("what", WINDOWS)
def test_windows_that_lie_row_by_row_are_replaced_by_loops(what: str) -> None:
    agree(WINDOWS[what], torch.randn(4, 5))
