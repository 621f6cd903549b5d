"""Corners of torch's operators that once went wrong: each equals eager mode."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_strictly import Function, compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402
from treadle.frontends.torch.lowering.graph import Lowered  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_window_may_see_more_than_the_view_it_is_asked_of() -> None:
    def function(x: Any) -> Any:
        return (x + 1)[2:].as_strided((3,), (2,), 1)

    x = torch.arange(9.0)
    torch.testing.assert_close(compiled(function)(x), function(x))


put = torch.ops.aten.as_strided_scatter
WINDOWS: dict[str, Function] = {
    "beside a view": lambda x: torch.as_strided(torch.sin(x)[:, 1:], (3,), (1,), 3) * 2,
    "before a view": lambda x: torch.as_strided((x + 1)[1:], (3,), (1,), 2),
    "behind a view": lambda x: torch.as_strided(torch.sin(x)[:2], (3,), (1,), 9) * 2,
    "between the elements of a view": lambda x: torch.as_strided(
        torch.sin(x)[1:, 1::2], (3,), (1,)
    ),
    "of a transposed tensor": lambda x: torch.as_strided((x.t() + 1)[1:], (3,), (1,), 2),
    "copied": lambda x: torch.as_strided_copy((x + 1).t()[1:], (3,), (1,), 2),
    "a view with gaps changed": lambda x: put(torch.sin(x)[:, ::2], x[0, :3], (3,), (1,), 0),
    "changed from before a view": lambda x: put(torch.sin(x)[1:], x[0, :3], (3,), (1,), 2),
    "changed from before an input": lambda x: put(x[1:], x[0, :3], (3,), (1,), 2),
    "overlapping windows changed": lambda x: put((x + 1).unfold(1, 3, 1), x[0, :3], (3,), (1,), 3),
    "changed where it begins": lambda x: put((x + 1)[1:], x[0, :3], (3,), (1,)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_count_from_the_start_of_the_storage(name: str, dynamic: bool) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    found = compiled(WINDOWS[name], dynamic=dynamic)(x)
    torch.testing.assert_close(found, WINDOWS[name](x))


@pytest.mark.parametrize("name", ["any", "all"])
def test_no_dimensions_mean_each_element_by_itself(name: str) -> None:
    x = torch.tensor([[0.5, 0.0], [0.0, 2.0]])
    got = compiled(lambda x: getattr(x, name)(dim=()))(x)
    assert torch.equal(got, x.bool())


def test_inputs_that_overlap_without_a_common_base_may_be_changed() -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    here, there = torch.arange(10.0), torch.arange(10.0)
    got = compiled(function)(here[:5].data, here[3:8].data)
    wanted = function(there[:5].data, there[3:8].data)
    assert torch.equal(got, wanted)
    assert torch.equal(here, there)


def test_a_complex_input_may_be_changed_in_place() -> None:
    x = torch.ones(3, dtype=torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(lambda x: x.mul_(2j))(x)
    assert torch.equal(x, torch.full((3,), 2j, dtype=torch.complex64))


def test_a_position_in_rows_of_one_element_counts_all_of_them() -> None:
    x = torch.arange(64.0)[:, None]
    for spread in (x.expand(-1, 5), x[:, :, None].expand(64, 3, 2), x[None].expand(3, -1, 5)):
        found = compiled(lambda x: (x.argmax(), x.argmin(), x.median()))(spread)
        assert found == (spread.argmax(), spread.argmin(), spread.median())


@pytest.mark.parametrize("name", ["max", "min"])
def test_nothing_has_no_largest_element(name: str) -> None:
    with pytest.raises(Exception, match=r"no identity|non-zero|Expected reduction dim"):
        compiled(lambda x: getattr(x, name)())(torch.empty(0))


def test_gradients_through_a_gate_in_channels_last_are_right() -> None:
    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)

        def forward(self, x: Any) -> Any:
            h = self.conv(x)
            y = h * F.adaptive_avg_pool2d(h, 1)
            return torch.cat([F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 2)], 1)

    eager = Gate().double().to(memory_format=torch.channels_last)
    ours = copy.deepcopy(eager)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64).to(memory_format=torch.channels_last)
    for model in (eager, compiled(ours)):
        (model(x) ** 2).sum().backward()
    torch.testing.assert_close(ours.conv.weight.grad, eager.conv.weight.grad)


def test_results_that_share_memory_are_views_that_know_whose() -> None:
    def function(x: Any) -> Any:
        whole = x.exp()
        return whole, whole[::3]

    x = torch.randn(7)
    whole, part = compiled(function)(x)
    # The next graph asks for it when one of the two is changed.
    assert part._base is whole
    part.mul_(3)
    torch.testing.assert_close(whole[::3], x.exp()[::3] * 3)


def test_options_must_be_a_mapping() -> None:
    with pytest.raises(Exception, match="OPT002"):
        torch.compile(lambda x: x + 1, backend="treadle", options=3)(torch.ones(2))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a // b,
        lambda a, b: a % b,
        torch.fmod,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.where(b != 0, a // b, a),
    ],
)
def test_whole_numbers_are_not_divided_by_zero(function: Function) -> None:
    a, b, ours = torch.tensor([-7, 5, 6]), torch.tensor([2, -3, 0]), compiled(function)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(a, b)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ours(a, b)
    assert torch.equal(ours(a, b + 5), function(a, b + 5))
    torch.testing.assert_close(ours(a, b.float()), function(a, b.float()), equal_nan=True)


@pytest.mark.parametrize(
    "function", [lambda x, i: x.gather(0, i), lambda x, i: x[i], lambda x, i: F.embedding(i, x)]
)
def test_an_index_out_of_range_is_the_error_of_eager_mode(function: Function) -> None:
    x, i = torch.randn(3, 2), torch.tensor([[0, 7]])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        function(x, i)
    with pytest.raises(eager.type, match="RUN004"):
        compiled(function)(x, i)


@pytest.mark.parametrize("dynamic", [False, True])
def test_windows_of_a_result_that_overlap_lie_as_in_eager_mode(dynamic: bool) -> None:
    def function(x: Any) -> Any:
        return (x * 2).unfold(0, 3, 2), (x + 1).unfold(0, 3, 1) * 2

    x = torch.randn(11, 4)
    for got, wanted in zip(compiled(function, dynamic=dynamic)(x), function(x), strict=True):
        torch.testing.assert_close(got, wanted)
        assert got.stride() == wanted.stride()


def test_parameters_given_new_data_have_memory_of_their_own() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.arange(25.0).view(5, 5))
            self.v = torch.nn.Parameter(torch.arange(25.0).view(5, 5))

        def forward(self, y: Any) -> Any:
            self.w.data = self.w.data * 2
            self.v.data = self.v.data + y
            return (self.w * y).sum() + self.v.sin().sum()

    eager, net, y = Net(), Net(), torch.randn(5, 5)
    ours = compiled(net)
    for _ in range(2):
        wanted, got = eager(y), ours(y)
        wanted.backward()
        got.backward()
        # Numbers up to 48 that nearly cancel: their sum is as exact as they are.
        torch.testing.assert_close(got, wanted, atol=2e-4, rtol=1e-5)
    torch.testing.assert_close(net.w.grad, eager.w.grad)
    torch.testing.assert_close(net.v.grad, eager.v.grad)
    assert net.w.untyped_storage().data_ptr() != net.v.untyped_storage().data_ptr()


def test_an_operator_may_return_nothing_where_it_promised_a_tensor() -> None:
    weights = [torch.randn(18, 6), torch.randn(18), torch.randn(6, 6), torch.randn(6)]

    def function(q: Any) -> Any:
        return torch._native_multi_head_attention(q, q, q, 6, 2, *weights, None, False)

    q = torch.randn(1, 3, 6)
    got, wanted = compiled(function)(q), function(q)
    torch.testing.assert_close(got[0], wanted[0])
    assert got[1] is None
    assert wanted[1] is None


@pytest.mark.parametrize("eps", [None, 0.1, 0.5, 0.9])
def test_logit_asks_its_low_bound_first(eps: float | None) -> None:
    x = torch.tensor([-0.5, 0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 1.0, 1.5, torch.nan])
    wanted = torch.logit(x, eps)
    torch.testing.assert_close(
        compiled(lambda x: torch.logit(x, eps))(x), wanted, equal_nan=True, rtol=1e-6, atol=1e-6
    )


NARROW: dict[str, Function] = {
    "equal": lambda x: x == 3.14,
    "less": lambda x: x < 3.14,
    "filled": lambda x: x.masked_fill(x > 3.14, 0.1),
    "element of": lambda x: torch.isin(x, 3.14),
    "without dimensions": lambda x: x == torch.tensor(3.14, dtype=torch.float64),
    "computed": lambda x: x + 1 == 4.14,
    "shrunk": lambda x: F.hardshrink(x, 3.14),
    "added": lambda x: x + 0.1,
    "subtracted from": lambda x: 0.1 - x,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NARROW)
def test_numbers_beside_narrow_floats_are_rounded_as_in_eager_mode(name: str, dtype: Any) -> None:
    function = NARROW[name]
    x = torch.cat([torch.tensor([3.14, 3.140625, 0.1, -0.1]), torch.linspace(-4, 4, 999)]).to(dtype)
    assert torch.equal(compiled(function)(x), function(x))


REFUSED: dict[str, Function] = {
    "a slice too large": lambda x: x.slice_scatter(torch.ones(8, 4), 0, 1, 2),
    "a slice too small": lambda x: x.slice_scatter(torch.ones(1, 4), 0, 0, 3),
    "an empty slice": lambda x: x.slice_scatter(torch.ones(0, 4), 0, 0, 3),
    "a slice too wide": lambda x: x.slice_scatter(torch.ones(2, 6), 0, 0, 2),
    "a row too long": lambda x: x.select_scatter(torch.ones(6), 0, 0),
    "a diagonal too short": lambda x: x.diagonal_scatter(torch.ones(2)),
    "a negative power of whole numbers": lambda x: x.long() ** -1,
    "negative powers of whole numbers": lambda x: torch._foreach_pow([x.long()], -1)[0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(name: str) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    with pytest.raises(RuntimeError):
        REFUSED[name](x)
    with pytest.raises(RuntimeError):
        compiled(REFUSED[name])(x)


def test_the_name_of_a_program_means_nothing() -> None:
    def renamed(lowered: Lowered) -> None:
        lowered.program = replace(lowered.program, name="backward")

    def function(x: Any) -> Any:
        whole = x * 2
        return whole, whole[:2]

    settings = Settings(Options.from_env(), True, observe=renamed)
    made = torch.compile(function, backend=partial(compile_with, settings))
    whole, part = made(torch.arange(4.0))
    assert part._base is whole
    assert part.tolist() == [0.0, 2.0]
