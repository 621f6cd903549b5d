"""Convolutions of each channel by itself are loops where that is faster, and like eager."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402

pytestmark = pytest.mark.torch
F = torch.nn.functional
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolved(x: Any, w: Any, b: Any, **how: Any) -> Any:
    """One that is followed by something."""
    return torch.relu(CONVOLUTIONS[x.dim() - 2](x, w, b, groups=x.shape[1], **how))


def drawn(sizes: tuple[int, ...], window: tuple[int, ...], dtype: Any = torch.float32) -> Any:
    x, w = torch.randn(sizes).to(dtype), torch.randn(sizes[1], 1, *window).to(dtype)
    return x, w, torch.randn(sizes[1]).to(dtype)


def calls(given: Any, **how: Any) -> list[str]:
    """The operators that were called."""
    graph = treadle.explain(lambda *xs: convolved(*xs, **how), *given)["graph"]
    return [name for name, *_ in graph.fallbacks]


@pytest.fixture(autouse=True)
def needs_vectors() -> None:
    from treadle.frontends.torch import compat

    torch._dynamo.reset()
    if not compat.floats_in_a_vector():
        pytest.skip("products and windows are the library's on this machine")


@pytest.mark.parametrize(
    ("sizes", "window", "how"),
    [
        ((2, 5, 19, 23), (3, 3), {"padding": 1}),
        ((1, 3, 18, 20), (3, 3), {}),
        ((2, 3, 20, 24), (3, 5), {"padding": (2, 0), "dilation": (2, 1)}),
        ((2, 3, 21, 17), (2, 2), {"padding": (0, 1), "stride": (2, 1)}),
        ((3, 4, 40), (4,), {"padding": 3}),
        ((2, 6, 33), (7,), {"padding": 6, "dilation": 2}),
        ((1, 2, 4, 5, 18), (2, 2, 3), {"padding": (1, 0, 1)}),
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_windows_of_one_channel_are_loops(
    sizes: Any, window: Any, how: Any, with_bias: bool
) -> None:
    x, w, b = drawn(sizes, window)
    given = (x, w, b if with_bias else None)
    fast = torch.compile(lambda *xs: convolved(*xs, **how), backend="treadle")
    wanted = convolved(*given, **how)
    torch.testing.assert_close(fast(*given), wanted)
    assert fast(*given).stride() == wanted.stride()
    assert calls(given, **how) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_narrow_ones_are_rounded_once(dtype: Any) -> None:
    given = drawn((2, 4, 20, 20), (3, 3), dtype)
    fast = torch.compile(lambda *xs: convolved(*xs, padding=1), backend="treadle")
    exact = convolved(*[x.double() for x in given], padding=1)
    torch.testing.assert_close(fast(*given), exact.to(dtype))
    assert calls(given, padding=1) == []


def test_lines_that_lie_apart_are_brought_together_with_their_padding() -> None:
    given = (torch.randn(2, 40, 6).transpose(1, 2), torch.randn(6, 1, 4), torch.randn(6))
    fast = torch.compile(lambda *xs: convolved(*xs, padding=3), backend="treadle")
    torch.testing.assert_close(fast(*given), convolved(*given, padding=3))
    assert calls(given, padding=3) == []


def test_gradients_are_like_eagers() -> None:
    given = [x.requires_grad_() for x in drawn((2, 4, 20, 20), (3, 3))]
    again = [x.detach().clone().requires_grad_() for x in given]
    torch.compile(lambda *xs: convolved(*xs, padding=1), backend="treadle")(*given).sum().backward()
    convolved(*again, padding=1).sum().backward()
    for a, b in zip(given, again, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "window", "how"),
    [
        ((2, 4, 9, 9), (3, 3), {"padding": 1}),
        ((2, 4, 40, 40), (3, 3), {"stride": 2}),
        ((2, 4, 40, 40), (7, 7), {}),
    ],
    ids=["short lines", "steps", "large windows"],
)
def test_what_the_library_does_faster_is_a_call(sizes: Any, window: Any, how: Any) -> None:
    given = drawn(sizes, window)
    fast = torch.compile(lambda *xs: convolved(*xs, **how), backend="treadle")
    torch.testing.assert_close(fast(*given), convolved(*given, **how))
    assert calls(given, **how) == ["aten.convolution.default"]


def test_channels_side_by_side_and_open_sizes_are_calls() -> None:
    x, w, b = drawn((2, 4, 20, 20), (3, 3))
    last = x.contiguous(memory_format=torch.channels_last)
    fast = torch.compile(lambda *xs: convolved(*xs, padding=1), backend="treadle")
    torch.testing.assert_close(fast(last, w, b), convolved(last, w, b, padding=1))
    assert calls((last, w, b), padding=1) == ["aten.convolution.default"]
    torch._dynamo.reset()
    fast = torch.compile(lambda *xs: convolved(*xs, padding=1), backend="treadle", dynamic=True)
    torch.testing.assert_close(fast(x, w, b), convolved(x, w, b, padding=1))
