"""Convolutions that are products of matrices: one element wide, over pictures with channels last.

    y[p, o] = sum over c of x[p, c] * w[o, c]        p goes over all places of all pictures

Their gradients are such products, too. Those of each channel by itself are written out
(`depthwise`). All others are library calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.frontends.torch.lowering.node import Node, in_memory
from treadle.frontends.torch.lowering.ops.depthwise import depthwise, is_depthwise
from treadle.frontends.torch.lowering.ops.products import check_sizes, check_types, multiply
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr, as_expr, product_of
from treadle.ir.build_body import Value
from treadle.ir.types import Layout


@lowers("aten.convolution.default")
def convolution(c: Node, input: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """A convolution one element wide, as a product; one of channels by themselves, written out."""
    if is_depthwise(input, weight, how[3], how[5]):
        return depthwise(c, input, weight, bias, how)
    _check(c, input, weight, how)
    if _places(c.sizes, c.graph.sizes.exprs(c.val.stride())) is None:
        raise NotLowered("channels do not lie side by side")
    given, factor = c.realise(input), c.realise(weight)
    x, target = _matrix(given), in_memory(c.buffer())

    def follow(k: LoopWriter, at: Index, v: Value) -> Value:
        return v if bias is None else v + bias.load(k, (at[1],))

    multiply(c, x, _turned(_weights(factor)), _matrix(target), follow)
    return target


@lowers("aten.convolution_backward.default")
def convolution_backward(
    c: Node, grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, *how: Any
) -> tuple[Tensor | None, ...]:
    """The gradients of a convolution one element wide, as products."""
    mask = how[-1]
    _check(c, input, weight, how[:-1])
    if mask[0] and _places(c.sizes_of(0), c.graph.sizes.exprs(c.result(0).stride())) is None:
        raise NotLowered("channels do not lie side by side")
    g, x, w = (c.realise(t) for t in (grad_output, input, weight))
    found: list[Tensor | None] = [None, None, None]
    if mask[0]:
        found[0] = target = in_memory(c.buffer(0))
        multiply(c, _matrix(g), _weights(w), _matrix(target), _nothing)
    if mask[1]:
        found[1] = target = in_memory(c.buffer(1))
        multiply(c, _turned(_matrix(g)), _matrix(x), _weights(target), _nothing)
    if mask[2]:
        found[2] = target = in_memory(c.buffer(2))
        places = _matrix(g)
        with c.loop(target.sizes, places.sizes[:1]) as k:
            k.store_at(target.buffer, k.at[0], k.sum(places.load(k, (k.along[0], k.at[0]))))
    return tuple(found)


def _nothing(k: LoopWriter, at: Index, v: Value) -> Value:
    return v


def _check(c: Node, x: Tensor, w: Tensor, how: Sequence[Any]) -> None:
    """Refuse what is no product, and what the library is better at."""
    check_types(c, x, w)
    stride, padding, _, transposed, _, groups = how
    numbers = [*w.sizes[2:], *map(as_expr, stride)]
    if transposed or groups != 1 or any(n.value != 1 for n in numbers):
        raise NotLowered("convolutions that are no products are library calls")
    if any(as_expr(n).value != 0 for n in padding):
        raise NotLowered("convolutions that are no products are library calls")
    check_sizes(product_of([x.sizes[0], *x.sizes[2:]]), w.sizes[0], w.sizes[1])
    check_sizes(product_of([x.sizes[0], *x.sizes[2:]]), w.sizes[1], w.sizes[0])
    if any(n.value is None for n in (*x.sizes, *w.sizes)):
        raise NotLowered("convolutions with open sizes are library calls")


def _places(sizes: Index, strides: Index) -> Expr | None:
    """The step from one place to the next, if all places of all pictures follow each other."""
    step: Expr | None = None
    for d in (*range(len(sizes) - 1, 1, -1), 0):
        if sizes[d].value == 1:
            continue
        if step is None:
            first = step = strides[d]
        elif strides[d] is not step:
            return None
        step = strides[d] * sizes[d]
    if sizes[1].value != 1 and strides[1].value != 1:
        return None
    return sizes[1] if step is None else first


def _matrix(x: Realised) -> Realised:
    """Pictures as places times channels."""
    at = x.layout
    step = _places(at.sizes, at.strides)
    if step is None:
        raise NotLowered("channels do not lie side by side")
    rows = product_of([at.sizes[0], *at.sizes[2:]])
    return Realised(x.buffer, Layout((rows, at.sizes[1]), (step, as_expr(1)), at.offset))


def _weights(w: Realised) -> Realised:
    at = w.layout
    return Realised(w.buffer, Layout(at.sizes[:2], at.strides[:2], at.offset))


def _turned(x: Realised) -> Realised:
    at = x.layout
    return Realised(x.buffer, Layout(at.sizes[::-1], at.strides[::-1], at.offset))
