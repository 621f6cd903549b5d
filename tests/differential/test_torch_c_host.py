"""The host in C: results, errors and memory as from Python, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402
from treadle.runtime.hosts import torch_c, torch_c_library  # noqa: E402
from treadle.runtime.hosts.torch_c import CHost  # noqa: E402

pytestmark = pytest.mark.torch


def compiled(function: Any, host: str = "c", **rest: Any) -> tuple[Any, list[Built]]:
    torch._dynamo.reset()
    built: list[Built] = []
    # A host is about library calls: products of ours are kernels like any other.
    asked = Options.from_env().with_(host=host, products="library")
    settings = Settings(asked, True, report=built.append)
    backend = lambda gm, given: compile_with(settings, gm, given)  # noqa: E731
    return torch.compile(function, backend=backend, **rest), built


def host_of(built: Built) -> CHost:
    found = built.runner.bound().in_c
    assert found is not None, built.runner.bound().choice
    return found


def chain(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = torch.relu(x @ w) + 1
    return x


def several(x: Any, w: Any) -> Any:
    t = torch.addmm(x, x, w, beta=0.5, alpha=2.0)
    b = torch.baddbmm(t.view(2, 4, 8), x.view(2, 4, 8).sin(), w.expand(2, 8, 8))
    return t.softmax(0), b, x, t.t(), 7, b.sum()


def dropped(x: Any, w: Any) -> Any:
    return torch.dropout(x @ w, 0.5, True).cumsum(0) * 2


def sorted_out(x: Any, w: Any) -> Any:
    values, at = (x @ w).topk(3)
    return values + 1, at


def exponential(x: Any, w: Any) -> Any:
    return torch.linalg.matrix_exp(x @ w * 0.1) + 1, x * 2


def changed(x: Any, w: Any) -> Any:
    x.mul_(2).add_(w @ x)
    return x.sum(0)


CASES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "chain": (chain, ()),
    "several": (several, ()),
    "dropped": (dropped, ("aten.native_dropout.default",)),
    "sorted_out": (sorted_out, ()),
    "exponential": (exponential, ("aten.linalg_matrix_exp.default",)),
    "changed": (changed, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_host_in_python(case: str) -> None:
    function, back = CASES[case]
    run, built = compiled(function)
    other, _ = compiled(function, host="python")
    for k in range(4):
        torch.manual_seed(k)
        given = [torch.randn(8, 8), torch.randn(8, 8)]
        again = [x.clone() for x in given]
        with torch.no_grad():
            torch.manual_seed(99)
            found = run(*given)
            torch.manual_seed(99)
            wanted = other(*again)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        torch.testing.assert_close(given, again, rtol=0, atol=0)
    host = host_of(built[0])
    steps = host.bound.plan.steps
    assert tuple([steps[k].target for k in host.made.back]) == back  # type: ignore[union-attr]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        return self.out(y.mean((2, 3)))


def test_training_a_network_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    (run, built), (other, _) = compiled(nets[0]), compiled(nets[1], host="python")
    for _ in range(3):
        x = torch.randn(2, 3, 9, 9)
        run(x).square().sum().backward()
        other(x).square().sum().backward()
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for one in built:
        assert not host_of(one).made.back


def attend(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1


def test_attention_and_its_gradients_are_made_in_c() -> None:
    run, built = compiled(attend)
    given = [torch.randn(2, 2, 8, 16, requires_grad=True) for _ in range(3)]
    again = [x.detach().clone().requires_grad_() for x in given]
    run(*given).sum().backward()
    attend(*again).sum().backward()
    for a, b in zip(given, again, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for one in built:
        host = host_of(one)
        assert any("flash_attention" in name for name in host.made.function.functions)
        assert not host.made.back


def sampled(x: Any, g: Any) -> Any:
    return torch.nn.functional.grid_sample(x, g.tanh(), align_corners=False)


def apart(x: Any, y: Any) -> Any:
    return torch.cdist(x.sin(), y, p=3.0)


SAMPLED = ((2, 3, 5, 5), (2, 4, 4, 2)), ((1, 2, 3, 4, 4), (1, 3, 3, 3, 3))


@pytest.mark.parametrize(
    ("function", "sizes", "name"),
    [
        (sampled, SAMPLED[0], "grid_sampler_2d_backward"),
        (sampled, SAMPLED[1], "grid_sampler_3d_backward"),
        (apart, ((4, 6), (5, 6)), "cdist_backward"),
    ],
)
@pytest.mark.parametrize("wanted", [(0, 1), (0,), (1,)])
def test_gradients_of_samples_and_distances_are_made_in_c(
    function: Callable[..., Any], sizes: Any, name: str, wanted: tuple[int, ...]
) -> None:
    run, built = compiled(function)
    given = [torch.randn(s, requires_grad=k in wanted) for k, s in enumerate(sizes)]
    again = [x.detach().clone().requires_grad_(x.requires_grad) for x in given]
    for _ in range(2):
        run(*given).square().sum().backward()
        function(*again).square().sum().backward()
    for a, b in zip(given, again, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    hosts = [host_of(one) for one in built]
    assert any(name in one for host in hosts for one in host.made.function.functions)
    assert not any(host.made.back for host in hosts)


def allocated(call: Callable[[], Any]) -> list[int]:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        call()
    events = profile.profiler.kineto_results.events()
    return [e.nbytes() for e in events if e.name() == "[memory]"]


@pytest.mark.parametrize("case", [name for name in CASES if name != "changed"])
def test_what_was_allocated_is_freed(case: str) -> None:
    run, _ = compiled(CASES[case][0])
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with torch.no_grad():
        run(x, w)
        assert sum(allocated(lambda: run(x, w))) == 0


def test_an_error_of_a_kernel_is_that_of_the_host_in_python() -> None:
    def pick(x: Any, at: Any) -> Any:
        return (x @ x)[at] + 1

    x, at = torch.randn(8, 8), torch.tensor([1, 9])
    for host in ("c", "python"):
        run, _ = compiled(pick, host)
        with pytest.raises(IndexError, match="your line"):
            run(x, at)
        torch.testing.assert_close(run(x, at % 8), pick(x, at % 8))


def test_an_error_of_a_call_that_goes_back_is_its_own() -> None:
    def draw(x: Any) -> Any:
        return torch.multinomial(x * 2, 4) + 1

    run, built = compiled(draw)
    x = torch.rand(4, 4) + 0.1
    for _ in range(2):
        torch.manual_seed(5)
        found = run(x)
        torch.manual_seed(5)
        assert torch.equal(found, draw(x))
        with pytest.raises(RuntimeError, match="probability"):
            run(-x)
    assert len(host_of(built[0]).made.back) == 1


def test_inputs_that_lie_in_another_way_are_run_from_python() -> None:
    run, built = compiled(chain)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    run(x, w)
    host, runner = host_of(built[0]), built[0].runner
    slanted = torch.randn(8, 8).t()
    assert host.enter([w, slanted]) is None
    assert host.enter([w, None]) is None
    given: list[Any] = [None, None]
    for position, name in runner.signature.tensors:
        given[position] = slanted if name == host.made.inputs[0] else w
    same = [x.contiguous() for x in given]
    (found,), (wanted,) = runner(given), runner(same)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_an_empty_tensor_is_none_of_other_sizes() -> None:
    """Torch's own check of sizes lets any empty tensor pass."""
    run, built = compiled(chain)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    run(x, w)
    assert host_of(built[0]).enter([x, torch.empty(0, 8)]) is None
    assert host_of(built[0]).enter([torch.empty(8, 0), w]) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_an_operator_saves_in_other_sizes_than_it_said_is_not_read(dtype: Any) -> None:
    """In bf16 the promised places of bags are an empty tensor, which the backward is given."""

    def bags(w: Any, places: Any) -> Any:
        found = torch.nn.functional.embedding_bag(places, w, starts, mode="sum")
        return found.float().square().sum()

    torch.manual_seed(0)
    places, starts = torch.randint(0, 1000, (512,)), torch.arange(0, 512, 4)
    run, _ = compiled(bags, host="auto")  # as a run from Python first says what was not kept
    wanted, w = None, torch.randn(1000, 16, dtype=dtype, requires_grad=True)
    for call in (bags, run, run, run, run):
        w.grad = None
        call(w, places).backward()
        wanted = w.grad if wanted is None else wanted
        torch.testing.assert_close(w.grad, wanted)


