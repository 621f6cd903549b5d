"""What a function does besides computing: random numbers, autocast, the user's own operators,
sizes that data decides, run-time sizes without a new graph."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_strictly import Function, compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.frontends.torch import backend  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def same(found: Any, wanted: Any) -> None:
    flat = torch.utils._pytree.tree_leaves
    for a, b in zip(flat(found), flat(wanted), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5, equal_nan=True)
        else:
            assert a == b


# ------------------------------------------------------------------------------ random numbers

RANDOM: dict[str, Function] = {
    "rand": lambda x: torch.rand(3, 4) + x,
    "randn": lambda x: torch.randn(3, 4) * x,
    "rand like": lambda x: torch.rand_like(x) - torch.randn_like(x),
    "whole numbers": lambda x: torch.randint(0, 10, (5,)) + torch.randint_like(x, 3).sum(),
    "permutation": lambda x: torch.randperm(7) * 2,
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout twice": lambda x: F.dropout(F.dropout(x, 0.2) + 1, 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "bernoulli": lambda x: torch.bernoulli(torch.full((3, 4), 0.3)) * x,
    "in place": lambda x: torch.empty(3, 4).uniform_(-1, 1) + torch.empty(3).normal_().sum(),
    "exponential": lambda x: torch.empty(4).exponential_(2.0),
    "multinomial": lambda x: torch.multinomial(torch.ones(5), 3),
    "normal with tensors": lambda x: torch.normal(x, torch.ones_like(x)),
    "random relu": lambda x: F.rrelu(x - 0.5, training=True),
    "a seed of its own": lambda x: torch.rand(2) + torch.rand(2),
}


@pytest.mark.parametrize("what", RANDOM)
def test_random_numbers_are_those_of_eager(what: str) -> None:
    function, run = RANDOM[what], compiled(RANDOM[what])
    for seed in (3, 4):
        torch.manual_seed(seed)
        found, after = run(torch.ones(3, 4)), torch.rand(2)
        torch.manual_seed(seed)
        wanted, then = function(torch.ones(3, 4)), torch.rand(2)
        same(found, wanted)
        same(after, then)


def test_dropout_drops_the_same_elements_in_its_gradient() -> None:
    run = compiled(lambda x: F.dropout(x * 3, 0.5))
    x = torch.ones(50, requires_grad=True)
    y = run(x)
    y.sum().backward()
    same(x.grad, torch.where(y > 0, 6.0, 0.0))


def test_another_seed_gives_other_numbers() -> None:
    run = compiled(lambda x: torch.rand_like(x))
    torch.manual_seed(1)
    first = run(torch.ones(8))
    assert not torch.equal(first, run(torch.ones(8)))
    torch.manual_seed(1)
    assert torch.equal(first, run(torch.ones(8)))


# --------------------------------------------------------------------------------- autocast


def test_autocast_around_and_inside_a_compiled_function_agree_with_eager() -> None:
    def inside(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            with torch.autocast("cpu", enabled=False):
                z = y.float() + x.sum()
            return F.linear(x, w).relu(), y, z, torch.softmax(y, -1)

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    found, wanted = compiled(inside)(x, w), inside(x, w)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype is b.dtype
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)
    around = compiled(lambda x, w: (x @ w).relu())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = around(x, w)
    assert y.dtype is torch.bfloat16


def test_gradients_under_autocast_have_the_type_of_the_parameters() -> None:
    layer = torch.nn.Linear(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled(layer)(torch.randn(2, 4)).float().sum().backward()
    assert layer.weight.grad.dtype is torch.float32


# -------------------------------------------------------------------------- operators of users


@torch.library.custom_op("treadle_effects::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x / 2, x.flip(0)


@halves.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("treadle_effects::count_up", mutates_args={"state"})
def count_up(state: torch.Tensor, by: torch.Tensor) -> None:
    state += by.sum()


@torch.library.custom_op("treadle_effects::count_and_tell", mutates_args={"state"})
def count_and_tell(state: torch.Tensor, by: float) -> torch.Tensor:
    state += by
    return state * 10


@count_and_tell.register_fake
def _(state: Any, by: Any) -> Any:
    return torch.empty_like(state)


@torch.library.custom_op("treadle_effects::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


cube.register_fake(lambda x: torch.empty_like(x))
cube.register_autograd(
    lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def test_an_operator_with_two_results_runs() -> None:
    def function(x: Any) -> Any:
        a, b = halves(x + 1)
        return a * b, halves(b)[1]

    x = torch.randn(5)
    same(compiled(function)(x), function(x))


def test_an_operator_that_changes_its_arguments_runs() -> None:
    def function(state: Any, x: Any) -> Any:
        before = state * 1
        count_up(state, x * 2)
        told = count_and_tell(state, 1.5)
        view = state[1:]
        count_up(view, x)
        return before, told, state * 2

    def run(f: Function) -> Any:
        state = torch.zeros(3)
        return f(state, torch.ones(4)), state

    same(run(compiled(function)), run(function))


def test_an_operator_that_changes_a_temporary_runs() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        count_up(y, x)
        z = y.t()
        count_up(z[0], x)
        return y, z

    x = torch.randn(3, 3)
    same(compiled(function)(x), function(x))


def test_an_operator_with_a_gradient_of_its_own_runs() -> None:
    x = torch.randn(4, requires_grad=True)
    (compiled(lambda x: cube(x.sin()) * 2)(x)).sum().backward()
    found, x.grad = x.grad, None
    (cube(x.sin()) * 2).sum().backward()
    same(found, x.grad)


def test_a_python_autograd_function_runs() -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = torch.randn(4, requires_grad=True)
    y = compiled(lambda x: Straight.apply(x * 3) + x)(x)
    y.sum().backward()
    same(y, (x * 3).round() + x)
    same(x.grad, torch.full((4,), 7.0))


# ------------------------------------------------------------------------ sizes data decides

DECIDED: dict[str, Function] = {
    "nonzero": lambda x: torch.nonzero(x).sum(0) + 1,
    "where with one argument": lambda x: torch.where(x > 0)[0] * 2,
    "masked select": lambda x: torch.masked_select(x, x > 0) * 2 + 1,
    "indexing by a mask": lambda x: x[x > 0].exp().sum(),
    "a mask and a reduction": lambda x: (x[x > 0] + 1).reshape(-1, 1).sum(1).cumsum(0),
    "unique": lambda x: torch.unique(x.round()) + 1,
    "repeat interleave": lambda x: torch.arange(3).repeat_interleave(torch.tensor([2, 0, 3])),
    "an item": lambda x: x * x.sum().item(),
    "an item as a size": lambda x: torch.ones(int(torch.tensor(3).item())) + x[0],
    "a list": lambda x: x + sum(torch.tensor([1, 2]).tolist()),
    "nothing selected": lambda x: x[x > 1e9] * 2,
}  # fmt: skip


@pytest.mark.parametrize("what", DECIDED)
def test_sizes_that_data_decides_run(what: str) -> None:
    x = torch.tensor([0.5, -1.0, 0.0, 2.0, 3.5, -0.25])
    config = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(config):
        run = compiled(DECIDED[what])
        same(run(x), DECIDED[what](x))
        same(run(-x), DECIDED[what](-x))


def test_a_branch_on_data_breaks_the_graph_and_still_runs() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    run = compiled(function)
    for x in (torch.ones(3), -torch.ones(3)):
        same(run(x), function(x))


# -------------------------------------------------------------------------- run-time sizes


class Counting:
    """The backend, counting the graphs it is given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.graphs += 1
        return backend.treadle(gm, inputs, options={"strict": True})


