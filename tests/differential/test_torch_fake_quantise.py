"""Fake quantisation and norms of many tensors are loops on a CPU, and like eager."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402

pytestmark = pytest.mark.torch
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 1e30, -1e30, 9.3e18, 0.005, 0.015]

SCALES = torch.linspace(0.003, 0.02, 37)


def numbers(*sizes: int) -> Any:
    x = torch.randn(*sizes) * 2
    x.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL)
    return x.requires_grad_()


def by_numbers(x: Any) -> Any:
    return torch.fake_quantize_per_tensor_affine(x, 0.013, 3, -128, 127)


def by_tensors(x: Any) -> Any:
    scale, zero = torch.tensor([0.01]), torch.tensor([-7], dtype=torch.int32)
    return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)


def by_channels(x: Any) -> Any:
    zero = torch.arange(x.shape[1], dtype=torch.int32) % 5
    return torch.fake_quantize_per_channel_affine(x, SCALES, zero, 1, -8, 7)


def switched(x: Any) -> Any:
    zero, scale = torch.zeros(1, dtype=torch.int32), torch.tensor([0.02])
    on = [torch.tensor([n], dtype=torch.int64) for n in (0, 1)]
    quantised = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    return [quantised(x.detach(), scale, zero, one, -128, 127) for one in on]


@pytest.mark.parametrize("function", [by_numbers, by_tensors, by_channels])
@pytest.mark.parametrize("dynamic", [False, True])
def test_fake_quantisation_and_its_gradient_are_eagers(function: Any, dynamic: bool) -> None:
    torch._dynamo.reset()
    x = numbers(6, 37)
    grad = torch.randn(6, 37)
    wanted, fast = function(x), torch.compile(function, backend="treadle", dynamic=dynamic)
    found = fast(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    (a,), (b,) = torch.autograd.grad(found, x, grad), torch.autograd.grad(wanted, x, grad)
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    report = treadle.explain(function, x)
    assert all(graph.fallbacks == () for graph in report.graphs)


def test_a_switch_says_whether_anything_is_rounded() -> None:
    torch._dynamo.reset()
    x = numbers(5, 9)
    for found, wanted in zip(
        torch.compile(switched, backend="treadle")(x), switched(x), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_other_types_are_the_librarys() -> None:
    x = torch.randn(5, 9, dtype=torch.float64)
    report = treadle.explain(by_numbers, x)
    assert any(graph.fallbacks for graph in report.graphs)


@pytest.mark.parametrize("order", [1, 2, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_norms_of_many_tensors_are_sums_of_ours(order: float, dtype: Any) -> None:
    torch._dynamo.reset()
    given = [torch.randn(n, 7).to(dtype) for n in (3, 40, 1)]

    def clipped(given: Any) -> Any:
        total = torch.stack(torch._foreach_norm(given, order)).norm(order)
        return torch._foreach_mul(given, (1.0 / (total + 1e-6)).clamp(max=1.0))

    report = treadle.explain(clipped, given)
    assert all(graph.fallbacks == () for graph in report.graphs)
    for found, wanted in zip(
        torch.compile(clipped, backend="treadle")(given), clipped(given), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_norms_of_what_may_be_empty_are_eagers() -> None:
    torch._dynamo.reset()
    given = [torch.randn(3), torch.empty(0)]
    fast = torch.compile(lambda x: torch._foreach_norm(x), backend="treadle")
    for found, wanted in zip(fast(given), torch._foreach_norm(given), strict=True):
        torch.testing.assert_close(found, wanted)
