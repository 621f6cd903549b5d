"""The memory plan of a graph: predicted bytes are those that a run allocates, and nobody's clash.

torch's own profiler reports every allocation and every release; runs are told apart by two marks,
allocations of a size that nothing else has.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402
from treadle.memory.problem import ARENA  # noqa: E402
from treadle.runtime.device_memory import DeviceMemory, Role  # noqa: E402
from treadle.runtime.hosts.torch_cpu import Runner  # noqa: E402

pytestmark = pytest.mark.torch

MARK = 77_777


@dataclass
class Watch:
    """Graphs as they are compiled, and the plan of every run in order."""

    built: list[Built] = field(default_factory=list)
    plans: list[DeviceMemory] = field(default_factory=list)

    def compiled(self, function: Callable[..., Any], **rest: Any) -> Callable[..., Any]:
        # Calls, with memory of their own, are what most plans here are about.
        options = Options.from_env().with_(products="library")
        settings = Settings(options, True, report=self.built.append)
        backend = lambda gm, given: compile_with(settings, gm, given)  # noqa: E731
        made: Callable[..., Any] = torch.compile(function, backend=backend, **rest)
        return made

    def named(self, name: str) -> Built:
        return next(b for b in self.built if b.name == name)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    seen, run = Watch(), Runner.__call__

    def marked(self: Runner, args: list[Any]) -> Any:
        seen.plans.append(self._bound(self._sizes(args)).memory)
        torch.empty(MARK, dtype=torch.uint8)
        try:
            return run(self, args)
        finally:
            torch.empty(MARK, dtype=torch.uint8)

    monkeypatch.setattr(Runner, "__call__", marked)
    return seen


def measured_peaks(call: Callable[[], Any]) -> list[int]:
    """For each run inside `call`, the most bytes it held on top of what was there before it."""
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    peaks: list[int] = []
    inside, total = False, 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.nbytes() == MARK:
            inside = not inside
            if inside:
                total = 0
                peaks.append(0)
        elif inside and event.nbytes() != -MARK:
            total += event.nbytes()
            peaks[-1] = max(peaks[-1], total)
    return peaks


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) / 4.0, -1) @ v


def layers(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = torch.softmax(F.layer_norm(x, (x.shape[-1],)) @ w, -1) * 2 + x.cumsum(0)
    return x


def gated(x: Any, a: Any, b: Any, c: Any) -> Any:
    return F.silu(x @ a).mul(x @ b) @ c + x


def several(x: Any, y: Any) -> Any:
    z = (x * y).cumsum(0)
    return z.sum(1), (z + 1).softmax(0), z.t().reshape(-1, 4).cumsum(1)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "element by element": (lambda x, y: (x.sin() * y).exp() + x, ((40, 30), (40, 30))),
    "rows": (lambda x: F.layer_norm(x, (30,)).cumsum(0).softmax(-1).sum(0), ((40, 30),)),
    "several outputs": (several, ((20, 16), (20, 16))),
    "attention": (attention, ((4, 20, 8), (4, 24, 8), (4, 24, 8))),
    "layers": (layers, ((30, 16), (16, 16), (16, 16), (16, 16))),
    "gated": (gated, ((30, 16), (16, 64), (16, 64), (64, 16))),
    "a bias": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((30, 16), (24, 16), (24,))),
    "a gather": (lambda x: x[torch.arange(5) * 2].cumsum(1).exp() * 2, ((12, 9),)),
}


def inputs_of(case: str, grad: bool) -> list[Any]:
    return [torch.randn(shape, requires_grad=grad) for shape in CASES[case][1]]


def step(function: Callable[..., Any], given: list[Any], grad: bool) -> None:
    result = function(*given)
    if grad:
        flat = result if isinstance(result, tuple) else (result,)
        sum(r.sum() for r in flat).backward()


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_holds_what_was_predicted(case: str, grad: bool, watch: Watch) -> None:
    run, given = watch.compiled(CASES[case][0]), inputs_of(case, grad)
    step(run, given, grad)
    watch.plans.clear()
    peaks = measured_peaks(lambda: step(run, given, grad))
    assert [b.name for b in watch.built] == (["forward", "backward"] if grad else ["graph"])
    assert peaks == [plan.peak_bytes - plan.input_bytes for plan in watch.plans]
    assert len(peaks) == len(watch.built)
    for plan in watch.plans:
        assert plan.lower_bound <= plan.peak_bytes


class Block(torch.nn.Module):  # type: ignore[misc]
    """A transformer's layer in plain operators: no call that takes memory for itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        parts = self.qkv(self.first(x)).view(b, n, 3, self.heads, c // self.heads)
        mixed = attention(*parts.permute(2, 0, 3, 1, 4))
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, c))
        return x + self.down(F.gelu(self.up(self.second(x))))


