"""Attention over short sequences as products and rows of our own.

The library's attention never holds all scores, which is what long sequences want; the way there
costs it more than the work as long as all scores fit into a cache. There they are kept: a product
with scale and mask at its end, a row of exponentials, a second product. `bench/attention.py`
measures both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.node import Node, in_memory, number
from treadle.frontends.torch.lowering.ops.products import (
    check_sizes,
    check_types,
    multiply,
    turned,
)
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr, hint
from treadle.ir.build_body import Value
from treadle.ir.types import DType

MOST_SCORES = 1 << 18
"""Scores that lie in a cache, together with what is made of them."""
MOST_BESIDE_NARROW = 1 << 21
"""The same beside a library whose products take twice as long as ours."""


class Heads(NamedTuple):
    """Queries, keys and values in memory, heads and batches before rows."""

    query: Realised
    key: Realised
    value: Realised
    scale: float
    is_causal: bool

    @property
    def scores(self) -> tuple[Expr, ...]:
        """The sizes of all scores."""
        return (*self.query.sizes[:-1], self.key.sizes[-2])


@lowers("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    c: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """What rows of values give, weighted by the softmax of scores; the logarithm of their sums."""
    heads = _heads(c, query, key, value, dropout_p, is_causal, attn_mask, scale)
    scores = in_memory(c.buffer(sizes=heads.scores, dtype=DType.F32))

    def score(k: LoopWriter, at: Index, v: Value) -> Value:
        return _seen(k, heads, at, v * number(k, heads.scale, DType.F32), float("-inf"))

    multiply(c, heads.query, turned(heads.key), scores, score)
    sums, weights = c.buffer(1), in_memory(c.buffer(sizes=heads.scores, dtype=DType.F32))
    with c.loop(heads.scores[:-1], [heads.scores[-1]]) as k:
        at = (*k.at, *k.along)
        x = scores.load(k, at)
        high = k.max(x)
        e = k.exp(x - high)
        total = k.sum(e)
        k.store_at(weights.buffer, weights.layout.index(at), e / total)
        k.store(sums, k.at, high + k.log(total))
    target = in_memory(c.buffer())
    multiply(c, weights, heads.value, target, lambda k, at, v: v)
    return target, in_memory(sums)


@lowers("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    c: Node,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """The gradients of queries, keys and values."""
    heads = _heads(c, query, key, value, dropout_p, is_causal, attn_mask, scale)
    grad, result, sums = c.realise(grad_out), c.realise(out), c.realise(logsumexp)
    inner = in_memory(c.buffer(sizes=heads.scores[:-1], dtype=DType.F32))
    with c.loop(heads.scores[:-1], [result.sizes[-1]]) as k:
        at = (*k.at, *k.along)
        total = k.sum(grad.load(k, at) * result.load(k, at))
        k.store_at(inner.buffer, inner.layout.index(k.at), total)
    weights = in_memory(c.buffer(sizes=heads.scores, dtype=DType.F32))

    def weight(k: LoopWriter, at: Index, v: Value) -> Value:
        e = k.exp(v * number(k, heads.scale, DType.F32) - sums.load(k, at[:-1]))
        return _seen(k, heads, at, e, 0.0)

    def slope(k: LoopWriter, at: Index, v: Value) -> Value:
        centred = v - inner.load(k, at[:-1])
        return weights.load(k, at) * centred * number(k, heads.scale, DType.F32)

    multiply(c, heads.query, turned(heads.key), weights, weight)
    slopes = in_memory(c.buffer(sizes=heads.scores, dtype=DType.F32))
    multiply(c, grad, turned(heads.value), slopes, slope)
    found = [in_memory(c.buffer(position)) for position in range(3)]
    multiply(c, slopes, heads.key, found[0], lambda k, at, v: v)
    multiply(c, turned(slopes), heads.query, found[1], lambda k, at, v: v)
    multiply(c, turned(weights), grad, found[2], lambda k, at, v: v)
    return tuple(found)


def _heads(
    c: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> Heads:
    """All in memory; NotLowered where the library does it, or does it faster."""
    check_types(c, query, key, value)
    if dropout_p or attn_mask is not None:
        raise NotLowered("attention with a mask of its own, or with dropout, is a library call")
    if not query.sizes[:-2] == key.sizes[:-2] == value.sizes[:-2]:
        raise NotLowered("heads of queries that share keys and values are a library call")
    rows, width, columns = query.sizes[-2], query.sizes[-1], key.sizes[-2]
    check_sizes(rows, columns, width)
    check_sizes(rows, value.sizes[-1], columns)
    if math.prod(hint(n) for n in (*query.sizes[:-1], columns)) > _most_scores(query, key, value):
        raise NotLowered("all scores of long sequences do not fit into a cache")
    if scale is None and width.value is None:
        raise NotLowered("a width known at run time only")
    factor = 1 / math.sqrt(width.value or 1) if scale is None else float(scale)
    if not math.isfinite(factor):
        raise NotLowered("a scale that is no number")
    found = [c.realise(x) for x in (query, key, value)]
    return Heads(found[0], found[1], found[2], factor, bool(is_causal))


def _most_scores(query: Tensor, key: Tensor, value: Tensor) -> int:
    """How many scores are kept at most; many only if they take half the memory of the rest."""
    if not compat.library_is_narrower():
        return MOST_SCORES
    result = (*query.sizes[:-1], value.sizes[-1])
    others = [x.sizes for x in (query, key, value)]
    beside = sum(math.prod(hint(n) for n in sizes) for sizes in (*others, result))
    return max(MOST_SCORES, min(MOST_BESIDE_NARROW, beside // 2))


def _seen(k: LoopWriter, heads: Heads, at: Index, v: Value, otherwise: float) -> Value:
    """A value of a score, or what stands where a query must not look ahead."""
    if not heads.is_causal:
        return v
    is_seen = k.op("le", k.index(at[-1]), k.index(at[-2]))
    return k.where(is_seen, v, k.constant(otherwise, DType.F32))
