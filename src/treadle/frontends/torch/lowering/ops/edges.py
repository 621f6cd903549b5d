"""Padding with what lies near an edge: the element at the edge again, or what a mirror there shows.

An element of the result is one of the tensor, at an index made of minima and maxima of its own,
so that loops can be cut where one of them begins to count (`kernel/pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from treadle.frontends.torch.lowering.node import Node
from treadle.frontends.torch.lowering.registry import Lowering
from treadle.frontends.torch.lowering.values import Index, NotLowered, Tensor
from treadle.index import Expr, maximum, minimum

Place = Callable[[Expr, Expr], Expr]
"""Where the element is that stands at a place, which may lie outside of 0..n."""


def repeated(i: Expr, n: Expr) -> Expr:
    """The nearest place that is inside."""
    return minimum(maximum(i, 0), n - 1)


def mirrored(i: Expr, n: Expr) -> Expr:
    """The place that a mirror standing on the last element shows, less than n away from it."""
    away = maximum(i, -i)
    seen = minimum(away, (n - 1) * 2 - away)
    # More than one mirror is refused where torch runs, but nothing proves that of open sizes.
    return seen if n.value is not None else repeated(seen, n)


def padded(place: Place, c: Node, self: Tensor, padding: Sequence[Any]) -> Tensor:
    """The tensor with places before and after it, which show some of its own."""
    if any(n.value == 0 for n in self.sizes) or not all(isinstance(p, int) for p in padding):
        raise NotLowered("no elements, or amounts known at run time only")
    rank = len(self.sizes)
    before = {rank - 1 - k: padding[2 * k] for k in range(len(padding) // 2)}

    def at(here: Index) -> Index:
        pairs = enumerate(zip(here, self.sizes, strict=True))
        return tuple([place(i - before[d], n) if d in before else i for d, (i, n) in pairs])

    return c.mapped(self, c.sizes, at)


ROWS: dict[str, Lowering] = {
    f"aten.{name}_pad{d}d.default": partial(padded, place)
    for name, place in (("replication", repeated), ("reflection", mirrored))
    for d in (1, 2)
}
