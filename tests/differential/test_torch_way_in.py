"""The short way into a graph gives what the long one gives, also where more is asked of it."""

from __future__ import annotations

import contextvars
import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_strictly import Function, compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.frontends.torch.capture import way_in  # noqa: E402

pytestmark = pytest.mark.torch

CALLS = 4
"""The first compiles, the second finds the backward compiled, the others go the short way."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def is_short(result: Any) -> bool:
    """Whether the node behind a result was made by the short way."""
    function = getattr(type(result.grad_fn), "_forward_cls", None)
    return getattr(function, "__module__", None) == way_in.__name__


def total(results: Any) -> Any:
    """One number that all results with gradients are part of."""
    flat = [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]
    parts = [(x * (k + 1.5)).sin().sum() for k, x in enumerate(flat) if x.requires_grad]
    return sum(parts[1:], parts[0])


def values(results: Any) -> list[Any]:
    flat = torch.utils._pytree.tree_leaves(results)
    return [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in flat]


def image() -> Any:
    return torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)


CASES: dict[str, tuple[Function, Any]] = {
    "one result": (lambda x, y: (x * y).relu().sum(), lambda: (torch.randn(4, 5), torch.randn(5))),
    "several results": (lambda x: (x.exp(), x.sum(1), x.mean()), lambda: (torch.randn(4, 5),)),
    "a result without gradient": (
        lambda x: (x.sin(), x.argmax(1), x > 0),
        lambda: (torch.randn(4, 5),),
    ),
    "a number among the inputs": (lambda x, k: x.cos() * k, lambda: (torch.randn(4), 3)),
    "an input that is a view": (lambda x: (x * x).sum(0), lambda: (torch.randn(6, 4).t()[1:],)),
    "channels last": (
        lambda x: functional.avg_pool2d(x * x, 2).sigmoid(),
        lambda: (image(),),
    ),
    "an input that gets no gradient": (
        lambda x, y: x.sin() + (y > 0),
        lambda: (torch.randn(4), torch.randn(4)),
    ),
    "products": (lambda x, y: (x @ y).tanh(), lambda: (torch.randn(7, 8), torch.randn(8, 9))),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_eager_mode(name: str) -> None:
    function, make = CASES[name]
    fast = compiled(function)
    for call in range(CALLS):
        torch.manual_seed(call)
        given = make()
        found = []
        for one in (function, fast):
            args = [
                x.detach().clone().requires_grad_(x.is_floating_point())
                if isinstance(x, torch.Tensor)
                else x
                for x in given
            ]
            results = one(*args)
            total(results).backward()
            grads = [x.grad for x in args if isinstance(x, torch.Tensor)]
            found.append([*values(results), *grads])
        for wanted, got in zip(*found, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
            if got is not None:
                assert got.stride() == wanted.stride()
    assert is_short(torch.utils._pytree.tree_leaves(results)[0])


def test_running_statistics_go_on_and_are_counted_as_changes() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU())
    other = copy.deepcopy(model)
    fast = compiled(other)
    for _ in range(CALLS):
        x = torch.randn(8, 4)
        before = other[1].running_mean._version
        wanted, got = model(x), fast(x)
        assert other[1].running_mean._version == before + 1
        wanted.square().mean().backward()
        got.square().mean().backward()
        torch.testing.assert_close(got, wanted)
        for a, b in zip(model.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(b, a)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-5, atol=1e-5)
    assert is_short(got)


LONG: dict[str, Function] = {
    "a view of an input": lambda x, y: (x.t(), x * y),
    "two views of one result": lambda x, y: ((z := x * y)[:2], z[1:]),
}


@pytest.mark.parametrize("name", LONG)
def test_results_that_share_memory_go_the_long_way(name: str) -> None:
    function = LONG[name]
    fast = compiled(function)
    for _ in range(CALLS):
        x, y = (torch.randn(4, 4).requires_grad_() for _ in range(2))
        wanted, got = function(x, y), fast(x, y)
        assert [a._is_view() for a in got] == [a._is_view() for a in wanted]
        torch.testing.assert_close(got, wanted)
        total(got).backward()
        assert not any(map(is_short, got))


def test_without_gradients_views_of_inputs_are_views_on_the_short_way() -> None:
    def function(x: Any, y: Any) -> Any:
        return x.t(), x, x * y, y[1:].view(3, 2, 2)

    fast = compiled(function)
    with torch.no_grad():
        for _ in range(CALLS):
            x, y = torch.randn(4, 4), torch.randn(4, 4)
            wanted, got = function(x, y), fast(x, y)
            assert got[1] is x
            assert [a._is_view() for a in got] == [a._is_view() for a in wanted]
            assert got[0]._base is x
            assert got[3]._base is y
            for a, b in zip(got, wanted, strict=True):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()
            x.add_(1)
            torch.testing.assert_close(got[0], x.t())


def test_one_tensor_given_twice_is_one_tensor() -> None:
    fast = compiled(lambda x, y: (x * y).sum())
    for _ in range(CALLS):
        x = torch.randn(4).requires_grad_()
        fast(x, x).backward()
        torch.testing.assert_close(x.grad, 2 * x.detach())
        y = torch.randn(4).requires_grad_()
        fast(x, y).backward()
        torch.testing.assert_close(y.grad, x.detach())


def settled(function: Function, *args: Any) -> Function:
    """A compiled function that goes the short way by now."""
    fast = compiled(function)
    for _ in range(CALLS):
        result = fast(*args)
        total(result).backward()
    assert is_short(torch.utils._pytree.tree_leaves(fast(*args))[0])
    return fast


def leaf(*shape: int) -> Any:
    return torch.randn(*shape).requires_grad_()


def test_what_made_an_input_without_gradient_is_not_walked_again() -> None:
    def function(x: Any, y: Any) -> Any:
        return x.sin() + (y > 0)

    fast, x, w = compiled(function), leaf(4), leaf(4)
    for _ in range(CALLS):
        y = w * w
        result = fast(x, y)
        seen: list[str] = []
        y.register_hook(lambda grad, seen=seen: seen.append("walked"))
        result.sum().backward()
        assert not seen
        assert w.grad is None
    assert is_short(result)


def test_a_second_derivative_is_refused_as_before() -> None:
    x = leaf(4)
    fast = settled(lambda x: (x.exp() * x).sum(), x)
    (first,) = torch.autograd.grad(fast(x), x, create_graph=True)
    assert first.requires_grad
    torch.testing.assert_close(first.detach(), (x.exp() * (x + 1)).detach())
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


def test_a_graph_that_is_retained_is_refused_or_carried_out_as_before() -> None:
    x = leaf(4)
    with torch._functorch.config.patch(donated_buffer=False):
        fast = settled(lambda x: x.exp().sin().sum(), x)
        x.grad = None
        loss = fast(x)
        loss.backward(retain_graph=True)
        loss.backward()
        torch.testing.assert_close(x.grad, (2 * x.exp() * x.exp().cos()).detach())
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_what_is_kept_must_not_change_until_the_backward() -> None:
    x, y = leaf(4), torch.randn(4)
    fast = settled(lambda x, y: (x * y).sum(), x, y)
    loss = fast(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooks_that_are_graphs_are_not_called_once_more() -> None:
    pack, unpack = (
        torch.fx.symbolic_trace(lambda x: x.to(torch.float16)),
        torch.fx.symbolic_trace(lambda x: x.to(torch.float32)),
    )
    fast = compiled(lambda x, y: (x * y).sin().exp())
    found = []
    for _ in range(CALLS):
        x, y = (torch.linspace(a, 2, 50).requires_grad_() for a in (-1.0, 1.0))
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            result = fast(x, y)
        result.sum().backward()
        found.append((x.grad, y.grad))
    for grads in found[1:]:  # the first call goes the long way
        assert torch.equal(grads[0], found[0][0])
        assert torch.equal(grads[1], found[0][1])


def test_gradients_of_unused_results_are_zero() -> None:
    x = leaf(4)
    fast = settled(lambda x: (x.sin(), x.exp()), x)
    x.grad = None
    fast(x)[1].sum().backward()
    torch.testing.assert_close(x.grad, x.exp().detach())


def test_gradients_may_lie_in_memory_as_they_like() -> None:
    x = leaf(4, 6)
    fast = settled(lambda x: x.sin(), x)
    for grad in (torch.ones(()).expand(4, 6), torch.randn(6, 4).t(), torch.randn(8, 6)[::2]):
        x.grad = None
        fast(x).backward(grad)
        torch.testing.assert_close(x.grad, (grad * x.cos()).detach())


def test_compiled_autograd_takes_nodes_of_the_short_way() -> None:
    from torch._dynamo import compiled_autograd

    x, w = leaf(4), leaf(4)
    fast = settled(lambda x, w: (x * w).sin().sum(), x, w)
    x.grad = None
    with compiled_autograd._enable(torch.compile(backend="eager")):
        fast(x, w).backward()
    torch.testing.assert_close(x.grad, (w * (x * w).cos()).detach())


def test_dynamo_leaves_the_backward_alone() -> None:
    def step(x: Any) -> Any:
        loss = (x.sin() * 3).sum()
        loss.backward()  # breaks the graph: what follows runs under Dynamo's eyes
        return x.cos() + 1

    fast = compiled(step)
    for _ in range(CALLS + 2):
        x = leaf(4)
        torch.testing.assert_close(fast(x), x.cos() + 1)
        torch.testing.assert_close(x.grad, 3 * x.detach().cos())


def test_a_backward_sees_the_context_of_its_caller() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")
    heard = []

    @torch.library.custom_op("treadle_tests::way_in_twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        heard.append(word.get())
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    twice.register_autograd(lambda ctx, grad: twice(grad))
    x = leaf(4)
    fast = settled(lambda x: twice(x).sin().sum(), x)
    heard.clear()
    word.set("said")
    fast(x).backward()
    assert heard == ["said", "said"]


def test_autocast_stays_off_in_what_was_compiled_under_it() -> None:
    x, w = leaf(4, 4), leaf(4, 4)

    def function(x: Any, w: Any) -> Any:
        return (x @ w).float().sin().sum()

    fast = compiled(function)
    for _ in range(CALLS):
        x.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            loss = fast(x, w)
            wanted = function(x, w)
        loss.backward()
        torch.testing.assert_close(loss, wanted, rtol=1e-2, atol=1e-2)
        assert not is_short(loss)


def test_without_gradients_the_grad_mode_is_as_it_was() -> None:
    x = leaf(4)
    fast = compiled(lambda x: (x > 0, x.argmax()))
    for _ in range(CALLS):
        found, where = fast(x)
        assert torch.is_grad_enabled()
        assert not found.requires_grad
        torch.testing.assert_close(where, x.argmax())
    with torch.no_grad():
        for _ in range(CALLS):
            fast(x)
            assert not torch.is_grad_enabled()


def test_inputs_changed_without_gradients_are_counted() -> None:
    def function(x: Any) -> Any:
        x.mul_(2)
        return x + 1

    fast, x = compiled(function), torch.ones(4)
    for call in range(CALLS):
        before = x._version
        torch.testing.assert_close(fast(x), torch.full((4,), 2.0 ** (call + 1)) + 1)
        assert x._version > before


def test_open_sizes_find_their_way() -> None:
    fast = compiled(lambda x: (x.sin() * x).sum(0), dynamic=True)
    for n in (3, 4, 5, 7, 4, 9):
        x = leaf(n, 5)
        fast(x).sum().backward()
        torch.testing.assert_close(x.grad, (x.cos() * x + x.sin()).detach())


def test_threads_share_a_way() -> None:
    x = leaf(64, 64)
    fast = settled(lambda x: (x.sin() * x).sum(), x)

    def step(seed: int) -> bool:
        own = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        for _ in range(10):
            own.grad = None
            fast(own).backward()
        wanted = (own.cos() * own + own.sin()).detach()
        return torch.allclose(own.grad, wanted, rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(step, range(8)))


def test_a_torch_that_describes_graphs_otherwise_goes_the_long_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(metadata: Any) -> Any:
        raise AttributeError("it has another name there")

    monkeypatch.setattr(way_in.Kept, "by", lost)
    fast, x = compiled(lambda x: x.sin().sum()), leaf(4)
    for _ in range(CALLS):
        x.grad = None
        loss = fast(x)
        loss.backward()
        torch.testing.assert_close(x.grad, x.cos().detach())
    assert not is_short(loss)
