"""Small functions through `torch.compile(backend="treadle")`, forward and gradients, like eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_strictly import compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.errors import UsageError  # noqa: E402
from treadle.frontends.torch import backend, compat  # noqa: E402
from treadle.frontends.torch.capture import compile as compiling  # noqa: E402
from treadle.frontends.torch.capture import decompositions  # noqa: E402
from treadle.frontends.torch.lowering.graph_kind import GraphKind  # noqa: E402
from treadle.frontends.torch.lowering.table import TABLE  # noqa: E402

pytestmark = pytest.mark.torch


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5, equal_nan=True)


def agree(function: Callable[..., Any], *inputs: Any, **rest: Any) -> None:
    """Compiled and eager give the same results, gradients and changes of their inputs."""

    def run(f: Callable[..., Any]) -> Any:
        given = [
            x.detach().clone().requires_grad_(x.requires_grad) if hasattr(x, "detach") else x
            for x in inputs
        ]
        torch.manual_seed(5)
        result = f(*given)
        flat = [r for r in torch.utils._pytree.tree_leaves(result) if isinstance(r, torch.Tensor)]
        wanted = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
        scalars = [(r.float() * 0.1).sin().sum() for r in flat if r.requires_grad]
        if wanted and scalars:
            total = sum(scalars[1:], scalars[0])
            return result, given, torch.autograd.grad(total, wanted, allow_unused=True)
        return result, given, ()

    eager, ours = run(function), run(compiled(function, **rest))
    for a, b in zip(
        torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(eager), strict=True
    ):
        if isinstance(b, torch.Tensor):
            close(a.detach(), b.detach())
            if a.numel():
                assert a.stride() == b.stride()
        else:
            assert a == b


def wanting_grad(*shape: int) -> Any:
    return torch.randn(shape, requires_grad=True)


def rms_norm(x: Any, w: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) / 4.0, -1) @ v


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a linear layer": (lambda x, w, b: torch.relu(x @ w + b), ((4, 8), (8, 6), (6,))),
    "broadcasting": (lambda x, y: x * y + y, ((4, 1, 5), (3, 1))),
    "rms norm": (rms_norm, ((4, 16), (16,))),
    "layer norm": (lambda x: F.layer_norm(x, (16,)), ((4, 16),)),
    "group norm": (lambda x: F.group_norm(x, 2), ((2, 4, 3, 3),)),
    "softmax": (lambda x: torch.softmax(x, 1), ((3, 5, 4),)),
    "log softmax": (lambda x: F.log_softmax(x, -1), ((3, 5),)),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), ((3, 5),)),
    "silu times": (lambda x, y: F.silu(x) * y, ((3, 5), (3, 5))),
    "attention": (attention, ((2, 4, 8), (2, 6, 8), (2, 6, 8))),
    "variance": (lambda x: (x.var(0), x.std(1), x.var()), ((4, 5),)),
    "sums": (lambda x: (x.sum(), x.sum(0), x.mean((0, 2), keepdim=True)), ((2, 3, 4),)),
    "largest": (lambda x: (x.amax(1), x.max(1).values, x.min()), ((3, 7),)),
    "running sum": (lambda x: x.cumsum(1).cumsum(0), ((3, 7),)),
    "log sum exp": (lambda x: torch.logsumexp(x, 1), ((3, 7),)),
    "reshape of a transpose": (lambda x: x.t().reshape(2, -1) * 2, ((4, 6),)),
    "views of a computation": (
        lambda x: (x * 2).permute(2, 0, 1)[1:, :, ::2].flatten(),
        ((3, 4, 5),),
    ),
    "concatenation": (lambda x, y: torch.cat([x, y * 2, x], 1), ((3, 4), (3, 2))),
    "stack": (lambda x, y: torch.stack([x, y + 1], 1), ((3, 4), (3, 4))),
    "padding": (lambda x: F.pad(x * 2, (1, 2, 0, 1), value=3.0), ((3, 4),)),
    "cutting off by padding": (lambda x: F.pad(x, (-1, 2)), ((3, 4),)),
    "flip": (lambda x: x.flip(0, 2) + 1, ((3, 4, 2),)),
    "roll": (lambda x: x.roll((1, -2), (0, 1)), ((3, 5),)),
    "unfold": (lambda x: x.unfold(1, 3, 2).sum(-1), ((3, 9),)),
    "triangles": (lambda x: torch.tril(x) + torch.triu(x, 1) * 2, ((4, 4),)),
    "diagonal": (lambda x: torch.diagonal(x, 1).exp(), ((4, 5),)),
    "where": (lambda x, y: torch.where(x > 0, x, y * 2), ((3, 4), (3, 4))),
    "clamps": (lambda x: x.clamp(-0.5, 0.5) + x.clamp_min(0.1), ((3, 4),)),
    "powers": (lambda x: x**2 + x**3 + (x * x + 1) ** 0.5 + (x * x + 1) ** -1.5, ((3, 4),)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3) + torch.addcmul(x, x, y, value=0.5), ((4,), (4,))),
    "five dimensions": (lambda x: x.permute(4, 2, 0, 3, 1).sum(2), ((2, 3, 2, 2, 3),)),
    "six dimensions": (lambda x: (x + 1).transpose(0, 5).mean(3), ((2, 1, 3, 2, 1, 2),)),
    "no dimensions": (lambda x: x.exp() + x.sum(), ((),)),
    "no elements": (lambda x: (x * 2, x.sum(), x.sum(0)), ((0, 3),)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), ((1, 2, 5, 5), (3, 2, 3, 3))),
    "pooling": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), ((1, 2, 6, 6),)),
    "a long chain": (lambda x: _chain(x), ((4, 5),)),
}


def _chain(x: Any) -> Any:
    for step in range(40):
        x = torch.sin(x) * 0.5 + x * (0.1 + 0.01 * step)
    return x


@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradients_are_those_of_eager(case: str) -> None:
    function, shapes = CASES[case]
    agree(function, *[wanting_grad(*shape) for shape in shapes])


def test_indexing_by_data_is_that_of_eager() -> None:
    table, ids = wanting_grad(10, 4), torch.randint(0, 10, (3, 2))
    agree(lambda t, i: F.embedding(i, t) * 2, table, ids)
    agree(lambda t, i: t[i] + t[-1] + t[i[0], 1][:, None], table, ids)
    agree(lambda t, i: t.index_select(0, i[:, 0]) + 1, table, ids)
    agree(lambda t, i: t.gather(0, i), table, ids)


def test_an_index_out_of_range_is_an_error() -> None:
    f = compiled(lambda t, i: t[i] + 1)
    with pytest.raises(Exception, match="5"):
        f(torch.randn(4), torch.tensor([1, 5]))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64"])
def test_float_types_round_as_eager_does(name: str) -> None:
    dtype = getattr(torch, name)

    def function(x: Any, y: Any) -> Any:
        z = torch.tanh(x * y) + x / 3
        return z, torch.softmax(z, -1), z.sum(0), z.mean(), (z > 0).to(dtype) * y

    x, y = torch.randn(5, 6).to(dtype), torch.randn(5, 6).to(dtype)
    for a, b in zip(compiled(function)(x, y), function(x, y), strict=True):
        assert a.dtype is b.dtype
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["int64", "int32", "uint8", "int8", "bool"])
def test_whole_numbers_are_promoted_as_in_eager(name: str) -> None:
    dtype = getattr(torch, name)
    x, y = torch.randint(0, 2, (3, 4)).to(dtype), torch.randint(1, 3, (3, 4)).to(dtype)

    def function(x: Any, y: Any) -> Any:
        shared = (
            x * y,
            x + 1,
            x + 0.5,
            x / y,
            x.sum(),
            x == y,
            x & y,
            x.any(),
            x.to(torch.float32),
        )
        return shared if dtype is torch.bool else (*shared, x // y, x % y, x - y, x.cumsum(0))

    for a, b in zip(compiled(function)(x, y), function(x, y), strict=True):
        assert a.dtype is b.dtype
        torch.testing.assert_close(a, b)


# --------------------------------------------------------------------- mutation and aliasing


def _add_in_place(x: Any) -> Any:
    x.add_(1)
    return x * 2


def _through_a_view(x: Any) -> Any:
    x[1:].mul_(3)
    x.t()[0] += 5
    return x.sum(0)


def _swap(x: Any, y: Any) -> Any:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept.flip(0))
    return kept


def _old_value_after_change(x: Any) -> Any:
    before = x * 2
    x.zero_()
    return before + x


def _view_of_input(x: Any) -> Any:
    return x.view(-1), x[0], x.t()


def _same_result_twice(x: Any) -> Any:
    y = x + 1
    return y, y, y.t(), y.clone()


def _input_as_result(x: Any, y: Any) -> Any:
    return x, x + y, y


def _reversed_onto_itself(x: Any) -> Any:
    x.copy_(x.flip(0))
    return x + 0


MUTATIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "in place": (_add_in_place, 1),
    "through a view": (_through_a_view, 1),
    "two inputs": (_swap, 2),
    "the old value is used later": (_old_value_after_change, 1),
    "results are views of an input": (_view_of_input, 1),
    "one result several times": (_same_result_twice, 1),
    "inputs are results": (_input_as_result, 2),
    "a tensor reversed onto itself": (_reversed_onto_itself, 1),
}


@pytest.mark.parametrize("case", MUTATIONS)
@pytest.mark.parametrize("strange", ["plain", "transposed", "sliced"])
def test_changes_of_inputs_are_those_of_eager(case: str, strange: str) -> None:
    function, count = MUTATIONS[case]
    if strange != "plain" and case == "results are views of an input":
        pytest.skip("view(-1) needs a plain tensor")

    def make() -> list[Any]:
        torch.manual_seed(1)
        shaped = {"plain": (4, 4), "transposed": (4, 4), "sliced": (8, 4)}[strange]
        made = [torch.randn(shaped) for _ in range(count)]
        seen = {"plain": lambda t: t, "transposed": lambda t: t.t(), "sliced": lambda t: t[::2]}
        return [seen[strange](t) for t in made]

    eager, ours = make(), make()
    wanted, found = function(*eager), compiled(function)(*ours)
    for a, b in zip(ours, eager, strict=True):
        close(a, b)
    flat = torch.utils._pytree.tree_leaves
    for a, b in zip(flat(found), flat(wanted), strict=True):
        close(a, b)
        assert a.stride() == b.stride()


def test_a_result_that_is_a_view_changes_with_its_input() -> None:
    x = torch.randn(3, 4)
    y = compiled(lambda x: (x + 1, x.view(-1)))(x)[1]
    x.zero_()
    assert y.abs().max() == 0


def test_results_that_eager_keeps_apart_do_not_share_memory() -> None:
    y, z = compiled(lambda x: ((x + 1), (x + 1).clone()))(torch.zeros(4))
    y.zero_()
    assert z.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_the_same_tensor_may_be_given_twice() -> None:
    x = torch.randn(4)

    def function(a: Any, b: Any) -> Any:
        a.add_(1)
        return a + b

    y = x.clone()
    close(compiled(function)(x, x), function(y, y))
    close(x, y)


def test_an_expanded_input_is_read_as_it_lies() -> None:
    agree(lambda x: x * 2 + x.sum(0), torch.randn(1, 5).expand(4, 5))
    agree(lambda x: x[:, ::2] + 1, torch.randn(4, 10)[:, 1:8])


def test_running_statistics_change_in_training() -> None:
    ours, eager = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    x = torch.randn(2, 3, 4, 4)
    run = compiled(ours)
    for _ in range(2):
        close(run(x).detach(), eager(x).detach())
    close(ours.running_mean, eager.running_mean)
    close(ours.running_var, eager.running_var)


# ---------------------------------------------------------------------------- everything else


def test_a_new_batch_size_needs_no_new_graph() -> None:
    count = 0

    def counting(gm: Any, inputs: Any) -> Any:
        nonlocal count
        count += 1
        return backend.treadle(gm, inputs, options={"strict": True})

    def function(x: Any, w: Any) -> Any:
        h = torch.softmax(x.view(x.shape[0] * 2, -1) @ w, -1)
        return torch.cat([h, h[1:]]).sum(1), x.mean(0), x.reshape(-1, 2).t()

    run = torch.compile(function, backend=counting, dynamic=True)
    w = torch.randn(3, 5)
    for rows in (4, 7, 2, 11):
        x = torch.randn(rows, 6)
        for a, b in zip(run(x, w), function(x, w), strict=True):
            close(a, b)
    assert count == 1


def test_gradients_with_run_time_sizes_are_those_of_eager() -> None:
    def function(x: Any, w: Any) -> Any:
        return F.gelu(F.layer_norm(x, (6,)) @ w).sum(0) * x.shape[0]

    for rows in (3, 8):
        agree(function, wanting_grad(rows, 6), wanting_grad(6, 4), dynamic=True)


def test_random_numbers_are_those_of_eager() -> None:
    agree(lambda x: F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(3, 4), torch.ones(3, 4))


def test_sizes_that_data_decides_run() -> None:
    def function(x: Any) -> Any:
        return x[x > 0] * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        agree(function, torch.randn(20))
        agree(lambda x: torch.nonzero(x).sum(0) + 1, torch.tensor([0, 3, 0, 4]))


def test_complex_numbers_run() -> None:
    agree(lambda x: torch.fft.irfft(torch.fft.rfft(x * 2)) + 1, torch.randn(4, 8))


def test_a_users_own_operator_runs() -> None:
    @torch.library.custom_op("treadle_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    agree(lambda x: twice(x + 1) * 3, torch.randn(3))


def test_branches_on_data_run() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,)) + 1

    agree(function, torch.ones(3))
    agree(function, -torch.ones(3))


def test_autocast_computes_in_the_type_asked_for() -> None:
    def function(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).relu()

    x, w = torch.randn(4, 8), torch.randn(8, 4)
    found = compiled(function)(x, w)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, function(x, w))


def test_the_backend_is_listed_and_its_options_are_checked() -> None:
    assert "treadle" in torch._dynamo.list_backends(exclude_tags=())
    with pytest.raises(UsageError, match="policy"):
        backend.read_settings(None, {"polcy": "memory"})
    with pytest.raises(UsageError, match="max-autotune"):
        backend.read_settings("max-autotun", None)
    assert backend.read_settings("max-autotune", None).options.policy == "fast"
    assert backend.read_settings(None, {"policy": "memory"}).options.policy == "memory"
    with pytest.raises(UsageError, match="strict"):
        backend.read_settings(None, {"strict": 1})


def test_a_graph_that_torch_cannot_capture_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **rest: Any) -> Any:
        raise RuntimeError("not these sizes\nsecond line")

    def function(x: Any, into: Any) -> Any:
        into.add_(1)
        return x.sin() * 32 + into

    monkeypatch.setattr(compat, "aot_compile", broken)
    x, into = wanting_grad(3), torch.zeros(3)
    with pytest.warns(UserWarning, match=r"TOR005: .*RuntimeError: not these sizes \(at .*:\d+\)"):
        found = torch.compile(function, backend="treadle")(x, into)
    close(found, x.sin() * 32 + 1)
    close(into, torch.ones(3))
    close(torch.autograd.grad(found.sum(), x)[0], x.cos() * 32)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"TOR005.*not these sizes"):
        compiled(function)(x, into)


def test_a_step_of_ours_that_fails_inside_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("not in this form")

    def function(x: Any) -> Any:
        return x.index_fill(0, torch.tensor([1]), 34.0)

    monkeypatch.setattr(decompositions, "_index_fill_tensor", fails)
    x = torch.linspace(-1, 1, 5)
    with pytest.warns(
        UserWarning,
        match=r"TOR005: .*the decomposition of aten.index_fill.int_Scalar, a step of Treadle's",
    ):
        found = torch.compile(function, backend="treadle")(x)
    close(found, function(x))


def test_what_dynamo_raises_for_itself_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any, **rest: Any) -> Any:
        raise compat.FOR_DYNAMO[0]("traced again, please")

    monkeypatch.setattr(compat, "aot_compile", refuses)
    with pytest.raises(compat.FOR_DYNAMO[0], match="traced again"):
        torch.compile(lambda x: x * 33, backend="treadle")(torch.randn(3))


def test_where_data_decides_what_torch_captures_dynamo_breaks_the_graph() -> None:
    def function(x: Any) -> Any:
        y = torch.ops.treadle_test.picked(x * 2)
        return y + 1

    @torch.library.custom_op("treadle_test::picked", mutates_args=())
    def picked(x: torch.Tensor) -> torch.Tensor:
        return x[: int(x[0])].clone()

    @picked.register_fake
    def fake(x: Any) -> Any:
        return torch.empty(int(x[0].item()))

    x = torch.tensor([1.0, 2.0, 3.0])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        close(compiled(function)(x), function(x))
    assert not [w for w in heard if "TOR0" in str(w.message)]


def test_a_graph_that_cannot_be_compiled_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, options: Any) -> Any:
        raise ValueError("no schedule today")

    monkeypatch.setattr(compiling, "schedule", broken)
    x = torch.randn(3, 31)
    with pytest.warns(UserWarning, match="TOR001.*no schedule today"):
        found = torch.compile(lambda x: x * 31 + 1, backend="treadle")(x)
    close(found, x * 31 + 1)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no schedule today"):
        compiled(lambda x: x * 31 + 2)(x)


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ({"cc": "no-such-compiler"}, r"no C compiler was found \(looked for: no-such-compiler\)"),
        ({"cc": "false"}, r"the C compiler failed: exit code 1.*TOOL002"),
        ({"cache_dir": __file__ + "/cache"}, r"the cache folder cannot be used.*TOOL004"),
    ],
)
def test_without_machine_code_torch_runs_the_graph_and_the_cause_is_named(
    setting: dict[str, str], cause: str
) -> None:
    x = torch.randn(3)
    with pytest.warns(UserWarning, match="TOR003.*" + cause) as caught:
        found = torch.compile(lambda x: x * 3, backend="treadle", options=setting)(x)
    close(found, x * 3)
    assert not [w for w in caught if "RUN011" in str(w.message)]  # not run by the interpreter
    if "no C compiler" not in cause:
        assert not [w for w in caught if "no C compiler" in str(w.message)]
    torch._dynamo.reset()
    with pytest.raises(Exception, match="TOR003.*" + cause):
        torch.compile(lambda x: x * 3, backend="treadle", options={**setting, "strict": True})(x)


def test_a_graph_on_another_device_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without Triton there is no code for a GPU.
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    with torch._subclasses.fake_tensor.FakeTensorMode():
        x.meta["val"] = torch.empty(3, device="cuda")
    graph.output((x,))
    gm = torch.fx.GraphModule({}, graph)
    settings = backend.read_settings(None, None)
    with pytest.warns(UserWarning, match="TOR002.*cuda"):
        run = compiling.compile_graph(gm, GraphKind.INFERENCE, settings)
    given = [torch.ones(3)]
    assert run(given)[0].tolist() == [1.0, 1.0, 1.0]
    assert given == []


def test_every_entry_of_the_table_is_an_overload_of_torch() -> None:
    assert len(TABLE) >= 250
    for name, lowering in TABLE.items():
        assert compat.has_overload(name), name
        assert callable(lowering), name


def test_nothing_is_warned_of_when_all_goes_well() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        compiled(lambda x: x + 1)(torch.randn(3))
    assert [str(w.message) for w in heard] == []
