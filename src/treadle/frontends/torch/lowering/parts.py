"""Graphs inside graphs: the branches of `cond`, the bodies of `while_loop` and `scan`.

A part that its operator simply calls is compiled like a graph of its own. Parts that torch
transforms first (`flex_attention` maps its score function over all pairs) stay torch's, where they
are not lowered themselves (`flex`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

CALLED = ("cond", "while_loop", "scan", "map_impl", "invoke_subgraph")
"""Operators that call their parts as they are."""

Compile: TypeAlias = Callable[[torch.fx.GraphModule], Callable[[list[Any]], Any]]


class Part:
    """A compiled part: takes and gives what the graph does."""

    def __init__(self, gm: torch.fx.GraphModule, run: Callable[[list[Any]], Any]) -> None:
        self._run = run
        output = next(node for node in gm.graph.nodes if node.op == "output")
        self._is_single = not isinstance(output.args[0], list | tuple)

    def __call__(self, *args: Any) -> Any:
        """Run on the given arguments."""
        results = self._run(list(args))
        return results[0] if self._is_single else tuple(results)


def compiled_parts(node: Any, args: Any, compile_part: Compile | None) -> Any:
    """The arguments of a call with its graphs compiled, where the operator allows it."""
    if compile_part is None or str(node.target) not in CALLED:
        return args
    made: dict[int, Part] = {}

    def convert(arg: Any) -> Any:
        if isinstance(arg, list | tuple):
            return type(arg)([convert(a) for a in arg])
        if not isinstance(arg, torch.fx.GraphModule) or not _has_facts(arg):
            return arg
        if id(arg) not in made:
            made[id(arg)] = Part(arg, compile_part(arg))
        return made[id(arg)]

    return convert(args)


def _has_facts(gm: torch.fx.GraphModule) -> bool:
    """Whether torch left its description of every value with the nodes."""
    nodes = [node for node in gm.graph.nodes if node.op in ("placeholder", "call_function")]
    return all("val" in node.meta for node in nodes)
