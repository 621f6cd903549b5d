"""Weights in shards that the backward gathers again, instead of the forward keeping them whole.

    forward     w = wait(all_gather(shard)) ; y = x @ w'         keeps x and w: all weights at once
    backward    dx = dy @ w

    forward     w = wait(all_gather(shard)) ; y = x @ w'         keeps x; the shard is there anyway
    backward    w = wait(all_gather(shard)) ; dx = dy @ w

A gather that only parameters lead to can be had again at any time, for its time on the network,
which the order of collectives may hide. torch's division never repeats a collective by itself: what
is to be gathered again is marked before it is asked.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch

from treadle.frontends.torch import compat

LEVELS = (0.0, 0.5, 1.0)
"""Of the bytes that are gathered, how much is gathered again; tried in order."""
GATHERS = ("all_gather_into_tensor", "all_gather_into_tensor_coalesced")
WAIT = "wait_tensor"
RESHAPES = (
    "_to_copy",
    "convert_element_type",
    "cat",
    "split",
    "split_with_sizes",
    "clone",
    "stack",
)
"""Operators beside views that only bring weights into another form."""


def gathers_of_weights(joint: torch.fx.GraphModule) -> list[Any]:
    """The gathers that nothing but inputs of the forward leads to, in order."""
    found = []
    plain: set[Any] = set()
    for node in joint.graph.nodes:
        if node.op == "placeholder":
            if "tangent" not in str(node.target):
                plain.add(node)
        elif node.op == "get_attr" or (_is_form(node) and _only(node, plain)):
            plain.add(node)
        elif _name(node) in GATHERS and _only(node, plain):
            found.append(node)
    return found


def mark(joint: torch.fx.GraphModule, level: float) -> None:
    """Have this share of the bytes gathered again, those that would be kept for longest first."""
    gathers = gathers_of_weights(joint)
    total = sum(map(_bytes, gathers))
    so_far = 0
    for gather in gathers:
        if so_far >= level * total:
            return
        so_far += _bytes(gather)
        for node in (*_made_from(gather), gather, *_made_of(gather)):
            compat.have_recomputed(node)


def _made_from(gather: Any) -> Iterator[Any]:
    """What brings a shard into the form in which it is sent."""
    pending = list(gather.all_input_nodes)
    while pending:
        node = pending.pop()
        if node.op == "call_function":
            yield node
            pending.extend(node.all_input_nodes)


def _made_of(gather: Any) -> Iterator[Any]:
    """The wait for a gather, and what only brings the weight into another form."""
    weight = {gather}
    pending = list(gather.users)
    while pending:
        node = pending.pop(0)
        is_form = _name(node) == WAIT or _is_form(node)
        if node not in weight and is_form and _only(node, weight):
            weight.add(node)
            yield node
            pending.extend(node.users)


def _only(node: Any, those: set[Any]) -> bool:
    return all(source in those for source in node.all_input_nodes)


def _name(node: Any) -> str:
    """The operator of a node, without overload; nothing for what is no operator."""
    target = node.target
    return target._opname if isinstance(target, torch._ops.OpOverload) else ""


def _is_form(node: Any) -> bool:
    """Whether a node shows the same numbers in another form."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    target = node.target
    is_view = isinstance(target, torch._ops.OpOverload) and any(
        a.alias_info is not None and not a.alias_info.is_write for a in target._schema.arguments
    )
    return is_view or _name(node) in RESHAPES


def _bytes(gather: Any) -> int:
    """What a gather delivers; sizes that are not known count as nothing."""
    val = gather.meta.get("val")
    tensors = val if isinstance(val, list | tuple) else [val]
    sizes = [t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)]
    return sum(n for n in sizes if isinstance(n, int))