OPEN: dict[str, Function] = {
    "a normalisation": lambda x: F.layer_norm(x, (6,)) + x.shape[0],
    "a row sum": lambda x: x.sum(1) / x.shape[0],
    "a column sum": lambda x: x.sum(0),
    "reshapes": lambda x: x.view(-1, 2).t().reshape(2, x.shape[0], 3).permute(1, 0, 2) * 2,
    "concatenation": lambda x: torch.cat([x, x[1:] * 2, x[:1]]),
    "pieces": lambda x: torch.stack(x.split(3, 1)).sum(0),
    "counting": lambda x: torch.arange(x.shape[0]) * x.shape[1] + torch.ones(x.shape[0]),
    "running sum": lambda x: x.cumsum(0).flip(0),
    "an attention": lambda x: torch.softmax(x @ x.t() / 4.0, -1) @ x,
    "sorted": lambda x: torch.sort(x, dim=0, stable=True)[1],
    "gathered": lambda x: x[torch.arange(x.shape[0]).flip(0)],
    "padded": lambda x: F.pad(x, (1, 2, 0, 3)).sum(1),
    "a triangle": lambda x: torch.tril(torch.ones(x.shape[0], x.shape[0])) @ x,
    "every other": lambda x: x[::2].sum(1) + x[::2, 0],
    "written": lambda x: x.clone().index_fill_(0, torch.tensor([0, 1]), 2.0),
}


