"""Strided views of a storage are asked of the tensor that owns it, not of a view of that.

    %v = slice(%x, 0, 1)                             %v = slice(%x, 0, 1)
    %w = as_strided(%v, [3], [1], 2)          ->     %w = as_strided(%x, [3], [1], 2)

The new view may show elements that are not in the old one, and a view that only loops compute has
no memory but its own. What lies where does not change: both count from the start of the storage.
"""

from __future__ import annotations

from typing import Any

import torch

from treadle.frontends.torch.lowering.symbols import is_unbacked
from treadle.runtime.hosts.torch_tensors import storage_key

aten = torch.ops.aten
STRIDED_VIEWS = (aten.as_strided.default, aten.as_strided_copy.default)


def ask_owners(gm: torch.fx.GraphModule) -> None:
    """Let every strided view of a storage start from the tensor that owns it."""
    owners: dict[object, Any] = {}
    changed = False
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in STRIDED_VIEWS:
            changed |= _ask(node, owners)
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            owners.setdefault((storage_key(val), val.dtype), node)
    if changed:
        gm.recompile()


def _ask(node: Any, owners: dict[object, Any]) -> bool:
    view = node.args[0]
    val = view.meta.get("val")
    owner = owners.get((storage_key(val), val.dtype), view) if val is not None else view
    if owner is view or len(node.args) < 3:
        return False
    _, size, stride, *rest = node.args
    begin = rest[0] if rest else node.kwargs.get("storage_offset")
    if begin is None:
        begin = val.storage_offset()
        if not isinstance(begin, int):
            if any(map(is_unbacked, begin.node.expr.free_symbols)):
                return False
            with node.graph.inserting_before(node):
                made = node.graph.call_function(aten.sym_storage_offset.default, (view,))
            made.meta["val"] = begin
            begin = made
    node.args, node.kwargs = (owner, size, stride, begin), {}
    return True
