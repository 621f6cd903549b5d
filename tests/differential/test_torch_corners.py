"""Corners of torch's operators that once went wrong: each equals eager mode."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import treadle.torch  # noqa: E402, F401

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="treadle", options={"strict": True})


def test_a_window_may_see_more_than_the_view_it_is_asked_of() -> None:
    def function(x: Any) -> Any:
        return (x + 1)[2:].as_strided((3,), (2,), 1)

    x = torch.arange(9.0)
    torch.testing.assert_close(strict(function)(x), function(x))


@pytest.mark.parametrize("name", ["any", "all"])
def test_no_dimensions_mean_each_element_by_itself(name: str) -> None:
    x = torch.tensor([[0.5, 0.0], [0.0, 2.0]])
    got = strict(lambda x: getattr(x, name)(dim=()))(x)
    assert torch.equal(got, x.bool())


def test_inputs_that_overlap_without_a_common_base_may_be_changed() -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    here, there = torch.arange(10.0), torch.arange(10.0)
    got = strict(function)(here[:5].data, here[3:8].data)
    wanted = function(there[:5].data, there[3:8].data)
    assert torch.equal(got, wanted)
    assert torch.equal(here, there)


def test_a_complex_input_may_be_changed_in_place() -> None:
    x = torch.ones(3, dtype=torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strict(lambda x: x.mul_(2j))(x)
    assert torch.equal(x, torch.full((3,), 2j, dtype=torch.complex64))


@pytest.mark.parametrize("name", ["max", "min"])
def test_nothing_has_no_largest_element(name: str) -> None:
    with pytest.raises(Exception, match=r"no identity|non-zero|Expected reduction dim"):
        strict(lambda x: getattr(x, name)())(torch.empty(0))


def test_gradients_through_a_gate_in_channels_last_are_right() -> None:
    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)

        def forward(self, x: Any) -> Any:
            h = self.conv(x)
            y = h * F.adaptive_avg_pool2d(h, 1)
            return torch.cat([F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 2)], 1)

    eager = Gate().double().to(memory_format=torch.channels_last)
    ours = copy.deepcopy(eager)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64).to(memory_format=torch.channels_last)
    for model in (eager, strict(ours)):
        (model(x) ** 2).sum().backward()
    torch.testing.assert_close(ours.conv.weight.grad, eager.conv.weight.grad)


def test_results_that_share_memory_are_views_that_know_whose() -> None:
    def function(x: Any) -> Any:
        whole = x.exp()
        return whole, whole[::3]

    x = torch.randn(7)
    whole, part = strict(function)(x)
    # The next graph asks for it when one of the two is changed.
    assert part._base is whole
    part.mul_(3)
    torch.testing.assert_close(whole[::3], x.exp()[::3] * 3)


def test_options_must_be_a_mapping() -> None:
    with pytest.raises(Exception, match="OPT002"):
        torch.compile(lambda x: x + 1, backend="treadle", options=3)(torch.ones(2))
