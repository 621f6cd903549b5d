"""What a forward keeps for its backward is as little as it can be, and gradients are eager's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402
from treadle.frontends.torch.lowering.graph import Lowered  # noqa: E402
from treadle.frontends.torch.lowering.graph_kind import GraphKind  # noqa: E402
from treadle.ir.program import Loop  # noqa: E402

pytestmark = pytest.mark.torch


def compared(function: Any, *inputs: Any) -> dict[str, Lowered]:
    """Gradients against eager's; the graphs as they were lowered, by kind."""
    graphs: dict[str, Lowered] = {}

    def note(done: Lowered) -> None:
        graphs[done.kind.value] = done

    settings = Settings(Options.from_env(), True, note)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=lambda gm, given: compile_with(settings, gm, given))
    results = []
    for one in (function, compiled):
        given = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
        loss = one(*given)
        loss.backward()
        results.append([loss.detach(), *[x.grad for x in given if x.requires_grad]])
    for wanted, found in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=3e-5, atol=1e-4)
        assert found.stride() == wanted.stride()
    return graphs


def kept(graphs: dict[str, Lowered]) -> list[tuple[str, int]]:
    """Element type and size of what only the backward gets."""
    program = graphs[GraphKind.FORWARD.value].program
    names = [n for n in dict.fromkeys(program.outputs) if n not in program.inputs]
    buffers = [program.by_name[n] for n in names]
    return [(str(b.dtype), b.numel.value or 0) for b in buffers if (b.numel.value or 0) > 1]


WINDOWS = {
    "overlapping": ((2, 3, 17, 19), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "apart": ((2, 3, 16, 16), {"kernel_size": 2}),
    "of planes": ((3, 12, 11), {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)}),
    "over the edge": ((2, 3, 17, 19), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "with gaps": ((2, 3, 17, 19), {"kernel_size": 3, "stride": 1, "dilation": 2, "padding": 1}),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_places_of_a_pool_are_kept_as_bytes(name: str, channels_last: bool) -> None:
    shape, settings = WINDOWS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    if channels_last and len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)

    def function(x: Any) -> Any:
        return (functional.max_pool2d(functional.relu(x * 2), **settings) * 0.1).sin().sum()

    graphs = compared(function, x)
    places = [size for kind, size in kept(graphs) if kind == "i8"]
    assert len(places) == 1
    assert "i64" not in dict(kept(graphs))


def test_a_gradient_of_windows_is_gathered_not_added_up_in_memory() -> None:
    graphs = compared(
        lambda x: (functional.max_pool2d(x, 3, 2, 1) * 0.1).sin().sum(), torch.randn(2, 3, 17, 19)
    )
    loops = [op for op in graphs["backward"].program.ops if isinstance(op, Loop)]
    assert {mode for op in loops for _, _, mode, _ in op.body.stores()} == {"plain"}


def test_whether_something_was_cut_off_is_kept_as_a_flag() -> None:
    def function(x: Any, w: Any) -> Any:
        return functional.relu(x @ w).sum()

    assert dict(kept(compared(function, torch.randn(32, 64), torch.randn(64, 48)))) == {
        "bool": 32 * 48
    }


def test_a_value_whose_shape_alone_is_asked_for_again_is_not_stored() -> None:
    def function(x: Any, i: Any) -> Any:
        return functional.cross_entropy(x.float()[:-1], i[1:])

    graphs = compared(function, torch.randn(33, 64), torch.randint(0, 64, (33,)))
    program = graphs["backward"].program
    large = [b.name for b in program.buffers if b.name not in program.inputs and b.numel.value]
    assert [n for n in large if program.by_name[n].numel.value >= 32 * 64] == [program.outputs[0]]


def test_of_a_value_in_a_wider_type_the_narrow_one_is_stored() -> None:
    def function(x: Any) -> Any:
        y = (torch.tanh(x) * torch.sigmoid(x)).float()
        return y.sum(0).sin().sum() + (y * 2).amax(1).sum()

    x = torch.randn(64, 48).to(torch.bfloat16)
    graphs: list[Lowered] = []
    settings = Settings(Options.from_env(), True, graphs.append)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=lambda gm, given: compile_with(settings, gm, given))(x)
    program = graphs[0].program
    stored = [b for b in program.buffers if b.numel.value == 64 * 48 and b.name != "x"]
    assert not [b for b in stored if str(b.dtype) == "f32"]


def test_what_was_made_of_an_input_that_changes_is_kept() -> None:
    """The backward must not compute it again from what the input has become."""

    def f(x, y):
        a = y.exp()
        y.mul_(2)
        return x * a

    def through_views(x, y):
        a = y.t().exp()
        y.mul_(2)
        return x * a + y.t().sin()

    for function in (f, through_views):
        grads = []
        for compiled in (False, True):
            torch.manual_seed(0)
            torch._dynamo.reset()
            x, y = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
            run = torch.compile(function, backend="treadle") if compiled else function
            run(x, y).sum().backward()
            grads.append((x.grad, y))
        torch.testing.assert_close(grads[1], grads[0])
