"""Convolutions on a GPU: channels last, what they add apart; values and strides of eager mode."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import treadle.torch  # noqa: E402, F401
from treadle.frontends.torch import backend  # noqa: E402
from treadle.frontends.torch.capture import bias_apart, channels_last, partition  # noqa: E402

pytestmark = pytest.mark.torch
Copies = list[int]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """How many copies each graph took, on a CPU, where it is not done otherwise."""
    found: Copies = []

    def noted(gm: Any) -> int:
        found.append(channels_last.prefer_channels_last(gm))
        return found[-1]

    monkeypatch.setattr(channels_last, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr(bias_apart, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr(backend, "prefer_channels_last", noted)
    monkeypatch.setattr(partition, "prefer_channels_last", noted)
    torch._dynamo.reset()
    return found


class Residual(nn.Module):
    """What most networks of pictures are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, 2, 1)
        self.norm, self.wide = nn.BatchNorm2d(32), nn.Conv2d(32, 64, 3, 1, 1)
        self.short, self.head = nn.Conv2d(32, 64, 1), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(F.relu(self.wide(x) + self.short(x)), 3, 2, 1)
        return self.head(x.mean((2, 3))), x


class Generator(nn.Module):
    """Turned convolutions, norms of groups, resizing, softmax over what a view flattens."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.ConvTranspose2d(24, 32, 2, 2), nn.GroupNorm(4, 32)
        self.out = nn.Conv2d(32, 20, 3, 1, 1, bias=False)

    def forward(self, x: Any) -> Any:
        x = F.silu(self.norm(self.up(x)))
        x = self.out(F.interpolate(x, scale_factor=2.0))
        weights = x.flatten(2).softmax(-1)
        return (x.flatten(2) * weights).sum(-1), x.transpose(1, 3), torch.cat((x, x), 1).flatten(1)


class Apart(nn.Module):
    """Depthwise, then across channels, with a gate for each."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Conv2d(24, 24, 3, 1, 1, groups=24)
        self.across, self.gate = nn.Conv2d(24, 48, 1), nn.Conv2d(48, 48, 1)

    def forward(self, x: Any) -> Any:
        x = F.hardswish(self.across(F.hardswish(self.deep(x))))
        return x * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(x, 1)))


