"""Products of slices of one tensor with the same matrix become one product.

    a = x[0] @ w ; b = x[1] @ w ; ...     the inputs of an unrolled recurrence
    ->   y = x[0:4] @ w ; a = y[0] ; b = y[1] ; ...

A product of few rows reads the whole matrix for little work. Runs of neighbours are joined as long
as the product has at most `MOST_ROWS` rows: a longer one gains little more, and holds results that
nobody needs yet. On a CPU a matrix that stays in the second cache is read again as quickly:
runs end where their rows fill the registers (`FULL_ROWS`), for more only hold more. On a GPU 256
rows take hardly longer than 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from treadle.frontends.torch import compat

ATEN: Any = torch.ops.aten
MOST_ROWS = {"cpu": 24, "cuda": 256}
"""Rows of a joined product, by the kind of device; on others nothing is joined."""
FULL_ROWS = 8
"""Multiples of so many rows are as fast as any on a CPU, if the matrix lies in the second cache."""
NEAR_SHARE = 4
"""The part of it that the matrix may take: there are other factors, and results."""


class _Product(NamedTuple):
    """A product of one slice of a tensor."""

    node: Any
    base: Any
    matrix: Any
    at: int
    rows: int
    depth: int
    most: int
    """Rows that a joined product may have."""
    full: int
    """Rows at whose multiples a joined product ends; 0: at none."""


def merge_products(gm: torch.fx.GraphModule) -> int:
    """Join products of neighbouring slices; gives how many products went."""
    groups: dict[tuple[Any, Any], dict[int, _Product]] = {}
    for node in gm.graph.nodes:
        found = _product(node)
        if found is not None:
            # Of several products of the same slice the first is enough: the others stay.
            groups.setdefault((found.base, found.matrix), {}).setdefault(found.at, found)
    gone = 0
    for products in groups.values():
        for run in _runs(products):
            gone += len(run) - 1
            _join(gm.graph, run)
    if gone:
        gm.graph.lint()
        gm.recompile()
    return gone


def _product(node: Any) -> _Product | None:
    if node.op != "call_function" or node.target is not ATEN.mm.default:
        return None
    one, matrix = node.args
    if one.op != "call_function" or one.target is not ATEN.select.int or one.args[1] != 0:
        return None
    base, at = one.args[0], one.args[2]
    value = base.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 3 or not isinstance(at, int):
        return None
    sizes = [*value.shape, *matrix.meta["val"].shape]
    if not all(type(n) is int for n in sizes) or not value.is_contiguous():
        return None
    length, rows, depth = sizes[:3]
    device = value.device.type
    most = MOST_ROWS.get(device, 0)
    is_near = device == "cpu" and matrix.meta["val"].nbytes * NEAR_SHARE <= compat.second_cache()
    if not most or 0 in sizes:
        return None
    return _Product(node, base, matrix, at % length, rows, depth, most, FULL_ROWS if is_near else 0)


def _runs(products: dict[int, _Product]) -> Iterator[list[_Product]]:
    """Neighbours that are joined: at least two, and no more rows than are worth it."""
    run: list[_Product] = []
    for at in sorted(products):
        one = products[at]
        if run and (at != run[-1].at + 1 or _is_full(run, one)):
            if len(run) > 1:
                yield run
            run = []
        run.append(one)
    if len(run) > 1:
        yield run


def _is_full(run: list[_Product], one: _Product) -> bool:
    """Whether a run ends before one more."""
    rows = len(run) * one.rows
    return rows + one.rows > one.most or (one.full > 0 and rows % one.full == 0)


def _join(graph: Any, run: list[_Product]) -> None:
    position = {node: k for k, node in enumerate(graph.nodes)}
    first = min(run, key=lambda p: position[p.node])
    about, count = run[0], len(run)

    def put(target: Any, *args: Any) -> Any:
        made = graph.call_function(target, args)
        values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
        with first.node.meta["val"].fake_mode:
            made.meta = {**first.node.meta, "val": target(*values)}
        return made

    with graph.inserting_before(first.node):
        part = put(ATEN.slice.Tensor, about.base, 0, about.at, about.at + count)
        flat = put(ATEN.view.default, part, [count * about.rows, about.depth])
        whole = put(ATEN.mm.default, flat, about.matrix)
        pieces = [
            put(ATEN.slice.Tensor, whole, 0, k * about.rows, (k + 1) * about.rows)
            for k in range(count)
        ]
    for one, piece in zip(run, pieces, strict=True):
        one.node.replace_all_uses_with(piece)
        graph.erase_node(one.node)
