"""Changing frozen bodies: new bodies from old ones, the same object where nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.index import Domain, Expr
from treadle.ir.body import Body, Stmt, operands_of
from treadle.ir.inline import Copier
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.program import Group, Loop, Operation


def map_indices(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """The body with `change` applied to every index expression in it."""
    stmts = _map_block(body.stmts, change)
    return body if stmts is body.stmts else replace(body, stmts=stmts)


def _map_block(stmts: tuple[Stmt, ...], change: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    new = tuple([_map_stmt(s, change) for s in stmts])
    return stmts if all(a is b for a, b in zip(new, stmts, strict=True)) else new


def _map_stmt(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    attrs = tuple([change(a) if isinstance(a, Expr) else a for a in stmt.attrs])
    region = _map_block(stmt.region, change)
    same = region is stmt.region and all(a is b for a, b in zip(attrs, stmt.attrs, strict=True))
    return stmt if same else stmt._replace(attrs=attrs, region=region)


class Rewriter(Copier):
    """Copies a body statement by statement; knows what every new number stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, Stmt] = {}

    def emit(self, stmt: Stmt) -> int:
        """Append a statement of the new body; gives the number of its value."""
        number = super().emit(stmt)
        if OPS[stmt.op].produces:
            self.made[number] = stmt
        return number


def rewritten(body: Body, instead: Callable[[Rewriter, Stmt], int | None]) -> Body:
    """The body with values replaced by others, and without what nobody uses then.

    `instead` sees every statement as it would stand in the new body, operands by their new numbers
    (`rewriter.made` has their statements). It gives the number of the value to use in its place,
    one that is there or one it emits, or None to keep the statement.
    """
    replaced = False

    def expand(copier: Copier, stmt: Stmt) -> int | None:
        nonlocal replaced
        assert isinstance(copier, Rewriter)
        found = instead(copier, stmt)
        replaced = replaced or found is not None
        return found

    rewriter = Rewriter()
    rewriter.copy(body.stmts, {}, [0], {}, expand)
    return _without_unused(replace(body, stmts=tuple(rewriter.blocks[0]))) if replaced else body


def _without_unused(body: Body) -> Body:
    """The body without pointwise values that no statement uses; checks and memory stay."""
    used: set[int] = set()
    drop: set[int] = set()
    for number, stmt, _ in reversed(list(body.walk())):
        if number is not None and number not in used and stmt.op in POINTWISE:
            drop.add(number)
        else:
            used |= operands_of(stmt._replace(region=()))
    if not drop:
        return body
    copier, seen = Copier(), [0]
    copier.copy(body.stmts, {}, seen, {}, skip=lambda stmt: _number_before(seen, stmt) in drop)
    return replace(body, stmts=tuple(copier.blocks[0]))


def _number_before(seen: list[int], stmt: Stmt) -> int | None:
    """The old number of the statement that was counted last."""
    return seen[0] - 1 if OPS[stmt.op].produces else None


def with_loops(body: Body, domain: Domain, reduce: Domain) -> Body:
    """The body over other loops; its index expressions must already speak of them."""
    if domain is body.domain and reduce is body.reduce:
        return body
    return replace(body, domain=domain, reduce=reduce)


def map_loops(op: Operation, change: Callable[[Loop], Loop]) -> Operation:
    """The operation with `change` applied to each loop in it, groups included."""
    if isinstance(op, Loop):
        return change(op)
    if isinstance(op, Group):
        members = tuple([map_loops(m, change) for m in op.members])
        if any(a is not b for a, b in zip(members, op.members, strict=True)):
            return replace(op, members=members)
    return op
