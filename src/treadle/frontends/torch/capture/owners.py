"""Whose memory the inputs of a graph lie in: several may be views of one storage of torch's.

A storage is freed when the last of its views is dropped, and nobody may write into it while any
is in use. What a backward graph is given was made by the forward graph, which knows how it really
lies; for other inputs torch's own fake tensors say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from treadle.frontends.torch.lowering.graph import Lowered
from treadle.frontends.torch.lowering.values import Realised
from treadle.index import as_expr
from treadle.runtime.run_facts import Owner


def owners_of_inputs(
    gm: torch.fx.GraphModule, lowered: Lowered, saved: Mapping[str, Owner]
) -> dict[str, Owner]:
    """The owner of every input tensor, by its name in the program."""
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    found = {}
    for position, name in lowered.tensors:
        node = nodes[position]
        found[name] = saved.get(node.name) or _faked(node.meta.get("val"))
    return found


def owners_of_outputs(gm: torch.fx.GraphModule, lowered: Lowered) -> dict[str, Owner]:
    """The owners of what a forward graph gives back, by node: inputs of the backward graph."""
    (output,) = [node for node in gm.graph.nodes if node.op == "output"]
    inputs = set(lowered.program.inputs)
    found = {}
    for node, value in zip(output.args[0], lowered.outputs, strict=True):
        if isinstance(node, torch.fx.Node) and isinstance(value, Realised):
            buffer = value.buffer
            if buffer.name not in inputs:
                size = buffer.storage_numel * buffer.dtype.itemsize
                found[node.name] = Owner(("made", buffer.name), as_expr(size))
    return found


def _faked(val: Any) -> Owner:
    storage = val.untyped_storage()
    size = storage.nbytes()
    return Owner(("faked", storage._cdata), as_expr(size) if type(size) is int else None)
