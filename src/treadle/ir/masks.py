"""What a mask says of the places that are touched under it.

    %3 = lt (r + 1) // 2, 16
    %4 = masked %3 { load x[8*((r + 1) // 2)] }      x has 128 elements: 8*15 is the last place

Without the mask the index would run to 128. Each side of an `and` that compares an index with a
number narrows one variable part of it (a loop, a quotient); the index is then looked at over what
is left. Parts are taken for independent of each other, which can only make a proof fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.index import Expr, Facts, as_expr, loop
from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.limited import never_outside
from treadle.ir.spec_facts import facts_of
from treadle.ir.types import DType

EXACT = (DType.I32, DType.I64)
"""Types in which an index is compared as it is; of i32 only what fits."""
COMPARISONS = ("lt", "le", "gt", "ge", "eq")
LARGEST_I32 = (1 << 31) - 1


class MaskFacts:
    """The masks of one body: which accesses are inside their storage because of them."""

    def __init__(self, body: Body) -> None:
        self.facts = facts_of(body)
        self._values = {at.number: at.stmt for at in body.walk() if at.number is not None}
        self._narrowed: dict[tuple[int, ...], dict[Expr, tuple[int, int]]] = {}

    def within(self, index: Expr, limit: Expr, masks: Sequence[int]) -> bool:
        """Whether 0 <= index < limit provably wherever all the masks, value numbers, are true."""
        if self.facts.within(index, limit):
            return True
        if not masks:
            return False
        ranges = self._ranges(tuple(masks))
        if any(low > high for low, high in ranges.values()):
            return True  # it never happens
        narrow, extents = index, dict(self.facts.extents)
        for k, (part, (low, high)) in enumerate(ranges.items()):
            times = dict(index.terms).get(part)
            if times is None:
                continue
            fresh = loop(f"under_mask_{k}")
            extents[fresh] = as_expr(high - low + 1)
            narrow = narrow + (fresh + low - part) * times
        return narrow is not index and Facts(extents).within(narrow, limit)

    def may_stop(self, stmt: Stmt) -> bool:
        """Whether an index that data decide may be found outside: it is tested, and must be."""
        is_tested = stmt.op == "indirect" and bool(stmt.attr("check"))
        return is_tested and not never_outside(stmt, self.made_by, self.facts)

    def made_by(self, number: int) -> Stmt:
        """The statement that makes a value."""
        return self._values[number]

    def fits_32_bits(self, number: int) -> bool:
        """Whether a value is an index or a number that i32 has."""
        stmt = self._values[number]
        if stmt.op == "constant":
            literal = stmt.attr("value")
            value = literal.value if isinstance(literal, Literal) else None
            return type(value) is int and abs(value) <= LARGEST_I32
        e = stmt.attr("expr") if stmt.op == "index" else None
        return isinstance(e, Expr) and _fits(e, self.facts)

    def _ranges(self, masks: tuple[int, ...]) -> dict[Expr, tuple[int, int]]:
        """For parts of indices that the masks speak of, the first and last value they can have."""
        known = self._narrowed.get(masks)
        if known is not None:
            return known
        found: dict[Expr, tuple[int, int]] = {}
        for difference in (d for mask in masks for d in self._nonnegative(mask)):
            if len(difference.terms) != 1:
                continue
            ((part, times),) = difference.terms
            low, high = found.get(part) or self.facts.interval(part)
            if low is None or high is None:
                continue
            if times > 0:
                low = max(low, -(difference.const // times))
            else:
                high = min(high, difference.const // -times)
            found[part] = low, high
        self._narrowed[masks] = found
        return found

    def _nonnegative(self, mask: int) -> Iterator[Expr]:
        """Expressions that are at least 0 where the value is true."""
        stmt = self._values[mask]
        if stmt.op == "logical_and":
            for one in stmt.args:
                yield from self._nonnegative(one)
        if stmt.op not in COMPARISONS:
            return
        a, b = (whole_number(self._values[n], self.facts) for n in stmt.args)
        if a is not None and b is not None:
            yield from is_at_least_zero(stmt.op, a, b)


def is_at_least_zero(op: str, a: Expr, b: Expr) -> list[Expr]:
    """Expressions that are all at least 0 where a comparison of two indices is true, only there."""
    found = []
    if op in ("lt", "le", "eq"):
        found.append(b - a - (op == "lt"))
    if op in ("gt", "ge", "eq"):
        found.append(a - b - (op == "gt"))
    return found


def whole_number(stmt: Stmt, facts: Facts) -> Expr | None:
    """The whole number that a value is, exactly; None if it is something else."""
    if stmt.op == "constant":
        literal, dtype = stmt.attrs
        if isinstance(literal, Literal) and type(literal.value) is int and dtype in EXACT:
            return as_expr(literal.value)
        return None
    if stmt.op != "index":
        return None
    e, dtype = stmt.attrs
    assert isinstance(e, Expr), "an index has an expression"
    return e if dtype is DType.I64 or (dtype is DType.I32 and _fits(e, facts)) else None


def _fits(e: Expr, facts: Facts) -> bool:
    low, high = facts.interval(e)
    return low is not None and high is not None and low >= -LARGEST_I32 and high <= LARGEST_I32
