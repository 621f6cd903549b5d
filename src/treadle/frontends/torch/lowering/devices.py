"""On which device a graph runs, and a program moved to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from treadle.ir.program import Group, Operation, Program


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


def moved_to(program: Program, device: str) -> Program:
    """The program with all its buffers and operations on another device."""
    if device == "cpu":
        return program
    buffers = tuple([replace(b, device=device) for b in program.buffers])
    ops = tuple([_moved(op, device) for op in program.ops])
    return replace(program, buffers=buffers, ops=ops)


def _moved(op: Operation, device: str) -> Operation:
    if isinstance(op, Group):
        return replace(op, device=device, members=tuple([_moved(m, device) for m in op.members]))
    return replace(op, device=device)
