"""Reductions and scans: always a loop of their own, which other loops may then be fused with.

On a GPU a reduction of few steps has no inner loop: each point adds up its own, in registers, where
lanes that share the steps would wait for each other. What was put together for it (a stack) is read
piece by piece then, and need not be in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number
from treadle.frontends.torch.lowering.promotion import ALWAYS_BOOL
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.reshaping import reshape
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr, as_expr, product_of
from treadle.index.bounds import Facts
from treadle.ir.build_body import Value
from treadle.ir.types import DType

Combine = Callable[[LoopWriter, Value], Sequence[Value]]
JOINED_BY = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
FEW_STEPS, FEW_NEIGHBOURS = 8, 4
"""Steps of a reduction without an inner loop; fewer where they are neighbours in memory, for lanes
would then share less of what is loaded at once."""


def wide_type(dtype: DType) -> DType:
    """The type sums of `dtype` are kept in: f32 for narrow floats."""
    return DType.F32 if dtype.is_low_precision else dtype


def dims_of(x: Tensor, dims: Any) -> list[int]:
    """Dimensions counted from the front; none given means all."""
    rank = len(x.sizes)
    if dims is None or (isinstance(dims, list) and not dims):
        return list(range(rank))
    asked = dims if isinstance(dims, list) else [dims]
    return sorted({d % rank for d in asked} if rank else ())


def reduced(
    c: Node, x: Tensor, dims: Sequence[int], combine: Combine, results: int = 1
) -> tuple[Realised, ...]:
    """A loop over the dimensions that stay; `combine` gives one value per result.

    Kept dimensions of one element are what torch's result has them for.
    """
    gone = set(dims)
    kept = [d for d in range(len(x.sizes)) if d not in gone]
    along = [x.sizes[d] for d in sorted(gone)] or [as_expr(1)]
    targets = [c.buffer(position) for position in range(results)]
    with c.loop([x.sizes[d] for d in kept], along) as k:
        at: list[Expr] = [as_expr(0)] * len(x.sizes)
        for var, d in zip(k.at, kept, strict=True):
            at[d] = var
        for var, d in zip(k.along, sorted(gone), strict=False):
            at[d] = var
        is_empty = any(n.value == 0 for n in along)
        values = combine(k, number(k, 0, x.dtype) if is_empty else x.load(k, tuple(at)))
        for target, value in zip(targets, values, strict=True):
            place = tuple(k.at)
            if len(target.layout.sizes) != len(kept):
                place = tuple([as_expr(0) if d in gone else at[d] for d in range(len(at))])
            k.store(target, place, converted(value, target.dtype))
    return tuple([in_memory(t) for t in targets])


def joined(
    c: Node,
    x: Tensor,
    dims: Sequence[int],
    kind: str,
    wide: DType,
    finish: Callable[[LoopWriter, Value], Value] = lambda k, total: total,
) -> Tensor:
    """One sum, product or extremum, kept in `wide`, and what is made of it in the end."""
    if not _has_few_steps(c, x, dims):

        def combine(k: LoopWriter, v: Value) -> list[Value]:
            return [finish(k, k.reduce_by(kind, converted(v, wide)))]

        return reduced(c, x, dims, combine)[0]
    gone, target = sorted(set(dims)), c.buffer()
    kept = [d for d in range(len(x.sizes)) if d not in gone]
    with c.loop([x.sizes[d] for d in kept]) as k:
        at = dict(zip(kept, k.at, strict=True))
        terms = []
        for steps in product(*[range(x.sizes[d].value or 0) for d in gone]):
            here = {**at, **{d: as_expr(n) for d, n in zip(gone, steps, strict=True)}}
            terms.append(converted(x.load(k, tuple([here[d] for d in sorted(here)])), wide))
        total = reduce(lambda a, b: k.op(JOINED_BY[kind], a, b), terms)
        place = tuple(k.at)
        if len(target.layout.sizes) != len(kept):
            place = tuple([at.get(d, as_expr(0)) for d in range(len(x.sizes))])
        k.store(target, place, converted(finish(k, total), target.dtype))
    return in_memory(target)


def _has_few_steps(c: Node, x: Tensor, dims: Sequence[int]) -> bool:
    """Whether kernels are written for lanes, and the steps of each are few and far apart."""
    steps = product_of([x.sizes[d] for d in dims]).value
    if not c.is_for_lanes or steps is None or len(dims) == len(x.sizes):
        return False
    return 2 <= steps <= (FEW_NEIGHBOURS if _innermost(x) in dims else FEW_STEPS)


def _innermost(x: Tensor) -> int:
    """The dimension along which neighbours lie in memory, as far as that is known."""
    strides = x.layout.strides if isinstance(x, Realised) else x.strides
    known = [n.value for n in strides] if strides is not None else []
    single = [d for d, n in enumerate(known) if n == 1 and x.sizes[d].value != 1]
    return single[-1] if single else len(x.sizes) - 1


def counted(k: LoopWriter, x: Tensor, dims: Sequence[int], dtype: DType) -> Value:
    """How many elements are combined, as a value."""
    return k.index(product_of([x.sizes[d] for d in dims])).to(dtype)


@lowers("aten.sum.default", "aten.sum.dim_IntList")
def sum_(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False, **unused: Any) -> Tensor:
    """The sum, kept in f32 for narrow floats."""
    return joined(c, self, dims_of(self, dim), "sum", wide_type(c.dtype))


@lowers("aten.mean.default", "aten.mean.dim")
def mean(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False, **unused: Any) -> Tensor:
    """The mean."""
    wide, dims = wide_type(c.dtype), dims_of(self, dim)

    def divided(k: LoopWriter, total: Value) -> Value:
        return total / counted(k, self, dims, wide)

    return joined(c, self, dims, "sum", wide, divided)


@lowers("aten.prod.default", "aten.prod.dim_int")
def prod(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False, **unused: Any) -> Tensor:
    """The product."""
    return joined(c, self, dims_of(self, dim), "prod", wide_type(c.dtype))


def _some(x: Tensor, dims: list[int]) -> list[int]:
    """The dimensions, if there is anything along them: nothing has no largest element."""
    if any(x.sizes[d].value == 0 for d in dims):
        raise NotLowered("no elements")
    return dims


@lowers("aten.amax.default", "aten.max.default")
def amax(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest; NaN wins."""
    return joined(c, self, _some(self, dims_of(self, dim)), "max", c.dtype)


