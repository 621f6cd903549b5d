"""Functional collectives: begun and waited for as two steps, with work in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed._functional_collectives as funcol  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402
from treadle.runtime.launch_plan import CallStep, WaitStep  # noqa: E402

pytestmark = pytest.mark.torch
GATHER = getattr(funcol, "all_gather_single", funcol.all_gather_tensor)  # its newer name


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def compiled(function: Any) -> tuple[Any, list[Built]]:
    built: list[Built] = []
    settings = Settings(Options.from_env(), True, report=built.append)
    backend = lambda gm, given: compile_with(settings, gm, given)  # noqa: E731
    return torch.compile(function, backend=backend), built


def work(x: Any, y: Any) -> Any:
    total = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
    beside = torch.softmax(y @ y, 0)
    return total + 1, beside


def gathered(x: Any, y: Any) -> Any:
    whole = GATHER(x.sin(), 0, dist.group.WORLD)
    parts = funcol.all_reduce_coalesced([x + 1, y.cos()], "sum", dist.group.WORLD)
    return whole * 3, parts[0] - parts[1]


@pytest.mark.parametrize("function", [work, gathered])
def test_collectives_give_what_eager_mode_gives(function: Any) -> None:
    run, _ = compiled(function)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    for a, b in zip(run(x, y), function(x, y), strict=True):
        torch.testing.assert_close(a, b)


def test_a_collective_is_one_step_and_its_wait_another() -> None:
    run, built = compiled(work)
    run(torch.randn(8, 8), torch.randn(8, 8))
    plan = built[0].runner.bound().plan
    (begun,) = [s for s in plan.steps if isinstance(s, CallStep) and s.event]
    (wait,) = [s for s in plan.steps if isinstance(s, WaitStep)]
    assert wait.event == begun.event
    assert plan.steps.index(wait) > plan.steps.index(begun)
    # What it reads is not given to anybody else before it was waited for.
    (source,) = begun.reads
    assert plan.lives[source].last == plan.steps.index(wait)


def test_the_wait_waits_for_what_the_collective_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    run, built = compiled(work)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    run(x, y)
    (call,) = [c for c in built[0].runner.signature.calls.values() if c.wait is not None]
    real, waited = call.wait, []
    assert real is not None

    def counted(tensor: Any) -> Any:
        waited.append(tensor)
        return real(tensor)

    monkeypatch.setattr(call, "wait", counted)
    again = type(built[0].runner)(built[0].runner.compiled, built[0].runner.signature)
    again([x, y])
    assert len(waited) == 1
    torch.testing.assert_close(waited[0], x * 2)