@pytest.mark.parametrize("what", OPEN)
def test_a_new_batch_size_needs_no_new_graph(what: str) -> None:
    counting = Counting()
    run = torch.compile(OPEN[what], backend=counting, dynamic=True)
    for rows in (4, 7, 3, 12):
        x = torch.randn(rows, 6)
        same(run(x), OPEN[what](x))
    assert counting.graphs == 1


def test_gradients_with_a_new_batch_size_need_no_new_graph() -> None:
    def function(x: Any, w: Any) -> Any:
        return F.gelu(F.layer_norm(x, (6,)) @ w).mean(0) * x.shape[0]

    counting = Counting()
    run = torch.compile(function, backend=counting, dynamic=True)
    for rows in (3, 8, 5):
        x, w = torch.randn(rows, 6, requires_grad=True), torch.randn(6, 4, requires_grad=True)
        grads = [torch.autograd.grad(f(x, w).sum(), [x, w]) for f in (run, function)]
        same(grads[0], grads[1])
    assert counting.graphs == 1


def test_a_dimension_marked_dynamic_is_open_and_the_others_are_not() -> None:
    counting = Counting()
    run = torch.compile(lambda x: x.sum(1) * 2, backend=counting)
    for rows in (4, 7, 3):
        x = torch.randn(rows, 6)
        torch._dynamo.mark_dynamic(x, 0)
        same(run(x), x.sum(1) * 2)
    assert counting.graphs == 1
    x = torch.randn(4, 5)
    torch._dynamo.mark_dynamic(x, 0)
    same(run(x), x.sum(1) * 2)
    assert counting.graphs == 2


def test_a_second_size_makes_the_dimension_open_by_itself() -> None:
    counting = Counting()
    run = torch.compile(lambda x: (x * 2).sum(0), backend=counting)
    for rows in (4, 7, 3, 9, 11):
        x = torch.randn(rows, 6)
        same(run(x), (x * 2).sum(0))
    assert counting.graphs == 2


def test_whole_numbers_given_by_the_caller_may_change() -> None:
    counting = Counting()
    run = torch.compile(lambda x, k: x * k + torch.arange(k).sum(), backend=counting, dynamic=True)
    x = torch.randn(3)
    for k in (2, 5, 9):
        same(run(x, k), x * k + torch.arange(k).sum())
    assert counting.graphs <= 2


def test_other_arguments_than_tensors_are_taken_as_they_are() -> None:
    def function(x: Any, scale: Any, names: Any, flag: Any = False) -> Any:
        return x * scale * len(names) + (1 if flag else 2), names["a"] + x

    run, x = compiled(function), torch.randn(3)
    for scale, flag in ((2.0, True), (3, False), (0.5, True)):
        same(run(x, scale, {"a": x}, flag=flag), function(x, scale, {"a": x}, flag=flag))


def _marked(x: Any, n: int) -> Any:
    x = x.clone()
    x[n] = -1
    return x


