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

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from treadle.frontends.torch.capture.other_strides import GiveUp, GraphWriter

aten = torch.ops.aten
LAST = torch.channels_last
CONVOLUTIONS: Mapping[Any, int] = {
    aten.convolution.default: 2,
    aten.convolution_backward.default: 3,
}
"""Convolutions, and how many of their first arguments are tensors over planes."""
FEW_CHANNELS = 16
"""Up to so many channels in and out, planes are as fast."""
TYPES = (torch.bfloat16, torch.float16, torch.float32)
DEVICES = frozenset({"cuda"})


def prefer_channels_last(gm: GraphModule) -> int:
    """Rewrite a functional graph for channels last, if it pays; gives how many copies that took."""
    if not _pays(gm.graph):
        return 0
    rewriter = _ChannelsLast(gm.graph)
    try:
        graph = rewriter.rewritten()
    except GiveUp:
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


class _ChannelsLast(GraphWriter):
    """Gives convolutions what they read with the channels last."""

    def __init__(self, old: Graph) -> None:
        super().__init__(old)
        self._last: dict[Node, Node] = {}

    def _is_special(self, node: Node) -> bool:
        given: Any = node.args
        return node.target in CONVOLUTIONS and given[0].meta["val"].dim() == 4

    def _write(self, node: Node) -> None:
        count = CONVOLUTIONS[node.target]
        given: Sequence[Any] = node.args[:count]
        tensors = [self._channels_last(self._of[x]) for x in given]
        self._noted(node, self._copy(node, (*tensors, *self._mapped(node.args[count:])), {}))

    def _channels_last(self, node: Node) -> Node:
        value = node.meta["val"]
        if value.dim() != 4 or value.is_contiguous(memory_format=LAST):
            return node
        if node not in self._last:
            self._last[node] = self._clone(node, LAST)
        return self._last[node]
