"""The largest of a row and a sum of exponentials below it, in one walk instead of two.

    %1 = reduce max %0                      walk one
    %2 = sub %0, %1
    %3 = exp %2
    %4 = reduce sum %3                      walk two
    ->   %1 = reduce online_softmax %0      both in one walk: (largest, sum below it)

Worth it where a row does not fit into registers and is read from memory by every walk. A row of
-inf alone makes the sum NaN, as it was; everything that uses the steps in between still has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.rewrite import BodySource, Rewriter, pruned, values_in
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import infer_types


def with_online_sums(body: Body, buffers: Mapping[str, Buffer]) -> Body:
    """The body with each pair of such reductions as one; the same object if there is none."""
    found = _pairs(body, buffers)
    if not found:
        return body
    rewriter = Rewriter()
    source = BodySource(rewriter)
    sums: dict[int, int] = {}
    number = 0
    for stmt in body.stmts:
        made = number
        number += values_in(stmt) if stmt.region else OPS[stmt.op].produces
        if made in sums and stmt.op == "reduce":
            source.numbers[made] = sums.pop(made)
        elif made in found and stmt.op == "reduce":
            total = found[made]
            source.numbers[made], sums[total] = _together(rewriter, source, stmt)
        else:
            source.take((stmt,), made if OPS[stmt.op].produces else None)
    return replace(body, stmts=pruned(rewriter.stmts))


def _pairs(body: Body, buffers: Mapping[str, Buffer]) -> dict[int, int]:
    """Numbers of largest values, each with that of its sum."""
    types = infer_types(body, buffers)
    made = {at.number: at.stmt for at in body.walk() if at.number is not None and not at.depth}
    found: dict[int, int] = {}
    for number, stmt in made.items():
        if stmt.op != "reduce" or stmt.attr("kind") != "sum" or types[number] is not DType.F32:
            continue
        power = made.get(stmt.args[0])
        away = made.get(power.args[0]) if power is not None and power.op == "exp" else None
        if away is None or away.op != "sub":
            continue
        x, high = away.args
        top = made.get(high)
        if top is None or top.op != "reduce" or top.attr("kind") != "max":
            continue
        if types[high] is DType.F32 and _are_same(made, top.args[0], x):
            found.setdefault(high, number)
    return found


def _are_same(made: Mapping[int, Stmt], a: int, b: int) -> bool:
    """Whether two values are made of the same loads in the same way."""
    if a == b:
        return True
    one, other = made.get(a), made.get(b)
    if one is None or other is None or one.op != other.op or one.attrs != other.attrs:
        return False
    if (one.op not in POINTWISE and one.op not in ("cast", "constant")) or one.region:
        return False
    return all(_are_same(made, x, y) for x, y in zip(one.args, other.args, strict=True))


def _together(rewriter: Rewriter, source: BodySource, top: Stmt) -> tuple[int, int]:
    """Both results in the new body."""
    args = tuple([source.numbers[a] for a in top.args])
    both = rewriter.emit(Stmt("reduce", args, ("online_softmax", top.attr("dtype"))))
    high = rewriter.emit(Stmt("get", (both,), (0,)))
    below = rewriter.emit(Stmt("get", (both,), (1,)))
    lowest = rewriter.emit(Stmt("constant", (), (Literal(float("-inf")), DType.F32)))
    nothing = rewriter.emit(Stmt("eq", (high, lowest)))
    nan = rewriter.emit(Stmt("constant", (), (Literal(float("nan")), DType.F32)))
    return high, rewriter.emit(Stmt("where", (nothing, nan, below)))
