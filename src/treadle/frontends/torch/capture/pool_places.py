"""Where the largest of a window lies, kept as its place in the window: one byte instead of eight.

The gradient of a maximum over windows needs nothing else of the forward pass, not even the tensor
the windows go over, of which it takes the shape alone:

    places   i64: the place in the whole plane          kept by torch
    in the window: row * width + column, i8             kept here; places follow from it

What is written between the two are operators like any others. Loops of ours need not even go that
way: on a CPU the pool writes the byte itself, and its gradient compares it (`lowering/ops/pool`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from treadle.frontends.torch.lowering.ops.pool import AS_BYTES, IN_WINDOW

aten = torch.ops.aten
POOLS = {aten.max_pool2d_with_indices_backward.default: aten.max_pool2d_with_indices.default}
"""Gradients, and whose gradients they are."""
MOST_PLACES = 127
"""The largest window whose places fit into a byte."""


def keep_places_small(joint: torch.fx.GraphModule) -> None:
    """Let gradients of pooling work from places in windows, where sizes are known."""
    changed = False
    for gradient, pool in POOLS.items():
        for node in joint.graph.find_nodes(op="call_function", target=gradient):
            window = _window(node, pool)
            if window is not None:
                _rewrite(joint.graph, node, window)
                changed = True
    if changed:
        joint.graph.lint()
        joint.recompile()


class _Window(NamedTuple):
    """The windows of one pool over planes: for each of two dimensions."""

    places: Any
    """The node of the places that the pool gives."""
    width: int
    kernel: Sequence[int]
    step: Sequence[int]
    pad: Sequence[int]
    spread: Sequence[int]


def _window(node: Any, pool: Any) -> _Window | None:
    """The window behind a gradient; None if it is not one that fits."""
    if len(node.args) != 8 or node.kwargs:
        return None
    _, x, count, step, pad, spread, _, places = node.args
    if getattr(places, "op", None) != "call_function" or not isinstance(places.args[0], type(node)):
        return None
    shapes = [*x.meta["val"].shape, *places.meta["val"].shape]
    if places.args[0].target is not pool or not all(type(n) is int and n > 0 for n in shapes):
        return None
    settings = [_pair(count), _pair(step or count), _pair(pad), _pair(spread)]
    if any(s is None for s in settings) or count[0] * count[-1] > MOST_PLACES:
        return None
    return _Window(places, x.meta["val"].shape[-1], *[s for s in settings if s is not None])


def _pair(given: Any) -> list[int] | None:
    numbers = list(given) if isinstance(given, list | tuple) else [given]
    if not all(type(n) is int for n in numbers):
        return None
    return numbers * 2 if len(numbers) == 1 else numbers


def _rewrite(graph: Any, node: Any, w: _Window) -> None:
    said = w.places.meta["val"]
    put = _Putting(graph, w.places)
    starts = [put.starts(n, s, p) for n, s, p in zip(said.shape[-2:], w.step, w.pad, strict=True)]
    rows = put(aten.view.default, starts[0], [said.shape[-2], 1])
    flat = put(aten._to_copy.default, w.places, dtype=torch.int32)
    down = put(aten.div.Tensor_mode, flat, w.width, rounding_mode="floor")
    across = put(aten.sub.Tensor, flat, put(aten.mul.Tensor, down, w.width))
    row = put.quotient(put(aten.sub.Tensor, down, rows), w.spread[0])
    column = put.quotient(put(aten.sub.Tensor, across, starts[1]), w.spread[1])
    inside = put(aten.add.Tensor, put(aten.mul.Tensor, row, w.kernel[1]), column)
    small = put(aten._to_copy.default, inside, dtype=torch.int8)
    small.meta[AS_BYTES] = True
    back = _Putting(graph, node, before=True)
    wide = back(aten._to_copy.default, small, dtype=torch.int32)
    row = back(aten.div.Tensor_mode, wide, w.kernel[1], rounding_mode="floor")
    column = back(aten.sub.Tensor, wide, back(aten.mul.Tensor, row, w.kernel[1]))
    down = back(aten.add.Tensor, back(aten.mul.Tensor, row, w.spread[0]), rows)
    across = back(aten.add.Tensor, back(aten.mul.Tensor, column, w.spread[1]), starts[1])
    flat = back(aten.add.Tensor, back(aten.mul.Tensor, down, w.width), across)
    places = back(aten._to_copy.default, flat, dtype=torch.int64)
    places.meta[IN_WINDOW] = True
    x = node.args[1].meta["val"]
    like = back(aten.full.default, list(x.shape), 0, dtype=x.dtype, device=x.device)
    node.args = (node.args[0], like, *node.args[2:7], places)


class _Putting:
    """Adds nodes to a graph, each behind the one before it, with what torch says of them."""

    def __init__(self, graph: Any, at: Any, before: bool = False) -> None:
        self.graph, self.at, self.origin, self.before = graph, at, at, before
        self.mode = at.meta["val"].fake_mode

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        where = self.graph.inserting_before if self.before else self.graph.inserting_after
        with where(self.at):
            node = self.graph.call_function(target, args, kwargs)
        given = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
        with self.mode:
            node.meta["val"] = target(*given, **kwargs)
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            if key in self.origin.meta:
                node.meta[key] = self.origin.meta[key]
        if not self.before:
            self.at = node
        return node

    def starts(self, count: int, step: int, pad: int) -> Any:
        """Where each window begins along a dimension."""
        device = self.origin.meta["val"].device
        kind = {"dtype": torch.int32, "device": device, "pin_memory": False}
        numbers = self(aten.arange.start_step, 0, count, 1, **kind)
        return self(aten.sub.Tensor, self(aten.mul.Tensor, numbers, step), pad)

    def quotient(self, x: Any, by: int) -> Any:
        """A place divided by how far places of a window lie apart."""
        return x if by == 1 else self(aten.div.Tensor_mode, x, by, rounding_mode="floor")