def test_many_arguments_are_recognised_at_once_and_others_are_not() -> None:
    """What is not exactly like the arguments before is looked at one by one, and run rightly."""

    def f(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return ((a.sin() + b) * c - d) * e

    run, built = compiled(f)
    given = [torch.randn(6, 4) for _ in range(5)]
    for _ in range(3):
        torch.testing.assert_close(run(*given), f(*given))
    (graph,) = built
    host = host_of(graph)
    entrance = host._entrance
    assert entrance._alike is not None
    assert entrance._alike(*given)
    others = [
        torch.randn(4, 6).t(),  # other strides
        torch._neg_view(torch.randn(6, 4)),  # holds the negative of what it shows
        torch.randn(24)[::1].view(6, 4),  # a view that lies as expected
        torch.randn(12, 4)[::2],  # with gaps
    ]
    for k in range(5):
        for other in others:
            changed = [*given[:k], other, *given[k + 1 :]]
            # As a backward graph is called: nobody has looked at the arguments before.
            found = graph.runner(list(changed))
            torch.testing.assert_close(found[0], f(*changed))
    assert not entrance._alike(*given[:4], others[0])
    assert not entrance._alike(*given[:4], others[1])


def test_whoever_watches_calls_sees_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    run, built = compiled(chain)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    run(x, w)
    host_of(built[0])
    with FlopCounterMode(display=False) as counter:
        built[0].runner([x, w])
    assert counter.get_total_flops() == 3 * 2 * 8**3


def test_other_run_time_sizes_need_no_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    load = torch_c.load_shared

    def counted(source: str, **rest: Any) -> Any:
        texts.append(source)
        return load(source, **rest)

    monkeypatch.setattr(torch_c, "load_shared", counted)
    run, _ = compiled(chain, dynamic=True)
    w = torch.randn(8, 8)
    for n in (4, 9, 33, 4):
        x = torch.randn(n, 8)
        torch.testing.assert_close(run(x, w), chain(x, w))
    assert len(texts) == 1


def test_threads_share_one_function() -> None:
    run, built = compiled(chain)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    wanted = run(x, w)
    host_of(built[0])
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(200):
            found = run(x, w)
            if not torch.equal(found, wanted):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_a_torch_without_the_interface_runs_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_c, "has_interface", lambda: False)
    run, built = compiled(chain)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    torch.testing.assert_close(run(x, w), chain(x, w))
    choice = built[0].runner.bound().choice
    assert choice is not None
    assert choice.host is None
    assert "C interface" in choice.reason


