"""Reshapes as views where strides allow it, as index maps everywhere else.

Old and new dimensions are cut into the smallest groups that hold the same number of elements:
(6, 4) -> (2, 3, 4) are the groups (6 | 2, 3) and (4 | 4). Only groups need divisions, and a group
whose old dimensions lie behind one another in memory needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from treadle.frontends.torch.lowering.values import Index, Lazy, LoopWriter, Realised, Tensor
from treadle.index import Expr, as_expr, floordiv, hint, maximum, mod, product_of
from treadle.ir.build_body import Value
from treadle.ir.types import Layout

ZERO = as_expr(0)


class DimensionGroup(NamedTuple):
    """Old dimensions and new dimensions that hold the same number of elements."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def reshape(x: Tensor, sizes: Sequence[Expr]) -> Tensor:
    """The elements of `x`, in row-major order, seen with other sizes."""
    new = tuple(sizes)
    if new == tuple(x.sizes):
        return x
    groups = grouped(x.sizes, new)
    if isinstance(x, Realised):
        strides = view_strides(x.layout, new, groups)
        if strides is not None:
            return Realised(x.buffer, Layout(new, strides, x.layout.offset))
    old = tuple(x.sizes)

    def inner(k: LoopWriter, at: Index) -> Value:
        places = old_place(old, new, groups, at)
        return x.load(k, tuple([k.simplify(e) for e in places]))

    return Lazy(new, x.dtype, inner, x.reads, x.parts)


def grouped(old: Index, new: Index) -> list[DimensionGroup]:
    """The smallest groups, in order; one for everything where sizes cannot be compared."""
    if any(n.value == 0 for n in (*old, *new)):
        return [DimensionGroup(tuple(range(len(old))), tuple(range(len(new))))]
    groups: list[DimensionGroup] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = _take(old, i), _take(new, j)
        ends = [min(i + 1, len(old)), min(j + 1, len(new))]
        while left is not right:
            if hint(left) < hint(right) and ends[0] < len(old):
                left = left * old[ends[0]]
                ends[0] += 1
            elif ends[1] < len(new):
                right = right * new[ends[1]]
                ends[1] += 1
            elif ends[0] < len(old):
                left = left * old[ends[0]]
                ends[0] += 1
            else:
                break
        groups.append(DimensionGroup(tuple(range(i, ends[0])), tuple(range(j, ends[1]))))
        i, j = ends
    return groups


def _take(sizes: Index, at: int) -> Expr:
    return sizes[at] if at < len(sizes) else as_expr(1)


def view_strides(layout: Layout, new: Index, groups: Sequence[DimensionGroup]) -> Index | None:
    """Strides under which the same memory has the new sizes, or None."""
    strides: list[Expr] = [as_expr(1)] * len(new)
    if any(n.value == 0 for n in new):
        return _plain(new)
    for group in groups:
        step = _common_step(layout, group.old)
        if step is None:
            return None
        for d in reversed(group.new):
            strides[d] = step
            step = step * new[d]
    return tuple(strides)


def _plain(sizes: Index) -> Index:
    strides, step = [], as_expr(1)
    for n in reversed(sizes):
        strides.append(step)
        step = step * (n if n.value != 0 else 1)
    return tuple(reversed(strides))


def _common_step(layout: Layout, dims: Sequence[int]) -> Expr | None:
    """The step between neighbours of dimensions that lie behind one another, or None."""
    real = [d for d in dims if layout.sizes[d].value != 1]
    if not real:
        return as_expr(1)
    for outer, inner in pairwise(real):
        step = layout.strides[inner] * layout.sizes[inner]
        if layout.strides[outer] is step:
            continue
        # A step of at least 1 differs only where there are no elements, or all are one element.
        if step.value == 0 or layout.strides[outer] is not maximum(1, step):
            return None
    return layout.strides[real[-1]]


def old_place(old: Index, new: Index, groups: Sequence[DimensionGroup], at: Index) -> Index:
    """Where the element at new coordinates was."""
    places: list[Expr] = [ZERO] * len(old)
    nowhere = [i for i, n in zip(at, new, strict=True) if n.value == 0]
    if nowhere:  # nobody asks, but the place must depend on the loop that never runs
        return (nowhere[0],) * len(old)
    for group in groups:
        if len(group.old) == 1 and len(group.new) == 1:
            places[group.old[0]] = at[group.new[0]]
            continue
        number = ZERO
        for d in group.new:
            number = number * new[d] + at[d]
        for d in group.old:
            if old[d].value == 1:
                continue
            place = floordiv(number, product_of([old[e] for e in group.old if e > d]))
            places[d] = place if d == _first(group.old, old) else mod(place, old[d])
    return tuple(places)


def _first(dims: Sequence[int], old: Index) -> int | None:
    """The outermost dimension that counts: it needs no remainder."""
    return next((d for d in dims if old[d].value != 1), None)
