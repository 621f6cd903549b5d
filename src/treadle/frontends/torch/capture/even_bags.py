"""Bags of equally many rows of a table become rows and a sum, before anything is captured of them.

    y = embedding_bag(places, table, mode="sum")     ->     y = embedding(places, table).sum(1)

With places in two dimensions torch writes down where each bag begins and calls an operator that
could do with bags of any length. Rows and sums are loops: nothing lies between, what follows joins
them, and the gradient is one loop that adds to the table. Rounding is the same, once for each bag.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

OPERATOR = functional.embedding_bag
HOW = inspect.signature(OPERATOR)
OFF = ("offsets", "max_norm", "scale_grad_by_freq", "sparse", "per_sample_weights", "padding_idx")
"""Arguments that ask for more than rows and a sum."""


def take_apart_even_bags(graph: torch.fx.Graph) -> int:
    """Let even bags be made of rows and a sum, in place; gives how many there were."""
    found = 0
    for node in graph.nodes:
        given = _given(node) if node.op == "call_function" and node.target is OPERATOR else None
        if given is not None and _is_even(given):
            combine = rows_added if given["mode"] == "sum" else rows_averaged
            # The node stays itself: what is known of the user's line and module goes with it.
            node.target, node.kwargs = combine, {}
            node.args = (given["input"], given["weight"])
            found += 1
    return found


def rows_added(places: Any, table: Any) -> Any:
    """The sum of the rows at the places of each bag."""
    return functional.embedding(places, table).sum(1)


def rows_averaged(places: Any, table: Any) -> Any:
    """The mean of the rows at the places of each bag."""
    return functional.embedding(places, table).mean(1)


def _given(node: torch.fx.Node) -> Mapping[str, Any]:
    """The arguments of a call by their names, those left out too."""
    bound = HOW.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments


def _is_even(given: Mapping[str, Any]) -> bool:
    """Whether all bags have equally many rows, and nothing else is asked for."""
    places, table = (_value(given[name]) for name in ("input", "weight"))
    if places is None or table is None or not all(given[n] in (None, False) for n in OFF):
        return False
    if places.dim() != 2 or table.dim() != 2 or not table.is_floating_point():
        return False
    if places.dtype not in (torch.int32, torch.int64) or places.layout != torch.strided:
        return False
    return given["mode"] in ("sum", "mean")  # eager mode refuses bags of no rows


def _value(node: Any) -> Any:
    """What torch says a node gives, if that is a tensor."""
    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None