def test_a_transformer_layer_holds_what_was_predicted(watch: Watch) -> None:
    model = torch.nn.Sequential(Block(32, 4), Block(32, 4))
    run, x = watch.compiled(model), torch.randn(2, 10, 32, requires_grad=True)
    step(run, [x], True)
    watch.plans.clear()
    peaks = measured_peaks(lambda: step(run, [x], True))
    assert peaks == [plan.peak_bytes - plan.input_bytes for plan in watch.plans]
    assert len(peaks) == 2


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_other_sizes_get_a_plan_of_their_own(grad: bool, watch: Watch) -> None:
    run = watch.compiled(layers, dynamic=True)
    weights = [torch.randn(16, 16, requires_grad=grad) for _ in range(2)]
    for rows in (7, 40, 7, 23):
        x = torch.randn(rows, 16, requires_grad=grad)
        step(run, [x, *weights], grad)
        watch.plans.clear()
        peaks = measured_peaks(lambda x=x: step(run, [x, *weights], grad))  # type: ignore[misc]
        assert peaks == [plan.peak_bytes - plan.input_bytes for plan in watch.plans]
    assert len(watch.built) == (2 if grad else 1)


def test_the_arena_is_smaller_than_the_temporaries_in_it(watch: Watch) -> None:
    given = inputs_of("layers", False)
    watch.compiled(layers)(*given)
    (plan,) = watch.plans
    inside = [plan.lives[name].bytes for name in plan.suballocations[ARENA]]
    assert 0 < plan.arena_bytes < sum(inside)


def test_what_torch_allocates_inside_a_call_is_all_that_is_not_predicted(watch: Watch) -> None:
    def convolve(x: Any, w: Any) -> Any:
        return F.conv2d(F.conv2d(x.sin(), w, padding=1).relu(), w, padding=1).exp()

    run = watch.compiled(convolve)
    given = [torch.randn(2, 4, 9, 9), torch.randn(4, 4, 3, 3)]
    run(*given)
    (plan,) = watch.plans
    roles = [life.role for life in plan.lives.values()]
    assert roles.count(Role.CALL) >= 1
    (peak,) = measured_peaks(lambda: run(*given))

    def alone() -> None:
        torch.empty(MARK, dtype=torch.uint8)
        F.conv2d(*given, padding=1)
        torch.empty(MARK, dtype=torch.uint8)

    (whole,) = measured_peaks(alone)
    workspace = whole - given[0].nbytes
    predicted = plan.peak_bytes - plan.input_bytes
    assert predicted <= peak <= predicted + workspace


def test_rows_that_are_gathered_for_two_kernels_are_not_in_memory(watch: Watch) -> None:
    def picked(w: Any, rows: Any) -> Any:
        e = F.embedding(rows, w)
        e = e / (e.norm(dim=-1, keepdim=True) + 1e-6)
        pooled = torch.zeros(64, 64).index_add(0, rows % 64, e)
        return pooled, torch.gather(e, 1, (rows[:, None] % e.shape[1]).expand(-1, 8))

    run, w = watch.compiled(picked), torch.randn(1000, 64)
    rows = torch.randint(1000, (512,))
    torch.testing.assert_close(run(w, rows), picked(w, rows), rtol=1e-4, atol=1e-5)
    (plan,) = watch.plans
    assert plan.peak_bytes - plan.input_bytes < 512 * 64 * 4 // 2
    rows[7] = 1000
    with pytest.raises(IndexError):
        run(w, rows)


def test_steps_of_a_recurrence_lie_in_the_stack_alone(watch: Watch) -> None:
    def steps(x: Any, w: Any, u: Any) -> Any:
        h, made = torch.zeros(8, 32), []
        for k in range(x.shape[0]):
            h = torch.tanh(x[k] @ w + h @ u)
            made.append(h)
        return torch.stack(made)

    settings = Settings(Options.from_env(), True, report=watch.built.append)
    backend = lambda gm, given: compile_with(settings, gm, given)  # noqa: E731
    run = torch.compile(steps, backend=backend)
    given = [torch.randn(12, 8, 64), torch.randn(64, 32) * 0.1, torch.randn(32, 32) * 0.1]
    torch.testing.assert_close(run(*given), steps(*given), rtol=1e-4, atol=1e-5)
    (plan,) = watch.plans
    step = 8 * 32 * 4
    # Beside the stack, which takes some in until it is written, the two products of one step.
    assert plan.peak_bytes - plan.input_bytes <= 12 * step + 2 * step


