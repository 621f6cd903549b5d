"""Mutation and aliasing through the backend: what eager changes and shares, we change and share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_fuzzer import run_case, steps_differ, unequal  # noqa: E402
from torch_strictly import Function, compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

SMALL = 1.3e-6


def agree(function: Function, make: Callable[[], list[Any]], **rest: Any) -> None:
    """Results, their strides and memory, inputs afterwards and gradients are those of eager."""

    def listed(*args: Any) -> list[Any]:
        result = function(*args)
        return list(result) if isinstance(result, list | tuple) else [result]

    wanted, found = run_case(listed, make()), run_case(compiled(listed, **rest), make())
    for (mine, ours), (yours, theirs) in zip(found.results, wanted.results, strict=True):
        assert unequal(ours, theirs, SMALL) is None
        assert steps_differ(mine, yours) is None
        assert mine.requires_grad == yours.requires_grad
    for ours, theirs in zip(found.inputs, wanted.inputs, strict=True):
        assert unequal(ours, theirs, SMALL) is None
    for ours, theirs in zip(found.gradients, wanted.gradients, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or unequal(ours, theirs, 4 * SMALL) is None
    assert found.shared == wanted.shared


def grid(*shape: int, dtype: Any = None) -> Any:
    """Numbers 0, 1, 2, ... in a shape."""
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=dtype or torch.float32).reshape(shape)


# ------------------------------------------------------------------------------------ in place


def add_to_input(x: Any) -> Any:
    x.add_(1)
    return x * 2


def write_to_a_slice(x: Any) -> Any:
    x[1:, ::2] = -1
    return x.sum(0)


def write_through_views_of_views(x: Any) -> Any:
    x.t()[1:].t()[:, ::2].mul_(3)
    return x + 0


def read_then_write_then_read(x: Any) -> Any:
    before = x * 2
    x.zero_()
    return before, x + 1


def a_view_taken_before_the_write(x: Any) -> Any:
    view = x.unsqueeze(1)
    x += 1
    return view * 2


def write_one_row_from_another(x: Any) -> Any:
    x[0] = x[1]
    x[1] = x[0] + x[2]
    return x.clone()


def shift_by_one(x: Any) -> Any:
    x[1:] = x[:-1].clone()
    return x[0]


def reverse_in_place(x: Any) -> Any:
    x.copy_(x.flip(0))
    return x.sum()


def transpose_in_place(x: Any) -> Any:
    x.copy_(x.t().clone())
    return x[0]


def swap(x: Any) -> Any:
    a = x[0].clone()
    x[0] = x[1]
    x[1] = a
    return a


def write_a_temporary(x: Any) -> Any:
    y = x * 2
    y[0] = 7
    z = y.unsqueeze(0)[0, -1]
    z[-1] += 1
    return y, x


def write_a_diagonal(x: Any) -> Any:
    x.diagonal().fill_(9)
    x.diagonal(1).add_(1)
    return x.sum(1)


def accumulate_twice(x: Any) -> Any:
    x.index_add_(0, torch.tensor([0, 0, 1]), torch.ones(3, x.shape[1]))
    x.index_put_((torch.tensor([1, 1]),), torch.tensor(2.0), accumulate=True)
    return x.sum(1)


def masked_writes(x: Any) -> Any:
    x[x > 4] = 0
    x.masked_fill_(x == 1, 5)
    return x.max()


def scatter_in_place(x: Any) -> Any:
    x.scatter_(1, torch.tensor([[0, 1], [2, 0], [1, 1]]), 8.0)
    x.scatter_add_(0, torch.zeros(1, x.shape[1], dtype=torch.int64), torch.ones(1, x.shape[1]))
    return x.mean()


def write_to_an_unfolded_copy(x: Any) -> Any:
    y = x.unfold(1, 2, 1).contiguous()
    y.zero_()
    return y, x


def metadata_in_place(x: Any) -> Any:
    y = x * 1
    y.unsqueeze_(0).transpose_(0, 1)
    y.squeeze_(1)
    return y


def out_argument(x: Any) -> Any:
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    torch.sin(y, out=y)
    return y


def out_argument_is_the_input(x: Any) -> Any:
    torch.mul(x, 2, out=x)
    return x[1]


def under_no_grad(x: Any) -> Any:
    with torch.no_grad():
        x.mul_(0.5)
    return x.exp()


def through_detach(x: Any) -> Any:
    x.detach().add_(1)
    return x * x


def through_data(x: Any) -> Any:
    x.data.add_(1)
    return x * x


def fill_and_zero(x: Any) -> Any:
    x[0].fill_(3)
    x[-1].zero_()
    return x[::2, 1:]


CHANGES: tuple[Function, ...] = (
    add_to_input, write_to_a_slice, write_through_views_of_views, read_then_write_then_read,
    a_view_taken_before_the_write, write_one_row_from_another, shift_by_one, reverse_in_place,
    transpose_in_place, swap, write_a_temporary, write_a_diagonal, accumulate_twice, masked_writes,
    scatter_in_place, write_to_an_unfolded_copy, metadata_in_place, out_argument,
    out_argument_is_the_input, under_no_grad, through_detach, through_data, fill_and_zero,
)  # fmt: skip

LAYOUTS: dict[str, Callable[[], Any]] = {
    "plain": lambda: grid(3, 3),
    "transposed": lambda: grid(3, 3).t(),
    "sliced": lambda: grid(6, 6)[::2, 1:6:2],
    "with an offset": lambda: grid(5, 3)[2:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", CHANGES, ids=lambda f: f.__name__)
def test_changes_of_an_input_are_those_of_eager(function: Function, layout: str) -> None:
    agree(function, lambda: [LAYOUTS[layout]()])


# -------------------------------------------------------------------------------------- aliases

ALIASES: dict[str, Function] = {
    "the input itself": lambda x: x,
    "the input twice": lambda x: (x, x),
    "a view of the input": lambda x: x.t(),
    "a view of a view": lambda x: x[1:].t()[:, ::2],
    "a view and a computation": lambda x: (x.view(-1), x + 1),
    "two views of one computation": lambda x: ((x + 1).t(), (x + 1)[0]),
    "a computation and its view": lambda x: (lambda y: (y, y.t(), y[1]))(x * 2),
    "a view of a sum and the sum": lambda x: (lambda y: (y.unsqueeze(0), y))(x.sum(0)),
    "views of a concatenation": lambda x: torch.cat([x, x * 2]).split(3),
    "pieces of a computation": lambda x: (x * 3).chunk(3),
    "an expanded computation": lambda x: (x.sum(0) + 1).expand(4, 3),
    "expanded and its source": lambda x: (lambda y: (y, y.expand(2, 3)))(x.sum(0)),
    "a diagonal of a computation": lambda x: (lambda y: (y.diagonal(), y))(x + 1),
    "detached": lambda x: (x.detach(), (x * 2).detach()),
    "real parts of halves": lambda x: (lambda y: (y[:, :2], y[:, 1:]))(x * 1),
    "an alias of a change": lambda x: (x.add_(1), x.t()),
    "a product and its views": lambda x: (lambda y: (y.t(), y[0], y))(x @ x),
    "unfolded windows": lambda x: (lambda y: (y.unfold(1, 2, 1), y))(x * 2),
    "bits": lambda x: (x * 2).view(torch.int32),
    "the input's bits": lambda x: x.view(torch.int32),
    "nothing of it": lambda x: (x[3:], (x * 2)[:, :0]),
    "one element": lambda x: (x[0, 0], (x + 1)[1, 2]),
}


@pytest.mark.parametrize("layout", ["plain", "with an offset"])
@pytest.mark.parametrize("what", ALIASES)
def test_results_share_memory_as_in_eager(what: str, layout: str) -> None:
    agree(ALIASES[what], lambda: [LAYOUTS[layout]()])


@pytest.mark.parametrize("what", ALIASES)
def test_results_with_run_time_sizes_share_memory_as_in_eager(what: str) -> None:
    agree(ALIASES[what], lambda: [grid(3, 3)], dynamic=True)


def test_results_that_show_one_memory_are_tensors_of_their_own() -> None:
    x, y = compiled(lambda x: (lambda v: (v, v.squeeze()))(x * 2))(grid(3, 4))
    assert x is not y
    x.transpose_(0, 1)
    assert y.shape == (3, 4)


def test_a_returned_view_of_a_change_shows_later_changes() -> None:
    def function(x: Any) -> Any:
        x.mul_(2)
        return x[1:]

    x = grid(3, 2)
    y = compiled(function)(x)
    x.zero_()
    assert y.tolist() == [[0.0, 0.0], [0.0, 0.0]]


# ------------------------------------------------------------------- the same memory given twice


def first_changes(a: Any, b: Any) -> Any:
    a.add_(1)
    return a + b, b * 2


def second_changes(a: Any, b: Any) -> Any:
    early = a * 1
    b.mul_(3)
    return early, a, b + 1


def both_change(a: Any, b: Any) -> Any:
    a.add_(1)
    b.mul_(2)
    return (a - b).sum()


def copied_over(a: Any, b: Any) -> Any:
    a.copy_(b.flip(0))
    return b + a


TWICE: dict[str, Callable[[], list[Any]]] = {
    "one tensor": lambda: (lambda x: [x, x])(grid(4)),
    "a tensor and its view": lambda: (lambda x: [x[:4], x.view(5)[:4]])(grid(5)),
    "overlapping": lambda: (lambda x: [x[:4], x[1:]])(grid(5)),
    "interleaved": lambda: (lambda x: [x[::2], x[1::2]])(grid(8)),
    "apart": lambda: [grid(4), grid(4) + 1],
}


@pytest.mark.parametrize("given", TWICE)
@pytest.mark.parametrize(
    "function", [first_changes, second_changes, both_change, copied_over], ids=lambda f: f.__name__
)
def test_memory_given_twice_behaves_as_in_eager(function: Function, given: str) -> None:
    agree(function, TWICE[given])


# ------------------------------------------------------------------------------ strange tensors

STRANGE: dict[str, Callable[[], Any]] = {
    "no elements": lambda: torch.empty(0, 3),
    "no rows in the middle": lambda: torch.empty(2, 0, 3),
    "no dimensions": lambda: torch.tensor(2.5),
    "one element": lambda: torch.ones(1),
    "many ones": lambda: grid(1, 3, 1, 1, 2),
    "expanded": lambda: grid(1, 3).expand(4, 3),
    "expanded inside": lambda: grid(2, 1, 3).expand(2, 4, 3),
    "flipped": lambda: grid(3, 4).flip(0, 1),
    "five dimensions": lambda: grid(2, 3, 1, 2, 2),
    "six, permuted": lambda: grid(2, 1, 3, 2, 1, 2).permute(5, 2, 0, 4, 3, 1),
    "seven dimensions": lambda: grid(2, 1, 2, 1, 2, 1, 2),
    "eight dimensions": lambda: grid(2, 1, 2, 1, 2, 1, 1, 2).transpose(0, 7),
    "channels last": lambda: grid(2, 3, 2, 2).to(memory_format=torch.channels_last),
    "half a storage": lambda: grid(4, 4)[:, 2:],
    "bf16": lambda: grid(3, 4).to(torch.bfloat16),
    "whole numbers": lambda: grid(3, 4, dtype=torch.int64),
}
USES: dict[str, Function] = {
    "arithmetic": lambda x: x * 2 + 1,
    "a sum of all": lambda x: x.sum(),
    "a sum over the first": lambda x: x.sum(0) if x.dim() else x.sum(),
    "a copy": lambda x: x.clone(),
    "flat": lambda x: x.reshape(-1) + 1,
    "with itself": lambda x: torch.cat([x.flatten(), x.flatten()]),
    "flipped": lambda x: x.flip(tuple(range(x.dim()))),
    "contiguous": lambda x: x.contiguous(),
    "compared": lambda x: torch.where(x > 1, x, torch.zeros_like(x)),
    "stacked": lambda x: torch.stack([x, x], -1),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("strange", STRANGE)
def test_strange_tensors_are_read_as_they_lie(strange: str, use: str) -> None:
    agree(USES[use], lambda: [STRANGE[strange]()])


@pytest.mark.parametrize("strange", [s for s in STRANGE if "expanded" not in s])
def test_strange_tensors_change_as_in_eager(strange: str) -> None:
    def function(x: Any) -> Any:
        x.mul_(2)
        return x.sum()

    agree(function, lambda: [STRANGE[strange]()])


# ---------------------------------------------------------------------------------- gradients


def leaf(x: Any) -> Any:
    return x.clone().requires_grad_()


GRADIENTS: dict[str, Function] = {
    "a temporary changes": lambda x: (x * 2).add_(1).mul_(x),
    "a view of a temporary changes": lambda x: _row_changed(x * 2),
    "a view is returned": lambda x: (x * 2).t(),
    "the input is returned": lambda x: (x, x * 2),
    "a base and its view": lambda x: (lambda y: (y, y[0]))(x.exp()),
    "detached in the middle": lambda x: x * x.detach(),
    "part without gradient": lambda x: _partly(x),
    "indexing twice": lambda x: x[torch.tensor([0, 0, 1])].sum(1),
    "written over": lambda x: _written_over(x),
    "an expanded result": lambda x: x.sum(0).expand(4, 3) * 2,
}


def _row_changed(y: Any) -> Any:
    y[0].mul_(3)
    return y.sum(0)


def _partly(x: Any) -> Any:
    with torch.no_grad():
        y = x * 3
    return x * y


def _written_over(x: Any) -> Any:
    y = torch.zeros(3, 3)
    y[1:] = x[1:] * 2
    return y * y


@pytest.mark.parametrize("what", GRADIENTS)
def test_gradients_through_changes_and_views_are_those_of_eager(what: str) -> None:
    agree(GRADIENTS[what], lambda: [leaf(grid(3, 3) / 8)])


def test_an_input_that_changes_while_another_wants_gradients() -> None:
    def function(x: Any, state: Any) -> Any:
        state.mul_(0.5).add_(x.detach().sum(0))
        return (x * state).sum()

    agree(function, lambda: [leaf(grid(3, 3)), grid(3)])


def test_a_result_is_not_overwritten_by_the_gradient_of_an_operator_with_effects() -> None:
    x = grid(3, 5).add(torch.eye(3, 5)).requires_grad_()
    factors, _ = compiled(torch.linalg.lu_factor)(x)
    before = factors.detach().clone()
    torch.autograd.grad(factors.sum(), x)
    assert torch.equal(factors.detach(), before)


def test_gradients_accumulate_over_several_calls() -> None:
    def function(x: Any) -> Any:
        return (x * x).sum()

    run, x, y = compiled(function), leaf(grid(3)), leaf(grid(3))
    for _ in range(3):
        run(x).backward()
        function(y).backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_view_of_a_changed_input_begins_where_it_does_in_that_input(dynamic: bool) -> None:
    def function(x: Any) -> Any:
        part = x.chunk(2, 0)[1]
        part.masked_fill_(part > 0, 2)
        return part

    agree(function, lambda: [torch.arange(-9.0, 9).view(9, 2)[2:]], dynamic=dynamic)


def test_results_with_gaps_that_show_one_memory_share_it() -> None:
    def function(x: Any) -> Any:
        part = x.diagonal(-1, 0, 1)
        new = part.select_scatter(part.select(1, 0), 1, 0)
        return new, new.squeeze(), new[1:]

    agree(function, lambda: [torch.arange(180.0).view(3, 2, 3, 2, 5)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_dimensions_of_size_one_have_the_steps_of_eager_mode(dynamic: bool) -> None:
    def function(q: Any, x: Any) -> Any:
        return q @ q.mT, torch.cat([x, x], -1).flatten(-2), x.sum(1, keepdim=True).mT

    agree(function, lambda: [torch.ones(1, 1, 4, 3), torch.ones(1, 3, 2, 2)], dynamic=dynamic)


def test_a_change_of_an_input_is_counted_once() -> None:
    def function(x: Any, w: Any) -> Any:
        x.add_(1)
        return (x * w).sum()

    for weight in (torch.ones(3, requires_grad=True), torch.ones(3)):
        for x in (torch.zeros(3), torch.zeros(7)[::2][:3]):
            before = x._version
            compiled(function)(x, weight)
            assert x._version == before + 1


def test_writing_nothing_into_an_input_gives_a_copy_that_lies_alike() -> None:
    def function(a: Any, b: Any) -> Any:
        return torch.ops.aten.slice_scatter.default(a, b, 0, 2, 0, 1)

    agree(function, lambda: [torch.arange(20.0)[::2], torch.empty(0)])
    agree(function, lambda: [torch.arange(40.0).view(4, 10)[:, ::2], torch.empty(0, 5)])


@pytest.mark.parametrize("draw", [torch.rand_like, F.dropout, torch.randn_like])
def test_random_numbers_are_drawn_in_the_order_of_eager_mode(draw: Function) -> None:
    def function(x: Any) -> Any:
        return draw((x * 2).contiguous(memory_format=torch.channels_last)[:, :2])

    agree(function, lambda: [torch.arange(144.0).view(2, 3, 4, 6)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_rolled_or_cleared_lies_as_before(dynamic: bool) -> None:
    def function(x: Any) -> Any:
        rolled = x.roll(1, 2), x.roll((1, -1), (0, 1)) + 1, x[:, :, ::2].roll(3), x[::2].roll(1, 1)
        return (*rolled, x.clone().zero_() + 1)

    def make() -> list[Any]:
        return [grid(2, 3, 4, 6).to(memory_format=torch.channels_last)]

    agree(function, make, dynamic=dynamic)


# ------------------------------------------------------- views that only torch can hold


def reads_before_it_changes(x: Any, b: Any) -> Any:
    size = torch.view_as_complex(x).abs()
    x.mul_(2)
    return size


def keeps_what_a_view_showed(x: Any, b: Any) -> Any:
    shown = torch.view_as_complex(x)
    b.copy_(torch.view_as_real(shown))
    x.mul_(2)
    return x + 1


def reads_after_it_changed(x: Any, b: Any) -> Any:
    shown = torch.view_as_complex(x)
    x.mul_(2)
    return shown.abs() + b[:, 0]


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(
    "function", [reads_before_it_changes, keeps_what_a_view_showed, reads_after_it_changed]
)
def test_a_call_reads_what_its_view_shows_at_that_time(function: Any, is_dynamic: bool) -> None:
    run = compiled(function, dynamic=is_dynamic)
    for n in (4, 7):
        ours = torch.randn(n, 2), torch.randn(n, 2)
        theirs = ours[0].clone(), ours[1].clone()
        torch.testing.assert_close(run(*ours), function(*theirs), rtol=0, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def bits_beside_numbers(x: Any) -> Any:
    base = x + 1
    return base, base.view(torch.float32)


def bits_changed(x: Any) -> Any:
    numbers = x.view(torch.float32) + 1
    bits = numbers.view(torch.int32)
    bits.add_(1)
    return numbers, bits


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [bits_beside_numbers, bits_changed])
def test_the_bits_of_a_result_share_its_memory(function: Function, dynamic: bool) -> None:
    agree(function, lambda: [grid(5, dtype=torch.int32)], dynamic=dynamic)
