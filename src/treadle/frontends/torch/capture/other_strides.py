"""A functional graph written again, node by node, where some values get other strides.

What follows from that is found out by asking torch. An operator that works on what it is given
takes the strides that come; one that looks at strides, and the caller, get those they would have
had, by a copy. The graph is functional, so that no reader can tell a copy from a view.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from treadle.frontends.torch.lowering.table import TABLE

aten = torch.ops.aten
ALSO_ANY_STRIDES = frozenset({
    "aten.max_pool2d_with_indices.default", "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d.default", "aten.avg_pool2d_backward.default",
    "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d_backward.default",
})  # fmt: skip
"""Library calls that take the order they are given."""
VIEWS = frozenset({aten.view.default, aten._unsafe_view.default})
"""What may not be possible with other strides."""
LOOK_AT_STRIDES = frozenset({
    "aten.as_strided.default", "aten.as_strided_scatter.default", "aten.copy_.default",
})  # fmt: skip


class GiveUp(Exception):  # noqa: N818 - no error: the graph stays as it is
    """The graph has something in it that this does not know."""


class GraphWriter:
    """Writes a graph again; what is special about some nodes is for those who derive from it."""

    def __init__(self, old: Graph) -> None:
        self.old, self.new = old, Graph()
        self.copies = 0
        self._of: dict[Node, Node] = {}
        """For each node of the old graph, the one that stands for it."""
        self._before: dict[Node, Any] = {}
        """For each node of the new graph whose strides are others, what it was."""
        self._as_before: dict[Node, Node] = {}
        self._mode: Any = torch._guards.detect_fake_mode(
            [n.meta.get("val") for n in old.find_nodes(op="placeholder")]
        )

    def rewritten(self) -> Graph:
        """The new graph."""
        if self._mode is None:
            raise GiveUp("nothing is known of the inputs")
        for node in self.old.nodes:
            if node.op == "output":
                made = self.new.output(self._restored(node.args[0]))
                made.meta = copy(node.meta)
            elif self._is_special(node):
                self._write(node)
            elif node.op == "call_function" and self._takes_any_strides(node):
                self._follow(node)
            else:
                self._copy(node, self._restored(node.args), self._restored(node.kwargs))
        return self.new

    def _is_special(self, node: Node) -> bool:
        """Whether a node is written in another way than as it was."""
        raise NotImplementedError

    def _write(self, node: Node) -> None:
        """Write a node that is special."""
        raise NotImplementedError

    # -- nodes -----------------------------------------------------------------------------
    def _copy(self, node: Node, args: Any, kwargs: Any) -> Node:
        made = self.new.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy(node.meta)
        self._of[node] = made
        return made

    def _takes_any_strides(self, node: Node) -> bool:
        name = str(node.target)
        if node.target is operator.getitem or name in ALSO_ANY_STRIDES:
            return True
        return name in TABLE and name not in LOOK_AT_STRIDES

    def _follow(self, node: Node) -> None:
        """An operator that works on what it is given: its result has the strides that follow."""
        args, kwargs = self._mapped(node.args), self._mapped(node.kwargs)
        if not any(n in self._before for n in _nodes_in((args, kwargs))):
            self._copy(node, args, kwargs)
            return
        made = self._copy(node, args, kwargs)
        try:
            self._noted(node, made)
        except (RuntimeError, ValueError):  # the same refusal, by version of torch
            if node.target not in VIEWS:
                raise GiveUp(f"{node.name} does not work with other strides") from None
            self.new.erase_node(made)  # what it is given instead must stand before it
            self._noted(node, self._copy(node, self._restored(node.args), kwargs))

    def _noted(self, node: Node, made: Node) -> None:
        """Ask torch what the result is now."""
        args, kwargs = torch.fx.node.map_arg((made.args, made.kwargs), lambda n: n.meta["val"])
        with self._mode, torch.no_grad():
            value: Any = made.target(*args, **kwargs)  # type: ignore[operator]
        before = node.meta["val"]
        if not _same_but_strides(value, before):
            raise GiveUp(f"{node.name} is something else with other strides")
        if same_strides(value, before):
            return  # what is known of it still holds
        made.meta["val"] = value
        if "tensor_meta" in made.meta:
            made.meta["tensor_meta"] = _described(value)
        self._before[made] = before

    # -- arguments -------------------------------------------------------------------------
    def _mapped(self, value: Any) -> Any:
        return torch.fx.node.map_arg(value, lambda n: self._of[n])

    def _restored(self, value: Any) -> Any:
        return torch.fx.node.map_arg(value, lambda n: self._with_old_strides(self._of[n]))

    def _with_old_strides(self, node: Node) -> Node:
        before = self._before.get(node)
        if before is None:
            return node
        if not isinstance(before, torch.Tensor):
            raise GiveUp(f"{node.name} is several tensors")
        if node not in self._as_before:
            self._as_before[node] = self._turned(node, before)
        return self._as_before[node]

    def _turned(self, node: Node, before: Any) -> Node:
        """A copy with given strides: dense in some order of the dimensions."""
        if before.is_contiguous():
            return self._clone(node, torch.contiguous_format)
        order = sorted(range(before.dim()), key=lambda d: (-before.stride(d), d))
        back = [order.index(d) for d in range(len(order))]
        turned = self._called(node, aten.permute.default, order)
        dense = self._clone(turned, torch.contiguous_format)
        made = self._called(dense, aten.permute.default, back)
        if not same_strides(made.meta["val"], before):
            raise GiveUp(f"the strides of {node.name} have gaps")
        return made

    def _clone(self, node: Node, form: torch.memory_format) -> Node:
        self.copies += 1
        return self._called(node, aten.clone.default, memory_format=form)

    def _called(self, node: Node, target: Any, *rest: Any, **named: Any) -> Node:
        made = self.new.call_function(target, (node, *rest), named)
        with self._mode, torch.no_grad():
            made.meta = {**node.meta, "val": target(node.meta["val"], *rest, **named)}
        made.meta.pop("tensor_meta", None)
        return made


def _nodes_in(value: Any) -> Iterator[Node]:
    for one in tree_leaves(value):
        if isinstance(one, Node):
            yield one


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _same_but_strides(value: Any, before: Any) -> bool:
    ours, theirs = _tensors(value), _tensors(before)
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            return False
        if isinstance(a, torch.Tensor) and (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
    return True


def same_strides(value: Any, before: Any) -> bool:
    """Whether tensors lie alike; the stride of a dimension of one element means nothing."""
    for a, b in zip(_tensors(value), _tensors(before), strict=True):
        if isinstance(a, torch.Tensor) and _steps(a) != _steps(b):
            return False
    return True


def _steps(x: Any) -> Sequence[int]:
    return [s if n > 1 else 0 for n, s in zip(x.shape, x.stride(), strict=True)]


def _described(value: Any) -> Any:
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    if isinstance(value, torch.Tensor):
        return _extract_tensor_metadata(value)
    return type(value)([_described(v) if isinstance(v, torch.Tensor) else v for v in value])
