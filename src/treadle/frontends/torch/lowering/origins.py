"""Where a node came from: its operator, the user's line and module; and whom an error speaks of."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from treadle.frontends.torch import compat

OURS = __name__.partition(".")[0]
LINE = re.compile(r'File "([^"]+)", line (\d+)')
ROOT = re.compile(r"^[LG]\['[^']*'\]\.?")
LOCAL = re.compile(r"^[LG]\['([^']*)'\]")
HELD = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
CHECKED_BY: Mapping[str, re.Pattern[str]] = {
    "RUN003": re.compile(r"index|gather|scatter|embedding|take|select|nll|put"),
    "RUN004": re.compile(r"index|gather|scatter|embedding|take|select|nll|put"),
    "RUN007": re.compile(r"div|mod|remainder|pow|assert"),
}
"""By the code of an error at run time: operators that make such a check."""


class Source(NamedTuple):
    """What a value comes from, in the user's terms."""

    operator: str
    """An operator of ATen."""
    line: str | None = None
    """`file:line` of the user's code."""
    module: str | None = None
    """The module it belongs to, `layers.0 (Linear)`."""

    @property
    def place(self) -> str | None:
        """The line and the module, as far as they are known."""
        module = f"module {self.module}" if self.module else None
        return ", ".join(part for part in (self.line, module) if part) or None


def origins_of(node: Any) -> tuple[str, ...]:
    """The operator, and `file:line` of the user's code where torch knows it."""
    place = source_line(node)
    name = str(node.target)
    return (name, place) if place else (name,)


def source_of(node: Any, called_from: str | None = None) -> Source:
    """All that is known; code without a line of the user's own has the line that called it."""
    return Source(str(node.target), source_line(node) or called_from, module_of(node))


def source_line(node: Any) -> str | None:
    """The innermost line of the user's code behind a node; the wrapper around it is not that.

    Nor are the functions of torch that send a tensor to other ranks.
    """
    trace = node.meta.get("stack_trace") or ""
    found = [(file, line) for file, line in LINE.findall(trace) if file != compat.__file__]
    found = [one for one in found if not one[0].startswith(compat.DISTRIBUTED)] or found
    return f"{found[-1][0].rpartition('/')[2]}:{found[-1][1]}" if found else None


def own_line(node: Any) -> str | None:
    """The innermost line behind a node that is not torch's own, if there is one."""
    torch_folder = os.path.dirname(torch.__file__) + os.sep
    found = LINE.findall(node.meta.get("stack_trace") or "")
    own = [(file, line) for file, line in found if not file.startswith(torch_folder)]
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}" if own else source_line(node)


def module_of(node: Any) -> str | None:
    """The innermost module a node belongs to, `layers.0 (Linear)`; a backward node has that too."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    for path, kind in reversed(list(stack.values())):
        name = ROOT.sub("", str(path))
        if name and name != str(path):
            return f"{name} ({getattr(kind, '__name__', kind)})"
    return None


def input_names(graph: Any) -> list[str]:
    """What the user calls the inputs of a graph that Dynamo captured."""
    return [_own_name(n) for n in graph.nodes if n.op == "placeholder"]


def _own_name(node: Any) -> str:
    path = compat.source_name(node)
    if path is None:
        return str(node.name)
    inside = HELD.sub(r".\1", path)
    return ROOT.sub("", inside) if inside != path else LOCAL.sub(r"\1", path)


def calling_line() -> str | None:
    """`file:line` of the code outside of this package that called into it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return None
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == OURS


class Provenance:
    """Where the values of one graph come from, by the names of its nodes."""

    def __init__(
        self,
        graph: Any = None,
        called_from: str | None = None,
        inputs: Sequence[str] = (),
        forward: Provenance | None = None,
        made_for: Mapping[str, str] | None = None,
    ) -> None:
        """`inputs`: the user's names of the graph's inputs, in order, if they are known.

        `forward`: of the graph that saved what a backward graph is given. `made_for`: of buffers
        that no node is called like, the node.
        """
        self._made_for = made_for or {}
        self._forward = forward
        given = [n.name for n in graph.nodes if n.op == "placeholder"] if graph is not None else []
        self._names = dict(zip(given, inputs, strict=True)) if len(given) == len(inputs) else {}
        nodes = [n for n in graph.nodes if n.op == "call_function"] if graph is not None else []
        self.sources = {n.name: source_of(n, called_from) for n in nodes}
        self._inputs = {n.name: tuple([a.name for a in n.all_input_nodes]) for n in nodes}

    def of(self, name: str, origins: Sequence[str] = ()) -> Source | None:
        """The source of a node; of an operation that is none, what its origins say."""
        for known in (name, self._made_for.get(name)):
            if known in self.sources:
                return self.sources[known]
        return Source(origins[0], *origins[1:2]) if origins else None

    def name_of(self, name: str) -> str | None:
        """What the user calls an input of the graph: `layers.0.weight`."""
        if name in self._names or self._forward is None:
            return self._names.get(name)
        return self._forward.name_of(name)

    def saved(self, name: str) -> Source | None:
        """Where an input of a backward graph comes from that the forward made."""
        return self._forward.sources.get(name) if self._forward is not None else None

    def blamed(self, code: str | None, names: Sequence[str], kept: Container[str]) -> list[str]:
        """Places whose check failed in operations of these names.

        A value that has no memory of its own (`kept`) was computed by whoever read it, so the check
        may belong to any node on the way there; only operators that make such checks count.
        """
        pattern = CHECKED_BY.get(code or "")
        if pattern is None:
            return []
        found = [self.sources[name] for name in self._behind(names, kept)]
        return list(dict.fromkeys(s.place for s in found if s.place and pattern.search(s.operator)))

    def _behind(self, names: Sequence[str], kept: Container[str]) -> Iterator[str]:
        """These nodes and those that were written into them."""
        waiting = [name for name in names if name in self.sources]
        seen = set(waiting)
        for name in waiting:
            yield name
            more = [a for a in self._inputs[name] if a not in kept and a in self.sources]
            waiting += [a for a in more if a not in seen]
            seen.update(more)
