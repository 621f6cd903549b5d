"""torch's operator database through the backend: a quick slice by default, all by choice."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import opinfo_runner  # noqa: E402

from treadle.frontends.torch.lowering.node import Node  # noqa: E402
from treadle.frontends.torch.lowering.table import TABLE  # noqa: E402
from treadle.frontends.torch.lowering.values import NotLowered  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = (
    "add", "sub", "mul", "div.floor_rounding", "remainder", "pow", "rsub", "atan2", "maximum",
    "eq", "logical_and", "exp", "log1p", "tanh", "sigmoid", "erf", "lgamma", "sign", "round",
    "clamp", "where", "lerp", "addcmul", "masked_fill", "sum", "mean", "prod", "amax", "argmin",
    "max.reduction_with_dim", "var_mean", "std", "logsumexp", "any", "cumsum", "softmax",
    "log_softmax", "nn.functional.layer_norm", "nn.functional.gelu", "nn.functional.embedding",
    "nn.functional.cross_entropy", "view", "reshape", "permute", "expand", "squeeze", "unfold",
    "as_strided", "flip", "roll", "repeat", "tril", "diagonal", "cat", "stack", "split",
    "index_select", "gather", "select_scatter", "slice_scatter", "arange", "mm", "sort",
)  # fmt: skip
"""About one operator of every kind."""

HANDLED = 0.99
"""The share of operators that eager and `aot_eager` handle which must be right."""


@pytest.mark.parametrize("name", QUICK)
def test_an_operator_agrees_with_eager_forward_and_backward(name: str) -> None:
    found = [opinfo_runner.check(op, samples=1) for op in opinfo_runner.operators([name])]
    assert found
    assert not [o for o in found if o.status == "fail"], found


def crash_at_once(c: Node, *args: Any) -> Any:
    raise LookupError("nothing there")


def crash_when_written(c: Node, *args: Any) -> Any:
    def inner(k: Any, at: Any) -> Any:
        raise TypeError("no such value")

    return c.lazy(c.sizes, c.dtype, inner)


def give_up(c: Node, *args: Any) -> Any:
    raise NotLowered("too hard")


@pytest.mark.parametrize(
    "lowering, status, note",
    [
        (crash_at_once, "fail", "LookupError: nothing there"),
        (crash_when_written, "fail", "TypeError: no such value"),
        (give_up, "fallback", ""),
    ],
)
def test_a_lowering_that_crashes_fails_and_one_that_gives_up_is_a_fallback(
    monkeypatch: pytest.MonkeyPatch, lowering: Any, status: str, note: str
) -> None:
    monkeypatch.setitem(TABLE, "aten.atan2.default", lowering)
    (found,) = [opinfo_runner.check(op, samples=1) for op in opinfo_runner.operators(["atan2"])]
    assert (found.status, note in found.note) == (status, True), found
    assert "aten.atan2.default" in found.calls


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_nearly_all_operators_agree_with_eager(dtype: str, dynamic: bool) -> None:
    outcomes = [
        opinfo_runner.check(op, getattr(torch, dtype), samples=2, dynamic=dynamic)
        for op in opinfo_runner.operators()
    ]
    counts = opinfo_runner.summary(outcomes)
    right = counts.get("pass", 0) + counts.get("fallback", 0)
    failed = [f"{o.name}: {o.note}" for o in outcomes if o.status == "fail"]
    assert right >= HANDLED * (right + len(failed)), "\n".join(failed)
