"""The softmax family: one loop that reduces twice and stores along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, in_memory
from treadle.frontends.torch.lowering.ops.reduce import placed, wide_type
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import LoopWriter, Tensor
from treadle.index import as_expr
from treadle.ir.build_body import Value


def along_rows(c: Node, xs: Sequence[Tensor], dim: int, write: Callable[..., Value]) -> Tensor:
    """A loop over rows along `dim`: `write(k, *values)` gives the element to store."""
    x = xs[0]
    rank = len(x.sizes)
    d = dim % rank if rank else 0
    target = c.buffer()
    kept = [e for e in range(rank) if e != d]
    wide = wide_type(x.dtype)
    with c.loop([x.sizes[e] for e in kept], [x.sizes[d] if rank else as_expr(1)]) as k:
        at = placed(k, rank, kept, d)
        values = [converted(one.load(k, at), wide) for one in xs]
        k.store(target, at, converted(write(k, *values), target.dtype))
    return in_memory(target)


@lowers("aten._softmax.default", "aten._safe_softmax.default")
def softmax(c: Node, self: Tensor, dim: int, half_to_float: bool = False, **unused: Any) -> Tensor:
    """exp(x) over its sum along a dimension."""
    is_safe = "_safe_softmax" in str(c.node.target)

    def write(k: LoopWriter, x: Value) -> Value:
        high = k.max(x)
        e = k.exp(x - high)
        result = e / k.sum(e)
        if is_safe:
            nothing = high == k.constant(float("-inf"), x.dtype)
            return k.where(nothing, k.constant(0.0, x.dtype), result)
        return result

    return along_rows(c, [self], dim, write)


@lowers("aten._log_softmax.default")
def log_softmax(c: Node, self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """The logarithm of softmax."""

    def write(k: LoopWriter, x: Value) -> Value:
        moved = x - k.max(x)
        return moved - k.log(k.sum(k.exp(moved)))

    return along_rows(c, [self], dim, write)


@lowers("aten._softmax_backward_data.default")
def softmax_backward(
    c: Node, grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of softmax."""

    def write(k: LoopWriter, g: Value, y: Value) -> Value:
        return (g - k.sum(g * y)) * y

    return along_rows(c, [grad_output, output], dim, write)


@lowers("aten._log_softmax_backward_data.default")
def log_softmax_backward(
    c: Node, grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of log_softmax."""

    def write(k: LoopWriter, g: Value, y: Value) -> Value:
        return g - k.exp(y) * k.sum(g)

    return along_rows(c, [grad_output, output], dim, write)
