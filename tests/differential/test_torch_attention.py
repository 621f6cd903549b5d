"""Attention over short sequences is kernels of ours: as exact as eager's, gradients too."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import treadle  # noqa: E402
from treadle.frontends.torch import compat  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(compat.floats_in_a_vector() < 16, reason="tiles are for wider vectors"),
]


def calls(function: Any, *args: Any) -> set[str]:
    """The attention of the library's among what a function calls."""
    torch._dynamo.reset()
    names = {name for g in treadle.explain(function, *args).graphs for name, _, _ in g.fallbacks}
    return {name for name in names if "attention" in name}


def heads(batch: int, count: int, rows: int, width: int, turned: bool = True) -> Any:
    made = torch.randn(batch, rows, count, width)
    return (made.transpose(1, 2) if turned else made.reshape(batch, count, rows, width)).detach()


def attend(causal: bool, scale: float | None = None) -> Any:
    def function(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

    return function


def by_hand(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    """The formula, in f64."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = scores.shape[-2:]
        is_seen = torch.arange(columns)[None, :] <= torch.arange(rows)[:, None]
        scores = scores.masked_fill(~is_seen, float("-inf"))
    return torch.softmax(scores, -1) @ v


SHAPES = {
    "square": (2, 4, 64, 64, 32),
    "odd": (1, 3, 17, 29, 24),
    "few rows": (2, 2, 4, 100, 16),
    "more rows than columns": (1, 2, 40, 9, 8),
}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", SHAPES)
def test_results_and_gradients_are_those_of_the_formula(name: str, causal: bool) -> None:
    torch.manual_seed(0)
    batch, count, rows, columns, width = SHAPES[name]
    scale = 0.3 if name == "odd" else None
    given = [heads(batch, count, n, width, n != columns) for n in (rows, columns, columns)]
    slope = heads(batch, count, rows, width)
    function = attend(causal, scale)
    assert calls(function, *given) == set()
    torch._dynamo.reset()
    fast = torch.compile(function, backend="treadle", dynamic=False)
    exact = [x.double().requires_grad_() for x in given]
    wanted = by_hand(*exact, causal, scale)
    wanted.backward(slope.double())
    for _ in range(3):
        args = [x.clone().requires_grad_() for x in given]
        found = fast(*args)
        eager = function(*given)
        assert found.stride() == eager.stride()
        found.backward(slope)
        torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-5)
        for a, b in zip(args, exact, strict=True):
            torch.testing.assert_close(a.grad.double(), b.grad, rtol=5e-5, atol=5e-5)


def test_large_scores_do_not_overflow() -> None:
    torch.manual_seed(1)
    q, k, v = (heads(1, 2, 32, 16) for _ in range(3))
    fast = torch.compile(attend(True), backend="treadle")
    for factor in (1e3, 1e6):
        found = fast(q * factor, k, v)
        assert found.isfinite().all()
        torch.testing.assert_close(found, attend(True)(q * factor, k, v), rtol=1e-3, atol=1e-3)


def test_lengths_may_change() -> None:
    torch._dynamo.reset()
    fast = torch.compile(attend(True), backend="treadle", dynamic=True)
    for rows in (16, 23, 40):
        q, k, v = (heads(2, 2, rows, 16) for _ in range(3))
        torch.testing.assert_close(fast(q, k, v), attend(True)(q, k, v), rtol=2e-5, atol=2e-5)


LIBRARY: dict[str, Any] = {
    "long": (attend(False), [heads(1, 4, 1024, 64) for _ in range(3)]),
    "a mask of its own": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, torch.zeros(16, 16)),
        [heads(1, 4, 16, 16) for _ in range(3)],
    ),
    "heads that share keys": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        [heads(1, count, 16, 16) for count in (4, 2, 2)],
    ),
    "narrow floats": (attend(False), [heads(1, 4, 16, 16).bfloat16() for _ in range(3)]),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_what_the_library_does_better_stays_there(name: str) -> None:
    function, given = LIBRARY[name]
    assert calls(function, *given)
    torch._dynamo.reset()
    found = torch.compile(function, backend="treadle")(*given)
    torch.testing.assert_close(found, function(*given), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("is_narrower", [False, True])
def test_a_library_of_narrower_vectors_gets_only_longer_sequences(
    is_narrower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "library_is_narrower", lambda: is_narrower)
    short, long = [[heads(2, 9, n, 64) for _ in range(3)] for n in (128, 160)]
    assert bool(calls(attend(True), *short)) is not is_narrower
    assert calls(attend(True), *long), "scores take more than half of what they are made of"
