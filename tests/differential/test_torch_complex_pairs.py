"""Complex numbers inside a graph are pairs of real ones: eager's results, and no calls."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("error:TOR0")]
ANGLES = torch.outer(torch.arange(6.0), torch.linspace(0.1, 1, 4))
TURNS = torch.polar(torch.ones_like(ANGLES), ANGLES)


def turned(x: Any, turns: Any) -> Any:
    """Rotary positions as they are mostly written."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns.view(1, 6, 1, 4)).flatten(3).type_as(x)


def with_angles(x: Any, angles: Any) -> Any:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))
    return torch.view_as_real(pairs * torch.polar(angles * 2, angles)[:, None]).sum((1, 4))


def mixed(x: Any, y: Any) -> Any:
    a, b = torch.view_as_complex(x.view(2, 6, 3, 4, 2)), torch.complex(y, y.sin())
    c = (a + b).transpose(1, -2) * 2.5 - torch.cat((a, -a), 1)[:, 3:9].permute(0, 2, 1, 3)
    d = (c.conj() * c / (y.T.abs().sum() + 1)).sum(1)[..., 1:].unsqueeze(-1).expand(2, 6, 3, 2)
    return torch.view_as_real(d * (1 - 2j) * 1j) + torch.view_as_real(a[:, :, :, 1:, None])[:, :, 0]


def checked(f: Any, *given: Any) -> None:
    """Twice, forward and backward, against eager; no operator is called."""
    torch._dynamo.reset()
    fast = torch.compile(f, backend="treadle", dynamic=False)
    wanted = [x for x in given if x.requires_grad]
    for _ in range(2):
        ours, eager = fast(*given), f(*given)
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5)
        start = torch.randn_like(eager)
        for a, b in zip(
            torch.autograd.grad(ours, wanted, start),
            torch.autograd.grad(eager, wanted, start),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


def called(f: Any, *given: Any) -> set[str]:
    torch._dynamo.reset()
    return {name for graph in treadle.explain(f, *given).graphs for name, _, _ in graph.fallbacks}


def test_rotary_positions_with_turns_that_are_given() -> None:
    x = torch.randn(2, 6, 3, 8, requires_grad=True)
    checked(turned, x, TURNS)
    assert called(turned, x, TURNS) <= {"aten.view_as_real_copy.default"}


def test_rotary_positions_from_angles() -> None:
    x, angles = torch.randn(2, 6, 6, 8, requires_grad=True), ANGLES.clone().requires_grad_()
    checked(with_angles, x, angles)
    assert called(with_angles, x, angles) == set()


def test_narrow_types_are_rounded_as_in_eager_mode() -> None:
    x = torch.randn(2, 6, 3, 8, dtype=torch.bfloat16)
    torch._dynamo.reset()
    with torch.no_grad():
        ours = torch.compile(turned, backend="treadle")(x, TURNS)
    torch.testing.assert_close(ours, turned(x, TURNS), rtol=8e-3, atol=8e-3)


def test_what_else_pairs_can_do() -> None:
    x, y = torch.randn(2, 6, 3, 8, requires_grad=True), torch.randn(6, 3, 4, requires_grad=True)
    checked(mixed, x, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.fft.fft(x).abs(),
        lambda x: torch.view_as_complex(x) * 2,
        lambda x: torch.view_as_real(torch.view_as_complex(x).exp()),
        lambda x: torch.view_as_real(1 / torch.view_as_complex(x)),
    ],
)
def test_should_not_touch_what_pairs_cannot_do(f: Any) -> None:
    torch._dynamo.reset()
    x = torch.randn(5, 2)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(f, backend="treadle")(x), f(x))


def scaled_by_numbers(x: Any, r: Any) -> Any:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(((pairs * 2j).sum(1) * (1 - 0.5j)).expand(3, 2, 3, 4) + r * 1j)


def test_numbers_whose_conjugate_a_backward_makes() -> None:
    x, r = torch.randn(2, 6, 3, 8, requires_grad=True), torch.randn(3, 2, 3, 4, requires_grad=True)
    checked(scaled_by_numbers, x, r)
    assert called(scaled_by_numbers, x, r) == set()


WHOLE, F64 = torch.randint(-3, 3, (5,)), torch.randn((), dtype=torch.float64)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[:, 0] * 1j + torch.view_as_complex(x),
        lambda x: 2j * x[:, 0].double() * torch.view_as_complex(x),
        lambda x: WHOLE * 1j * torch.view_as_complex(x),
        lambda x: torch.view_as_complex(x) * F64,
        lambda x: torch.complex(x, x[:1]) * 2,
        lambda x: torch.complex(x[0, 0], x) * 2,
        lambda x: torch.view_as_complex(x[0]).transpose(0, -1) * 2,
        lambda x: torch.view_as_complex(x[0]).squeeze(0) * 2,
    ],
)
def test_what_else_is_made_of_numbers_and_reals(f: Any) -> None:
    def shown(x: Any) -> Any:
        return torch.view_as_real(f(x))

    x = torch.randn(5, 2)
    torch._dynamo.reset()
    ours = torch.compile(shown, backend="treadle")(x)
    assert (ours.dtype, ours.stride()) == (shown(x).dtype, shown(x).stride())
    torch.testing.assert_close(ours, shown(x))
    assert called(shown, x) == set()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.view_as_real(torch.view_as_complex(x[0]).sum(0)),
        lambda x: torch.view_as_real(torch.complex(x.half(), x.half())),
        lambda x: torch.view_as_real(torch.view_as_complex(x[0]) * x[:, 0].half()).float(),
        lambda x: torch.view_as_real(
            torch.cat((torch.empty(0, dtype=torch.complex64), torch.view_as_complex(x)[None]), 1)
        ),
    ],
)
def test_should_compile_graphs_that_pairs_do_not_fit(
    f: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a graph that runs operator by operator, nor torch's log of what did not fit."""
    torch._dynamo.reset()
    x = torch.randn(5, 2)
    torch.testing.assert_close(torch.compile(f, backend="treadle")(x), f(x))
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