@lowers("aten.amin.default", "aten.min.default")
def amin(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest; NaN wins."""
    return joined(c, self, _some(self, dims_of(self, dim)), "min", c.dtype)


@lowers("aten.max.dim")
def max_dim(c: Node, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The largest and its first position."""
    return reduced(c, self, dims_of(self, dim), lambda k, v: [k.max(v), k.argmax(v)], 2)


@lowers("aten.min.dim")
def min_dim(c: Node, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The smallest and its first position."""
    return reduced(c, self, dims_of(self, dim), lambda k, v: [k.min(v), k.argmin(v)], 2)


@lowers("aten.argmax.default")
def argmax(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The first position of the largest."""
    return _position(c, self, dim, keepdim, "argmax")


@lowers("aten.argmin.default")
def argmin(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The first position of the smallest."""
    return _position(c, self, dim, keepdim, "argmin")


def _position(c: Node, x: Tensor, dim: Any, keepdim: bool, kind: str) -> Tensor:
    if dim is None and keepdim and len(x.sizes) > 1:
        raise NotLowered("a position in all of a tensor that keeps its dimensions")
    if dim is None and len(x.sizes) != 1:
        x = reshape(x, [product_of(x.sizes)])
    return reduced(c, x, dims_of(x, dim), lambda k, v: [k.reduce_by(kind, v)])[0]


@lowers("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any is nonzero."""
    if dim == []:
        return _nonzero(c, self)
    return reduced(c, self, dims_of(self, dim), lambda k, v: [k.any(v)])[0]


@lowers("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(c: Node, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all are nonzero."""
    if dim == []:
        return _nonzero(c, self)
    return reduced(c, self, dims_of(self, dim), lambda k, v: [k.all(v)])[0]


def _nonzero(c: Node, x: Tensor) -> Tensor:
    """Each element by itself: unlike sums, any and all take no dimensions to mean none."""
    return c.pointwise(lambda k, v: k.logical_not(k.logical_not(v)), x, kind=ALWAYS_BOOL)


# ---------------------------------------------------------------------------------- moments


def _variance(
    k: LoopWriter, v: Value, x: Tensor, dims: Sequence[int], correction: Any
) -> tuple[Value, Value]:
    """(variance, mean) in the type of v."""
    less = 1.0 if correction is None else float(correction)
    zero = k.constant(0.0, v.dtype)
    count = counted(k, x, dims, v.dtype)
    if _are_short_rows(x, dims):
        # A row is at hand twice, and plain sums are made in parts where welford is not.
        average = k.sum(v) / count
        away = v - average
        return k.sum(away * away) / k.maximum(count - less, zero), average
    average, squares, _ = k.reduce_by("welford", v)
    if not _has_elements(x, dims):
        # The mean of nothing: welford says 0 there, eager mode says NaN.
        average = k.where(k.eq(count, zero), k.constant(math.nan, v.dtype), average)
    return squares / k.maximum(count - less, zero), average


def _are_short_rows(x: Tensor, dims: Sequence[int]) -> bool:
    """Whether the last dimensions are combined, and what lies there is short enough to be kept."""
    last = range(len(x.sizes) - len(dims), len(x.sizes))
    count = 1
    for d in dims:
        count *= x.sizes[d].value or 0
    return sorted(dims) == list(last) and 0 < count <= LONGEST_ROW and len(dims) < len(x.sizes)


def _has_elements(x: Tensor, dims: Sequence[int]) -> bool:
    """Whether there is certainly something to combine along these dimensions."""
    return all(Facts().interval(as_expr(x.sizes[d])).positive for d in dims)


def _moments(
    c: Node, x: Tensor, dims: Sequence[int], correction: Any, pick: Callable[..., list[Value]]
) -> tuple[Realised, ...]:
    wide = wide_type(x.dtype)

    def combine(k: LoopWriter, v: Value) -> list[Value]:
        return pick(k, *_variance(k, converted(v, wide), x, dims, correction))

    results = len(c.val) if isinstance(c.val, list | tuple) else 1
    return reduced(c, x, dims, combine, results)


LONGEST_ROW = 16384


@lowers("aten.var.correction")
def var(
    c: Node, self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    """The variance."""
    return _moments(c, self, dims_of(self, dim), correction, lambda k, v, m: [v])[0]


@lowers("aten.std.correction")
def std(
    c: Node, self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    """The standard deviation."""
    return _moments(c, self, dims_of(self, dim), correction, lambda k, v, m: [k.sqrt(v)])[0]


@lowers("aten.var_mean.correction")
def var_mean(
    c: Node, self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, ...]:
    """The variance and the mean."""
    return _moments(c, self, dims_of(self, dim), correction, lambda k, v, m: [v, m])


@lowers("aten.std_mean.correction")
def std_mean(
    c: Node, self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, ...]:
    """The standard deviation and the mean."""
    return _moments(c, self, dims_of(self, dim), correction, lambda k, v, m: [k.sqrt(v), m])


@lowers("aten.logsumexp.default")
def logsumexp(c: Node, self: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials."""
    wide = wide_type(c.dtype)

    def combine(k: LoopWriter, v: Value) -> list[Value]:
        x = converted(v, wide)
        high = k.max(x)
        safe = k.where(k.isinf(high), k.constant(0.0, wide), high)
        return [k.log(k.sum(k.exp(x - safe))) + safe]

    return reduced(c, self, dims_of(self, dim), combine)[0]


# ------------------------------------------------------------------------------------ scans


def scanned(
    c: Node, x: Tensor, dim: int, scan: Callable[[LoopWriter, Value], Sequence[Value]]
) -> tuple[Realised, ...]:
    """A loop that runs along one dimension and stores at every step."""
    rank = len(x.sizes)
    d = dim % rank if rank else 0
    results = len(c.val) if isinstance(c.val, list | tuple) else 1
    targets = [c.buffer(position) for position in range(results)]
    kept = [e for e in range(rank) if e != d]
    with c.loop([x.sizes[e] for e in kept], [x.sizes[d] if rank else as_expr(1)]) as k:
        at = placed(k, rank, kept, d)
        for target, value in zip(targets, scan(k, x.load(k, at)), strict=True):
            k.store(target, at, converted(value, target.dtype))
    return tuple([in_memory(t) for t in targets])


def placed(k: LoopWriter, rank: int, kept: Sequence[int], d: int) -> Index:
    """Coordinates of loops over `kept` dimensions and along dimension d."""
    at: list[Expr] = [as_expr(0)] * rank
    for var_, e in zip(k.at, kept, strict=True):
        at[e] = var_
    if rank:
        at[d] = k.along[0]
    return tuple(at)


def _scan_type(dtype: DType) -> DType:
    """Eager keeps running sums of f32 in double, and those of narrow floats in f32."""
    return DType.F64 if dtype is DType.F32 else wide_type(dtype)


def _running(c: Node, x: Tensor, dim: int, combine: str) -> Tensor:
    if c.sizes and any(n.value == 0 for n in c.sizes):
        raise NotLowered("no elements")
    wide = _scan_type(c.dtype)
    return scanned(c, x, dim, lambda k, v: [k.scan(combine, converted(v, wide))])[0]


@lowers("aten.cumsum.default")
def cumsum(c: Node, self: Tensor, dim: int, **unused: Any) -> Tensor:
    """The running sum."""
    return _running(c, self, dim, "add")


@lowers("aten.cumprod.default")
def cumprod(c: Node, self: Tensor, dim: int, **unused: Any) -> Tensor:
    """The running product."""
    return _running(c, self, dim, "mul")


@lowers("aten.logcumsumexp.default")
def logcumsumexp(c: Node, self: Tensor, dim: int) -> Tensor:
    """The running logarithm of the sum of exponentials."""
    return _running(c, self, dim, "logaddexp")
