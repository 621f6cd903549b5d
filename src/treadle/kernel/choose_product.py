"""How a product of two matrices is walked on a CPU: tiles of the result that registers hold.

    x[i, r] * w[r, j]     vectors along j, read as w lies
    x[i, r] * w[j, r]     nothing lies along j: the smaller factor goes into panels first; where
                          that is x, vectors go along i and tiles are turned at the end

    split i by 32, split j by 32, order j i r i' j', bind i' to unroll, bind j' to vector

The loop that is bound to `unroll` makes the tile; a factor that is staged lies in panels, all of
it, from the beginning of the nest on.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.core.verdict import Verdict, no, yes
from treadle.index import hint
from treadle.ir.body import Body
from treadle.ir.loop_schedule import (
    AxisPart,
    Bind,
    Binding,
    Flush,
    LoopPlan,
    Order,
    Split,
    StageLoad,
    Step,
)
from treadle.ir.products import MatrixProduct, product_of
from treadle.ir.program import Nest, Program
from treadle.ir.types import DType
from treadle.ir.typing import infer_types
from treadle.kernel.vector_rules import may_be_vector

ROWS, COLUMNS = 32, 32
"""A tile of the result where vectors go along columns: it lies in the first cache."""
TURNED_COLUMNS = 16
"""Columns of a tile where vectors go along rows."""
FACTORS = frozenset({DType.F32, DType.F16})
"""What factors may be; f16 where both are brought together before they are multiplied."""
ACROSS = (32, 16)
"""Rows of such a tile, as many as there are."""


def product_in(nest: Nest, program: Program) -> MatrixProduct | None:
    """The product, summed up in f32, that a nest computes in tiles; None if there is none."""
    product = product_of(nest.body)
    if product is None:
        return None
    types = infer_types(nest.body, program.by_name)
    factors = {types[f.number] for f in product.factors}
    if types[product.number] is not DType.F32 or len(factors) > 1 or not factors <= FACTORS:
        return None
    if DType.F16 in factors and not _goes_across(nest.body, product):
        return None
    loops = (product.rows, product.columns)
    return product if all(may_be_vector(nest, program, v) for v in loops) else None


def product_steps(body: Body, product: MatrixProduct, block: int | None) -> Iterator[Step]:
    """The steps; sums of more than `block` terms flow on, None says that they need not."""
    rows, columns, along = product.rows.name, product.columns.name, product.along.name
    extents = dict(body.space.items())
    high = hint(extents[product.rows])
    staged, order, tile = None, [columns, rows], (_rows_of(high), COLUMNS)
    if _goes_across(body, product):
        staged, tile = product.first.number, (ACROSS[high <= ACROSS[1]], TURNED_COLUMNS)
    elif product.second.own.value != 1:
        staged, order = product.second.number, [rows, columns]
    yield Split(rows, tile[0])
    yield Split(columns, tile[1])
    summed, terms = [along], extents[product.along].value
    flows = block is not None and (terms is None or terms > block)
    if flows and block is not None:
        yield Split(along, block)
        summed.append(f"{along}'")
    outer = [v.name for v in body.domain.vars if v not in (product.rows, product.columns)]
    yield Order((*outer, *order, *summed, f"{rows}'", f"{columns}'"))
    if flows:
        yield Flush(along)
    if staged is not None:
        yield StageLoad(staged)
    yield Bind(f"{rows}'", Binding.UNROLL)
    yield Bind(f"{columns}'", Binding.VECTOR)


def _goes_across(body: Body, product: MatrixProduct) -> bool:
    """Whether the first factor is put into panels, and vectors go along its rows."""
    extents = dict(body.space.items())
    high, broad = hint(extents[product.rows]), hint(extents[product.columns])
    return product.second.own.value != 1 and high <= broad


def _rows_of(high: int) -> int:
    return min(ROWS, max(8, -(-high // 8) * 8))


def may_be_unrolled(nest: Nest, program: Program, plan: LoopPlan) -> Verdict:
    """KER007: whether the tiles of a schedule are those of a product, and lie as it can be done."""
    product = product_in(nest, program)
    if product is None:
        return no("KER007", nest=nest.name, reason="only a product of matrices has tiles")
    lanes = [(a.loop, a.part, a.binding) for a in plan.lanes]
    wanted = [
        (product.rows, AxisPart.WITHIN, Binding.UNROLL),
        (product.columns, AxisPart.WITHIN, Binding.VECTOR),
    ]
    summed = [a.loop for a in plan.inner if a.reduces]
    sizes = [a.size for a in plan.lanes]
    if lanes != wanted or set(summed) != {product.along} or plan.axes[-2:] != plan.lanes:
        return no("KER007", nest=nest.name, reason="a tile is walked by rows, then by columns")
    own = {product.first.number, product.second.number}
    across = plan.staged == {product.first.number}
    if not plan.staged <= own or len(plan.staged) > 1:
        return no("KER007", nest=nest.name, reason="one factor is staged at most")
    is_narrow = infer_types(nest.body, program.by_name)[product.first.number] is DType.F16
    if is_narrow and not across:
        return no("KER007", nest=nest.name, reason="a first factor of f16 that is not staged")
    if not plan.staged and product.second.own.value != 1:
        return no("KER007", nest=nest.name, reason="the second factor does not lie along columns")
    if across and (sizes[0] not in ACROSS or sizes[1] != TURNED_COLUMNS):
        return no("KER007", nest=nest.name, reason=f"a turned tile of {sizes[0]} by {sizes[1]}")
    if not across and (sizes[0] > ROWS or sizes[1] != COLUMNS):
        return no("KER007", nest=nest.name, reason=f"a tile of {sizes[0]} by {sizes[1]}")
    return yes("KER007", nest=nest.name)