class LooksAtMemory(nn.Module):
    """What is written in place, seen through strides of its own, and split."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(8, 20, 3)
        self.register_buffer("last", torch.zeros(2, 20, 6, 6))

    def forward(self, x: Any) -> Any:
        x = self.wide(x)
        self.last.copy_(x.detach())
        a, b = x.split(10, 1)
        seen = torch.as_strided(x, (2, 36), (720, 1), 5).cumsum(1)
        return seen, a * b, x[:, :, ::2].clone(), torch.relu(x).view(2, -1) @ x.view(720, 2)


MODELS = {
    "residual": (Residual, (4, 3, 24, 24)),
    "generator": (Generator, (2, 24, 5, 7)),
    "apart": (Apart, (2, 24, 9, 8)),
    "looks_at_memory": (LooksAtMemory, (2, 8, 8, 8)),
}


def step(model: Any, x: Any) -> tuple[list[Any], list[Any]]:
    """Results, and gradients of everything from the same random ones."""
    found = [t for t in torch.utils._pytree.tree_leaves(model(x)) if t.requires_grad]
    given = torch.Generator().manual_seed(7)
    start = [torch.randn(t.shape, generator=given).to(t.dtype) for t in found]
    return found, list(torch.autograd.grad(found, [x, *model.parameters()], start))


@pytest.mark.parametrize("name", MODELS)
def test_values_and_strides_are_those_of_eager_mode(copies: Copies, name: str) -> None:
    torch.manual_seed(0)
    make, sizes = MODELS[name]
    model = make()
    x = torch.randn(sizes, requires_grad=True)
    wanted, exact = step(deepcopy(model), x), deepcopy(model).double()
    size = [t.double() for part in step(exact, x.detach().double().requires_grad_()) for t in part]
    found = step(torch.compile(model, backend="treadle", dynamic=False), x)
    assert all(n > 0 for n in copies[:1] or [0])
    for ours, eager, about in zip(
        [*found[0], *found[1]], [*wanted[0], *wanted[1]], size, strict=True
    ):
        assert ours.stride() == eager.stride()
        assert (ours.double() - about).abs().max() <= 1e-4 * (about.abs().max() + 1)


def test_what_is_written_to_buffers_is_the_same(copies: Copies) -> None:
    torch.manual_seed(0)
    eager, ours = LooksAtMemory(), Residual()
    same, x = deepcopy(eager), torch.randn(2, 8, 8, 8)
    eager(x), torch.compile(same, backend="treadle", dynamic=False)(x)
    assert (eager.last - same.last).abs().max() < 1e-5
    assert same.last.is_contiguous()
    again, picture = deepcopy(ours), torch.randn(4, 3, 24, 24)
    with torch.no_grad():
        ours(picture), torch.compile(again, backend="treadle", dynamic=False)(picture)
    assert (ours.norm.running_var - again.norm.running_var).abs().max() < 1e-5
    assert all(n > 0 for n in copies)


@pytest.mark.parametrize(
    "why, model, sizes",
    [
        ("few channels", lambda: nn.Conv2d(3, 16, 3), (2, 3, 8, 8)),
        ("groups", lambda: nn.Conv2d(32, 64, 3, groups=4), (2, 32, 8, 8)),
        ("lines", lambda: nn.Conv1d(32, 64, 3), (2, 32, 8)),
        ("volumes", lambda: nn.Conv3d(32, 64, 3), (2, 32, 4, 4, 4)),
    ],
)
def test_should_not_turn_what_gains_nothing(
    copies: Copies, why: str, model: Any, sizes: Any
) -> None:
    x, made = torch.randn(sizes), model()
    with torch.no_grad():
        torch.compile(made, backend="treadle", dynamic=False)(x)
    assert copies == [0], why


def test_should_not_turn_what_has_channels_last_already(copies: Copies) -> None:
    model = nn.Conv2d(32, 64, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 32, 8, 8).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.compile(model, backend="treadle", dynamic=False)(x)
    assert copies == [0]


def test_should_not_turn_open_sizes(copies: Copies) -> None:
    model = nn.Conv2d(32, 64, 3)
    with torch.no_grad():
        torch.compile(model, backend="treadle", dynamic=True)(torch.randn(3, 32, 9, 8))
    assert copies == [0]


def test_should_not_turn_where_the_option_says_so(copies: Copies) -> None:
    model = nn.Conv2d(32, 64, 3)
    fast = torch.compile(model, backend="treadle", options={"channels_last": False})
    with torch.no_grad():
        fast(torch.randn(2, 32, 8, 8))
    assert copies == []


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_what_is_added_and_its_gradient_are_not_left_to_the_library(
    monkeypatch: pytest.MonkeyPatch, dims: int
) -> None:
    monkeypatch.setattr(bias_apart, "DEVICES", frozenset({"cpu"}))
    torch._dynamo.reset()
    torch.manual_seed(0)
    kinds = nn.Conv1d, nn.Conv2d, nn.ConvTranspose3d
    model = kinds[dims - 1](6, 4, 3)
    x = torch.randn(2, 6, *[5] * dims, requires_grad=True)
    seen: list[Any] = []
    taken = bias_apart.take_bias_apart

    def noted(gm: Any) -> int:
        count = taken(gm)
        seen.extend(n for n in gm.graph.nodes if "convolution" in str(n.target))
        return count

    monkeypatch.setattr(partition, "take_bias_apart", noted)
    found = step(torch.compile(deepcopy(model), backend="treadle", dynamic=False), x)
    forward, backward = seen
    assert forward.args[2] is None
    assert list(backward.args[10]) == [True, True, False]
    wanted = step(model, x)
    for ours, eager in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
