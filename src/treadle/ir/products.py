"""Bodies that multiply two matrices: what of them is which.

    for i, j reduce r:  %0 = load x[k*i + r] ; %1 = load w[r*n + j] ; %2 = reduce dot %0, %1 ; ...

Every element of the one is used for all columns, every element of the other for all rows. What
follows the sum may do anything at its own point; other loops stand around both.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.index import Expr, Kind, Symbol, coefficient
from treadle.ir.body import Body, Stmt


@dataclass(frozen=True)
class Factor:
    """One of the two matrices: the load, and how it lies."""

    number: int
    stmt: Stmt
    own: Expr
    """The step along its own loop: rows for the first factor, columns for the second."""
    along: Expr
    """The step along the loop that is summed over."""


@dataclass(frozen=True)
class MatrixProduct:
    """What a body multiplies."""

    number: int
    """The value of the sum."""
    rows: Symbol
    columns: Symbol
    along: Symbol
    first: Factor
    second: Factor

    @property
    def factors(self) -> tuple[Factor, Factor]:
        """Both."""
        return self.first, self.second


def product_of(body: Body) -> MatrixProduct | None:
    """The product that a body consists of, with whatever follows at each point; None if none."""
    sums = [at for at in body.walk() if at.stmt.op in ("reduce", "reduce_part", "scan", "sort")]
    if len(body.reduce) != 1 or len(body.domain) < 2 or len(sums) != 1:
        return None
    (total,) = sums
    is_dot = total.stmt.op == "reduce" and total.stmt.attr("kind") == "dot"
    if not is_dot or total.depth or total.number is None:
        return None
    rows, columns = body.domain.vars[-2:]
    along = body.reduce.vars[0]
    made = {at.number: at for at in body.walk() if at.number is not None}
    casts = [made[n] for n in total.stmt.args if made[n].stmt.op == "cast"]
    numbers = [made[n].stmt.args[0] if made[n] in casts else n for n in total.stmt.args]
    loads = [made[n] for n in numbers]
    if any(at.stmt.op != "load" or at.depth for at in loads) or loads[0] is loads[1]:
        return None
    if _varies_otherwise(body, along, {id(at.stmt) for at in (*loads, *casts)}):
        return None
    pairs = list(zip(numbers, [at.stmt for at in loads], strict=True))
    for one, other in (pairs, pairs[::-1]):
        first = _factor(*one, rows, columns, along)
        second = _factor(*other, columns, rows, along)
        if first is not None and second is not None:
            return MatrixProduct(total.number, rows, columns, along, first, second)
    return None


def is_product(body: Body) -> bool:
    """Whether a body multiplies two matrices."""
    return product_of(body) is not None


def _factor(number: int, stmt: Stmt, own: Symbol, other: Symbol, along: Symbol) -> Factor | None:
    """A load as a factor: linear along its own loops, the same along the other one."""
    index = stmt.address
    steps = [coefficient(index, own), coefficient(index, along)]
    if other in index.free or any(s.kind is Kind.INDIRECT for s in index.free):
        return None
    if steps[0] is None or steps[1] is None or {own, along} & (steps[0].free | steps[1].free):
        return None
    if not {own, along} <= index.free:
        return None
    return Factor(number, stmt, steps[0], steps[1])


def _varies_otherwise(body: Body, along: Symbol, known: set[int]) -> bool:
    """Whether anything but the two loads speaks of the loop that is summed over."""
    for at in body.walk():
        if id(at.stmt) in known:
            continue
        if any(isinstance(a, Expr) and along in a.free for a in at.stmt.attrs):
            return True
        if at.stmt.op != "reduce" and any(id(s) in known for s in _used(body, at.stmt)):
            return True
    return False


def _used(body: Body, stmt: Stmt) -> list[Stmt]:
    made = {at.number: at.stmt for at in body.walk() if at.number is not None}
    return [made[n] for n in stmt.args if n in made]
