"""What a product with a bias on a GPU is cut off at zero by the library that makes it.

    relu(addmm(b, x, w))  ->  _addmm_activation(b, x, w)

The library has the sum in registers when it rounds it: the relu costs nothing there, and a kernel
of its own walks through memory twice. The result is the same to the last bit, a NaN included; where
the library has no such product, torch computes both one after the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
DEVICES = frozenset({"cuda"})
VIEWS = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})
NARROW = frozenset({torch.float16, torch.bfloat16})


def take_relu_into_products(gm: GraphModule) -> int:
    """Rewrite the products of a functional graph that a relu alone reads; gives how many."""
    found = gm.graph.find_nodes(op="call_function", target=aten.relu.default)
    count = sum(map(_taken, found))
    if count:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return count


def _taken(relu: Node) -> bool:
    given: Any = relu.args[0]
    is_seen = given.target in VIEWS and len(given.users) == 1
    product = given.args[0] if is_seen else given
    if not _is_fitting(product):
        return False
    graph = relu.graph
    with graph.inserting_before(product):
        made = graph.call_function(aten._addmm_activation.default, product.args)
    made.meta = dict(product.meta)
    product.replace_all_uses_with(made)
    relu.replace_all_uses_with(given if is_seen else made)
    return True


def _is_fitting(product: Any) -> bool:
    """Whether a node is a plain product with a bias for each column, which nobody else reads."""
    is_alone = product.target is aten.addmm.default and len(product.users) == 1
    if not is_alone or product.kwargs or len(product.args) != 3:
        return False
    bias, x, w = (a.meta["val"] for a in product.args)
    fits = bias.dim() == 1 and bias.stride(0) == 1 and x.dtype in NARROW
    return bool(fits and bias.dtype == x.dtype == w.dtype and x.device.type in DEVICES)