NUMBERS: dict[str, Function] = {
    "rounded down": lambda x, n: x + n // 4,
    "remainder": lambda x, n: x + n % 4,
    "larger": lambda x, n: x + torch.sym_max(n, 0),
    "smaller": lambda x, n: x + torch.sym_min(n, -1),
    "given back": lambda x, n: (x + 1, torch.sym_max(n, 0)),
    "place": lambda x, n: x[n] + 1,
    "written place": _marked,
    "from": lambda x, n: x[n:] + 1,
    "up to": lambda x, n: x[:n] * 2,
    "rolled": lambda x, n: x.roll(n) + 1,
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("order", [(5, -3), (-3, -5), (-3, 5)])
def test_a_number_given_as_argument_may_be_negative(name: str, order: tuple[int, ...]) -> None:
    function = NUMBERS[name]
    ours = compiled(function, dynamic=True, fullgraph=True)
    for n in order:
        same(ours(torch.arange(7.0), n), function(torch.arange(7.0), n))


@torch.library.custom_op("treadle_tests::steps_of", mutates_args=())
def steps_of(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride())


@steps_of.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.dim(), dtype=torch.int64)


LAID: dict[str, Function] = {
    "part": lambda x: (x + 1)[:, 1:, ::2],
    "repeated": lambda x: (x[:, :1] + 1).expand(-1, 5, -1, -1),
    "turned": lambda x: (x * 2).permute(3, 1, 2, 0),
    "input": lambda x: x.transpose(1, 2)[1:],
}


@pytest.mark.parametrize("name", LAID)
@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_of_the_user_get_tensors_that_lie_as_in_eager_mode(
    name: str, dynamic: bool
) -> None:
    def function(x: Any) -> Any:
        return steps_of(LAID[name](x))

    x = torch.randn(2, 3, 6, 8)
    assert torch.equal(compiled(function, dynamic=dynamic)(x), function(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_may_lose_or_gain_its_storage(dynamic: bool) -> None:
    def empties(x: Any) -> Any:
        y = torch.sin(x)
        x.untyped_storage().resize_(0)
        return torch.cos(y)

    def fills(x: Any, out: Any) -> None:
        y = torch.sin(x)
        out.untyped_storage().resize_(x.untyped_storage().size())
        out.copy_(y.cos())

    with torch.no_grad():
        x, out = torch.randn(10), torch.randn(10)
        out.untyped_storage().resize_(0)
        wanted = x.sin().cos()
        compiled(fills, fullgraph=True, dynamic=dynamic)(x, out)
        same(out, wanted)
        same(compiled(empties, fullgraph=True, dynamic=dynamic)(x), wanted)
        assert x.untyped_storage().size() == 0


def test_a_sparse_gradient_stays_sparse() -> None:
    def function(a: Any, b: Any) -> Any:
        return torch.gather(a, 1, b, sparse_grad=True).sin()

    index, grads = torch.randint(5, (4, 5, 1)), []
    values = torch.randn(4, 5, 6)
    for call in (function, compiled(function)):
        a = values.clone().requires_grad_()
        call(a, index).sum().backward()
        assert a.grad.is_sparse
        grads.append(a.grad.to_dense())
    same(grads[1], grads[0])


RAGGED: dict[str, Function] = {
    "elements": lambda n: torch.sin(n) * 2,
    "along rows": lambda n: n.softmax(-1),
    "over what is ragged": lambda n: n.sum(1),
    "padded": lambda n: torch.nested.to_padded_tensor(n, 0.0),
    "product": lambda n: n @ torch.ones(4, 3),
}


@pytest.mark.parametrize("name", RAGGED)
def test_ragged_tensors_of_several_lengths_need_one_program(name: str) -> None:
    ours = compiled(RAGGED[name])
    for offsets in ([0, 2, 7, 8], [0, 1, 4, 9, 11]):
        at, values = torch.tensor(offsets), torch.randn(offsets[-1], 4)
        given = [torch.nested.nested_tensor_from_jagged(values.clone(), at) for _ in range(2)]
        got, wanted = ours(given[0]), RAGGED[name](given[1])
        assert got.is_nested == wanted.is_nested
        same(
            got.values() if got.is_nested else got, wanted.values() if wanted.is_nested else wanted
        )
