"""The largest of windows, where it was and its gradient are eager's, however windows lie."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

import treadle  # noqa: E402
import treadle.torch  # noqa: E402

pytestmark = pytest.mark.torch

WINDOWS = [
    ((2, 2), None, 0, 1, False),
    ((3, 3), 2, 1, 1, False),
    ((3, 3), 1, 1, 1, True),
    ((2, 3), (2, 1), 1, 1, True),
    ((3, 3), 1, 1, 2, False),
    ((1, 4), 3, 0, 2, False),
]
"""Kernel, step, pad, how far apart places are, whether the last window may be short."""


@pytest.mark.parametrize("form", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_largest_and_its_gradient_are_eagers(window: Any, dtype: Any, form: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 17, 39).round(decimals=1).to(dtype)  # some are equal
    x[0, 0, 3:5] = float("nan")
    x[0, 1] = -float("inf")
    x = x.to(memory_format=getattr(torch, form))
    for gives_places in (False, True):

        def pool(x: Any, gives_places: bool = gives_places) -> Any:
            found = F.max_pool2d(x * 1, *window, return_indices=gives_places)
            return found if gives_places else (found,)

        fast = torch.compile(pool, backend="treadle", dynamic=False)
        own, ours = x.clone().requires_grad_(), x.clone().requires_grad_()
        wanted, found = pool(own), fast(ours)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            assert a.stride() == b.stride()
        weights = torch.randn_like(wanted[0])
        (of_own,) = torch.autograd.grad(wanted[0], own, weights)
        (of_ours,) = torch.autograd.grad(found[0], ours, weights)
        near = 1e-5 if dtype is torch.float32 else 0.03
        torch.testing.assert_close(of_ours, of_own, rtol=near, atol=near, equal_nan=True)


def test_places_in_windows_are_written_where_they_are_found() -> None:
    x = torch.randn(2, 3, 16, 32, requires_grad=True)
    found = treadle.explain(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    assert "tr_floordiv" not in found["forward"].source.split("max_pool2d_with_indices_part0")[-1]


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 32, 33, 47, 70])
def test_every_other_element_is_read_and_nothing_behind_it(n: int) -> None:
    torch.manual_seed(0)
    whole = torch.randn(3, 2 * n + 7)
    whole[:, 2 * n - 1 :] = float("nan")
    x = whole[:, : 2 * n - 1]
    fast = torch.compile(lambda x: torch.exp(x[:, ::2]) + 1, backend="treadle", dynamic=False)
    torch.testing.assert_close(fast(x), torch.exp(x[:, ::2]) + 1)
