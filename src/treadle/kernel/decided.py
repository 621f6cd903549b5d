"""A body over a part of its loops, without the questions that have one answer there.

    for i in 34:  %2 = ge (i - 1), 0;  %3 = masked %2 { load x[i - 1] }
    over i = 1 ...:                    %0 = load x[i]

Comparisons of indices are decided if they hold everywhere in the new loops or nowhere; with them
go masks, choices and logic made of them. Numbers that floats make are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from treadle.index import Domain, Expr, Facts, IntLike, Symbol
from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.masks import is_at_least_zero, whole_number
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import infer_types


def over_parts(
    body: Body,
    domain: Domain,
    parts: Sequence[Mapping[Symbol, IntLike]],
    buffers: Mapping[str, Buffer],
) -> Body:
    """The body at several points of old loops for each point of new ones, one after the other."""
    types = dict(enumerate(infer_types(body, buffers)))
    writer = Rewriter()
    for loops in parts:
        _AnsweringSource(writer, loops, (domain + body.reduce).facts, types).take(body.stmts)
    return Body(domain, body.reduce, pruned(writer.stmts))


class _AnsweringSource(BodySource):
    """Carries statements over, and answers what has one answer."""

    def __init__(
        self,
        to: Rewriter,
        loops: Mapping[Symbol, IntLike],
        facts: Facts,
        types: Mapping[int, object],
    ) -> None:
        super().__init__(to, loops)
        self.facts, self.types = facts, types

    def _index(self, e: Expr) -> Expr:
        return self.facts.simplify(super()._index(e))

    def _write(self, stmt: Stmt, old: int | None) -> None:
        new = None
        if old is not None and stmt.op in ANSWERS:
            new = ANSWERS[stmt.op](self, stmt, old)
        if old is None or new is None:
            super()._write(stmt, old)
        else:
            self.numbers[old] = new

    def known(self, old: int) -> bool | None:
        """The answer that a value is everywhere, if it is one."""
        made = self._to.made[self.numbers[old]]
        if made.op != "constant" or made.attr("dtype") is not DType.BOOL:
            return None
        literal = made.attr("value")
        assert isinstance(literal, Literal), "a constant has a value"
        return bool(literal.value)

    def answer(self, value: bool) -> int:
        """A constant answer."""
        return self._to.emit(Stmt("constant", (), (Literal(value), DType.BOOL)))

    def compared(self, stmt: Stmt, old: int) -> int | None:
        """A comparison of indices that holds everywhere or nowhere."""
        made = [self._to.made[self.numbers[a]] for a in stmt.args]
        a, b = (whole_number(one, self.facts) for one in made)
        if a is None or b is None:
            return None
        least = is_at_least_zero(stmt.op, a, b)
        if all(self.facts.nonnegative(d) for d in least):
            return self.answer(True)
        if any(self.facts.nonnegative(-d - 1) for d in least):
            return self.answer(False)
        return None

    def joined(self, stmt: Stmt, old: int) -> int | None:
        """`and` and `or`, of which one side is known."""
        decisive = stmt.op == "logical_or"
        answers = [self.known(a) for a in stmt.args]
        if decisive in answers:
            return self.answer(decisive)
        if None not in answers:
            return self.answer(not decisive)
        open_ones = [a for a, x in zip(stmt.args, answers, strict=True) if x is None]
        if len(open_ones) != 1 or self.types[open_ones[0]] is not DType.BOOL:
            return None
        return self.numbers[open_ones[0]]

    def negated(self, stmt: Stmt, old: int) -> int | None:
        """`not` of what is known."""
        found = self.known(stmt.args[0])
        return None if found is None else self.answer(not found)

    def chosen(self, stmt: Stmt, old: int) -> int | None:
        """The side of a choice that is always taken."""
        found = self.known(stmt.args[0])
        if found is None:
            return None
        side = stmt.args[1] if found else stmt.args[2]
        return self._as(self.types[old], side)

    def masked(self, stmt: Stmt, old: int) -> int | None:
        """What is always under a mask, or what stands in for it."""
        found = self.known(stmt.args[0])
        if found is None:
            return None
        if not found:
            return self._to.emit(Stmt("constant", (), (stmt.attr("other"), self.types[old])))
        *inner, last = stmt.region
        self.take(inner, old + 1)
        return self._as(self.types[old], last.args[0])

    def _as(self, wanted: object, old: int) -> int:
        """A value in the type that is wanted."""
        number = self.numbers[old]
        if self.types[old] is wanted:
            return number
        return self._to.emit(Stmt("cast", (number,), (wanted,)))


Answer = Callable[[_AnsweringSource, Stmt, int], "int | None"]
ANSWERS: Mapping[str, Answer] = {
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq"), _AnsweringSource.compared),
    "logical_and": _AnsweringSource.joined,
    "logical_or": _AnsweringSource.joined,
    "logical_not": _AnsweringSource.negated,
    "where": _AnsweringSource.chosen,
    "masked": _AnsweringSource.masked,
}
"""What may have one answer, and who looks for it."""
