"""Nodes of a joint graph that compute the same thing from the same values become one.

    a = exp(x) ; b = exp(x) ; y = a * b     ->     a = exp(x) ; y = a * a

A division into forward and backward that sees one value twice would keep it twice. torch merges
them too, with the help of a module that imports all of TorchInductor: a second of the first
training step of every process, for two small functions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import torch

ATEN: Any = torch.ops.aten
NEVER_THE_SAME = (
    "nondeterministic_seeded",  # random numbers
    "dynamic_output_shape",  # each has sizes of its own that later nodes speak of
    "data_dependent_output",
)
UNWRITTEN = frozenset({
    ATEN.empty, ATEN.empty_strided, ATEN.empty_like, ATEN.empty_permuted, ATEN.new_empty,
    ATEN.new_empty_strided,
})  # fmt: skip


def merge_same_nodes(graph: torch.fx.Graph) -> int:
    """Let the first of equal nodes stand for all; gives how many went."""
    kept = _storages_of_results(graph)
    known: dict[Hashable, torch.fx.Node] = {}
    era = gone = 0
    for node in list(graph.nodes):
        if _may_change_something(node):
            era += 1  # what was read before is another value from here on
        key = _key(node, era) if _is_pure(node) and not _lies_in(node, kept) else None
        if key is None:
            continue
        first = known.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            gone += 1
    return gone


def _is_pure(node: torch.fx.Node) -> bool:
    """Whether a node is determined by its operator and arguments alone."""
    target: Any = node.target
    if node.op != "call_function":
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__module__", "") == "_operator"
    if target._schema.is_mutable or target.overloadpacket in UNWRITTEN:
        return False
    return not any(getattr(torch.Tag, name) in target.tags for name in NEVER_THE_SAME)


def _may_change_something(node: torch.fx.Node) -> bool:
    """Whether later nodes may see other values in memory than earlier ones."""
    target: Any = node.target
    if node.op != "call_function" or getattr(target, "__module__", "") == "_operator":
        return False
    return not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable


def _key(node: torch.fx.Node, era: int) -> Hashable | None:
    """What equal nodes have in common; None if an argument cannot be compared."""
    try:
        key = (node.target, era, *_parts(node.args), *_parts(node.kwargs))
        hash(key)
    except TypeError:
        return None
    return key


def _parts(value: Any) -> Iterator[Hashable]:
    """An argument as values that are equal only if they mean the same: 1 is not 1.0 or True."""
    if isinstance(value, list | tuple):
        yield type(value).__name__, len(value)
        for one in value:
            yield from _parts(one)
    elif isinstance(value, dict):
        for name in sorted(value):
            yield name
            yield from _parts(value[name])
    elif isinstance(value, float | complex):
        yield type(value), repr(value)  # -0.0 equals 0.0, and a NaN not even itself
    else:
        yield type(value), value


def _storages_of_results(graph: torch.fx.Graph) -> set[int]:
    """The memory of what the graph gives back: results stay tensors of their own."""
    (output,) = graph.find_nodes(op="output")
    return {one for node in output.all_input_nodes for one in _storages(node)}


def _lies_in(node: torch.fx.Node, storages: set[int]) -> bool:
    return any(one in storages for one in _storages(node))


def _storages(node: torch.fx.Node) -> Iterator[int]:
    value = node.meta.get("val")
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, torch.Tensor) and one.layout is torch.strided:
            yield one.untyped_storage()._cdata