def test_a_function_the_interface_lacks_goes_back_to_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = dict(torch_c_library.WRITING)
    lacking[torch.ops.aten.mm.default] = "aoti_torch_cpu_no_such_function"
    monkeypatch.setattr(torch_c_library, "WRITING", lacking)
    run, built = compiled(chain)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    torch.testing.assert_close(run(x, w), chain(x, w))
    assert len(host_of(built[0]).made.back) == 3


def test_c_comes_after_two_runs_unless_it_is_asked_for() -> None:
    run, built = compiled(chain, host="auto")
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    hosts = []
    for _ in range(4):
        run(x, w)
        hosts.append(built[0].runner.bound().choice)
    assert [choice is not None for choice in hosts] == [False, False, True, True]


def test_the_report_says_what_goes_back_to_python() -> None:
    import treadle

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    (graph,) = treadle.explain(exponential, x, w).graphs
    assert graph.host.host == "c"
    ((operator, why, count),) = graph.host.back
    assert (operator, count) == ("aten.linalg_matrix_exp.default", 1)
    assert "no function" in why
    assert "go from the host in C back to Python" in repr(graph)
    (graph,) = treadle.explain(chain, x, w, options={"host": "python"}).graphs
    assert graph.to_json()["host"]["host"] == "python"
    assert "graphs whose host is Python" in repr(graph)
