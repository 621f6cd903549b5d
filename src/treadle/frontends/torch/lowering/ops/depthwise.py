"""Convolutions in which every channel has a picture of its own, written out like pools.

    y[n, c, i] = sum over k of x[n, c, step * i + spread * k - pad] * w[c, k]

A library brings channels side by side for them and back again; here vectors go along the lines of
the pictures, and what follows is done on the way. Gradients are library calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, in_memory
from treadle.frontends.torch.lowering.ops.products import check_machine
from treadle.frontends.torch.lowering.ops.reduce import wide_type
from treadle.frontends.torch.lowering.ops.shape import inside
from treadle.frontends.torch.lowering.values import (
    Index,
    LoopWriter,
    NotLowered,
    Realised,
    Tensor,
)
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value

MOST_PLACES = 25
"""Places of a window from which on the library, which keeps lines in registers, is faster."""
SHORTEST_LINE = 16
"""Lines must fill vectors: beside shorter ones the library's detour is the shorter one."""


def is_depthwise(x: Tensor, w: Tensor, transposed: bool, groups: Any) -> bool:
    """Whether each channel of the result comes of the one channel at its own place."""
    channels = {n.value for n in (x.sizes[1], w.sizes[0], as_expr(groups))}
    return not transposed and groups != 1 and len(channels) == 1 and w.sizes[1].value == 1


def depthwise(c: Node, x: Tensor, w: Tensor, bias: Tensor | None, how: Sequence[Any]) -> Tensor:
    """A convolution of every channel by itself."""
    rank, wide = len(x.sizes) - 2, wide_type(c.dtype)
    stride, padding, spread = (list(n) * (rank // len(n)) for n in how[:3])
    _check(c, w, stride)
    x = _padded(c, x, padding)
    if isinstance(x, Realised) and x.layout.strides[-1].value != 1:
        raise NotLowered("the library is faster where channels lie side by side")
    x, w, target = c.realise(x), c.realise(w), in_memory(c.buffer())
    with c.loop(c.sizes) as k:
        channel, total = k.at[1], None if bias is None else bias.load(k, (k.at[1],)).to(wide)
        for window in product(*[range(n.value or 0) for n in w.sizes[2:]]):
            apart = zip(k.at[2:], window, stride, spread, strict=True)
            place = [i * step + n * far for i, n, step, far in apart]
            one = converted(x.load(k, (*k.at[:2], *place)), wide)
            at = (channel, as_expr(0), *map(as_expr, window))
            factor = one * converted(w.load(k, at), wide)
            total = factor if total is None else total + factor
        assert total is not None, "a window has at least one place"
        k.store_at(target.buffer, target.layout.index(k.at), converted(total, c.dtype))
    return target


def _check(c: Node, w: Tensor, stride: Sequence[int]) -> None:
    """Refuse what the library is better at."""
    check_machine(c)
    if not c.dtype.is_float or any(n.value is None for n in (*c.sizes, *w.sizes)):
        raise NotLowered("convolutions with open sizes, or of whole numbers, are library calls")
    if any(n.value == 0 for n in (*c.sizes, *w.sizes)):
        raise NotLowered("no elements")
    places, line = prod([n.value or 0 for n in w.sizes[2:]]), c.sizes[-1].value or 0
    if places > MOST_PLACES or line < SHORTEST_LINE or stride[-1] != 1:
        raise NotLowered("the library is faster at large windows, short lines and steps")
    if c.graph.sizes.exprs(c.val.stride())[-1].value != 1:
        raise NotLowered("the library is faster where channels lie side by side")


def _padded(c: Node, x: Tensor, padding: Sequence[int]) -> Tensor:
    """The pictures with zeros around them: in a loop over the result they would be conditions."""
    if not any(padding):
        return x
    pairs = list(zip(x.sizes[2:], padding, strict=True))
    sizes = (*x.sizes[:2], *[n + 2 * p for n, p in pairs])

    def inner(k: LoopWriter, at: Index) -> Value:
        place = [i - p for i, (_, p) in zip(at[2:], pairs, strict=True)]
        tests: list[tuple[Expr, str, Expr]] = []
        for i, (n, p) in zip(place, pairs, strict=True):
            tests += [(i, "ge", as_expr(0)), (i, "lt", n)] if p else []
        mask = inside(k, tests)
        assert mask is not None, "what has padding has places outside"
        return k.masked(mask, 0.0, lambda: x.load(k, (*at[:2], *place)))

    return c.lazy(sizes, x.dtype, inner, [x])
