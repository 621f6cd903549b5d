"""Whole numbers that limits keep inside: an index made of them needs no test.

%3 = maximum %2, 0
%4 = minimum %3, 31
%5 = indirect %4 size 32 check       never outside, whatever %2 is
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.index import Expr, Facts
from treadle.ir.body import Literal, Stmt

Made = Callable[[int], Stmt]
"""The statement that makes a value."""
Range = tuple[int | None, int | None]
"""The least and the largest a whole number can be; None where nothing is known."""
DEEPEST = 8
LARGEST = (1 << 31) - 1
"""Indices up to here are kept by every type that they are made in."""
NOTHING: Range = (None, None)


def never_outside(stmt: Stmt, made: Made, facts: Facts) -> bool:
    """Whether an `indirect` statement is inside its size by what limits it."""
    size = stmt.attr("size")
    if not isinstance(size, Expr) or size.value is None:
        return False
    low, high = range_of(stmt.args[0], made, facts)
    return low is not None and high is not None and low >= 0 and high < size.value


def range_of(number: int, made: Made, facts: Facts, deep: int = 0) -> Range:
    """Between which numbers a value lies, by its limits; a value that is no whole number: nothing.

    Only statements that cannot leave their type are looked through, so that nothing wraps around.
    """
    stmt = made(number)
    if stmt.op == "constant":
        literal = stmt.attr("value")
        value = literal.value if isinstance(literal, Literal) else None
        return (value, value) if type(value) is int else NOTHING
    if stmt.op == "index":
        e = stmt.attr("expr")
        if not isinstance(e, Expr):
            return NOTHING
        low, high = facts.interval(e)
        is_kept = low is not None and high is not None and low >= -LARGEST and high <= LARGEST
        return (low, high) if is_kept else NOTHING
    if stmt.op in ("maximum", "minimum") and deep < DEEPEST:
        (a, b), (c, d) = [range_of(n, made, facts, deep + 1) for n in stmt.args]
        if stmt.op == "maximum":
            return _known(max, a, c), _both(max, b, d)
        return _both(min, a, c), _known(min, b, d)
    return NOTHING


def _known(best: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    """What holds if it holds of one of two."""
    if a is None or b is None:
        return b if a is None else a
    return best(a, b)


def _both(best: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else best(a, b)
