"""Tensors made of nothing but numbers and their own coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.frontends.torch.lowering.node import Node, converted, number, operand_value
from treadle.frontends.torch.lowering.registry import Lowering, lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, Tensor
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import DType


def filled(c: Node, value: Any) -> Tensor:
    """One number everywhere."""
    dtype = c.dtype
    return c.lazy(c.sizes, dtype, lambda k, at: operand_value(k, value, (), (), dtype))


def _constant(value: int, overloads: str) -> Mapping[str, Lowering]:
    def lower(c: Node, *unused: Any, **also_unused: Any) -> Tensor:
        return filled(c, value)

    return {f"aten.{name}": lower for name in overloads.split()}


ROWS: Mapping[str, Lowering] = {
    **_constant(0, "zeros.default zeros_like.default new_zeros.default zero.default"),
    **_constant(1, "ones.default ones_like.default new_ones.default"),
    # What nobody has written may hold anything: zeros are as good as any.
    **_constant(
        0,
        "empty.memory_format empty_like.default new_empty.default empty_strided.default "
        "new_empty_strided.default empty_permuted.default",
    ),
}


@lowers("aten.new_full.default")
def new_full(c: Node, self: Tensor, size: Any, fill_value: Any, **unused: Any) -> Tensor:
    """One number everywhere."""
    return filled(c, fill_value)


@lowers("aten.full.default", "aten.full_like.default")
def full(c: Node, like: Any, fill_value: Any, *unused: Any, **also_unused: Any) -> Tensor:
    """One number everywhere."""
    return filled(c, fill_value)


@lowers("aten.fill.Scalar")
def fill(c: Node, self: Tensor, value: Any) -> Tensor:
    """One number everywhere."""
    return filled(c, value)


@lowers("aten.fill.Tensor")
def fill_tensor(c: Node, self: Tensor, value: Tensor) -> Tensor:
    """The only element of a tensor everywhere."""
    dtype = c.dtype
    return c.lazy(c.sizes, dtype, lambda k, at: converted(value.load(k, ()), dtype), [value])


@lowers("aten.scalar_tensor.default")
def scalar_tensor(c: Node, s: Any, **unused: Any) -> Tensor:
    """A number as a tensor without dimensions."""
    return filled(c, s)


@lowers("aten.arange.start_step", "prims.iota.default")
def arange(c: Node, start: Any, end: Any = None, step: Any = 1, **given: Any) -> Tensor:
    """start, start + step, start + 2 step ..."""
    if str(c.node.target).startswith("prims"):
        start, step = given["start"], given["step"]
    dtype = c.dtype
    whole = all(isinstance(x, int | Expr) and not isinstance(x, bool) for x in (start, step))
    if whole:
        first, pace = as_expr(start), as_expr(step)
        return c.lazy(c.sizes, dtype, lambda k, at: converted(k.index(first + at[0] * pace), dtype))
    wide = DType.F64

    def inner(k: LoopWriter, at: Index) -> Value:
        place = k.index(at[0]).to(wide)
        return converted(number(k, start, wide) + place * number(k, step, wide), dtype)

    return c.lazy(c.sizes, dtype, inner)


@lowers("aten.arange.default")
def arange_to(c: Node, end: Any, **unused: Any) -> Tensor:
    """0, 1, 2 ..."""
    return c.lazy(c.sizes, c.dtype, lambda k, at: converted(k.index(at[0]), c.dtype))


@lowers("aten.arange.start")
def arange_from(c: Node, start: Any, end: Any, **unused: Any) -> Tensor:
    """start, start + 1 ..."""
    return arange(c, start, end, 1)


@lowers("aten.eye.default", "aten.eye.m")
def eye(c: Node, *unused: Any, **also_unused: Any) -> Tensor:
    """Ones on the diagonal."""
    return c.lazy(
        c.sizes, c.dtype, lambda k, at: converted(k.index(at[0]) == k.index(at[1]), c.dtype)
    )


@lowers("aten.tril.default")
def tril(c: Node, self: Tensor, diagonal: int = 0) -> Tensor:
    """The part on and below a diagonal; zeros above."""
    return _triangle(c, self, diagonal, "le")


@lowers("aten.triu.default")
def triu(c: Node, self: Tensor, diagonal: int = 0) -> Tensor:
    """The part on and above a diagonal; zeros below."""
    return _triangle(c, self, diagonal, "ge")


def _triangle(c: Node, x: Tensor, diagonal: int, keep: str) -> Tensor:
    def inner(k: LoopWriter, at: Index) -> Value:
        inside = k.op(keep, k.index(at[-1]), k.index(at[-2] + diagonal))
        return k.where(inside, x.load(k, at), k.constant(0, x.dtype))

    return c.lazy(x.sizes, x.dtype, inner, [x])
