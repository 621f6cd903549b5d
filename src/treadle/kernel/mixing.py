"""A reduction of rows and one of columns in one walk over the data that both read.

    rows      s[i] = sum over j of x[i, j]
    columns   t[j] = 2 * sum over i of x[i, j]
    ->        a[j] = 0                              for j                first nest
              s[i] = sum of x[i, j]; a[j] += x[i, j]   for i, inner j    x is read once
              t[j] = 2 * a[j]                       for j                last nest

What columns add or multiply up is held in f64, as any reduction is, and rounded once at the end.
What one side makes of each element the other may use, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from treadle.core.verdict import Verdict, no
from treadle.index import Domain, Expr, IntLike, Symbol, as_expr, coefficient, floordiv, mod
from treadle.index.expr import mul
from treadle.ir.body import Body, Literal, Stmt, operands_of
from treadle.ir.effects import effects
from treadle.ir.program import Loop, Program
from treadle.ir.reduced import levels_of, reduced_once
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import infer_types
from treadle.kernel.common_loops import CommonLoops
from treadle.kernel.joining import Joined

MODES = {"sum": "atomic_add", "prod": "atomic_mul", "max": "atomic_max", "min": "atomic_min"}
"""Reductions of columns that can be made of partial results, and how one adds to what is there."""
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


class Mixed(NamedTuple):
    """The bodies of the three nests, and the buffers they need for partial results."""

    first: Body
    middle: Body
    last: Body
    buffers: tuple[Buffer, ...]


def mixed_nests(
    program: Program, sides: tuple[Loop, Loop], name: Callable[[], str]
) -> Mixed | Verdict:
    """The nests of a mixed kernel, or why it reads its data twice (KER005)."""
    for rows, columns in (sides, sides[::-1]):
        if _walks_straight(rows.body) and not _walks_straight(columns.body):
            return _mixed(program, rows, columns, name)
    return no("KER005", reason="no side walks straight through its rows")


def _walks_straight(body: Body) -> bool:
    """Whether the innermost loop steps from one element to the next wherever it steps at all."""
    if not len(body.reduce):
        return False
    inner = body.reduce.vars[-1]
    steps = [coefficient(index, inner) for _, index, _ in body.loads() if inner in index.free]
    return bool(steps) and all(s is not None and s.value == 1 for s in steps)


def _mixed(program: Program, rows: Loop, columns: Loop, name: Callable[[], str]) -> Mixed | Verdict:
    a, b = rows.body, columns.body
    if a.domain.numel is not b.reduce.numel or a.reduce.numel is not b.domain.numel:
        return no("KER005", reason="shapes that are not transposed", rows=rows.name)
    kinds = {str(s.attr("kind")) for s in b.stmts if s.op == "reduce"}
    if not kinds or kinds - set(MODES) or not reduced_once(b, elementwise=True):
        return no("KER005", reason="columns that are not made of partial results")
    halves = _Halves(program, columns, name)
    if isinstance(found := halves.split(), Verdict):
        return found
    adding, last = found
    storage = program.storage_of
    results = {storage(n) for n, _, _, _ in last.stores()}
    if results & {storage(n) for n in effects(rows).touched}:
        return no("KER005", reason="rows that need what columns come to", rows=rows.name)
    values = dict(_digits(b.domain, _position(a.reduce)))
    values.update(_digits(b.reduce, _position(a.domain)))
    own: dict[Symbol, IntLike] = {v: v for v in a.space.vars}
    joined = Joined(with_buffers(program, halves.buffers),
                    CommonLoops(a.domain, a.reduce, (own, values), (None, None)))  # fmt: skip
    sides = [(rows, own), (adding, values)]
    made = {storage(n) for n, _, mode, _ in adding.body.stores() if mode == "plain"}
    if made & {storage(n) for n in effects(rows).reads}:
        sides.reverse()
    for op, loops in sides:
        verdict = joined.add(op, loops)
        if not verdict:
            return verdict
    return Mixed(halves.first(), joined.body(), last, tuple(halves.buffers))


def with_buffers(program: Program, buffers: Sequence[Buffer]) -> Program:
    """The program with more buffers; all else that it states stays."""
    return replace(program, buffers=(*program.buffers, *buffers))


def _position(domain: Domain) -> Expr:
    """The number of a point in loop order; the only point of no loops is number 0."""
    total: Expr | None = None
    for v, n in domain.items():
        total = v if total is None else mul(total, n) + v
    return as_expr(0) if total is None else total


def _digits(domain: Domain, position: Expr) -> Iterator[tuple[Symbol, IntLike]]:
    """The loops of a domain at the point of this number."""
    within: Expr | None = None
    for v, n in reversed(list(domain.items())):
        at = position if within is None else floordiv(position, within)
        yield v, at if v is domain.vars[0] else mod(at, n)
        within = n if within is None else mul(within, n)


class _Halves:
    """The columns side: what happens at every element, and what happens to the results."""

    def __init__(self, program: Program, op: Loop, name: Callable[[], str]) -> None:
        self.program, self.op, self.name = program, op, name
        self.types = infer_types(op.body, program.by_name)
        self.buffers: list[Buffer] = []
        self.kinds: list[str] = []
        self.layout = Layout.contiguous(op.body.domain.extents)
        self.at = self.layout.index(op.body.domain.vars)

    def first(self) -> Body:
        """Every partial result begins with what adds nothing."""
        stmts: list[Stmt] = []
        for number, (buffer, kind) in enumerate(zip(self.buffers, self.kinds, strict=True)):
            value = IDENTITY[kind]
            literal = Literal(value if buffer.dtype.is_float else int(value))
            stmts.append(Stmt("constant", (), (literal, buffer.dtype)))
            stmts.append(Stmt("store", (number,), (buffer.name, self.at, "plain", False)))
        return Body(self.op.body.domain, Domain(), tuple(stmts))

    def split(self) -> tuple[Loop, Body] | Verdict:
        """A loop over all elements that adds to partial results, and the body that uses them."""
        body = self.op.body
        varies, reduced = levels_of(body)
        one, two = Rewriter(), Rewriter()
        ones, twos = BodySource(one), BodySource(two)
        for at in body.walk():
            if at.depth:
                continue
            if at.stmt.op == "reduce" and at.number is not None:
                found = self._reduce(one, ones, two, at.stmt, at.number)
                if isinstance(found, Verdict):
                    return found
                twos.numbers[at.number] = found
            elif at.number is None and self._is_elementwise(at.stmt, varies):
                self._copy(ones, at.stmt, None)
            elif at.number in reduced or at.number is None:
                self._copy(twos, at.stmt, at.number)
        whole = Body(body.domain + body.reduce, Domain(), one.stmts)
        adding = Loop(name=self.op.name, device=self.op.device, body=whole)
        return adding, Body(body.domain, Domain(), two.stmts)

    def _is_elementwise(self, stmt: Stmt, varies: set[int]) -> bool:
        """Whether a statement happens at every element."""
        along = not stmt.address.free.isdisjoint(self.op.body.reduce.vars)
        return along or bool(operands_of(stmt) & varies)

    def _reduce(
        self, one: Rewriter, ones: BodySource, two: Rewriter, stmt: Stmt, number: int
    ) -> int | Verdict:
        """Add to a partial result at each element; gives the result where it is used."""
        to, kind = self.types[number], str(stmt.attr("kind"))
        assert isinstance(to, DType)
        if not to.is_float and kind in ("max", "min"):
            return no("KER005", reason=f"a {kind} of {to}")
        wide = DType.F64 if to.is_float else to
        self._need(ones, set(stmt.args))
        value, given = ones.numbers[stmt.args[0]], self.types[stmt.args[0]]
        if given is not to:
            value = one.emit(Stmt("cast", (value,), (to,)))
        if wide is not to:
            value = one.emit(Stmt("cast", (value,), (wide,)))
        buffer = Buffer(self.name(), wide, self.layout, self.op.device)
        self.buffers.append(buffer)
        self.kinds.append(kind)
        one.emit(Stmt("store", (value,), (buffer.name, self.at, MODES[kind], False)))
        found = two.emit(Stmt("load", (), (buffer.name, self.at, False)))
        return found if wide is to else two.emit(Stmt("cast", (found,), (to,)))

    def _copy(self, source: BodySource, stmt: Stmt, number: int | None) -> None:
        self._need(source, operands_of(stmt))
        source.take((stmt,), number)

    def _need(self, source: BodySource, uses: set[int]) -> None:
        inside = {
            at.number: at.stmt
            for at in self.op.body.walk()
            if not at.depth and at.number is not None
        }
        for number in sorted(uses):
            if number not in source.numbers and number in inside:
                self._copy(source, inside[number], number)
