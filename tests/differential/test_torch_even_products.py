"""Products whose lines 16 bytes do not divide are made of longer ones; here as if on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import treadle.torch  # noqa: E402,F401
from treadle.frontends.torch.capture import even_products  # noqa: E402

pytestmark = pytest.mark.torch
aten = torch.ops.aten
KIND = torch.bfloat16


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """How many products each graph had rewritten, and the graph; none is too small for it."""
    from treadle.frontends.torch import backend
    from treadle.frontends.torch.capture import partition

    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setattr(even_products, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr(even_products, "FEWEST_FLOPS", 0)
    monkeypatch.setattr(even_products, "FLOPS_A_BYTE", 0)
    found: list[tuple[int, Any]] = []

    def counted(gm: Any) -> int:
        found.append((even_products.even_out_products(gm), gm))
        return found[-1][0]

    for module in (backend, partition):
        monkeypatch.setattr(module, "even_out_products", counted)
    return found


def lines(gm: Any) -> list[tuple[int, ...]]:
    """The sizes of what products multiply and make."""
    products = [n for n in gm.graph.nodes if n.target in even_products.PRODUCTS]
    return [(*n.args[-2].meta["val"].shape, n.args[-1].meta["val"].shape[1]) for n in products]


def trained(compiled: bool, loss_of: Callable[[Any, Any, Any], Any], width: int = 16) -> list[Any]:
    torch.manual_seed(1)
    model = torch.nn.Linear(width, 43).to(KIND)
    x = torch.randn(24, width, dtype=KIND, requires_grad=True)
    y = torch.randint(0, 43, (24,))
    run: Any = torch.compile(loss_of, backend="treadle") if compiled else loss_of
    out = run(model, x, y)
    results = list(out) if isinstance(out, tuple) else [out]
    results[0].backward()
    return [*results, x.grad, model.weight.grad, model.bias.grad]


LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "wide": lambda m, x, y: functional.cross_entropy(m(x).float(), y),
    "narrow": lambda m, x, y: functional.cross_entropy(m(x), y),
    "through views": lambda m, x, y: functional.cross_entropy(
        m(x.view(4, 6, -1)).float().view(24, 43), y
    ),
    "logits given back": lambda m, x, y: (lambda z: (functional.cross_entropy(z.float(), y), z))(
        m(x)
    ),
    "one long line": lambda m, x, y: m(x).view(-1).float().square().sum(),
    "squares": lambda m, x, y: (m(x) ** 2).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_of_training_gives_eagers_gradients(
    graphs: list[tuple[int, Any]], name: str
) -> None:
    wanted, found = trained(False, LOSSES[name]), trained(True, LOSSES[name])
    (count, gm), *_ = graphs
    assert count == 3
    assert sorted(lines(gm)) == [(24, 16, 48), (24, 48, 16), (48, 24, 16)]
    for a, b in zip(found, wanted, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-2)


def test_what_kernels_make_has_longer_lines_to_begin_with(graphs: list[tuple[int, Any]]) -> None:
    trained(True, LOSSES["wide"])
    ((_, gm), *_) = graphs
    pads = gm.graph.find_nodes(op="call_function", target=aten.constant_pad_nd.default)
    # Of the weight, of the bias, and one of the gradient that both products read.
    assert len(pads) == 3


@pytest.mark.parametrize("shape", [(24, 16), (2, 12, 16)])
def test_inference_gives_back_the_lines_of_eager_mode(
    graphs: list[tuple[int, Any]], shape: tuple[int, ...]
) -> None:
    model, x = torch.nn.Linear(16, 43).to(KIND), torch.randn(shape, dtype=KIND)
    with torch.no_grad():
        wanted, found = model(x), torch.compile(model, backend="treadle")(x)
    assert graphs[0][0] == 1
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


FACTORS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, int], tuple[int, int]]] = {
    "terms in lines of both": (lambda x, w: x @ w.t(), (24, 19), (16, 19)),
    "terms in lines of one": (lambda x, w: x @ w, (24, 19), (19, 16)),
    "results in lines of one": (lambda x, w: x.t() @ w, (16, 21), (16, 24)),
    "all odd": (lambda x, w: x.t() @ w.t(), (15, 21), (23, 15)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_every_kind_are_right(graphs: list[tuple[int, Any]], name: str) -> None:
    function, *sizes = FACTORS[name]
    x, w = (torch.randn(n, dtype=KIND) for n in sizes)
    found = torch.compile(lambda x, w: function(x, w) * 2, backend="treadle")(x, w)
    assert graphs[0][0] == 1
    torch.testing.assert_close(found, function(x, w) * 2, rtol=2e-2, atol=6e-2)


UNFIT: dict[str, Callable[[Any, Any], Any]] = {
    "even lines": lambda x, w: x[:, :16].contiguous() @ w[:16].contiguous(),
    "wide floats": lambda x, w: x.float() @ w.float(),
}


@pytest.mark.parametrize("name", UNFIT)
def test_should_leave_other_products_alone(graphs: list[tuple[int, Any]], name: str) -> None:
    x, w = torch.randn(24, 19, dtype=KIND), torch.randn(19, 16, dtype=KIND)
    found = torch.compile(UNFIT[name], backend="treadle")(x, w)
    assert graphs[0][0] == 0
    torch.testing.assert_close(found, UNFIT[name](x, w), rtol=2e-2, atol=6e-2)


@pytest.mark.parametrize(("least", "value"), [("FLOPS_A_BYTE", 200), ("FEWEST_FLOPS", 1 << 30)])
def test_should_not_copy_factors_for_little_work(
    graphs: list[tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, least: str, value: int
) -> None:
    monkeypatch.setattr(even_products, least, value)
    model, x = torch.nn.Linear(16, 43).to(KIND), torch.randn(24, 16, dtype=KIND)
    with torch.no_grad():
        torch.compile(lambda x: model(x) * 2, backend="treadle")(x)
    assert graphs[0][0] == 0


def test_what_a_product_reads_turned_is_known_to_be_written_anyway() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from treadle.frontends.torch.lowering.readers import is_multiplied_turned

    def graph_of(function: Callable[[Any, Any], Any]) -> Any:
        return make_fx(function)(torch.randn(4, 8), torch.randn(4, 8)).graph

    def doubled(graph: Any) -> Any:
        (node,) = graph.find_nodes(op="call_function", target=aten.mul.Tensor)
        return node

    both = graph_of(lambda x, w: (x @ (w * 2).t(), w * 2))
    assert not is_multiplied_turned(next(iter(both.nodes)))
    again = graph_of(lambda x, w: (lambda y: (x @ y.t(), y + 1))(w * 2))
    assert is_multiplied_turned(doubled(again))
    alone = graph_of(lambda x, w: x @ (w * 2).t())
    assert not is_multiplied_turned(doubled(alone))
