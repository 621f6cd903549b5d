"""Equal nodes of a joint graph are merged, as torch does it, and nothing else is."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch._functorch.compile_utils import fx_graph_cse  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from treadle.frontends.torch.capture.same_nodes import merge_same_nodes  # noqa: E402

pytestmark = pytest.mark.torch


def traced(function, *args):
    return make_fx(function, tracing_mode="fake")(*args)


def calls(gm) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def attention(x, w):
    q, k = x @ w, x @ w
    s = torch.softmax(q @ k.t(), -1) + torch.softmax(q @ k.t(), -1)
    return (s.exp() * s.exp()).sum(), s.sum(0)


def losses(x, w):
    y = torch.nn.functional.gelu(x @ w)
    z = torch.nn.functional.gelu(x @ w)
    return torch.autograd.grad((y * z).sum(), (x, w))


CASES = {"attention": attention, "losses": losses}


@pytest.mark.parametrize("name", CASES)
def test_as_many_nodes_are_left_as_torch_leaves_and_results_are_the_same(name):
    x = torch.randn(8, 8, requires_grad=True)
    w = torch.randn(8, 8, requires_grad=True)
    gm = traced(CASES[name], x, w)
    expected = gm(x, w)
    theirs = len(fx_graph_cse(gm.graph).nodes)
    gone = merge_same_nodes(gm.graph)
    gm.graph.lint()
    gm.recompile()
    assert gone > 0
    assert len(gm.graph.nodes) == theirs
    for a, b in zip(gm(x, w), expected, strict=True):
        assert torch.equal(a, b)


def test_random_numbers_unwritten_memory_and_results_should_not_merge():
    def f(x):
        noise = torch.rand_like(x) - torch.rand_like(x)
        blank = torch.empty_like(x), torch.empty_like(x)
        return noise, x + 1, x + 1, *blank

    gm = traced(f, torch.randn(4))
    before = calls(gm)
    assert merge_same_nodes(gm.graph) == 0
    assert calls(gm) == before


def test_numbers_of_other_types_and_zeros_of_other_signs_should_not_merge():
    def f(x):
        a, b = torch.mul(x, 2), torch.mul(x, 2.0)
        c, d = torch.add(x, 0.0), torch.add(x, -0.0)
        return (a * b * c * d).sum()

    gm = traced(f, torch.ones(3, dtype=torch.int32))
    assert merge_same_nodes(gm.graph) == 0


def test_reads_on_both_sides_of_a_change_should_not_merge():
    def f(x):
        a = x.exp()
        x.add_(1)
        return (a * x.exp()).sum()

    gm = traced(f, torch.randn(4))
    assert merge_same_nodes(gm.graph) == 0


def test_sizes_that_data_decide_should_not_merge():
    def f(x):
        return (torch.nonzero(x).sum() * torch.nonzero(x).sum()).sum()

    gm = make_fx(f, tracing_mode="symbolic", _allow_non_fake_inputs=True)(torch.ones(4))
    merge_same_nodes(gm.graph)
    assert calls(gm).count("aten.nonzero.default") == 2


def test_a_training_step_does_not_import_the_lowerings_of_the_peer():
    script = """
import sys, torch, treadle.torch
x = torch.randn(4, 4, requires_grad=True)
torch.compile(lambda x: torch.relu(x @ x).sum(), backend="treadle")(x).backward()
print("torch._inductor.lowering" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.strip() == "False", found.stderr[-2000:]
