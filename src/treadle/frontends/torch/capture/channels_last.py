"""Convolutions on a GPU go through memory with the channels last, whatever the model says.

    x, w              as the model has them: (n, c, h, w) one plane after the other
    clone(x), clone(w)    once, to channels last
    convolution, loops, convolution, ...    each takes the order of what it reads
    clone(result)     to the strides that eager mode gives

The libraries' fast convolutions want that order and turn planes around for every call. Here it is
done once, on the way in and out, and for each weight. The graph is functional at this point, so
that no reader can tell a copy from a view; where an operator looks at strides, or is none of ours,
it gets those it would have had.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

from treadle.frontends.torch.lowering.table import TABLE

aten = torch.ops.aten
LAST = torch.channels_last
CONVOLUTIONS: Mapping[Any, int] = {
    aten.convolution.default: 2,
    aten.convolution_backward.default: 3,
}
"""Convolutions, and how many of their first arguments are tensors over planes."""
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
FEW_CHANNELS = 16
"""Up to so many channels in and out, planes are as fast."""
TYPES = (torch.bfloat16, torch.float16, torch.float32)
DEVICES = frozenset({"cuda"})


class _GiveUp(Exception):  # noqa: N818 - no error: the graph stays as it is
    """The graph has something in it that this does not know."""


def prefer_channels_last(gm: GraphModule) -> int:
    """Rewrite a functional graph for channels last, if it pays; gives how many copies that took."""
    if not _pays(gm.graph):
        return 0
    rewriter = _Rewriter(gm.graph)
    try:
        graph = rewriter.rewritten()
    except _GiveUp:
        return 0
    graph.eliminate_dead_code()
    graph.lint()
    gm.graph = graph
    gm.recompile()
    return rewriter.copies


def _pays(graph: Graph) -> bool:
    """Whether there are convolutions over planes that would be faster, and none would be slower."""
    found = [n for n in graph.nodes if n.target in CONVOLUTIONS]
    values = [n.meta.get("val") for n in graph.find_nodes(op="placeholder")]
    if not found or any(not _is_plain(v) for v in values):
        return False
    is_worth_it = False
    for node in found:
        x, w = node.args[CONVOLUTIONS[node.target] - 2 : CONVOLUTIONS[node.target]]
        planes, weights = x.meta["val"], w.meta["val"]
        if planes.dim() != 4 or planes.device.type not in DEVICES or planes.dtype not in TYPES:
            continue
        groups = node.args[8] if node.target is aten.convolution.default else node.args[9]
        if groups != 1 and weights.shape[1] != 1:
            return False
        wide = max(weights.shape[0], weights.shape[1]) > FEW_CHANNELS
        is_worth_it = is_worth_it or (wide and not planes.is_contiguous(memory_format=LAST))
    return is_worth_it


def _is_plain(value: Any) -> bool:
    """Whether an input is a tensor of known sizes, or no tensor and no size at all."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return False
    if not isinstance(value, torch.Tensor):
        return True
    return value.layout is torch.strided and all(type(n) is int for n in value.shape)


class _Rewriter:
    """Writes a graph again, node by node, with the strides that follow."""

    def __init__(self, old: Graph) -> None:
        self.old, self.new = old, Graph()
        self.copies = 0
        self._of: dict[Node, Node] = {}
        """For each node of the old graph, the one that stands for it."""
        self._before: dict[Node, Any] = {}
        """For each node of the new graph whose strides are others, what it was."""
        self._as_before: dict[Node, Node] = {}
        self._last: dict[Node, Node] = {}
        self._mode: Any = torch._guards.detect_fake_mode(
            [n.meta.get("val") for n in old.find_nodes(op="placeholder")]
        )

    def rewritten(self) -> Graph:
        """The new graph."""
        if self._mode is None:
            raise _GiveUp("nothing is known of the inputs")
        for node in self.old.nodes:
            if node.op == "output":
                made = self.new.output(self._restored(node.args[0]))
                made.meta = copy(node.meta)
            elif node.target in CONVOLUTIONS and node.args[0].meta["val"].dim() == 4:
                self._convolution(node)
            elif node.op == "call_function" and self._takes_any_strides(node):
                self._follow(node)
            else:
                self._copy(node, self._restored(node.args), self._restored(node.kwargs))
        return self.new

    # -- nodes -----------------------------------------------------------------------------
    def _copy(self, node: Node, args: Any, kwargs: Any) -> Node:
        made = self.new.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy(node.meta)
        self._of[node] = made
        return made

    def _convolution(self, node: Node) -> None:
        count = CONVOLUTIONS[node.target]
        given: Sequence[Any] = node.args[:count]
        tensors = [self._channels_last(self._of[x]) for x in given]
        self._noted(node, self._copy(node, (*tensors, *self._mapped(node.args[count:])), {}))

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
                raise _GiveUp(f"{node.name} does not work with other strides") from None
            made.args = self._restored(node.args)
            self._noted(node, made)

    def _noted(self, node: Node, made: Node) -> None:
        """Ask torch what the result is now."""
        args, kwargs = torch.fx.node.map_arg((made.args, made.kwargs), lambda n: n.meta["val"])
        with self._mode, torch.no_grad():
            value: Any = made.target(*args, **kwargs)  # type: ignore[operator]
        before = node.meta["val"]
        if not _same_but_strides(value, before):
            raise _GiveUp(f"{node.name} is something else with other strides")
        if _same_strides(value, before):
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

    def _channels_last(self, node: Node) -> Node:
        value = node.meta["val"]
        if value.dim() != 4 or value.is_contiguous(memory_format=LAST):
            return node
        if node not in self._last:
            self._last[node] = self._clone(node, LAST)
        return self._last[node]

    def _with_old_strides(self, node: Node) -> Node:
        before = self._before.get(node)
        if before is None:
            return node
        if not isinstance(before, torch.Tensor):
            raise _GiveUp(f"{node.name} is several tensors")
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
        if not _same_strides(made.meta["val"], before):
            raise _GiveUp(f"the strides of {node.name} have gaps")
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


def _same_strides(value: Any, before: Any) -> bool:
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
