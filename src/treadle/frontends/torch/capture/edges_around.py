"""Padding with what lies at the opposite edge becomes pieces side by side, before it is captured.

    y = pad(x, (2, 3), mode="circular")     ->     y = cat([x[..., -2:], x, x[..., :3]], -1)

Torch writes it as copies into memory that holds nothing yet, one after the other, each of which
reads what the last one wrote. Pieces side by side are one loop, which what follows can join, and
their gradient is a sum of pieces.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

OPERATORS = (functional.pad, torch._C._nn.pad)
HOW = inspect.Signature([
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
    for name, default in (("input", None), ("pad", ()), ("mode", "constant"), ("value", None))
])  # fmt: skip


def put_edges_around(graph: torch.fx.Graph) -> int:
    """Let padding that goes around be made of pieces, in place; gives how many there were."""
    found = 0
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in OPERATORS:
            continue
        given = HOW.bind(*node.args, **node.kwargs)
        given.apply_defaults()
        x, pad, mode, _ = given.args
        if mode == "circular" and _is_plain(x, pad):
            # The node stays itself: what is known of the user's line and module goes with it.
            node.target, node.args, node.kwargs = around, (x, tuple(pad)), {}
            found += 1
    return found


def around(x: Any, pad: Sequence[int]) -> Any:
    """A tensor between what lies at its opposite edges, in the last dimensions."""
    if not (x.requires_grad and torch.is_grad_enabled()):
        return _repeated(x, pad)
    for dim, before, after in zip(range(-1, -x.dim(), -1), pad[::2], pad[1::2], strict=False):
        parts = [x.narrow(dim, x.shape[dim] - before, before), x, x.narrow(dim, 0, after)]
        x = torch.cat([part for part in parts if part.shape[dim]], dim)
    return x.contiguous()


def _repeated(x: Any, pad: Sequence[int]) -> Any:
    """The same without gradients, which would be sums over all that is repeated."""
    many, wide = [1] * x.dim(), x
    for dim, before, after in zip(range(-1, -x.dim(), -1), pad[::2], pad[1::2], strict=False):
        many[dim] += (before > 0) + (after > 0)
    wide = x.repeat(many)
    for dim, before, after in zip(range(-1, -x.dim(), -1), pad[::2], pad[1::2], strict=False):
        n = x.shape[dim]
        wide = wide.narrow(dim, n - before if before else 0, before + n + after)
    return wide.contiguous()


def _is_plain(x: Any, pad: Any) -> bool:
    """Whether sizes are known, and something is added and nothing cut off."""
    value = x.meta.get("example_value") if isinstance(x, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not isinstance(pad, list | tuple):
        return False
    if not all(isinstance(n, int) for n in (*value.shape, *pad)) or 0 in value.shape:
        return False
    return min(pad, default=0) >= 0 and max(pad, default=0) > 0
