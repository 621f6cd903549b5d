"""Operators that a host function in C asks the library for give what eager mode gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

import treadle.torch  # noqa: E402, F401

pytestmark = pytest.mark.torch

ROW, PLANE, VOLUME = (2, 3, 12), (2, 3, 12, 10), (1, 2, 8, 9, 10)
PLACES = torch.arange(24).reshape(6, 4) % 9
CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "uneven averages": (lambda x: F.adaptive_avg_pool2d(x, (5, 3)) * 2, PLANE),
    "uneven averages of a volume": (lambda x: F.adaptive_avg_pool3d(x, (3, 4, 5)) * 2, VOLUME),
    "uneven averages of a row": (lambda x: F.adaptive_avg_pool1d(x, 5) * 2, ROW),
    "uneven maxima of a volume": (lambda x: F.adaptive_max_pool3d(x, (3, 4, 5)) * 2, VOLUME),
    "maxima with dilation": (lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2) * 2, PLANE),
    "maxima put back": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        PLANE,
    ),
    "windows of fractions": (
        lambda x: F.fractional_max_pool2d(
            x, 2, output_size=(5, 4), _random_samples=x.new_full((2, 3, 2), 0.3)
        ),
        PLANE,
    ),
    "a stable order": (lambda x: torch.sort(x, dim=-1, stable=True, descending=True)[0], ROW),
    "the most frequent": (lambda x: torch.mode((x * 2).round(), -1)[0], ROW),
    "bags with a mean": (
        lambda x: F.embedding_bag(PLACES.flatten(), x, torch.arange(0, 24, 4), mode="mean"),
        (9, 5),
    ),
    "bags with a maximum": (lambda x: F.embedding_bag(PLACES, x, mode="max"), (9, 5)),
    "a cubic to any size": (lambda x: F.interpolate(x, (17, 23), mode="bicubic") * 2, PLANE),
    "lines to any size": (lambda x: F.interpolate(x, 17, mode="linear") * 2, ROW),
    "a volume to any size": (lambda x: F.interpolate(x, (5, 7, 17), mode="trilinear") * 2, VOLUME),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_library_gives_is_eagers(name: str) -> None:
    call, shape = CASES[name]
    fast = torch.compile(call, backend="treadle", dynamic=False)
    for seed in range(4):  # a host in C takes over after the second run
        torch.manual_seed(seed)
        given = torch.randn(shape)
        own, ours = given.clone().requires_grad_(), given.clone().requires_grad_()
        wanted, found = call(own), fast(ours)
        torch.testing.assert_close(found, wanted)
        weights = torch.randn_like(wanted)
        (of_own,) = torch.autograd.grad(wanted, own, weights)
        (of_ours,) = torch.autograd.grad(found, ours, weights)
        torch.testing.assert_close(of_ours, of_own)
        with torch.no_grad():
            torch.testing.assert_close(fast(given), wanted.detach())


def test_bins_are_counted_as_in_eager_mode() -> None:
    fast = torch.compile(lambda x: torch.histc(x, 16, -2, 2), backend="treadle")
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(300)
        torch.testing.assert_close(fast(x), torch.histc(x, 16, -2, 2))
