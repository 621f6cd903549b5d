"""What a package is given and gives, in words for people."""

from __future__ import annotations

import re

from treadle.codegen.package_c.tables import Constraint, PackedGraph, PackedTensor
from treadle.index import Expr, show, size, substitute


def shown_tensor(one: PackedTensor, graph: PackedGraph) -> str:
    """A tensor: `x : f32[batch, 128]`."""
    sizes = ", ".join([shown_size(n, graph) for n in one.layout.sizes])
    changed = ", changed by a run" if one.changes else ""
    return f"{one.name} : {one.dtype}[{sizes}]{changed}"


def shown_size(e: Expr, graph: PackedGraph) -> str:
    """An expression of sizes, by the names that people gave them."""
    return show(substitute(e, {s.symbol: size(s.shown) for s in graph.sizes}))


def shown_constraint(one: Constraint, graph: PackedGraph) -> str:
    """What must hold between sizes."""
    return f"{shown_size(one.left, graph)} {one.relation} {shown_size(one.right, graph)}"


def as_identifier(text: str) -> str:
    """A name that C takes, made of any text."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    if not word:
        return "graph"
    return f"graph_{word}" if word[0].isdigit() else word
