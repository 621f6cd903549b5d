"""Operators that take functions: branches, loops, scans, flexible attention, checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch._higher_order_ops import associative_scan, scan  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_strictly import Function, compiled  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def agree(function: Function, *inputs: Any, plain: Function | None = None, **rest: Any) -> None:
    """Results and gradients are those of eager, of `plain` if eager cannot run the function."""

    def run(f: Function) -> Any:
        given = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        torch.manual_seed(5)
        results = torch.utils._pytree.tree_leaves(f(*given))
        wanted = [x for x in given if x.requires_grad]
        if not wanted:
            return results
        total = sum((r.sin().sum() for r in results if r.requires_grad), torch.zeros(()))
        return results + list(torch.autograd.grad(total, wanted, allow_unused=True))

    for a, b in zip(run(compiled(function, **rest)), run(plain or function), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


def wanting_grad(*shape: int) -> Any:
    return torch.randn(shape, requires_grad=True)


# ------------------------------------------------------------------------------------- branches


def branch(x: Any, y: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a, b: a.sin() + b, lambda a, b: (a - b).cos(), (x, y)) * 2


def nested_branch(x: Any) -> Any:
    def inner(v: Any) -> Any:
        return torch.cond(v.max() > 1, lambda w: w * 3, lambda w: w - 1, (v,))

    return torch.cond(x.sum() > 0, inner, lambda v: v.exp(), (x,))


def branch_with_two_results(x: Any) -> Any:
    a, b = torch.cond(x[0] > 0, lambda v: (v + 1, v.sum()), lambda v: (v * 2, v.amax()), (x,))
    return a + b, b


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_branch_that_data_chooses_runs(sign: float) -> None:
    x = torch.ones(3, 4) * sign
    agree(branch, x, torch.randn(3, 4))
    agree(nested_branch, x)
    agree(branch_with_two_results, x[0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_flow_through_the_branch_that_was_chosen(sign: float) -> None:
    x = (torch.ones(3, 4) * sign).requires_grad_()
    agree(branch, x, wanting_grad(3, 4))


def test_a_branch_with_run_time_sizes_runs() -> None:
    run = compiled(branch, dynamic=True)
    for rows in (3, 5):
        x, y = torch.randn(rows, 4), torch.randn(rows, 4)
        torch.testing.assert_close(run(x, y), branch(x, y))


def observed(function: Function, *inputs: Any) -> list[Any]:
    """The graphs that are lowered when a function runs; its results are those of eager."""
    seen: list[Any] = []
    settings = Settings(Options.from_env(), True, seen.append)
    run = torch.compile(function, backend=lambda gm, given: compile_with(settings, gm, given))
    torch.testing.assert_close(run(*inputs), function(*inputs))
    return seen


def test_branches_and_bodies_are_compiled_like_graphs() -> None:
    programs = [done.program for done in observed(branch, torch.ones(3, 4), torch.ones(3, 4))]
    assert len(programs) == 3
    assert sum(len(p.ops) for p in programs[:2]) == 2
    torch._dynamo.reset()
    assert len(observed(counted, torch.randn(3))) == 3


# ---------------------------------------------------------------------------------------- loops


def counted(x: Any) -> Any:
    def go_on(i: Any, v: Any) -> Any:
        return i < 5

    def step(i: Any, v: Any) -> Any:
        return i + 1, (v * 1.5 + i).sin()

    return torch._higher_order_ops.while_loop(go_on, step, (torch.tensor(0), x))


def until_large(x: Any) -> Any:
    return torch._higher_order_ops.while_loop(
        lambda v: v.abs().sum() < 50, lambda v: (v * 2 + 1,), (x,)
    )


def test_a_loop_runs_as_often_as_data_says() -> None:
    agree(counted, torch.randn(3, 4))
    agree(until_large, torch.ones(3))


def test_a_loop_whose_condition_is_false_runs_never() -> None:
    agree(until_large, torch.full((3,), 100.0))


def running_mean(x: Any) -> Any:
    def step(carry: Any, v: Any) -> Any:
        new = carry * 0.9 + v * 0.1
        return new, new.sin()

    return scan(step, torch.zeros(x.shape[1]), x)


def plain_running_mean(x: Any) -> Any:
    carry, seen = torch.zeros(x.shape[1]), []
    for row in x:
        carry = carry * 0.9 + row * 0.1
        seen.append(carry.sin())
    return carry, torch.stack(seen)


def test_a_scan_carries_a_state_along() -> None:
    agree(running_mean, torch.randn(5, 3), plain=plain_running_mean)


def test_an_associative_scan_combines_neighbours() -> None:
    def function(x: Any) -> Any:
        return associative_scan(torch.add, x, 0, combine_mode="generic") + 1

    agree(function, torch.randn(6, 3), plain=lambda x: x.cumsum(0) + 1)


def test_a_map_applies_a_function_to_every_row() -> None:
    from torch._higher_order_ops.map import map as map_rows

    def function(x: Any, y: Any) -> Any:
        return map_rows(lambda row, other: (row * other).cumsum(0), x, y)

    agree(function, torch.randn(4, 3), torch.randn(3))


# ------------------------------------------------------------------------------------ attention


def causal(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.where(q >= k, score, -float("inf"))


def with_bias(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + (q - k) * 0.1 + h


@pytest.mark.parametrize("change", [causal, with_bias], ids=lambda f: f.__name__)
def test_flexible_attention_is_the_written_out_one(change: Function) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    def function(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, score_mod=change) + 1

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(-2, -1) / 4.0
        at = [torch.arange(n) for n in scores.shape]
        b, h = at[0][:, None, None, None], at[1][:, None, None]
        scores = change(scores, b, h, at[2][:, None], at[3])
        return torch.softmax(scores, -1) @ v + 1

    agree(function, *[torch.randn(2, 2, 6, 16) for _ in range(3)], plain=plain)


def test_flexible_attention_with_a_block_mask_runs() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu")

    def function(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, block_mask=mask)

    def plain(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    agree(function, *[torch.randn(1, 2, 8, 16) for _ in range(3)], plain=plain)


# ---------------------------------------------------------------------- recomputing, subgraphs


def block(x: Any, w: Any) -> Any:
    return F.dropout(F.gelu(x @ w), 0.25) + x


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_recomputes_with_the_same_random_numbers(reentrant: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        return checkpoint(block, x * 2, w, use_reentrant=reentrant).sum(0)

    def plain(x: Any, w: Any) -> Any:
        return checkpoint(block, x * 2, w, use_reentrant=False).sum(0)

    agree(function, wanting_grad(3, 4), wanting_grad(4, 4), plain=plain)


def test_a_region_that_is_compiled_once_and_used_twice_runs() -> None:
    @torch.compiler.nested_compile_region
    def region(x: Any, w: Any) -> Any:
        return torch.sin(x @ w) + 1

    def function(x: Any, w: Any) -> Any:
        return region(region(x, w) * 2, w) - x

    agree(function, torch.randn(3, 3), torch.randn(3, 3))
    agree(function, wanting_grad(3, 3), wanting_grad(3, 3))


def test_a_region_is_written_out_where_it_is_used() -> None:
    held = torch.arange(3.0)

    @torch.compiler.nested_compile_region
    def inner(x: Any) -> Any:
        return x.sin() + held

    @torch.compiler.nested_compile_region
    def outer(x: Any) -> Any:
        return inner(x) * 2, x.sum()

    def function(x: Any) -> Any:
        a, b = outer(x)
        return a.exp() + b, outer(x + 1)[0]

    calls: list[Any] = []
    settings = Settings(Options.from_env(), True, lambda done: calls.extend(done.fallbacks))
    x = torch.randn(3)
    run = torch.compile(function, backend=lambda gm, given: compile_with(settings, gm, given))
    for ours, theirs in zip(run(x), function(x), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert calls == []


def test_a_region_over_run_time_sizes_runs() -> None:
    @torch.compiler.nested_compile_region
    def region(x: Any) -> Any:
        return x.cumsum(0) * x.shape[0]

    def function(x: Any) -> Any:
        return region(region(x) + 1)

    run = compiled(function, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(run(x), function(x))


# ------------------------------------------------------------------------------- torch.func

FUNCTIONS: dict[str, Function] = {
    "vmap": lambda x: torch.vmap(lambda v: v.softmax(0) * v.sum())(x),
    "vmap over columns": lambda x: torch.vmap(lambda v: v.cumsum(0), in_dims=1, out_dims=1)(x),
    "grad": lambda x: torch.func.grad(lambda v: (v.sin() * v).sum())(x),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(lambda v: (v * v).prod()))(x),
    "jacobian": lambda x: torch.func.jacrev(lambda v: v.exp() * v[0])(x[0]),
    "forward mode": lambda x: torch.func.jvp(lambda v: v.sin(), (x,), (x * 2,)),
    "hessian": lambda x: torch.func.hessian(lambda v: (v**3).sum())(x[0]),
    "functional call": lambda x: torch.func.vjp(lambda v: v.tanh(), x)[1](x)[0],
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_transformed_functions_are_those_of_eager(what: str) -> None:
    agree(FUNCTIONS[what], torch.randn(3, 4))
