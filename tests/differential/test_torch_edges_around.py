"""Padding that goes around is loops without copies in between, and like eager's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402

pytestmark = pytest.mark.torch
F = torch.nn.functional
CASES = {
    "a line": ((2, 3, 9), (4, 2)),
    "one side": ((2, 3, 9), (0, 9)),
    "other dimensions only": ((2, 3, 5, 6), (0, 0, 2, 1)),
    "two dimensions": ((2, 3, 5, 17), (3, 2, 1, 5)),
    "three dimensions": ((1, 2, 3, 4, 20), (2, 2, 1, 0, 3, 2)),
    "what is cut off": ((2, 3, 9), (-2, 3)),
    "nothing": ((2, 3, 9), (0, 0)),
}


def padded(x: Any, pad: Any) -> Any:
    return F.pad(x.sin(), pad, mode="circular") * 2


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_edges_are_like_eagers(name: str, dynamic: bool) -> None:
    sizes, pad = CASES[name]
    torch._dynamo.reset()
    fast = torch.compile(padded, backend="treadle", dynamic=dynamic)
    x = torch.randn(sizes)
    torch.testing.assert_close(fast(x, pad), padded(x, pad))
    if not dynamic:
        found = treadle.explain(padded, x, pad)
        assert all(graph.fallbacks == () for graph in found.graphs)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_like_eagers(name: str) -> None:
    sizes, pad = CASES[name]
    torch._dynamo.reset()
    fast = torch.compile(padded, backend="treadle")
    x = torch.randn(sizes, requires_grad=True)
    found, wanted = fast(x, pad), padded(x, pad)
    g = torch.randn_like(wanted)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, x, g), torch.autograd.grad(wanted, x, g))


def test_results_lie_as_eagers_do() -> None:
    torch._dynamo.reset()
    fast = torch.compile(lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), backend="treadle")
    x = torch.randn(2, 3, 6, 20).contiguous(memory_format=torch.channels_last)
    for given in (x, x.clone().requires_grad_()):
        wanted = F.pad(given, (1, 1, 1, 1), mode="circular")
        found = fast(given)
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()


def test_what_does_not_reach_around_once_fails_as_in_eager() -> None:
    torch._dynamo.reset()
    fast = torch.compile(lambda x: F.pad(x, (5, 0), mode="circular"), backend="treadle")
    with pytest.raises(Exception, match="wrapping around"):
        fast(torch.randn(2, 3, 4))
    layer = torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
    x = torch.randn(2, 3, 7, 18)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(layer, backend="treadle")(x), layer(x))
