"""Regions that the user had compiled once are written out where they are used.

    %r = invoke_subgraph(%region, "id", %x, %w)          %sin = sin(%x)
    %y = getitem(%r, 0)                           ->     %y = add(%sin, %w)

Then they fuse with what surrounds them. A region over run-time sizes has names of its own for
them, so it stays a call.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

NAME = "invoke_subgraph"


def write_out_regions(gm: torch.fx.GraphModule) -> None:
    """Replace every use of a region by its nodes, regions inside regions too."""
    changed = False
    while (use := _next_use(gm)) is not None:
        _write_out(gm, *use)
        changed = True
    if changed:
        gm.recompile()


def _next_use(gm: torch.fx.GraphModule) -> tuple[Any, torch.fx.GraphModule] | None:
    for node in gm.graph.nodes:
        if node.op != "call_function" or str(node.target) != NAME:
            continue
        region = getattr(gm, str(node.args[0].target), None)
        if isinstance(region, torch.fx.GraphModule) and _is_simple(node, region):
            return node, region
    return None


def _is_simple(node: Any, region: torch.fx.GraphModule) -> bool:
    """Whether sizes are numbers and every result is taken by its position."""
    inputs = [n.meta.get("val") for n in region.graph.nodes if n.op == "placeholder"]
    sizes = [n for val in inputs if isinstance(val, torch.Tensor) for n in val.shape]
    if not all(isinstance(n, int) for n in sizes):
        return False
    if not all(isinstance(val, torch.Tensor) for val in inputs):
        return False
    return all(user.target is operator.getitem for user in node.users)


def _write_out(gm: torch.fx.GraphModule, node: Any, region: torch.fx.GraphModule) -> None:
    inputs = [n for n in region.graph.nodes if n.op == "placeholder"]
    known = dict(zip(inputs, node.args[2:], strict=True))
    for inner in region.graph.nodes:
        if inner.op == "get_attr":
            known[inner] = _brought_over(gm, node, region, inner)
    with gm.graph.inserting_before(node):
        results: Any = gm.graph.graph_copy(region.graph, known)
    several = list(results) if isinstance(results, list | tuple) else [results]
    for user in list(node.users):
        user.replace_all_uses_with(several[user.args[1]])
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)


def _brought_over(gm: torch.fx.GraphModule, node: Any, region: Any, inner: Any) -> Any:
    """What the region holds itself, held by the graph."""
    held, name = region, f"{node.name}_{inner.target}".replace(".", "_")
    for part in str(inner.target).split("."):
        held = getattr(held, part)
    setattr(gm, name, held)
    with gm.graph.inserting_before(node):
        copy = gm.graph.get_attr(name)
    copy.meta = dict(inner.meta)
    return copy