# ------------------------------------------------------------------------ donated inputs


def test_a_backward_graph_lives_in_what_the_forward_graph_saved(watch: Watch) -> None:
    given = inputs_of("gated", True)
    step(watch.compiled(CASES["gated"][0]), given, True)
    plan = watch.plans[1]
    donated = [n for n, life in plan.lives.items() if life.role is Role.DONATED]
    assert donated
    assert any(name in plan.suballocations for name in donated)


def backward_of(watch: Watch, case: str) -> tuple[Runner, list[Any], list[Any]]:
    """The backward graph of a case, arguments for it, and what it gives for them."""
    given, kept = inputs_of(case, True), []
    run = Runner.__call__

    def keeping(self: Runner, args: list[Any]) -> Any:
        kept.append([x.clone() if isinstance(x, torch.Tensor) else x for x in args])
        return run(self, args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "__call__", keeping)
        step(watch.compiled(CASES[case][0]), given, True)
    runner = watch.named("backward").runner
    wanted = [r.clone() for r in runner([x.clone() for x in kept[1]]) if r is not None]
    return runner, kept[1], wanted


def odd(x: Any) -> Any:
    """The same numbers at an address that is a multiple of the element's size and no more."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype)
    there = room[1:].as_strided(x.shape, x.stride(), 1)
    return there.copy_(x)


@pytest.mark.parametrize("case", ["layers", "attention", "rows"])
def test_donated_inputs_at_odd_addresses_give_the_same(case: str, watch: Watch) -> None:
    runner, given, wanted = backward_of(watch, case)
    found = [r for r in runner([odd(x) for x in given]) if r is not None]
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("case", ["layers", "attention", "rows"])
def test_donated_inputs_that_share_memory_give_the_same(case: str, watch: Watch) -> None:
    runner, given, wanted = backward_of(watch, case)
    room = torch.empty(sum(-(-x.numel() // 16) * 16 for x in given))
    at, moved = 0, []
    for x in given:
        moved.append(room.as_strided(x.shape, x.stride(), at).copy_(x))
        at += -(-x.numel() // 16) * 16
    found = [r for r in runner(moved) if r is not None]
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


def test_inputs_that_are_not_donated_keep_their_values(watch: Watch) -> None:
    given = inputs_of("layers", True)
    before = [x.detach().clone() for x in given]
    run = watch.compiled(layers)
    for _ in range(2):
        step(run, given, True)
    for a, b in zip(given, before, strict=True):
        assert torch.equal(a.detach(), b)


# ----------------------------------------------------------------------------- ownership


def test_results_have_memory_of_their_own_and_no_more(watch: Watch) -> None:
    run, given = watch.compiled(several), inputs_of("several outputs", False)
    first, second = run(*given), run(*given)
    owners = {r.untyped_storage()._cdata for r in (*first, *second)}
    assert len(owners) == 6
    for r in first:
        assert r.untyped_storage().nbytes() == r.numel() * r.element_size()


def test_results_stay_when_the_graph_runs_again(watch: Watch) -> None:
    run, given = watch.compiled(layers), inputs_of("layers", False)
    first = run(*given)
    kept = first.clone()
    run(*[x * 3 for x in given])
    assert torch.equal(first, kept)


def test_several_backward_runs_may_be_outstanding(watch: Watch) -> None:
    run = watch.compiled(layers)
    weights = [torch.randn(16, 16) for _ in range(2)]
    xs = [torch.randn(9, 16, requires_grad=True) for _ in range(3)]
    outs = [run(x, *weights) for x in xs]
    for out in reversed(outs):
        out.square().sum().backward()
    for x in xs:
        again = x.detach().clone().requires_grad_()
        layers(again, *weights).square().sum().backward()
        torch.testing.assert_close(x.grad, again.grad, rtol=2e-4, atol=2e-5)


def test_runs_in_threads_do_not_meet(watch: Watch) -> None:
    run = watch.compiled(layers)
    weights = [torch.randn(32, 32) for _ in range(2)]
    xs = [torch.randn(50, 32) for _ in range(6)]
    wanted = [run(x, *weights).clone() for x in xs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not torch.equal(run(xs[k], *weights), wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(xs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_view_that_only_python_holds_is_not_overwritten(watch: Watch) -> None:
    def function(x: Any) -> Any:
        pairs = (x * 2).cumsum(0)
        turned = torch.view_as_complex(pairs)
        for _ in range(4):
            x = x.cumsum(0).cumsum(1) * 0.5
        return torch.view_as_real(torch.fft.fft(turned)) + x

    x = torch.randn(20, 2)
    torch.testing.assert_close(watch.compiled(function)(x), function(x), rtol=1e-4, atol=1e-4)
    (plan,) = watch.plans
    assert Role.PINNED in [life.role for life in plan.lives.values()]


def test_a_users_operator_may_keep_what_it_was_given(watch: Watch) -> None:
    kept: list[Any] = []

    @torch.library.custom_op("treadle_test::keep", mutates_args=())
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x + 1

    keep.register_fake(lambda x: torch.empty_like(x))

    def function(x: Any) -> Any:
        y = keep(x.cumsum(0))
        for _ in range(4):
            y = y.cumsum(0).cumsum(1)
        return y

    x = torch.randn(6, 5)
    watch.compiled(function)(x)
    torch.testing.assert_close(kept[-1], x.cumsum(0))


def test_operators_that_count_from_the_start_of_a_storage_find_their_own() -> None:
    def function(x: Any, w: Any) -> Any:
        product = (x @ w).relu()
        return torch.as_strided_scatter(torch.zeros_like(x), product, (8, 8), (8, 1), 0).sum(0)

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    torch.testing.assert_close(torch.compile(function, backend="treadle")(x, w), function(x, w))


def test_inputs_the_caller_gave_away_die_with_their_last_reader() -> None:
    def function(x: Any, y: Any) -> Any:
        z = x + y
        return z @ z

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function in (torch.ops.aten.mm.out, torch.ops.aten.mm.default):
                alive.append([one() is not None for one in known])
            return function(*args, **(kwargs or {}))

    built: list[Built] = []
    settings = Settings(Options.from_env(), True, report=built.append)
    torch.compile(function, backend=lambda gm, given: compile_with(settings, gm, given))(
        torch.ones(5, 5), torch.ones(5, 5)
    )
    given, alive = [torch.ones(5, 5), torch.ones(5, 5)], list[list[bool]]()
    known = [weakref.ref(x) for x in given]
    with Watching():
        built[0].runner(given)
    assert alive == [[False, False]]


def outlived_by_small_ones(x: Any, w: Any, v: Any) -> Any:
    """A large temporary at the start; results pile up while a small one is still needed."""
    large = torch.mm(x, x.T)
    small = torch.relu(torch.mm(large, w))
    return [torch.mm(small, v * k) for k in range(1, 6)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_arena_does_not_lie_idle_while_the_most_is_held(watch: Watch, dynamic: bool) -> None:
    torch.manual_seed(0)
    compiled = watch.compiled(outlived_by_small_ones, dynamic=dynamic)
    for rows in (512, 400):
        given = torch.randn(rows, 64), torch.randn(rows, 8), torch.randn(8, 300)
        expected = outlived_by_small_ones(*given)
        for ours, theirs in zip(compiled(*given), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        (peak,) = measured_peaks(lambda given=given: compiled(*given))  # type: ignore[misc]
        plan = watch.plans[-1]
        assert plan.alone, "the large one has memory of its own"
        assert plan.peak_bytes - plan.input_bytes == peak
        assert plan.peak_bytes <= 1.01 * plan.lower_bound
        assert all(plan.lives[name].role is Role.TEMP for name in plan.alone)


def test_what_is_written_over_a_temporary_of_its_own_lies_there(watch: Watch) -> None:
    def chained(x: Any, w: Any, v: Any) -> Any:
        large = torch.mm(x, x.T)
        other = torch.relu(large) * 2  # may be written over it
        small = torch.relu(torch.mm(other, w))
        return [torch.mm(small, v * k) for k in range(1, 6)]

    torch.manual_seed(0)
    given = torch.randn(512, 64), torch.randn(512, 8), torch.randn(8, 300)
    compiled = watch.compiled(chained)
    for ours, theirs in zip(compiled(*given), chained(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-2)  # sums of some 10^5
    (peak,) = measured_peaks(lambda: compiled(*given))
    plan = watch.plans[-1]
    chain = next(c for c in plan.chains if c[0] in plan.alone and len(c) > 1)
    home = max(chain, key=lambda name: plan.lives[name].bytes)
    assert {plan.places[name].pool for name in chain if name != home} == {home}
    assert plan.peak_bytes - plan.input_bytes == peak
