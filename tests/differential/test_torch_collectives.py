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
from treadle.frontends.torch.lowering.gathers import sent_safely  # noqa: E402
from treadle.ir.program import Collective, Wait  # noqa: E402
from treadle.runtime.launch_plan import CallStep, WaitStep  # noqa: E402

pytestmark = pytest.mark.torch
OPERATORS: Any = torch.ops._c10d_functional
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


def waited_twice(x: Any, y: Any) -> Any:
    begun = OPERATORS.all_reduce(x * 2, "sum", "0")
    once, again = OPERATORS.wait_tensor(begun), OPERATORS.wait_tensor(begun)
    return once + 1, again * 2, OPERATORS.wait_tensor(once) - y


def told_where(x: Any, y: Any) -> Any:
    whole, part = x.new_empty(8, 8), x.new_empty(8, 8)
    OPERATORS.all_gather_into_tensor_out(x * 2, 1, "0", out=whole)
    OPERATORS.wait_tensor(whole)
    OPERATORS.reduce_scatter_tensor_out(x * 3, "sum", 1, "0", out=part)
    beside = y @ y
    OPERATORS.wait_tensor(part)
    return whole + 1, part - beside


def told_an_input(x: Any, y: Any) -> Any:
    OPERATORS.all_gather_into_tensor_out(x * 2, 1, "0", out=y)
    OPERATORS.wait_tensor(y)
    return (y.sum(),)


def group_itself(x: Any, y: Any) -> Any:
    world = dist.group.WORLD
    total = OPERATORS.wait_tensor(OPERATORS.all_reduce(x * 2, "sum", world))
    return total + 1, OPERATORS.wait_tensor(OPERATORS.all_gather_into_tensor(y + 1, 1, world))


def of_several_one(x: Any, y: Any) -> Any:
    sums = OPERATORS.all_reduce_coalesced([x + 1, y * 2], "sum", "0")
    return (OPERATORS.wait_tensor(sums[1]) + 1,)


FORMS = {waited_twice: 1, told_where: 2, told_an_input: 1, group_itself: 2, of_several_one: 1}


@pytest.mark.parametrize("function", FORMS)
def test_every_form_of_a_collective_is_one_of_a_known_group(function: Any) -> None:
    if function is group_itself and "Any group_name" not in str(
        OPERATORS.all_reduce.default._schema
    ):
        pytest.skip("this torch knows groups by name only")
    given = torch.randn(8, 8), torch.randn(8, 8)
    mine, eagers = [x.clone() for x in given], [x.clone() for x in given]
    run, built = compiled(function)
    with torch.no_grad():
        for a, b in zip(run(*mine), function(*eagers), strict=True):
            torch.testing.assert_close(a, b)
    for a, b in zip(mine, eagers, strict=True):
        torch.testing.assert_close(a, b)
    leaves = built[0].scheduled.program.leaves
    sent = [leaf for leaf in leaves if isinstance(leaf, Collective)]
    assert [(one.group, one.ranks) for one in sent] == [("0", (0,))] * FORMS[function]
    assert sum(isinstance(leaf, Wait) for leaf in leaves) == FORMS[function]


def test_what_is_looked_at_before_it_is_waited_for_is_a_plain_call() -> None:
    def early(x: Any, y: Any) -> Any:
        begun = OPERATORS.all_reduce(x * 2, "sum", "0")
        return OPERATORS.wait_tensor(begun.view(-1)) + 1, y * 2

    run, built = compiled(early)
    x = torch.randn(8, 8)
    with torch.no_grad():
        torch.testing.assert_close(run(x, x)[0], early(x, x)[0])
    leaves = built[0].scheduled.program.leaves
    assert not [leaf for leaf in leaves if isinstance(leaf, Collective | Wait)]


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


def example(kind: str) -> Any:
    """A tensor of an element type or a shape that a gather may treat in a way of its own."""
    shapes = {
        "nothing": torch.empty(0, 3),
        "no columns": torch.empty(2, 0),
        "a part": torch.arange(10.0)[3:7],
        "conjugate": torch.tensor([1 + 2j, 3 - 1j]).conj(),
    }
    if kind in shapes:
        return shapes[kind]
    return torch.arange(6).reshape(3, 2).to(getattr(torch, kind))


KINDS = ("float32", "bfloat16", "int64", "uint8", "bool", "complex64", "nothing", "no columns",
         "a part", "conjugate")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", [True, False])
def test_gathers_under_a_short_name_are_torchs(kind: str, named: bool) -> None:
    own, x = torch.ops._c10d_functional, example(kind)
    group = dist.group.WORLD.group_name if named else dist.group.WORLD
    single, each = own.all_gather_into_tensor.default, own.all_gather_into_tensor_coalesced.default
    if not named and "str group_name" in str(single._schema):
        pytest.skip("this torch knows groups by name only")
    expected = own.wait_tensor(single(x, 1, group))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        begun = [sent_safely(single)(x, 1, group), *sent_safely(each)([x, x], 1, group)]
        found = [own.wait_tensor(one) for one in begun]
    for one in found:
        assert (one.dtype, one.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(one.resolve_conj(), expected.resolve_conj())
    names = {event.name for event in profile.events() if event.name.startswith("c10d::")}
    assert names == {"c10d::_allgather_base_"}


def test_a_gather_that_torch_refuses_is_refused_in_its_words() -> None:
    own = torch.ops._c10d_functional.all_gather_into_tensor.default
    for given in ((torch.tensor(1.0), 1, "0"), (torch.ones(2), 1, "no such group")):
        said = []
        for function in (own, sent_safely(own)):
            with pytest.raises(RuntimeError) as error:
                function(*given)
            said.append(str(error.value).splitlines()[0])
        assert said[0] == said[1]


def test_what_gloo_does_not_send_goes_as_before() -> None:
    reduce = torch.ops._c10d_functional.all_reduce.default
    assert sent_safely(reduce) is reduce
    single = torch.ops._c10d_functional.all_gather_into_tensor.default
    there = torch.ones(2, 3, device="meta")
    assert sent_safely(single)(there, 4, "0").shape == (8, 3)
