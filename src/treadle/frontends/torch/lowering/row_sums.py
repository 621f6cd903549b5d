"""The gradient of a table on a GPU: rows that are added up where data says, in f32.

A narrow float that many rows are added to would lose what comes late, and programs that add to one
place wait for each other.

    few rows, many added   several copies of the table, each added to by a share; then their sum
    many rows, few added   a line of f32 for each that is added, at the first with the same place:
                             first[v] = the smallest t that goes to row v
                             line[first[row of t]] += value of t
                             row v = line[first[v]], or zero where there is none
    else                   a table of f32, rounded in the end
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from treadle.frontends.torch.lowering.node import Node, converted, in_memory, number
from treadle.frontends.torch.lowering.values import Index, LoopWriter, Tensor, as_index
from treadle.index import Expr, as_expr
from treadle.ir.build_body import Value
from treadle.ir.types import Buffer, DType, Layout

CROWD = 64
"""How many are added to a row on average where copies of it are worth it."""
MOST_COPIES, EACH_COPY = 64, 8
"""Copies of a table at most, and how many are added to a row of each at least."""
MOST_COPIED = 1 << 20
"""Elements of all copies."""
SPARSE = 2
"""How many times as many rows as are added make a line for each of those the smaller table."""


class Added(NamedTuple):
    """What is added to a table's rows."""

    counts: Index
    """How many there are, along loops of their own."""
    row: Callable[[LoopWriter, Index], Expr]
    """The row that one goes to."""
    value: Callable[[LoopWriter, Index], Value]
    """What it adds at a place of the row."""


def summed_rows(c: Node, added: Added) -> Tensor | None:
    """The table, zero where nothing is added; None if it is best added up where it lies."""
    total, rows = Layout.contiguous(added.counts).numel.value, c.sizes[0].value
    if total is None or rows is None or not total or any(n.value in (0, None) for n in c.sizes):
        return None
    copies = _copies(c, total, rows)
    if copies > 1:
        return _in_copies(c, added, copies)
    if c.dtype.is_low_precision and rows >= SPARSE * total and total < 2**31:
        return _at_the_first(c, added, total)
    return None


def _copies(c: Node, total: int, rows: int) -> int:
    """How many copies of the table a crowd is spread over."""
    numel = Layout.contiguous(c.sizes).numel.value or 0
    copies = 1
    while total >= CROWD * rows and 2 * copies <= MOST_COPIES:
        if 2 * copies * numel > MOST_COPIED or 2 * copies * rows * EACH_COPY > total:
            break
        copies *= 2
    return copies


def _in_copies(c: Node, added: Added, copies: int) -> Tensor:
    kind = DType.F32 if c.dtype.is_low_precision else c.dtype
    table = _filled(c, (as_expr(copies), *c.sizes), kind, 0)
    rank = len(added.counts)
    with c.loop((*added.counts, *c.sizes[1:])) as k:
        share = k.simplify(_number_of(added, k.at[:rank]) % copies)
        place = (share, added.row(k, k.at), *k.at[rank:])
        k.store(table, place, converted(added.value(k, k.at), kind), "atomic_add")
    target = c.buffer()
    with c.loop(c.sizes, [as_expr(copies)]) as k:
        whole = k.sum(in_memory(table).load(k, (*k.along, *k.at)))
        k.store(target, k.at, converted(whole, target.dtype))
    return in_memory(target)


def _at_the_first(c: Node, added: Added, total: int) -> Tensor:
    rank, size = len(added.counts), as_expr(total)
    first = _filled(c, (c.sizes[0],), DType.I32, total)
    with c.loop(added.counts) as k:
        own = k.index(_number_of(added, k.at), DType.I32)
        k.store(first, (added.row(k, k.at),), own, "atomic_min")
    lines = _filled(c, (size, *c.sizes[1:]), DType.F32, 0)

    def line_of(k: LoopWriter, row: Expr) -> tuple[Value, Expr]:
        found = in_memory(first).load(k, (row,))
        there = k.minimum(found, number(k, total - 1, DType.I32))
        return found, as_index(k, converted(there, DType.I64), size, wrap=False)

    with c.loop((*added.counts, *c.sizes[1:])) as k:
        _, line = line_of(k, added.row(k, k.at))
        value = converted(added.value(k, k.at), DType.F32)
        k.store(lines, (line, *k.at[rank:]), value, "atomic_add")

    def inner(k: LoopWriter, at: Index) -> Value:
        found, line = line_of(k, at[0])
        is_there = found < number(k, total, DType.I32)
        summed = k.masked(is_there, 0.0, lambda: in_memory(lines).load(k, (line, *at[1:])))
        return converted(summed, c.dtype)

    return c.lazy(c.sizes, c.dtype, inner, [in_memory(first), in_memory(lines)])


def _number_of(added: Added, at: Index) -> Expr:
    """Which one of all a point is."""
    return Layout.contiguous(added.counts).index(at)


def _filled(c: Node, sizes: Index, kind: DType, value: int) -> Buffer:
    made = c.graph.builder.buffer(c.graph.fresh(c.name), kind, sizes)
    with c.loop(sizes) as k:
        k.store(made, k.at, number(k, value, kind))
    return made
