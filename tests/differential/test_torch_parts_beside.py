"""Gradients of places of one tensor are put beside each other, and are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from treadle.frontends.torch.capture import partition  # noqa: E402
from treadle.frontends.torch.capture.parts_beside import put_parts_beside  # noqa: E402

pytestmark = pytest.mark.torch


def steps(x: Any) -> Any:
    state = torch.zeros_like(x[:, 0])
    for k in range(x.shape[1]):
        state = torch.tanh(state * 0.5 + x[:, k])
    return state


def steps_read_twice(x: Any) -> Any:
    return sum((x[:, k] * x[:, k].cos()).sin() for k in range(x.shape[1]))


def some_places(x: Any) -> Any:
    """With gaps between them, before and behind; one is negative, one a slice."""
    return x[:, 1].exp() + x[:, 2] * x[:, -4] + x[:, 4].sin() + x[:, 5:7].sum(1) + x[:, 9].cos()


def places_of_the_first_dimension(x: Any) -> Any:
    return sum(x[k].sin() * (k + 1) for k in range(x.shape[0]))


def slices(x: Any) -> Any:
    return sum(x[..., 3 * k : 3 * k + 3].exp() * k for k in range(5))


def on_top_of_all(x: Any) -> Any:
    return steps(x) + x.square().sum(1)


def on_top_of_two(x: Any) -> Any:
    more = x * 2
    return steps(more) + more.square().sum(1) + more.exp().sum(1)


BESIDE: dict[str, tuple[Callable[[Any], Any], int]] = {
    f.__name__: (f, count)
    for f, count in (
        (steps, 1),
        (steps_read_twice, 1),
        (some_places, 1),
        (places_of_the_first_dimension, 1),
        (slices, 1),
        (on_top_of_all, 1),
        (on_top_of_two, 1),
    )
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sums were rewritten, for each joint graph."""
    found: list[int] = []

    def counted(gm: Any) -> int:
        found.append(put_parts_beside(gm))
        return found[-1]

    monkeypatch.setattr(partition, "put_parts_beside", counted)
    torch._dynamo.reset()
    return found


def gradients(f: Any, *inputs: Any) -> list[Any]:
    own = [x.clone().requires_grad_() for x in inputs]
    out = f(*own)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), own)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", BESIDE)
def test_gradients_of_places_are_eagers(name: str, dynamic: bool, counts: list[int]) -> None:
    function, expected = BESIDE[name]
    torch.manual_seed(0)
    fast = torch.compile(function, backend="treadle", dynamic=False)
    if dynamic:  # only the size of the batch is open
        fast = torch.compile(function, backend="treadle")
    for batch in (6, 9, 7) if dynamic and "first" not in name else (6,):
        x = torch.randn(batch, 15, 15)
        for found, right in zip(gradients(fast, x), gradients(function, x), strict=True):
            torch.testing.assert_close(found, right)
    assert counts
    assert set(counts) == {expected}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_they_are_rounded_as_in_eager_mode(dtype: Any, counts: list[int]) -> None:
    """Parts that nothing else is added to are the very bits that were made."""

    def places(x: Any) -> Any:
        return torch.stack([x[:, k] * (k - 2.5) for k in range(6)]).sum((0, 2))

    x = torch.randn(8, 6, 5).to(dtype)
    found = gradients(torch.compile(places, backend="treadle"), x)
    assert torch.equal(found[1], gradients(places, x)[1])
    assert counts == [1]


def few(x: Any) -> Any:
    return x[:, 0].sin() + x[:, 1].cos() * x[:, 2]


def every_other(x: Any) -> Any:
    return sum(x[:, k : k + 10 : 2].sum(1) for k in range(5))


def that_meet(x: Any) -> Any:
    return sum(x[:, k : k + 3].exp().sum(1) for k in range(8))


def of_two_dimensions(x: Any) -> Any:
    return sum(x[:, k].sum(1) * x[:, :, k].sum(1) for k in range(4))


@pytest.mark.parametrize("function", [few, every_other, that_meet, of_two_dimensions])
def test_should_leave_what_does_not_lie_beside(function: Any, counts: list[int]) -> None:
    x = torch.randn(6, 15, 15)
    fast = torch.compile(function, backend="treadle")
    for found, right in zip(gradients(fast, x), gradients(function, x), strict=True):
        torch.testing.assert_close(found, right)
    assert counts == [0]
