"""A function of a pair of query and key as lines of Triton, on tiles of pairs.

The kernel around it has the coordinates as `b`, `h`, `m` and `n`, shaped so that they broadcast.
What does not change while a kernel walks along a row is written once, before the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from treadle.codegen.triton.flex.spec import CAPTURED, RESULT, Points
from treadle.codegen.triton.index import TritonIndex
from treadle.codegen.triton.ops import inverse_of, pointwise
from treadle.codegen.triton.types import STORED, converted, held, literal, loaded
from treadle.index import Expr, Kind, Symbol
from treadle.ir.body import Literal, Stmt, number_of, operands_of
from treadle.ir.ops import POINTWISE
from treadle.ir.spec_facts import facts_of
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import infer_types

COORDINATES = ("b", "h", "m", "n")
NARROW = 1 << 31
WRITTEN = frozenset({"constant", "cast", "index", "indirect", "load", "store"})
"""Statements that can be written here besides pointwise operations."""


def why_no_points(points: Points) -> str | None:
    """What of a function has no form inside a kernel; None if all has."""
    for at in points.body.walk():
        if at.stmt.op not in WRITTEN and at.stmt.op not in POINTWISE:
            return f"{at.stmt.op} has no form inside of attention"
    return None


@dataclass
class PointLines:
    """Lines before the walk, lines at every step of it, and the name of the result."""

    early: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    result: str = ""
    varies: frozenset[str] = frozenset()
    """The coordinates that decide the result; `pair` if values of the kernel do."""


def write_points(
    points: Points, prefix: str, fixed: frozenset[str], is_short: bool = False
) -> PointLines:
    """The lines of a function; names begin with `prefix`, `fixed` coordinates do not change.

    `is_short`: what scores are worth is rounded to 16 bits, so that functions may be off by 1e-6.
    """
    return _PointWriter(points, prefix, fixed, is_short).write()


class _PointWriter:
    """Writes one function."""

    def __init__(self, points: Points, prefix: str, fixed: frozenset[str], is_short: bool) -> None:
        self.body, self.buffers, self.is_short = points.body, points.buffers, is_short
        self.prefix, self.fixed = prefix, fixed
        self.types = infer_types(points.body, points.buffers)
        loops = points.body.domain.vars
        self.names: Mapping[Symbol, str] = dict(zip(loops, COORDINATES, strict=True))
        self.index = TritonIndex(facts_of(points.body), self._symbol)
        self.values: dict[int, str] = {}
        self.varies: dict[int, frozenset[str]] = {}
        self.is_wide = False
        self.lines = PointLines()
        self.stmts = {at.number: at.stmt for at in self.body.walk() if at.number is not None}
        self.needed = self._needed()

    def _needed(self) -> set[int]:
        """The values that the result is made of: the others were only looked at."""
        found: set[int] = set()
        left = [a for at in self.body.walk() if at.stmt.op == "store" for a in at.stmt.args]
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                left += operands_of(self.stmts[number])
        return found

    def write(self) -> PointLines:
        """All statements, in order."""
        for at in self.body.walk():
            if at.stmt.op == "store":
                assert at.stmt.buffer == RESULT, "a function stores its result alone"
                (a,) = at.stmt.args
                self.lines.result, self.lines.varies = self.values[a], self.varies[a]
                continue
            assert at.number is not None, "what is no store gives a value"
            if at.number not in self.needed:
                continue
            text, varies = self._value(at.stmt, at.number)
            name = f"{self.prefix}{at.number}"
            self._place(varies).append(f"{name} = {text}")
            self.values[at.number], self.varies[at.number] = name, varies
            if at.stmt.op == "indirect" and at.stmt.attr("check"):
                size = self.index.write(_expr(at.stmt, "size"))
                fine = f"({name} >= 0) & ({name} < {size})"
                self._place(varies).append(f'tl.device_assert({fine}, "index out of bounds")')
        return self.lines

    def _place(self, varies: frozenset[str]) -> list[str]:
        return self.lines.early if varies <= self.fixed else self.lines.late

    def _symbol(self, s: Symbol) -> str:
        if s.kind is Kind.INDIRECT:
            return self.values[number_of(s)]
        if s.kind is Kind.SIZE:
            return f"n_{s.name}"
        name = self.names[s]
        return f"{name}.to(tl.int64)" if self.is_wide else name

    def _along(self, e: Expr) -> frozenset[str]:
        found = {self.names[s] for s in e.free if s.kind is Kind.LOOP}
        for s in e.free:
            if s.kind is Kind.INDIRECT:
                found |= self.varies[number_of(s)]
        return frozenset(found)

    def _type(self, number: int) -> DType:
        found = self.types[number]
        assert isinstance(found, DType), f"%{number} has several results"
        return found

    # -- statements --------------------------------------------------------------------------
    def _value(self, stmt: Stmt, number: int) -> tuple[str, frozenset[str]]:
        if stmt.op in POINTWISE:
            varies = frozenset[str]().union(*[self.varies[a] for a in stmt.args])
            values, types = [self.values[a] for a in stmt.args], [self._type(a) for a in stmt.args]
            if (inverse := self._inverse(stmt)) is not None:
                return f"{values[0]} * {inverse!r}", varies
            is_short = self.is_short and stmt.op == "tanh"
            text = pointwise(stmt.op, values, types, self.types[number], is_short=is_short)
            return text, varies
        return STATEMENTS[stmt.op](self, stmt, number)

    def _inverse(self, stmt: Stmt) -> float | None:
        """What to multiply with instead of a division of f32 by a constant, as exact as that."""
        if stmt.op != "truediv" or any(self._type(a) is not DType.F32 for a in stmt.args):
            return None
        return inverse_of(self.stmts[stmt.args[1]], is_short=True)

    def constant(self, stmt: Stmt, number: int) -> tuple[str, frozenset[str]]:
        """A literal."""
        value = stmt.attr("value")
        assert isinstance(value, Literal), "a constant has a literal"
        return literal(value.value, self._type(number)), frozenset()

    def cast(self, stmt: Stmt, number: int) -> tuple[str, frozenset[str]]:
        """A value of another type."""
        (a,) = stmt.args
        return converted(self.values[a], self._type(a), self._type(number)), self.varies[a]

    def place(self, stmt: Stmt, number: int) -> tuple[str, frozenset[str]]:
        """An index as a value."""
        e = _expr(stmt, "expr")
        kind = held(self._type(number))
        if e.value is not None:
            return f"tl.full([], {e.value}, {kind})", frozenset()
        return f"({self.index.write(e)}).to({kind})", self._along(e)

    def indirect(self, stmt: Stmt, number: int) -> tuple[str, frozenset[str]]:
        """A value that addresses may use; negative ones count from the end where that is meant."""
        (a,) = stmt.args
        given = converted(self.values[a], self._type(a), DType.I64)
        limit = self.index.write(_expr(stmt, "size"))
        text = f"tl.where({given} < 0, {given} + {limit}, {given})" if stmt.attr("wrap") else given
        return text, self.varies[a]

    def load(self, stmt: Stmt, number: int) -> tuple[str, frozenset[str]]:
        """A value of the kernel, or an element of a captured tensor."""
        name, e = stmt.buffer, stmt.address
        if not name.startswith(CAPTURED):
            return name, frozenset({*COORDINATES, "pair"})
        buffer = self.buffers[name]
        self.is_wide = is_wide(buffer)
        text = f"tl.load({name} + {self.index.write(e)})"
        self.is_wide = False
        return loaded(buffer.dtype, text), self._along(e)


def is_wide(buffer: Buffer) -> bool:
    """Whether places in a captured tensor need 64 bits."""
    numel = buffer.storage_numel.value
    return numel is None or numel >= NARROW


def pointer_to(buffer: Buffer) -> str:
    """The type of a pointer to the elements of a tensor."""
    return f"tl.pointer_type({STORED[buffer.dtype]})"


def _expr(stmt: Stmt, name: str) -> Expr:
    found = stmt.attr(name)
    assert isinstance(found, Expr), f"{stmt.op} has an index"
    return found


STATEMENTS: Mapping[str, Callable[[_PointWriter, Stmt, int], tuple[str, frozenset[str]]]] = {
    "constant": _PointWriter.constant,
    "cast": _PointWriter.cast,
    "index": _PointWriter.place,
    "indirect": _PointWriter.indirect,
    "load": _PointWriter.load,
}
