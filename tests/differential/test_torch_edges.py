"""Operators whose indices wrap, clamp, mirror and divide, through the backend: like eager.

Rows are long enough to be cut into pieces, of odd lengths, in several types, with sizes known and
open; gradients come with them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402

F = torch.nn.functional

pytestmark = pytest.mark.torch

Case = tuple[Callable[[Any], Any], tuple[int, ...]]


def same_as_eager(f: Callable[[Any], Any], x: Any, dynamic: bool) -> None:
    """Values, layouts and gradients."""
    torch._dynamo.reset()
    results = []
    for form in (f, torch.compile(f, backend="treadle", dynamic=dynamic, fullgraph=True)):
        given = x.detach().clone().requires_grad_(x.dtype is torch.float32)
        made = form(given)
        grads = torch.autograd.grad((made * 0.1).sin().sum(), given) if given.requires_grad else ()
        results.append((made.detach(), *grads))
    (wanted, *_), (found, *_) = results
    assert found.stride() == wanted.stride()
    for a, b in zip(*results, strict=True):
        near = 1e-2 if x.dtype in (torch.bfloat16, torch.float16) else 3e-5
        torch.testing.assert_close(b, a, rtol=near, atol=near, equal_nan=True)


def padded(random: Random) -> Case:
    """A tensor padded in one of four ways."""
    mode = random.choice(("reflect", "replicate", "circular", "constant"))
    sizes = (
        random.randint(1, 3),
        random.randint(1, 3),
        random.randint(6, 9),
        random.randint(9, 45),
    )
    amounts = [random.randint(0, 5) for _ in range(4)]
    return lambda x: F.pad(x, amounts, mode=mode) * 2, sizes


def rolled(random: Random) -> Case:
    """A tensor rolled along its rows, flipped perhaps, and joined with itself."""
    sizes = (random.randint(1, 4), random.randint(17, 70))
    shift, cut = random.randint(-20, 20), random.randint(0, 9)

    def f(x: Any) -> Any:
        return torch.cat((torch.roll(x, shift, -1), x[:, cut:].flip(-1)), -1) + 1

    return f, sizes


def pooled(random: Random) -> Case:
    """The largest or the average of windows."""
    sizes = (1, random.randint(1, 3), random.randint(7, 12), random.randint(20, 75))
    count, step = random.randint(2, 3), random.randint(1, 3)
    pad, whole = random.randint(0, count // 2), random.random() < 0.3
    if random.random() < 0.6:
        return lambda x: F.max_pool2d(x, count, step, pad, ceil_mode=whole), sizes
    return lambda x: F.avg_pool2d(x, count, step, pad, ceil_mode=whole), sizes


def resized(random: Random) -> Case:
    """A picture made larger or smaller."""
    mode = random.choice(("nearest", "nearest", "nearest-exact", "bilinear", "bicubic"))
    scale = random.choice((2.0, 2.0, 3.0, 4.0, 0.5, 1.5, 1.7))
    sizes = (1, 2, random.randint(4, 9), random.randint(9, 40))
    if mode.startswith("nearest"):
        return lambda x: F.interpolate(x, scale_factor=scale, mode=mode) * 2, sizes
    aligned = random.random() < 0.4

    def f(x: Any) -> Any:
        return F.interpolate(x, scale_factor=scale, mode=mode, align_corners=aligned) * 2

    return f, sizes


@pytest.mark.parametrize("draw", [padded, rolled, pooled, resized])
def test_edges_are_where_eager_has_them(draw: Callable[[Random], Case]) -> None:
    random = Random(draw.__name__)
    for k in range(9):
        f, sizes = draw(random)
        torch.manual_seed(k)
        kind = torch.bfloat16 if k % 4 == 3 else torch.float32
        x = torch.randn(sizes).to(kind)
        if len(sizes) == 4 and k % 5 == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        same_as_eager(f, x, dynamic=k % 3 == 2)


def test_the_first_of_several_largest_and_nan_win_in_every_piece() -> None:
    x = torch.zeros(1, 2, 9, 41)
    x[0, 0, ::2, ::3] = float("nan")
    x[0, 1, 1::3, 1::2] = 1.0
    f = torch.compile(
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), backend="treadle", dynamic=False
    )
    wanted, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    found, at = f(x)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert torch.equal(at, places)


def test_rows_whose_place_data_decide_are_put_into_others_from_memory() -> None:
    """The gradient of scores without their last step: a check at every element stops vectors."""
    built: list[Built] = []

    def loss(scores: Any, bias: Any, classes: Any) -> Any:
        kept = (scores + bias)[:, :-1].flatten(0, 1)
        return F.cross_entropy(kept, classes[:, 1:].flatten(), label_smoothing=0.1)

    torch._dynamo.reset()
    settings = Settings(Options.from_env(), True, report=built.append)
    backend = lambda gm, given: compile_with(settings, gm, given)  # noqa: E731
    given = torch.randn(2, 16, 100), torch.zeros(100), torch.randint(0, 100, (2, 16))
    results = []
    for form in (loss, torch.compile(loss, backend=backend)):
        leaves = [x.clone().requires_grad_() for x in given[:2]]
        results.append(torch.autograd.grad(form(*leaves, given[2]), leaves))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)
    for op in built[1].scheduled.program.leaves:
        for at in op.body.walk() if hasattr(op, "body") else ():
            assert at.stmt.op != "indirect" or not at.depth, f"{op.name} checks at every element"
