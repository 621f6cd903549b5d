"""Indices that are checked before a loop are errors as in eager mode, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

import treadle.torch  # noqa: E402, F401

pytestmark = pytest.mark.torch

CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "columns": (lambda x, i: x[:, i] * 2, (512, 50), (45,)),
    "columns by select": (lambda x, i: x.index_select(1, i) + 1, (512, 50), (45,)),
    "places in the middle": (lambda x, i: x[:, i, :, i.flip(0)] * 2, (8, 50, 6, 50), (45,)),
    "classes by channels": (
        lambda x, i: (torch.arange(50)[:, None] == i) * F.one_hot(i, 50).T * x,
        (50, 45),
        (45,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_indices_outside_are_errors_and_others_are_not(name: str) -> None:
    torch.manual_seed(0)
    call, shape, places = CASES[name]
    x, i = torch.randn(shape), torch.randint(0, 50, places)
    fast = torch.compile(call, backend="treadle", dynamic=False, options={"strict": True})
    for _ in range(3):
        torch.testing.assert_close(fast(x, i), call(x, i))
    for outside in (50, -51, 1 << 40):
        wrong = i.clone()
        wrong[7] = outside
        with pytest.raises((IndexError, RuntimeError)):
            call(x, wrong)
        with pytest.raises((IndexError, RuntimeError)):
            fast(x, wrong)
    torch.testing.assert_close(fast(x, i), call(x, i))


def test_indices_that_count_from_behind_are_found() -> None:
    x, i = torch.randn(512, 50), torch.randint(-50, 50, (45,))
    fast = torch.compile(lambda x, i: x[:, i] * 2, backend="treadle", dynamic=False)
    torch.testing.assert_close(fast(x, i), x[:, i] * 2)


def test_the_index_that_is_outside_is_named() -> None:
    x, i = torch.randn(512, 50), torch.arange(45)
    i[7] = 63
    fast = torch.compile(lambda x, i: x[:, i] * 2, backend="treadle", dynamic=False)
    with pytest.raises(IndexError, match=r"is 63, outside -50\.\.50"):
        fast(x, i)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loss_over_channels_is_eagers(threads: int) -> None:
    torch.manual_seed(0)
    x, i = torch.randn(2, 21, 16, 16, requires_grad=True), torch.randint(0, 21, (2, 16, 16))
    i[0, 0, :5] = -100
    fast = torch.compile(F.cross_entropy, backend="treadle", dynamic=False)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(3):
            found, wanted = fast(x, i), F.cross_entropy(x, i)
            torch.testing.assert_close(found, wanted)
            pair = torch.autograd.grad(found, x), torch.autograd.grad(wanted, x)
            torch.testing.assert_close(*pair)
    finally:
        torch.set_num_threads(before)
