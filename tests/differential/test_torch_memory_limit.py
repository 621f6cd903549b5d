"""With a memory limit, the backward computes again what the forward would have kept."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402
import treadle.torch  # noqa: E402
from treadle.frontends.torch.capture import partition  # noqa: E402

pytestmark = pytest.mark.torch


def model() -> Any:
    """Layers whose activations are much larger than their parameters."""
    layers: list[Any] = []
    for _ in range(6):
        layers += [torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)]
    return torch.nn.Sequential(*layers)


def peak(net: Any, x: Any, **options: Any) -> int:
    return int(treadle.plan(net, x, options=options).peak_bytes)


def test_the_peak_stays_under_the_limit_and_gradients_are_the_same() -> None:
    net, x = model(), torch.randn(512, 16)
    usual = peak(net, x)
    limit = usual * 3 // 4
    assert peak(net, x, memory_limit=limit) <= limit
    other = copy.deepcopy(net)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = treadle.compile(other, memory_limit=limit, strict=True)
        (fast(x) ** 2).sum().backward()
    (net(x) ** 2).sum().backward()
    assert fast.memory.peak_bytes <= limit
    for ours, wanted in zip(other.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, wanted.grad, rtol=1e-3, atol=1e-3)


def test_a_limit_that_is_high_enough_changes_nothing() -> None:
    net, x = model(), torch.randn(512, 16)
    usual = peak(net, x)
    assert peak(net, x, memory_limit=usual) == usual


def test_a_limit_nobody_can_keep_is_said() -> None:
    net, x = model(), torch.randn(64, 16)
    with pytest.warns(UserWarning, match="TOR004"):
        assert 1 < peak(net, x, memory_limit=1) <= peak(net, x)


def test_a_failed_prediction_costs_the_limit_not_the_compilation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no idea")

    monkeypatch.setattr(partition, "predicted", fails)
    net, x = model(), torch.randn(8, 16)
    with pytest.warns(UserWarning, match=r"TOR004: .*not looked at, because ValueError: no idea"):
        got = treadle.compile(net, memory_limit=1)(x)
    torch.testing.assert_close(got, net(x), rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no idea"):
        treadle.compile(net, memory_limit=1, strict=True)(x)


def test_the_limit_holds_with_run_time_sizes_and_results_that_share_memory() -> None:
    def function(x: Any, w: Any) -> Any:
        y = (x @ w).sin().exp().tanh()
        return y, y[1:]

    w = torch.randn(16, 16, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = treadle.compile(function, dynamic=True, memory_limit=1, strict=True)
        for n in (40, 50):
            x, grads = torch.randn(n, 16), []
            for call in (function, fast):
                whole, part = call(x, w)
                (whole.sum() + (part * 2).sum()).backward()
                grads.append(w.grad)
                w.grad = None
            torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)
