"""What a convolution on a GPU adds to each channel is added by kernels, and summed up by them.

    convolution(x, w, b)                  a library's kernel, and one that adds b
    ->  add(convolution(x, w), view(b))   the sum is a kernel's that would read the result anyway

    convolution_backward(...)[2]          a library's sum over all but the channels
    ->  sum(gradient)                     goes along with what makes the gradient

Eager mode rounds the result of the convolution before it adds, and so does this.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
DEVICES = frozenset({"cuda"})
MASK = 10
"""Which argument of a backward says what is wanted."""


def take_bias_apart(gm: GraphModule) -> int:
    """Rewrite the convolutions of a functional graph; gives how many."""
    mode: Any = torch._guards.detect_fake_mode(
        [n.meta.get("val") for n in gm.graph.find_nodes(op="placeholder")]
    )
    if mode is None:
        return 0
    with mode, torch.no_grad():
        count = sum(map(_added_after, _on_devices(gm, aten.convolution.default)))
        count += sum(map(_summed_beside, _on_devices(gm, aten.convolution_backward.default)))
    if count:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return count


def _on_devices(gm: GraphModule, target: Any) -> Sequence[Node]:
    found = gm.graph.find_nodes(op="call_function", target=target)
    return [n for n in found if _value(n.args[0]).device.type in DEVICES]


def _value(node: Any) -> Any:
    return node.meta["val"]


def _added_after(node: Node) -> bool:
    """What a convolution adds, added to its result."""
    bias: Any = node.args[2]
    if bias is None:
        return False
    users = list(node.users)
    made = _value(node)
    with node.graph.inserting_after(node):
        sizes = [1, bias.meta["val"].shape[0], *[1] * (made.dim() - 2)]
        view = _called(node, aten.view.default, bias, sizes)
    with node.graph.inserting_after(view):
        total = _called(node, aten.add.Tensor, node, view)
    for user in users:
        user.replace_input_with(node, total)
    node.args = (*node.args[:2], None, *node.args[3:])
    return True


def _summed_beside(node: Node) -> bool:
    """The gradient of what was added, summed up from the gradient of the result."""
    wanted: Any = node.args[MASK]
    if not wanted[2]:
        return False
    given: Any = node.args[0]
    dims = [0, *range(2, _value(given).dim())]
    with node.graph.inserting_before(node):
        total = _called(node, aten.sum.dim_IntList, given, dims)
    for user in list(node.users):
        if user.target is operator.getitem and user.args[1] == 2:
            user.replace_all_uses_with(total)
            node.graph.erase_node(user)
    node.args = (*node.args[:MASK], [*wanted[:2], False], *node.args[MASK + 1 :])
    node.meta["val"] = (*_value(node)[:2], None)
    return True


def _called(like: Node, target: Any, *args: Any) -> Node:
    """A call that stands for a part of what a node did."""
    made = like.graph.call_function(target, args)
    given = [x.meta["val"] if isinstance(x, Node) else x for x in args]
    made.meta = {k: v for k, v in like.meta.items() if k != "tensor_meta"}
    made.meta["val"] = target(*given)
    return made
