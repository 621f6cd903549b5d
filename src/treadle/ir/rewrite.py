"""Writing bodies anew: the one way in which statements get other numbers.

Statements refer to each other by number, so taking one out, putting one in or joining two bodies
changes the numbers of all that follow. A `Rewriter` writes the new body, a `BodySource` carries
statements of an old one over; operands, indices and regions follow:

    new = Rewriter()
    old = BodySource(new, loops={i: 63 - j})          # the old loops in terms of the new ones
    old.take(body.stmts)
    new.emit(Stmt("exp", (old.numbers[3],)))      # old.numbers: what old values are called now
    Body(domain, reduce, new.stmts)

What keeps its number needs none of this: `map_stmts` changes statements one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from treadle.index import Expr, IntLike, Kind, Symbol, substitute
from treadle.ir.body import Body, Stmt, number_of, value_symbol
from treadle.ir.ops import OPS, POINTWISE

Instead: TypeAlias = Callable[["Rewriter", Stmt], int | None]
"""For a statement as it would be written, the number of the value to use in its place, or None."""


class Rewriter:
    """Writes the statements of a new body; `made` has what every new number stands for."""

    def __init__(self) -> None:
        self.made: dict[int, Stmt] = {}
        self._next = 0
        self._blocks: list[list[Stmt]] = [[]]

    @property
    def stmts(self) -> tuple[Stmt, ...]:
        """What was written so far."""
        return tuple(self._blocks[0])

    @property
    def is_in_region(self) -> bool:
        """Whether what is written now stands in a region."""
        return len(self._blocks) > 1

    def emit(self, stmt: Stmt) -> int:
        """Write a statement; gives the number of its value."""
        number = self._next
        if OPS[stmt.op].produces:
            self.made[number] = stmt
            self._next += 1
        self._blocks[-1].append(stmt)
        return number

    def emit_with_region(self, stmt: Stmt, write: Callable[[], None]) -> int:
        """Write a statement with a region, which is what `write` writes."""
        number = self._next
        self._next += OPS[stmt.op].produces
        self._blocks.append([])
        write()
        whole = stmt._replace(region=tuple(self._blocks.pop()))
        self.made[number] = whole
        self._blocks[-1].append(whole)
        return number


class BodySource:
    """An old body on its way into a new one: which of its values are written, and as what."""

    def __init__(
        self,
        to: Rewriter,
        loops: Mapping[Symbol, IntLike] | None = None,
        instead: Instead | None = None,
        without: Collection[int] = (),
    ) -> None:
        """`loops`: the old loops in terms of the new; `without`: old numbers to leave out."""
        self.numbers: dict[int, int] = {}
        self._to, self._loops = to, dict(loops or {})
        self._instead, self._without = instead, without

    def take(self, stmts: Iterable[Stmt], first: int | None = 0) -> None:
        """Write `stmts`, whose values had the numbers from `first`; None if they have no values."""
        old = first
        for stmt in stmts:
            if not OPS[stmt.op].produces:
                self._write(stmt, None)
                continue
            assert old is not None, f"{stmt.op} has a value, so it had a number"
            if old not in self._without:
                self._write(stmt, old)
            old += values_in(stmt) if stmt.region else 1

    def _write(self, stmt: Stmt, old: int | None) -> None:
        numbers = self.numbers
        fresh = Stmt(
            stmt.op,
            tuple([numbers[a] for a in stmt.args]),
            tuple([self._index(a) if isinstance(a, Expr) else a for a in stmt.attrs]),
        )
        new = self._instead(self._to, fresh) if self._instead is not None else None
        if new is None:
            if stmt.region:
                inner = 0 if old is None else old + 1
                new = self._to.emit_with_region(fresh, lambda: self.take(stmt.region, inner))
            else:
                new = self._to.emit(fresh)
        if old is not None:
            numbers[old] = new

    def _index(self, e: Expr) -> Expr:
        indirect = [s for s in e.free if s.kind is Kind.INDIRECT]
        if not indirect:
            return substitute(e, self._loops) if self._loops else e
        values = dict(self._loops)
        for s in indirect:
            values[s] = value_symbol(self.numbers[number_of(s)])
        return substitute(e, values)


def values_in(stmt: Stmt) -> int:
    """How many values a statement makes, those in its region included."""
    return OPS[stmt.op].produces + sum(map(values_in, stmt.region))


def map_stmts(stmts: tuple[Stmt, ...], change: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
    """The statements with `change` applied to each, regions first; the same object if to none."""
    found = []
    is_same = True
    for stmt in stmts:
        new = stmt
        if stmt.region:
            region = map_stmts(stmt.region, change)
            if region is not stmt.region:
                new = stmt._replace(region=region)
        new = change(new)
        is_same = is_same and new is stmt
        found.append(new)
    return stmts if is_same else tuple(found)


def rewritten(body: Body, instead: Instead) -> Body:
    """The body with values replaced by others, and without what nobody uses then.

    `instead` sees every statement as it would stand in the new body, operands by their new numbers
    (`rewriter.made` has their statements). It gives the number of the value to use in its place,
    one that is there or one it emits, or None to keep the statement.
    """
    replaced = False

    def noted(rewriter: Rewriter, stmt: Stmt) -> int | None:
        nonlocal replaced
        found = instead(rewriter, stmt)
        replaced = replaced or found is not None
        return found

    rewriter = Rewriter()
    BodySource(rewriter, instead=noted).take(body.stmts)
    if not replaced:
        return body
    return replace(body, stmts=pruned(rewriter.stmts, lambda stmt: stmt.op not in POINTWISE))


def pruned(
    stmts: tuple[Stmt, ...], is_kept: Callable[[Stmt], bool] | None = None
) -> tuple[Stmt, ...]:
    """What is to be kept (stores, assertions, impure assembly), and the values that needs."""
    dead: set[int] = set()
    _find_dead(stmts, 0, is_kept or _acts, set(), dead)
    if not dead:
        return stmts
    rewriter = Rewriter()
    BodySource(rewriter, without=dead).take(stmts)
    return rewriter.stmts


def _find_dead(
    stmts: tuple[Stmt, ...],
    first: int,
    is_kept: Callable[[Stmt], bool],
    needed: set[int],
    dead: set[int],
) -> None:
    """From the last statement to the first: those that none of the later ones need."""
    numbers = []
    for stmt in stmts:
        numbers.append(first)
        first += values_in(stmt) if stmt.region else OPS[stmt.op].produces
    for number, stmt in zip(reversed(numbers), reversed(stmts), strict=True):
        produces = OPS[stmt.op].produces
        if produces and number not in needed and not is_kept(stmt):
            dead.add(number)
            continue
        needed.update(stmt.args)
        for a in stmt.attrs:
            if isinstance(a, Expr):
                needed.update([number_of(s) for s in a.free if s.kind is Kind.INDIRECT])
        if stmt.region:
            _find_dead(stmt.region, number + produces, is_kept, needed, dead)


def acts(body: Body) -> bool:
    """Whether a body does anything that shows."""
    return any(map(_acts, body.stmts))


def _acts(stmt: Stmt) -> bool:
    if stmt.op in ("store", "assert"):
        return True
    if stmt.op == "inline_asm" and not stmt.attr("is_pure"):
        return True
    return any(map(_acts, stmt.region))
