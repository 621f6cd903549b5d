"""Places in generated code that can fail, and what to say when one does.

A kernel that fails writes the number of the place, the numbers that were compared and the loop
point into the error record and returns nonzero; the runtime turns that into the error the
interpreter would have raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.index import Expr, Kind
from treadle.ir.body import Body, Stmt, number_of
from treadle.ir.text_print import PRINTERS

RECORD = 3
"""Numbers in the error record before the loop point: place, found, limit."""
LONGEST_POINT = 29


@dataclass(frozen=True)
class Site:
    """One place that can fail: the code, the words with {found} and {limit}, the loops around."""

    code: str
    operation: str
    message: str
    statement: str
    loops: tuple[str, ...] = ()
    has_point: bool = True

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations whose work is done here."""
        return tuple(self.operation.split("+"))

    def render(self, record: list[int]) -> tuple[str, tuple[str, ...]]:
        """The message and its notes for an error record that names this place."""
        found, limit = record[1:RECORD]
        raw = found - limit if found < 0 and "{raw}" in self.message else found
        words = self.message.replace("{found}", str(found)).replace("{raw}", str(raw))
        words = words.replace("{low}", str(-limit)).replace("{limit}", str(limit))
        notes = [f"statement: {self.statement}"]
        if self.has_point:
            point = record[RECORD : RECORD + len(self.loops)]
            pairs = zip(self.loops, point, strict=True)
            shown = ", ".join([f"{name} = {k}" for name, k in pairs])
            notes.append(f"at: {shown or 'the only point'}")
        return f"operation '{self.operation}': {words}", tuple(notes)


class Sites:
    """All places of a translation unit that can fail, numbered from 1."""

    def __init__(self) -> None:
        self.all: list[Site] = []

    def add(self, site: Site) -> int:
        """Register a place; gives its number."""
        self.all.append(site)
        return len(self.all)


def site(
    code: str, operation: str, message: str, stmt: Stmt, body: Body, has_point: bool = True
) -> Site:
    """A place at a statement of a body."""
    loops = tuple(v.name for v in body.space.vars[:LONGEST_POINT])
    return Site(code, operation, message, PRINTERS[stmt.op](stmt), loops, has_point)


def users_of(body: Body, number: int) -> list[str]:
    """Buffers that are addressed with the indirect value %number."""

    def uses(e: Expr) -> bool:
        return number in {number_of(s) for s in e.free if s.kind is Kind.INDIRECT}

    found = [b for b, e, _ in body.loads() if uses(e)]
    return found + [b for b, e, _, _ in body.stores() if uses(e)]
