"""Resizing whose places no formula says stays one operator on a CPU, instead of being taken apart.

    interpolate(x, size=(57, 57), mode="bilinear")     ->     aten.upsample_bilinear2d, one node

torch takes resizing apart before gradients are made of it: loads at places that floats say, and for
the gradient an addition in memory for each of them. Where a formula has the same places
(`lowering/index_tables.py`) that makes good loops. Where none has, every addition asks floats where
it belongs: six nanoseconds a piece, of which a cubic has sixteen for every result. There the
gradient is the library's, and what is computed forward is loops of ours (`ops/resize.py`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from treadle.frontends.torch.lowering.index_tables import LONGEST, fitting
from treadle.index import loop

OPERATOR = functional.interpolate
HOW = inspect.signature(OPERATOR)
aten = torch.ops.aten
WAYS: Mapping[str, tuple[int, Any, Any]] = {
    "linear": (1, aten.upsample_linear1d.default, aten.upsample_linear1d_backward.default),
    "bilinear": (2, aten.upsample_bilinear2d.default, aten.upsample_bilinear2d_backward.default),
    "trilinear": (3, aten.upsample_trilinear3d.default, aten.upsample_trilinear3d_backward.default),
    "bicubic": (2, aten.upsample_bicubic2d.default, aten.upsample_bicubic2d_backward.default),
}
"""By mode: resized dimensions, the operator, and that of its gradient."""


def keep_resizing_whole(graph: torch.fx.Graph) -> int:
    """Let resizing without formulas be one operator, in place; gives how many there were."""
    found = 0
    for node in graph.nodes:
        given = _given(node) if node.op == "call_function" and node.target is OPERATOR else None
        if given is not None and _is_wanted(node, given):
            # The node stays itself: what is known of the user's line and module goes with it.
            sides = list(node.meta["example_value"].shape[2:])
            node.target, node.kwargs = resized, {}
            aligned = bool(given["align_corners"])
            node.args = (given["input"], given["mode"], sides, aligned, _scales(given))
            found += 1
    return found


def resized(
    x: Any, mode: str, size: Sequence[int], aligned: bool, scales: Sequence[float | None]
) -> Any:
    """What `interpolate` gives, as one operator with a gradient that is one."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        factors: Any = None if None in scales else scales
        return OPERATOR(x, list(size) if factors is None else None, factors, mode, aligned)
    apply: Any = _Resized.apply
    return apply(x, size, mode, aligned, scales)


class _Resized(torch.autograd.Function):
    """The operator below autograd, where torch does not take it apart."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, size: Sequence[Any], mode: str, aligned: bool, scales: Sequence[Any]
    ) -> Any:
        ctx.about = (size, list(x.shape), mode, aligned, scales)
        with torch._C._AutoDispatchBelowAutograd():
            return WAYS[mode][1](x, size, aligned, *scales)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        size, shape, mode, aligned, scales = ctx.about
        with torch._C._AutoDispatchBelowAutograd():
            return WAYS[mode][2](grad, size, shape, aligned, *scales), None, None, None, None


def _given(node: torch.fx.Node) -> Mapping[str, Any]:
    """The arguments of a call by their names, those left out too."""
    bound = HOW.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments


def _is_wanted(node: torch.fx.Node, given: Mapping[str, Any]) -> bool:
    """Whether the call is one of floats on a CPU that formulas do not cover."""
    x, result = _value(given["input"]), node.meta.get("example_value")
    if x is None or not isinstance(result, torch.Tensor) or given["antialias"]:
        return False
    dims = WAYS[given["mode"]][0] if given["mode"] in WAYS else None
    if dims is None or x.dim() != dims + 2 or x.device.type != "cpu":
        return False
    if not x.is_floating_point() or x.dtype is not result.dtype or x.layout != torch.strided:
        return False
    if not all(isinstance(n, int) for n in (*x.shape, *result.shape)):
        return False
    if not all(n is None or isinstance(n, int | float) for n in _scales(given)):
        return False
    sides = zip(x.shape[2:], result.shape[2:], _scales(given), strict=True)
    return not all(_has_formula(n, m, f, bool(given["align_corners"])) for n, m, f in sides)


def _scales(given: Mapping[str, Any]) -> list[float | None]:
    """The factors that say how far apart places are, where sizes do not."""
    factors, dims = given["scale_factor"], WAYS[given["mode"]][0]
    if factors is None or given["recompute_scale_factor"]:
        return [None] * dims
    return list(factors) if isinstance(factors, list | tuple) else [factors] * dims


def _has_formula(n: int, m: int, factor: float | None, aligned: bool) -> bool:
    """Whether a formula has the places of `n` that `m` results along one dimension read."""
    if n == 0 or not 0 < m <= LONGEST:
        return False
    if m == 1 or n == m:
        return True
    step = (n - 1) / (m - 1) if aligned else 1.0 / factor if factor else n / m
    shift = 0.0 if aligned else 0.5
    below = [max(math.floor(step * (i + shift) - shift), 0) for i in range(m)]
    return fitting([min(t, n - 1) for t in below], loop("i")) is not None


def _value(node: Any) -> Any:
    """What torch says a node gives, if that is a tensor."""
    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None
