"""A sum that has one term: what is picked by its place need not be looked for.

    %3 = eq (index r), (index %1)            true at one step of r
    %4 = where %3, %2, 0.0
    %6 = mul %4, %5
    %7 = reduce sum %6       ->   %7 = %2 * %5 + 0.0 * %5     and %1 is still checked

Everything else is zero, or NaN where it is zero times something that is not finite: that term is
kept. The gradient of a loss that picks a class from each row has such sums.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.index import Domain, Expr, Kind, Symbol
from treadle.ir.body import Body, Literal, Stmt, number_of
from treadle.ir.ops import OPS
from treadle.ir.rewrite import BodySource, Rewriter, pruned, values_in
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import ValueType, infer_types


def with_picked_sums(body: Body, buffers: Mapping[str, Buffer]) -> Body:
    """The body with such sums as their terms; the same object if there is none.

    Where that leaves nothing along the reduction, its loop goes.
    """
    ops = {stmt.op for stmt in body.stmts}
    if len(body.reduce) != 1 or not ops >= {"reduce", "eq", "where", "index"}:
        return body
    finder = _Finder(body, infer_types(body, buffers))
    found = [n for n in finder.sums() if finder.picks(finder.made[n].args[0])]
    if not found:
        return body
    rewriter = Rewriter()
    source = BodySource(rewriter)
    number = 0
    for stmt in body.stmts:
        made = number
        number += values_in(stmt) if stmt.region else OPS[stmt.op].produces
        if made in found and stmt.op == "reduce":
            (a,) = stmt.args
            terms = [finder.write(rewriter, source, a, at) for at in (True, False)]
            source.numbers[made] = rewriter.emit(Stmt("add", tuple(terms)))
        else:
            source.take((stmt,), made if OPS[stmt.op].produces else None)
    stmts = pruned(rewriter.stmts)
    is_idle = not any(_needs(stmt, finder.loop) for stmt in stmts)
    return Body(body.domain, Domain() if is_idle else body.reduce, stmts)


def _needs(stmt: Stmt, loop: Symbol) -> bool:
    """Whether a statement goes along a loop."""
    along = any(loop in a.free for a in stmt.attrs if isinstance(a, Expr))
    return along or stmt.op == "reduce" or any(_needs(inner, loop) for inner in stmt.region)


class _Finder:
    """What of a body is picked by its place."""

    def __init__(self, body: Body, types: list[ValueType]) -> None:
        self.body, self.types = body, types
        self.made = {
            at.number: at.stmt for at in body.walk() if at.number is not None and not at.depth
        }
        (self.loop,) = body.reduce.vars
        self._varies: dict[int, bool] = {}

    def sums(self) -> list[int]:
        """Numbers of sums in f32."""
        found = [n for n, s in self.made.items() if s.op == "reduce" and s.attr("kind") == "sum"]
        return [n for n in found if self.types[n] is DType.F32]

    def varies(self, number: int) -> bool:
        """Whether a value differs along the reduction."""
        if number not in self._varies:
            stmt = self.made.get(number)
            if stmt is None or stmt.region:
                self._varies[number] = True
            elif stmt.op == "reduce":
                self._varies[number] = False
            else:
                places = [a for a in stmt.attrs if isinstance(a, Expr)]
                used = [*stmt.args, *[number_of(s) for e in places for s in e.free if _is_value(s)]]
                self._varies[number] = any(self.loop in e.free for e in places) or any(
                    self.varies(a) for a in used
                )
        return self._varies[number]

    def picks(self, number: int) -> bool:
        """Whether a value is something at one step, and zero or NaN at all others."""
        stmt = self.made.get(number)
        if stmt is None or not self._is_float(number):
            return False
        if stmt.op == "where":
            condition, some, none = stmt.args
            is_one = self._is_one_place(condition) and not self.varies(some)
            return is_one and self._is_zero(none) and self._is_float(some)
        if stmt.op in ("neg", "cast"):  # zero and NaN are in every float type
            return self.picks(stmt.args[0])
        if stmt.op == "mul":
            a, b = stmt.args
            return (self.picks(a) and not self.varies(b)) or (self.picks(b) and not self.varies(a))
        return False

    def _is_float(self, number: int) -> bool:
        found = self.types[number]
        return isinstance(found, DType) and found.is_float

    def _is_one_place(self, number: int) -> bool:
        """Whether a condition is true at exactly one step."""
        stmt = self.made.get(number)
        return stmt is not None and stmt.op == "eq" and self._place_of(number) >= 0

    def _place_of(self, condition: int) -> int:
        """The number of the place that a condition compares the loop with; -1 if it does not."""
        args = self.made[condition].args
        for here, there in (args, args[::-1]):
            one, other = self.made.get(here), self.made.get(there)
            if one is None or other is None or one.op != "index" or other.op != "index":
                continue
            if one.attr("expr") is self.loop and self._is_inside(other.attr("expr")):
                return there
        return -1

    def _is_inside(self, place: object) -> bool:
        """Whether a place is a step of the loop: a value that was checked to be one."""
        if not isinstance(place, Symbol) or not _is_value(place):
            return False
        stmt = self.made.get(number_of(place))
        if stmt is None or stmt.op != "indirect" or not stmt.attr("check"):
            return False
        return stmt.attr("size") is self.body.reduce.numel and not self.varies(number_of(place))

    def _is_zero(self, number: int) -> bool:
        stmt = self.made.get(number)
        if stmt is None or stmt.op != "constant":
            return False
        value = stmt.attr("value")
        return isinstance(value, Literal) and value.value == 0

    def write(self, rewriter: Rewriter, source: BodySource, number: int, at: bool) -> int:
        """The value at the one place, or anywhere else."""
        if not self.varies(number):
            return source.numbers[number]
        stmt = self.made[number]
        if stmt.op == "where":
            condition, some, none = stmt.args
            if not at:
                return source.numbers[none]
            # Whoever asks for the place asks for it to be checked.
            place = source.numbers[self._place_of(condition)]
            there = rewriter.emit(Stmt("eq", (place, place)))
            given = (there, source.numbers[some], source.numbers[none])
            return rewriter.emit(Stmt("where", given))
        args = tuple([self.write(rewriter, source, a, at) for a in stmt.args])
        return rewriter.emit(Stmt(stmt.op, args, stmt.attrs))


def _is_value(s: Symbol) -> bool:
    return s.kind is Kind.INDIRECT
