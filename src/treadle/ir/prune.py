"""Leaving out statements whose values nobody uses, and numbering the rest anew."""

from __future__ import annotations

from treadle.ir.body import Body, Stmt, operands_of
from treadle.ir.inline import Copier
from treadle.ir.ops import OPS


def pruned(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements that act (stores, assertions, impure assembly), and what those need."""
    numbers: list[int] = []
    counter = 0
    for stmt in stmts:
        numbers.append(counter)
        counter += _count(stmt)
    needed: set[int] = set()
    dead: set[int] = set()
    for at in range(len(stmts) - 1, -1, -1):
        stmt = stmts[at]
        if _acts(stmt) or (numbers[at] in needed and OPS[stmt.op].produces):
            needed |= operands_of(stmt)
        else:
            dead.add(at)
    if not dead:
        return stmts
    copier, names = Copier(), dict[int, int]()
    for at, stmt in enumerate(stmts):
        if at not in dead:
            copier.copy((stmt,), names, [numbers[at]], {})
    return tuple(copier.blocks[0])


def acts(body: Body) -> bool:
    """Whether a body does anything that shows."""
    return any(map(_acts, body.stmts))


def _acts(stmt: Stmt) -> bool:
    if stmt.op in ("store", "assert"):
        return True
    if stmt.op == "inline_asm" and not stmt.attr("is_pure"):
        return True
    return any(map(_acts, stmt.region))


def _count(stmt: Stmt) -> int:
    return OPS[stmt.op].produces + sum(map(_count, stmt.region))
