"""Bags of equally many rows are loops, and like eager's; other bags stay calls."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import treadle  # noqa: E402
import treadle.torch  # noqa: E402

pytestmark = pytest.mark.torch


def results(call: Any, places: Any, table: Any) -> tuple[Any, Any]:
    own = table.clone().requires_grad_()
    out = call(places, own)
    (out.float() * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
    return out.detach(), own.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_even_bags_are_generated_and_like_eagers(mode: str, dtype: Any) -> None:
    def bags(places: Any, table: Any) -> Any:
        return functional.embedding_bag(places, table, mode=mode)

    torch.manual_seed(0)
    table = torch.randn(50, 24).to(dtype)
    fast = torch.compile(bags, backend="treadle", dynamic=False)
    for kind in (torch.int32, torch.int64):
        places = torch.randint(0, 50, (13, 4), dtype=kind)
        for found, wanted in zip(
            results(fast, places, table), results(bags, places, table), strict=True
        ):
            torch.testing.assert_close(found, wanted, **near(dtype))
    explained = treadle.explain(bags, places, table.requires_grad_())
    assert all(graph.fallbacks == () for graph in explained)


def near(dtype: Any) -> dict[str, float]:
    return {torch.bfloat16: {"rtol": 0.03, "atol": 0.06}}.get(dtype, {})


@pytest.mark.parametrize("dynamic", [False, True])
def test_bags_of_a_module_are_like_eagers_at_other_sizes(dynamic: bool) -> None:
    torch.manual_seed(0)
    bag = torch.nn.EmbeddingBag(40, 8, mode="sum")
    fast = torch.compile(bag, backend="treadle", dynamic=dynamic)
    for rows, many in ((5, 3), (7, 6), (4, 1)):
        places = torch.randint(0, 40, (rows, many))
        torch.testing.assert_close(fast(places), bag(places))


OTHERS: dict[str, Any] = {
    "maximum": {"mode": "max"},
    "weights": {"mode": "sum", "per_sample_weights": torch.rand(6, 3)},
    "padding": {"mode": "mean", "padding_idx": 2},
    "uneven": {"mode": "sum", "offsets": torch.tensor([0, 2, 2, 11])},
    "largest norm": {"mode": "sum", "max_norm": 1.0},
}


@pytest.mark.parametrize("name", OTHERS)
def test_bags_that_ask_for_more_are_like_eagers(name: str) -> None:
    more = OTHERS[name]

    def bags(places: Any, table: Any) -> Any:
        return functional.embedding_bag(places, table, **more)

    torch.manual_seed(0)
    places, table = torch.randint(0, 20, (6, 3)), torch.randn(20, 8)
    places = places.flatten() if "offsets" in more else places
    fast = torch.compile(bags, backend="treadle")
    torch.testing.assert_close(fast(places, table.clone()), bags(places, table.clone()))


def test_a_place_outside_of_the_table_is_an_error() -> None:
    def bags(places: Any, table: Any) -> Any:
        return functional.embedding_bag(places, table, mode="sum")

    fast = torch.compile(bags, backend="treadle")
    with pytest.raises((IndexError, RuntimeError)):
        fast(torch.tensor([[0, 20]]), torch.randn(20, 8))
