"""Products of slices of one tensor with one matrix become one, and give what they gave."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch import compat  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402

pytestmark = pytest.mark.torch


def products_of(function: Any, *args: Any, **options: Any) -> int:
    """How many products a compiled function makes; it must give what eager gives."""
    torch._dynamo.reset()
    built: list[Built] = []
    asked = Options.from_env().with_(products="library", **options)
    settings = Settings(asked, True, report=built.append)
    run = torch.compile(function, backend=lambda gm, x: compile_with(settings, gm, x))
    expected = function(*args)
    for _ in range(3):
        torch.testing.assert_close(run(*args), expected)
    return sum("mm" in str(c.function) for b in built for c in b.lowered.calls.values())


def recurrence(x: Any, w: Any, u: Any) -> Any:
    h = torch.zeros(x.shape[1], u.shape[0])
    for k in range(x.shape[0]):
        h = torch.tanh(x[k] @ w + h @ u)
    return h


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """No matrix stays in the second cache."""
    monkeypatch.setattr(compat, "second_cache", lambda: 0)


def test_the_inputs_of_a_recurrence_are_few_products(far: None) -> None:
    torch.manual_seed(0)
    x, w, u = torch.randn(12, 8, 16), torch.randn(16, 32) / 4, torch.randn(32, 32) / 8
    assert products_of(recurrence, x, w, u) == 12 + 12 // 3, "three slices of 8 rows each"
    assert products_of(recurrence, x, w, u, numerics="exact") == 24


@pytest.mark.parametrize("rows, found", [(8, 24), (4, 18), (3, 14), (5, 15)])
def test_products_with_a_matrix_that_is_near_end_at_full_rows(rows: int, found: int) -> None:
    torch.manual_seed(0)
    x, w, u = torch.randn(12, rows, 16), torch.randn(16, 32) / 4, torch.randn(32, 32) / 8
    assert products_of(recurrence, x, w, u) == found, "eight rows are full; 24, 20 are the most"


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_slices_in_any_order_with_gaps_and_repeats(rows: int) -> None:
    def picked(x: Any, w: Any) -> Any:
        return [x[k] @ w for k in (3, -1, 0, 1, 1, 6, 7)]

    torch.manual_seed(0)
    x, w = torch.randn(9, rows, 4), torch.randn(4, 3)
    found = products_of(picked, x, w)
    assert found == (7 if rows == 40 else 4), "0 and 1, 6 to 8; 3 stays alone, so does the second 1"


def test_what_lies_otherwise_stays() -> None:
    def turned(x: Any, w: Any) -> Any:
        return x.transpose(0, 1)[0] @ w + x.transpose(0, 1)[1] @ w

    torch.manual_seed(0)
    assert products_of(turned, torch.randn(4, 3, 8), torch.randn(8, 5)) == 2
