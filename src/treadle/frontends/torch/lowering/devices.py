"""On which device a graph runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch


def device_of(gm: torch.fx.GraphModule) -> str:
    """The device of most tensors of a graph: `cpu`, `cuda:0`."""
    found: Counter[str] = Counter()
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        for one in val if isinstance(val, list | tuple) else [val]:
            if isinstance(one, torch.Tensor) and one.device.type != "meta":
                found[device_name(one.device)] += 1
    others = {d: n for d, n in found.items() if d != "cpu"}
    return max(others, key=lambda d: others[d]) if others else "cpu"


def device_name(device: Any) -> str:
    """A torch device by its full name."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}:{device.index or 0}"
