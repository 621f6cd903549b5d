"""Matrix products that are faster as kernels of ours than as calls of the library.

On one core the library reaches nine tenths of what the machine can do with many rows, half of it
with eight; ours comes within a tenth of it with eight rows or more, and what follows a product is
done while the result is at hand. `bench/products.py` measures both.

Our tiles read both factors again for every tile they have part in. That is cheap from the second
cache and not beyond it, where the library's blocks are worth more than what is saved at the end:
unless the library knows vectors of half the width only, and our tiles are twice as fast.

Products of f16 take the library ten to fifty times as long as those of f32 where the processor has
no instructions for them: both factors are made f32 first, if that takes little memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.node import (
    Node,
    converted,
    in_memory,
    number,
    operand_value,
)
from treadle.frontends.torch.lowering.registry import lowers
from treadle.frontends.torch.lowering.values import Index, LoopWriter, NotLowered, Realised, Tensor
from treadle.index import Expr, as_expr, hint
from treadle.ir.build_body import Value
from treadle.ir.types import DType, Layout

LEAST_ROWS, LEAST_COLUMNS, LEAST_TERMS = 4, 8, 4
LEAST_ROWS_ALONG, LEAST_TERMS_ALONG = 2, 64
"""The same where both factors lie along the terms, on machines with vectors of 16."""
LEAST_APART = 16
"""Columns and terms of matrices that are multiplied by one row each."""
MOST_POINTS = 1 << 26
"""Multiplications of one product: what is larger does not lie in caches, which the library knows
more about."""
MOST_BESIDE_NARROW, MOST_ACROSS = 1 << 31, 16 << 20
"""The same beside a library that knows narrower vectors only; bytes of a first factor that lies
across, whose rows are lines of other pages in every step."""
TILE = 32
"""Columns of a tile: threads share a product by them."""
MOST_WIDENED = 1 << 22
"""Elements of factors that are made f32 for a product: 16 MiB."""
LEAST_ROWS_OF_HALVES = 4
"""Rows from which on the library, which makes every element of f16 a float anew, is slower."""
MOST_ROWS_OF_8 = 32
"""With vectors of 8 floats tiles are small: the library catches up with so many rows."""
FEW_ROWS = 32
"""So many are one tile: the second factor is read once, wherever it lies."""
Follow = Callable[[LoopWriter, Index, Value], Value]


@lowers("aten.mm.default")
def mm(c: Node, self: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    return _matrices(c, self, mat2, lambda k, at, v: v)


@lowers("aten.bmm.default")
def bmm(c: Node, self: Tensor, mat2: Tensor) -> Tensor:
    """The products of many pairs of matrices."""
    return _matrices(c, self, mat2, lambda k, at, v: v)


@lowers("aten.addmm.default")
def addmm(
    c: Node, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """A product, scaled, and something added to it."""

    def follow(k: LoopWriter, at: Index, v: Value) -> Value:
        if alpha != 1:
            v = v * number(k, alpha, DType.F32)
        if beta == 0:
            return v
        added = operand_value(k, self, at, c.sizes, DType.F32)
        return v + (added if beta == 1 else added * number(k, beta, DType.F32))

    return _matrices(c, mat1, mat2, follow)


def _outer(c: Node, x: Tensor, w: Tensor, follow: Follow) -> Tensor:
    """A column times a row: no sum, but a loop over elements as any other."""
    check_machine(c)
    if c.dtype not in (DType.F32, DType.BF16, DType.F16):
        raise NotLowered("products of other types than f32 are library calls")

    def inner(k: LoopWriter, at: Index) -> Value:
        *others, i, j = at
        first = x.load(k, (*others, i, as_expr(0))).to(DType.F32)
        other = w.load(k, (*others, as_expr(0), j)).to(DType.F32)
        return converted(follow(k, at, first * other), c.dtype)

    return c.lazy(c.sizes, c.dtype, inner, [x, w])


def _matrices(c: Node, x: Tensor, w: Tensor, follow: Follow) -> Tensor:
    if x.sizes[-1].value == 1:
        return _outer(c, x, w, follow)
    if x.dtype is w.dtype is DType.F16:
        return _of_halves(c, x, w, follow)
    check_types(c, x, w)
    if not _is_row_by_rows(x, w) and not _are_rows_apart(x, w):
        check_sizes(x.sizes[-2], w.sizes[-1], x.sizes[-1], _least_rows(x, w))
        check_memory(x, w)
    left, right = c.realise(x), c.realise(w)
    target = in_memory(c.buffer())
    multiply(c, left, right, target, follow)
    return target


def _of_halves(c: Node, x: Tensor, w: Tensor, follow: Follow) -> Realised:
    """The product of two matrices of f16, rounded once."""
    check_machine(c)
    if compat.multiplies_f16():
        raise NotLowered("the library multiplies f16 by instructions of this processor")
    if hint(w.sizes[-1]) < LEAST_COLUMNS or hint(x.sizes[-1]) < LEAST_TERMS:
        raise NotLowered("the library multiplies matrices of few rows or columns")

    def rounded(k: LoopWriter, at: Index, v: Value) -> Value:
        return converted(follow(k, at, v), c.dtype)

    elements = math.prod(hint(n) for n in x.sizes) + math.prod(hint(n) for n in w.sizes)
    if _lie_along(x, w):
        left, right = c.realise(x), c.realise(w)
        multiply(c, left, right, target := in_memory(c.buffer()), rounded, DType.F32)
        return target
    if elements > MOST_WIDENED:
        raise NotLowered("large matrices of f16 are not made f32")
    left, right = _widened(c, x), _widened(c, w)
    multiply(c, left, right, target := in_memory(c.buffer()), rounded)
    return target


def _lie_along(x: Tensor, w: Tensor) -> bool:
    """Whether both factors lie along the terms, as those of a layer do, and the first is smaller.

    Such ones become f32 piece by piece, where they are brought together: panels hold the first one.
    """
    if isinstance(x, Realised) and x.layout.strides[-1].value != 1:
        return False
    if not isinstance(w, Realised) or w.layout.strides[-2].value != 1:
        return False
    few, many, terms = (hint(n) for n in (x.sizes[-2], w.sizes[-1], x.sizes[-1]))
    return LEAST_ROWS_OF_HALVES <= few <= many and few * terms <= MOST_WIDENED


def _widened(c: Node, x: Tensor) -> Realised:
    """A matrix as f32, in memory as it lies there now."""
    lies_across = isinstance(x, Realised) and x.layout.strides[-1].value != 1
    given = turned(x) if isinstance(x, Realised) and lies_across else x

    def inner(k: LoopWriter, at: Index) -> Value:
        return given.load(k, at).to(DType.F32)

    found = c.realise(c.lazy(given.sizes, DType.F32, inner, [given]))
    return turned(found) if lies_across else found


def turned(x: Realised) -> Realised:
    """The same elements with rows as columns."""
    layout = x.layout
    (*sizes, m, n), (*strides, s, t) = layout.sizes, layout.strides
    return Realised(x.buffer, Layout((*sizes, n, m), (*strides, t, s), layout.offset))


def _is_row_by_rows(x: Tensor, w: Tensor) -> bool:
    """Whether one row is multiplied by what lies along the sum: sums of rows like any other."""
    is_row = len(x.sizes) == 2 and x.sizes[0].value == 1 and isinstance(w, Realised)
    return is_row and isinstance(w, Realised) and w.layout.strides[0].value == 1


def _are_rows_apart(x: Tensor, w: Tensor) -> bool:
    """Whether many matrices are multiplied by one row or column each, as in a decoder's step.

    A matrix that lies along the terms is rows to sum up, each read once. One that lies across them
    is columns side by side; the library asks for each of them anew, so that it must fit a cache.
    """
    if len(x.sizes) != 3:
        return False
    is_column = w.sizes[2].value == 1
    if not is_column and x.sizes[1].value != 1:
        return False
    matrix, others, terms = (x, 1, 2) if is_column else (w, 2, 1)
    n, k = matrix.sizes[others].value, matrix.sizes[terms].value
    if n is None or k is None or min(n, k) < LEAST_APART:
        return False
    if not isinstance(matrix, Realised):
        return is_column  # it will lie as rows
    strides = matrix.layout.strides
    is_across = strides[others].value == 1 and n * k * 4 <= compat.second_cache()
    return strides[terms].value == 1 or is_across


def _least_rows(x: Tensor, w: Tensor) -> int:
    """From how many rows on products are ours; fewer where vectors can go along the terms."""
    is_long = (x.sizes[-1].value or 0) >= LEAST_TERMS_ALONG
    lies_along = isinstance(w, Realised) and w.layout.strides[-2].value == 1
    if isinstance(x, Realised) and x.layout.strides[-1].value != 1:
        lies_along = False
    is_ours = lies_along and is_long and compat.floats_in_a_vector() >= 16
    return LEAST_ROWS_ALONG if is_ours else LEAST_ROWS


def multiply(
    c: Node,
    x: Realised,
    w: Realised,
    target: Realised,
    follow: Follow,
    wide: DType | None = None,
) -> None:
    """Append the loop of a product of two matrices, or of many, with what follows at each point.

    Factors of another type than is multiplied are made `wide` where they are loaded.
    """
    with c.loop(target.sizes, [x.sizes[-1]]) as k:
        (*others, i, j), (r,) = k.at, k.along
        pair = [x.load(k, (*others, i, r)), w.load(k, (*others, r, j))]
        total = k.dot(*[v if wide is None else v.to(wide) for v in pair])
        at = (*others, i, j)
        k.store_at(target.buffer, target.layout.index(at), follow(k, at, total))


def check_types(c: Node, *factors: Tensor) -> None:
    """Refuse what only the library multiplies."""
    check_machine(c)
    if any(x.dtype is not DType.F32 for x in factors):
        raise NotLowered("products of other types than f32 are library calls")


def check_machine(c: Node) -> None:
    """Refuse all products where none are ours."""
    if c.graph.device != "cpu" or not c.graph.own_products or not compat.floats_in_a_vector():
        raise NotLowered("products are library calls on this device")


def check_sizes(rows: Expr, columns: Expr, terms: Expr, least: int = LEAST_ROWS) -> None:
    """Refuse what the library multiplies faster."""
    m, n, k = hint(rows), hint(columns), hint(terms)
    if m < least or n < LEAST_COLUMNS or k < LEAST_TERMS:
        raise NotLowered("the library multiplies matrices of few rows or columns")
    if m * n * k > _most_points(n) or (m > MOST_ROWS_OF_8 and compat.floats_in_a_vector() == 8):
        raise NotLowered("the library multiplies large matrices")


def _most_points(columns: int) -> int:
    """The multiplications of the largest product of ours; threads must have enough to share."""
    is_shared = columns // TILE >= torch.get_num_threads()
    return MOST_BESIDE_NARROW if compat.library_is_narrower() and is_shared else MOST_POINTS


def check_memory(x: Tensor, w: Tensor) -> None:
    """Refuse matrices that are read more than once and do not all lie in the second cache."""
    m, n, k = hint(x.sizes[-2]), hint(w.sizes[-1]), hint(x.sizes[-1])
    if m <= FEW_ROWS:
        return
    if compat.library_is_narrower():
        lies_across = isinstance(x, Realised) and x.layout.strides[-1].value != 1
        is_too_much = lies_across and m * k * 4 > MOST_ACROSS
    else:
        is_too_much = (m * k + k * n + m * n) * 4 > compat.second_cache()
    if is_too_much:
        raise NotLowered("the library multiplies matrices that do not lie in a cache")
