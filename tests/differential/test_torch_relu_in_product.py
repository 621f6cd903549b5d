"""A relu behind a product with a bias is the library's on a GPU; here as if the CPU were one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle.torch  # noqa: E402,F401
from treadle.frontends.torch.capture import relu_in_product  # noqa: E402

pytestmark = pytest.mark.torch
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _cpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(relu_in_product, "DEVICES", frozenset({"cpu"}))


def layers(bias: bool = True) -> Any:
    torch.manual_seed(0)
    made = [torch.nn.Linear(16, 24, bias=bias), torch.nn.ReLU(), torch.nn.Linear(24, 8)]
    return torch.nn.Sequential(*made, torch.nn.ReLU()).to(torch.bfloat16)


def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products each graph had rewritten."""
    from treadle.frontends.torch import backend
    from treadle.frontends.torch.capture import partition

    counts: list[int] = []

    def counted(gm: Any) -> int:
        counts.append(relu_in_product.take_relu_into_products(gm))
        return counts[-1]

    for module in (backend, partition):
        monkeypatch.setattr(module, "take_relu_into_products", counted)
    return counts


@pytest.mark.parametrize("shape", [(5, 16), (2, 3, 16)])
def test_inference_gives_eagers_bits_and_keeps_what_is_no_number(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    counts, model, x = taken(monkeypatch), layers(), torch.randn(shape, dtype=torch.bfloat16)
    x.view(-1, 16)[1, 3] = torch.nan
    with torch.no_grad():
        wanted = model(x)
        found = torch.compile(model, backend="treadle")(x)
    assert counts == [2]
    assert torch.equal(found.isnan(), wanted.isnan())
    assert wanted.isnan().any()
    assert torch.equal(found.nan_to_num(), wanted.nan_to_num())


def test_gradients_are_eagers(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, x = taken(monkeypatch), torch.randn(5, 16, dtype=torch.bfloat16)
    results = []
    for compiled in (False, True):
        model = layers()
        run = torch.compile(model, backend="treadle") if compiled else model
        out = run(x)
        out.float().square().sum().backward()
        results.append([out, *[p.grad for p in model.parameters()]])
    assert counts == [2]
    for wanted, found in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


UNFIT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the sum is used as well": lambda x, w, b: (lambda s: (s.relu(), s.exp()))(
        torch.addmm(b, x, w)
    ),
    "a matrix is added": lambda x, w, b: torch.addmm(b.expand(5, 24).contiguous(), x, w).relu(),
    "a share is added": lambda x, w, b: torch.addmm(b, x, w, beta=0.5).relu(),
    "wide floats": lambda x, w, b: torch.addmm(b.float(), x.float(), w.float()).relu(),
}


@pytest.mark.parametrize("name", UNFIT)
def test_should_leave_other_products_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    counts = taken(monkeypatch)
    given = [torch.randn(*n, dtype=torch.bfloat16) for n in ((5, 16), (16, 24), (24,))]
    wanted = UNFIT[name](*given)
    found = torch.compile(UNFIT[name], backend="treadle")(*given)
    assert counts == [0]
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
