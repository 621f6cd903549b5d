"""Sizes that stay open, and the fractions they decide: compiled once, like eager, without calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_fuzz_interp import Watching  # noqa: E402
from torch_strictly import compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = ((3, 4, 8, 10), (5, 4, 9, 7))
MATMULS = {"aten.bmm.default", "aten.mm.default"}


def batch_norm(x: Any) -> Any:
    mean, var = torch.zeros(4, dtype=x.dtype), torch.ones(4, dtype=x.dtype)
    return F.batch_norm(x, mean, var, training=True), mean, var


CASES: dict[str, Callable[[Any], Any]] = {
    "a share": lambda x: x * (1.0 / x.shape[0]),
    "a difference of shares": lambda x: x * (x.shape[0] / 3 - x.shape[1] / 7),
    "a root": lambda x: torch.full((3,), math.sqrt(x.shape[-1])) + x.sum(),
    # (torch's own gradients of these two are compiled for one exponent, one weight.)
    "a power": lambda x: x + x.detach().abs() ** (x.shape[0] / 2),
    "a limit": lambda x: x.clamp(-x.shape[0] / 10, x.shape[-1] / 10),
    "a weight": lambda x: x + torch.lerp(x.detach(), x.detach() * 2, x.shape[0] / 20),
    "a factor of a sum": lambda x: torch.add(x, x, alpha=x.shape[0] / 10),
    "the larger share": lambda x: x * max(x.shape[0] / 3, x.shape[-1] / 2),
    "running statistics": batch_norm,
    "attention": lambda x: F.scaled_dot_product_attention(*[x.flatten(0, 1)] * 3),
    "standard deviations": lambda x: x.std((0, 2), correction=1),
    "half as large again": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "a fixed size": lambda x: F.interpolate(x, size=(12, 9), mode="bilinear"),
    "corners in place": lambda x: F.interpolate(x, (12, 9), mode="bilinear", align_corners=True),
    "cubic": lambda x: F.interpolate(x, size=(12, 9), mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, size=(5, 11), mode="nearest"),
    "largest of windows": lambda x: F.max_pool2d(x, 2),
    "largest, padded": lambda x: F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    "largest, spread": lambda x: F.max_pool2d(x, 2, stride=1, dilation=2),
    "averages of windows": lambda x: F.avg_pool2d(x, 2),
    "averages, padded": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "averages, rounded up": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "edges repeated": lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"),
}


NARROW_CASES = ("a limit", "a factor of a sum", "running statistics", "averages, padded", "cubic")
PAIRS = [(name, torch.float32) for name in CASES] + [(n, torch.bfloat16) for n in NARROW_CASES]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_open_sizes_need_no_calls(name: str, dtype: Any) -> None:
    calls: dict[str, str] = {}
    graphs: list[Any] = []

    def seen(done: Any) -> None:
        calls.update(done.fallbacks)
        graphs.append(done)

    settings = Settings(Options.from_env(), True, seen)
    backend = Watching(settings)
    through = torch.compile(CASES[name], backend=backend, dynamic=True)
    slack = {"rtol": 2e-5, "atol": 2e-5} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for shape in SHAPES:
        x = torch.linspace(-2, 2, math.prod(shape)).sin().reshape(shape).to(dtype)
        results = []
        for f in (CASES[name], through):
            given = x.clone().requires_grad_()
            made = f(given)
            flat = made if isinstance(made, tuple) else (made,)
            (grad,) = torch.autograd.grad((flat[0].float() * 0.1).sin().sum(), given)
            results.append([*[y.detach() for y in flat], grad])
        for wanted, found in zip(*results, strict=True):
            torch.testing.assert_close(found, wanted, **slack)
    assert backend.problem is None
    allowed = MATMULS | (set() if dtype is torch.float32 else NARROW)
    assert set(calls) <= allowed, calls
    assert len(graphs) == 2, "the second shape was compiled again"


NARROW = {
    # Gradients that eager adds up in f32 are calls for narrow floats.
    "aten.upsample_bilinear2d_backward.default",
    "aten.upsample_bicubic2d_backward.default",
    "aten.upsample_nearest2d_backward.default",
    "aten.replication_pad2d_backward.default",
}


def test_a_number_that_might_divide_by_zero_is_computed_by_python() -> None:
    def f(x: Any) -> Any:
        return x.clamp(max=1.0 / (x.shape[0] - 3))

    through = compiled(f, dynamic=True)
    for n in (5, 7):
        torch.testing.assert_close(through(torch.ones(n, 4)), f(torch.ones(n, 4)))
    with pytest.raises(ZeroDivisionError):
        through(torch.ones(3, 4))


def test_a_number_can_be_returned_and_given_to_a_call() -> None:
    def f(x: Any) -> Any:
        share = x.shape[0] / 8
        return torch.renorm(x, 2, 0, share), share, x * share

    through = compiled(f, dynamic=True)
    for n in (5, 7):
        x = torch.linspace(0, 1, n * 4).reshape(n, 4)
        torch.testing.assert_close(through(x), f(x))


def test_a_size_added_to_narrow_floats_is_rounded_as_in_eager() -> None:
    def f(x: Any) -> Any:
        return x + x.shape[0], x - x.shape[0] / 3

    through = compiled(f, dynamic=True)
    for n in (261, 389):
        x = torch.linspace(-1, 1, n).bfloat16()
        torch.testing.assert_close(through(x), f(x), rtol=0, atol=0)
