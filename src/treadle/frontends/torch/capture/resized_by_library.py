"""Resizing whose places no formula says stays one operator on a CPU, instead of being taken apart.

    interpolate(x, size=(57, 57), mode="bilinear")     ->     aten.upsample_bilinear2d, one node

torch takes resizing apart before gradients are made of it: loads at places that floats say, and for
the gradient an addition in memory for each of them. Where a formula has the same places
(`lowering/index_tables.py`) that makes good loops. Where none has, every addition asks floats where
it belongs: six nanoseconds a piece, of which a cubic has sixteen for every result. Where channels
lie last, additions go across memory, formula or not. There the gradient is the library's, and what
is computed forward is loops of ours (`ops/resize.py`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from treadle.frontends.torch.lowering.index_tables import LONGEST, fitting
from treadle.frontends.torch.lowering.ops.resize import has_channels_last
from treadle.index import loop

OPERATOR = functional.interpolate
HOW = inspect.signature(OPERATOR)
aten = torch.ops.aten
WAYS: Mapping[tuple[str, int], tuple[Any, Any]] = {
    ("linear", 1): (aten.upsample_linear1d, aten.upsample_linear1d_backward),
    ("bilinear", 2): (aten.upsample_bilinear2d, aten.upsample_bilinear2d_backward),
    ("trilinear", 3): (aten.upsample_trilinear3d, aten.upsample_trilinear3d_backward),
    ("bicubic", 2): (aten.upsample_bicubic2d, aten.upsample_bicubic2d_backward),
    ("nearest", 1): (aten.upsample_nearest1d, aten.upsample_nearest1d_backward),
    ("nearest", 2): (aten.upsample_nearest2d, aten.upsample_nearest2d_backward),
    ("nearest", 3): (aten.upsample_nearest3d, aten.upsample_nearest3d_backward),
    ("nearest-exact", 1): (
        aten._upsample_nearest_exact1d,
        aten._upsample_nearest_exact1d_backward,
    ),
    ("nearest-exact", 2): (
        aten._upsample_nearest_exact2d,
        aten._upsample_nearest_exact2d_backward,
    ),
    ("nearest-exact", 3): (
        aten._upsample_nearest_exact3d,
        aten._upsample_nearest_exact3d_backward,
    ),
}
"""By mode and resized dimensions: the operator, and that of its gradient."""
NEAREST = frozenset({"nearest", "nearest-exact"})
"""Modes that read one place, and are not asked how corners lie."""


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
        corners = None if mode in NEAREST else aligned
        return OPERATOR(x, list(size) if factors is None else None, factors, mode, corners)
    apply: Any = _Resized.apply
    return apply(x, size, mode, aligned, scales)


class _Resized(torch.autograd.Function):
    """The operator below autograd, where torch does not take it apart."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, size: Sequence[Any], mode: str, aligned: bool, scales: Sequence[Any]
    ) -> Any:
        corners = [] if mode in NEAREST else [aligned]
        ctx.about = (size, list(x.shape), mode, (*corners, *scales))
        with torch._C._AutoDispatchBelowAutograd():
            return WAYS[mode, x.dim() - 2][0].default(x, size, *corners, *scales)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        size, shape, mode, how = ctx.about
        with torch._C._AutoDispatchBelowAutograd():
            found = WAYS[mode, grad.dim() - 2][1].default(grad, size, shape, *how)
        return found, None, None, None, None


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
    mode, aligned = given["mode"], bool(given["align_corners"])
    if (mode, x.dim() - 2) not in WAYS or x.device.type != "cpu":
        return False
    if mode in NEAREST and x.dtype is torch.float64:
        return False  # in which type the library finds places differs from kernel to kernel
    if not x.is_floating_point() or x.dtype is not result.dtype or x.layout != torch.strided:
        return False
    if not all(isinstance(n, int) for n in (*x.shape, *result.shape)):
        return False
    if not all(n is None or isinstance(n, int | float) for n in _scales(given)):
        return False
    sides = zip(x.shape[2:], result.shape[2:], _scales(given), strict=True)
    return has_channels_last(x) or not all(
        _has_formula(n, m, f, mode, aligned) for n, m, f in sides
    )


def _scales(given: Mapping[str, Any]) -> list[float | None]:
    """The factors that say how far apart places are, where sizes do not."""
    factors, dims = given["scale_factor"], _value(given["input"]).dim() - 2
    if factors is None or given["recompute_scale_factor"]:
        return [None] * dims
    return list(factors) if isinstance(factors, list | tuple) else [factors] * dims


def _has_formula(n: int, m: int, factor: float | None, mode: str, aligned: bool) -> bool:
    """Whether a formula has the places of `n` that `m` results along one dimension read."""
    if n == 0 or not 0 < m <= LONGEST:
        return False
    if m == 1 or n == m:
        return True
    step = (n - 1) / (m - 1) if aligned else 1.0 / factor if factor else n / m
    shift = 0.0 if aligned or mode == "nearest" else 0.5
    back = 0.0 if mode in NEAREST else shift
    below = [max(math.floor(step * (i + shift) - back), 0) for i in range(m)]
    return fitting([min(t, n - 1) for t in below], loop("i")) is not None


def _value(node: Any) -> Any:
    """What torch says a node gives, if that is a tensor."""
    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None
