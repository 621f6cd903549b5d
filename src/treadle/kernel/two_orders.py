"""A nest that goes through the same data along rows and along columns, put in order.

    s[i] = sum over r of x[i, r];  t[i] = sum over r of x[r, i]      a square: the loops look alike
    ->   a[j] = 0                                                    first nest
         s[i] = sum over r of x[i, r]; a[r] += x[i, r]               x is read once, along its rows
         t[j] = a[j]                                                 last nest

Two kernels over a square have the same loops, whatever they do there, and may have been joined for
the data they share. Walked as it stands, one of the two would step from line to line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from treadle.core.verdict import Verdict
from treadle.index import Symbol, coefficient
from treadle.ir.body import Body, Stmt, operands_of
from treadle.ir.ops import OPS
from treadle.ir.program import Loop, Nest, Program
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.kernel.mixing import mixed_nests
from treadle.kernel.renest import Renested, TopStatement, top_statements, touches

ONE_BY_ONE = ("reduce_part", "scan", "sort", "assert", "inline_asm")


def two_orders(nest: Nest, program: Program, name: Callable[[], str]) -> Renested | None:
    """The nests that do its work along rows; None if it has no columns, or nothing but columns."""
    body = nest.body
    if len(body.domain) != 1 or len(body.reduce) != 1:
        return None
    if body.domain.numel is not body.reduce.numel:
        return None
    if any(at.stmt.op in ONE_BY_ONE for at in body.walk()):
        return None
    return _TwoOrders(nest, program).bodies(name)


class _TwoOrders:
    """One nest on its way apart."""

    def __init__(self, nest: Nest, program: Program) -> None:
        self.nest, self.body, self.program = nest, nest.body, program
        self.tops = top_statements(nest.body)
        self.made = {t.number: t for t in self.tops if OPS[t.stmt.op].produces}
        (self.point,), (self.inner,) = nest.body.domain.vars, nest.body.reduce.vars

    def bodies(self, name: Callable[[], str]) -> Renested | None:
        """The nests, if rows and columns have nothing to do with each other."""
        across = {n for n, t in self.made.items() if t.stmt.op == "reduce" and self._is_across(t)}
        rows: list[TopStatement] = []
        columns: list[TopStatement] = []
        for top in self.tops:
            if OPS[top.stmt.op].produces:
                continue
            sums = {t.number for t in self._used(top, through=True) if t.stmt.op == "reduce"}
            if sums & across and (sums - across or top.varies):
                return None
            (columns if sums & across else rows).append(top)
        if not columns or not any(self._reduces(top) for top in rows):
            return None
        if not self._apart(rows, columns):
            return None
        parts = [self._half(rows), self._half(columns)]
        names = [f"{self.nest.name}_{side}" for side in ("rows", "columns")]
        device = self.nest.device
        rows_side, columns_side = (
            Loop(name=n, device=device, body=b) for n, b in zip(names, parts, strict=True)
        )
        mixed = mixed_nests(self.program, (rows_side, columns_side), name)
        if isinstance(mixed, Verdict):
            return Renested(tuple(parts), ())
        found = [mixed.first, mixed.middle, mixed.last]
        pure = [replace(b, stmts=pruned(b.stmts)) for b in found]
        return Renested(tuple(pure), mixed.buffers)

    def _is_across(self, top: TopStatement) -> bool:
        """Whether a reduction steps over lines wherever it steps from element to element."""
        steps = [self._steps(t.stmt) for t in self._used(top, through=False)]
        known = [one for one in steps if one is not None]
        return bool(known) and all(abs(along) > 1 and abs(point) == 1 for along, point in known)

    def _steps(self, stmt: Stmt) -> tuple[int, int] | None:
        """How far a load goes with the inner loop and with the outer one, if with both."""
        if stmt.op != "load":
            return None
        found = [self._step(stmt, v) for v in (self.inner, self.point)]
        return None if 0 in found else (found[0], found[1])

    def _step(self, stmt: Stmt, v: Symbol) -> int:
        step = coefficient(stmt.address, v)
        return 1 << 30 if step is None or step.value is None else step.value

    def _reduces(self, top: TopStatement) -> bool:
        return any(t.stmt.op == "reduce" for t in self._used(top, through=True))

    def _used(self, top: TopStatement, *, through: bool) -> list[TopStatement]:
        """What a statement uses; `through` reductions, or up to them."""
        found: dict[int, TopStatement] = {}
        pending = [top]
        while pending:
            for number in operands_of(pending.pop().stmt) & set(self.made):
                one = self.made[number]
                if number not in found:
                    found[number] = one
                    if through or one.stmt.op != "reduce":
                        pending.append(one)
        return list(found.values())

    def _apart(self, rows: Sequence[TopStatement], columns: Sequence[TopStatement]) -> bool:
        """Whether no storage that one half writes is touched by the other."""
        halves = [self._touched(rows), self._touched(columns)]
        shared = set(halves[0]) & set(halves[1])
        return not any(half[s] for half in halves for s in shared)

    def _touched(self, tops: Sequence[TopStatement]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for top in tops:
            for one in (top, *self._used(top, through=True)):
                for buffer, stores in touches(one.stmt):
                    storage = self.program.storage_of(buffer)
                    found[storage] = found.get(storage, False) or stores
        return found

    def _half(self, acting: Sequence[TopStatement]) -> Body:
        source = BodySource(writer := Rewriter())
        for top in acting:
            self._copy(source, top)
        return Body(self.body.domain, self.body.reduce, writer.stmts)

    def _copy(self, source: BodySource, top: TopStatement) -> None:
        number = top.number if OPS[top.stmt.op].produces else None
        if number is not None and number in source.numbers:
            return
        for used in sorted(operands_of(top.stmt) & set(self.made)):
            self._copy(source, self.made[used])
        source.take((top.stmt,), number)
