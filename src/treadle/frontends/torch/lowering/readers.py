"""What a captured graph says about its values: who reads them, what shows the same memory.

Nothing here lowers anything; it only looks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from treadle.runtime.hosts.torch_tensors import storage_key

CONVERSIONS = frozenset(
    {"aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default"}
)
"""Operators that give the same elements in another type."""
TURNS = frozenset({"aten.t.default", "aten.permute.default", "aten.transpose.int"})
PRODUCTS = frozenset(
    {"aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default"}
)
SHAPE_ONLY = frozenset(
    {
        "aten.empty_like.default",
        "aten.full_like.default",
        "aten.new_empty.default",
        "aten.new_empty_strided.default",
        "aten.new_full.default",
        "aten.new_ones.default",
        "aten.new_zeros.default",
        "aten.ones_like.default",
        "aten.sym_numel.default",
        "aten.sym_size.int",
        "aten.sym_storage_offset.default",
        "aten.sym_stride.int",
        "aten.zeros_like.default",
    }
)
"""Operators that look at what a tensor is like and at none of its elements."""


def looks_at_shape(user: Any) -> bool:
    """Whether a node needs no element of its argument, so that nothing is computed for it."""
    return str(user.target) in SHAPE_ONLY


def is_read_at_its_points(node: Any) -> bool:
    """Whether one operator reads this value, and each element of it for one of its own."""
    users = [user for user in node.users if not looks_at_shape(user)]
    if len(users) != 1:
        return False
    is_pointwise = torch.Tag.pointwise in getattr(users[0].target, "tags", ())
    if not is_pointwise and str(users[0].target) not in CONVERSIONS:
        return False
    made = users[0].meta.get("val")
    # Sizes are compared as they are written: to compare open ones would decide about them.
    return isinstance(made, torch.Tensor) and str(made.shape) == str(node.meta["val"].shape)


def is_multiplied_turned(node: Any) -> bool:
    """Whether a product reads this value turned, and somebody else reads it as well."""
    turned = [u for u in node.users if str(u.target) in TURNS]
    products = [u for t in turned for u in t.users if str(u.target) in PRODUCTS]
    return len(node.users) > 1 and bool(products)


def is_used_later(node: Any, done: dict[Any, Any], current: Any) -> bool:
    """Whether a node that is not lowered yet reads this one."""
    return any(user not in done and user is not current for user in node.users)


def shown_twice(graph: Any) -> frozenset[object]:
    """The memory that more than one of a graph's results share."""
    results = next(node for node in graph.nodes if node.op == "output").all_input_nodes
    vals = [node.meta.get("val") for node in results]
    seen = Counter([storage_key(val) for val in vals if isinstance(val, torch.Tensor)])
    return frozenset([storage for storage, count in seen.items() if count > 1])


def shape_env_of(gm: Any) -> Any:
    """What torch knows of the sizes in a graph; None if all are fixed."""
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        fake = getattr(val, "fake_mode", None)
        if fake is not None and fake.shape_env is not None:
            return fake.shape_env
        inner = getattr(val, "node", None)
        if inner is not None and getattr(inner, "shape_env", None) is not None:
            return inner.shape_env
    return None
