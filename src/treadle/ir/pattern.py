"""What bodies have in common: programs repeat a few bodies many times, over other buffers.

    t1[i] = x[i] * 0.5    and    t2[i] = t1[i] * 0.5    are    b1[i] = b0[i] * 0.5

A pattern is a body whose buffers are called b0, b1, ... in order of first appearance. Equal ones
are one object, so what is found out about a pattern is found out once (`derive`) for all layers,
parameters and time steps of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from treadle.index import Domain
from treadle.ir.body import Body, Stmt
from treadle.ir.program import Loop
from treadle.ir.rewrite import map_stmts

T = TypeVar("T")
NAMES_A_BUFFER = frozenset({"load", "store", "bucketize"})
MOST_REMEMBERED = 16384


class Pattern:
    """A body over anonymous buffers, and what was found out about it."""

    __slots__ = ("_memo", "body")

    def __init__(self, body: Body) -> None:
        self.body = body
        self._memo: dict[object, Any] = {}

    def derive(self, question: Callable[[Body], T]) -> T:
        """`question(self.body)`, computed once: a frozen body cannot make an answer stale."""
        known = self._memo.get(question, self)
        if known is self:
            known = self._memo[question] = question(self.body)
        answer: T = known
        return answer


class Patterned(NamedTuple):
    """A loop as a pattern and the buffers it is about, in order of first appearance."""

    pattern: Pattern
    buffers: tuple[str, ...]


def pattern_of(op: Loop) -> Patterned:
    """The pattern of a loop and its buffers. Remembered on the operation, which is frozen."""
    known = op.__dict__.get("_pattern")
    if known is None:
        places: dict[str, int] = {}
        stmts = _anonymous(op.body.stmts, places)
        try:
            pattern = _interned(op.body.domain, op.body.reduce, stmts)
        except TypeError:  # an attribute that cannot be remembered: the verifier looks at it
            pattern = Pattern(Body(op.body.domain, op.body.reduce, stmts))
        known = op.__dict__["_pattern"] = Patterned(pattern, tuple(places))
    found: Patterned = known
    return found


def _anonymous(stmts: tuple[Stmt, ...], places: dict[str, int]) -> tuple[Stmt, ...]:
    def in_stmt(stmt: Stmt) -> Stmt:
        if stmt.op not in NAMES_A_BUFFER or not stmt.attrs:
            return stmt
        place = places.setdefault(stmt.buffer, len(places))
        return stmt.with_attr("buffer", f"b{place}")

    return map_stmts(stmts, in_stmt)


@lru_cache(maxsize=MOST_REMEMBERED)
def _interned(domain: Domain, reduce: Domain, stmts: tuple[Stmt, ...]) -> Pattern:
    return Pattern(Body(domain, reduce, stmts))


def place_of(name: str) -> int:
    """The position among `Patterned.buffers` of a pattern's buffer."""
    return int(name[1:])


def named(body: Body, buffers: Sequence[str]) -> Body:
    """A body made from a pattern's, over real buffers."""

    def in_stmt(stmt: Stmt) -> Stmt:
        if stmt.op not in NAMES_A_BUFFER:
            return stmt
        return stmt.with_attr("buffer", buffers[place_of(stmt.buffer)])

    return Body(body.domain, body.reduce, map_stmts(body.stmts, in_stmt))
