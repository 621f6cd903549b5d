"""Rows inside a total: the loop over rows becomes an outer one, the total is added up beside it.

    %2 = reduce_part sum %1 over r1        inner loops r0, r1: a value for each r0
    %9 = reduce sum %8                     a total over both, of what was made with it
    ->   a = 0                                                first nest
         for r0 reduce r1:  %2 = reduce sum %1 ... a += reduce sum %8      rows stay in the cache
         ... a ...                                            last nest

As the body stands, the first sums of all rows would be made in one walk and the total in another.
Totals are added up in f64, row by row, which the numerics of the program must allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from treadle.index import Domain, Symbol, coefficient
from treadle.ir.body import Body, Literal, Stmt, operands_of
from treadle.ir.ops import OPS
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import ValueType, infer_types
from treadle.kernel.mixing import IDENTITY, MODES
from treadle.kernel.stages import over_of, statement_loops


class Renested(NamedTuple):
    """The bodies that do the work of one, in order, and the buffers of their totals."""

    bodies: tuple[Body, ...]
    buffers: tuple[Buffer, ...]


class TopStatement(NamedTuple):
    """A statement of the top level with its number and the inner loops it varies along."""

    number: int
    stmt: Stmt
    varies: frozenset[Symbol]


def renest(nest: Nest, program: Program, name: Callable[[], str]) -> Renested | None:
    """The nest as rows and totals; None if it is not made of these."""
    over = over_rows(nest)
    return None if over is None else Renesting(nest, program, name, over).bodies()


def over_rows(nest: Nest) -> frozenset[Symbol] | None:
    """The loops inside rows, if a nest is made of rows and of totals over all of them."""
    parts = [at.stmt for at in nest.body.walk() if at.stmt.op == "reduce_part"]
    overs = list(dict.fromkeys(map(over_of, parts)))
    if not overs or len(overs) > 2:
        return None
    over, every = overs[0], frozenset(nest.body.reduce.vars)
    if len(overs) == 2 and overs[1] != every - over:
        return None  # neither a row nor a total of what rows give
    rows = [v for v in nest.body.reduce.vars if v not in over]
    if not rows or any(at.stmt.op in ("scan", "sort") for at in nest.body.walk()):
        return None
    return frozenset(over)


def sums_across(body: Body) -> bool:
    """Whether memory lies along the rows, and what is summed up within them across it."""
    parts = [at.stmt for at in body.walk() if at.stmt.op == "reduce_part"]
    over = frozenset[Symbol]().union(*map(over_of, parts[:1]))
    loads = [at.stmt.address for at in body.walk() if at.stmt.op == "load"]

    def goes_along(loops: Iterable[Symbol]) -> bool:
        found = [coefficient(address, v) for address in loads for v in loops]
        return any(step is not None and step.value == 1 for step in found)

    return goes_along(set(body.reduce.vars) - over) and not goes_along(over)


class Renesting:
    """One nest on its way to rows and totals."""

    adds_in_place = True
    """Whether totals are added up in one place, row by row."""

    def __init__(
        self, nest: Nest, program: Program, name: Callable[[], str], over: frozenset[Symbol]
    ) -> None:
        self.nest, self.body, self.name = nest, nest.body, name
        self.types = infer_types(nest.body, program.by_name)
        self.storage_of = program.storage_of
        items = list(nest.body.reduce.items())
        self.rows = Domain([(v, n) for v, n in items if v not in over])
        self.inner = Domain([(v, n) for v, n in items if v in over])
        self.layout = Layout.contiguous(nest.body.domain.extents)
        self.at = self.layout.index(nest.body.domain.vars)
        self.buffers: list[Buffer] = []
        self.kinds: list[str] = []
        self.over = over
        self.tops = top_statements(nest.body)

    def bodies(self) -> Renested | None:
        """The nests, if nothing that varies needs a total."""
        late = self._late()
        if late is None or not self._may_part(late):
            return None
        middle, last = Rewriter(), Rewriter()
        rows, rest = BodySource(middle), BodySource(last)
        for top in self.tops:
            stmt, number = top.stmt, top.number if OPS[top.stmt.op].produces else None
            if self._is_total(top):
                self._total(middle, rows, last, rest, top)
            elif self._comes_last(top, late):
                self._copy(rest, top)
            elif stmt.op == "reduce_part":
                rows.take((Stmt("reduce", stmt.args, stmt.attrs[:2]),), number)
            else:
                rows.take((stmt,), number)
        bodies = [Body(self.body.domain + self.rows, self.inner, middle.stmts)]
        if self.buffers and self.adds_in_place:
            bodies.insert(0, self._first())
        if any(not OPS[s.op].produces for s in last.stmts):
            rest_of_it = Domain() if self.adds_in_place else self.rows
            bodies.append(Body(self.body.domain, rest_of_it, last.stmts))
        pure = [replace(b, stmts=pruned(b.stmts)) for b in bodies]
        return Renested(tuple(pure), tuple(self.buffers))

    def _is_total(self, top: TopStatement) -> bool:
        """Whether a statement adds up all rows: of every point, or of what each row gives."""
        if top.stmt.op == "reduce":
            return True
        return top.stmt.op == "reduce_part" and over_of(top.stmt) != self.over

    def _late(self) -> set[int] | None:
        """Numbers of totals and of what is made with them; None if rows need one."""
        late: set[int] = set()
        for top in self.tops:
            waits = bool(operands_of(top.stmt) & late)
            if self._is_total(top):
                to, kind = self.types[top.number], str(top.stmt.attr("kind"))
                if waits or not self._has_parts(kind, to):
                    return None
                late.add(top.number)
            elif waits:
                if top.varies or top.stmt.op == "reduce_part":
                    return None
                if OPS[top.stmt.op].produces:
                    late.add(top.number)
        return late

    def _has_parts(self, kind: str, to: ValueType) -> bool:
        """Whether a total can be made of parts in the way this does it."""
        if kind not in MODES or not isinstance(to, DType):
            return False
        return to.is_float or kind not in ("max", "min")

    def _comes_last(self, top: TopStatement, late: set[int]) -> bool:
        """Whether a statement is for the last nest: it needs a total, or happens only once."""
        if self._is_total(top):
            return False
        happens_once = not OPS[top.stmt.op].produces and not top.varies
        return bool(operands_of(top.stmt) & late) or happens_once

    def _may_part(self, late: set[int]) -> bool:
        """Whether rows and what follows them can be nests of their own.

        The last nest makes again what it uses, which no sum of a row can be. A store inside rows
        happens for each of them. And no storage that is written is touched by both, for what stood
        before the rows now comes after them.
        """
        touched: dict[str, set[bool]] = {}
        written: set[str] = set()
        for top in self.tops:
            if not self._is_total(top) and OPS[top.stmt.op].produces:
                continue  # it is made where it is used
            is_last = self._comes_last(top, late)
            used = self._made_for(top)
            if is_last and any(t.stmt.op == "reduce_part" for t in used):
                return False
            if top.stmt.op == "store" and not is_last and not top.varies >= set(self.rows.vars):
                return False
            for name, stores in [x for one in used for x in touches(one.stmt)]:
                storage = self.storage_of(name)
                touched.setdefault(storage, set()).add(is_last)
                written |= {storage} if stores else set()
        return all(len(touched[storage]) == 1 for storage in written)

    def _made_for(self, top: TopStatement) -> list[TopStatement]:
        """The statement with all that it uses, but for totals."""
        made = {t.number: t for t in self.tops if OPS[t.stmt.op].produces}
        found: dict[int, TopStatement] = {}
        pending = [top]
        while pending:
            one = pending.pop()
            for number in operands_of(one.stmt) & set(made):
                if number not in found and not self._is_total(made[number]):
                    found[number] = made[number]
                    pending.append(made[number])
        return [top, *found.values()]

    def _total(
        self,
        middle: Rewriter,
        rows: BodySource,
        last: Rewriter,
        rest: BodySource,
        top: TopStatement,
    ) -> None:
        to, kind = self.types[top.number], str(top.stmt.attr("kind"))
        assert isinstance(to, DType), "a total has one result"
        wide = DType.F64 if to.is_float else to
        added = rows.numbers[top.stmt.args[0]]
        value = added
        if top.stmt.op == "reduce":
            value = middle.emit(Stmt("reduce", (added,), top.stmt.attrs))
        if wide is not to:
            value = middle.emit(Stmt("cast", (value,), (wide,)))
        buffer = Buffer(self.name(), wide, self.layout, self.nest.device)
        self.buffers.append(buffer)
        self.kinds.append(kind)
        middle.emit(Stmt("store", (value,), (buffer.name, self.at, MODES[kind], False)))
        found = last.emit(Stmt("load", (), (buffer.name, self.at, False)))
        made = found if wide is to else last.emit(Stmt("cast", (found,), (to,)))
        rest.numbers[top.number] = made

    def _copy(self, source: BodySource, top: TopStatement) -> None:
        """Copy a statement, and before it what it uses."""
        made = {t.number: t for t in self.tops if OPS[t.stmt.op].produces}
        for number in sorted(operands_of(top.stmt)):
            if number not in source.numbers and number in made:
                self._copy(source, made[number])
        source.take((top.stmt,), top.number if OPS[top.stmt.op].produces else None)

    def _first(self) -> Body:
        stmts: list[Stmt] = []
        for number, (buffer, kind) in enumerate(zip(self.buffers, self.kinds, strict=True)):
            value = IDENTITY[kind]
            literal = Literal(value if buffer.dtype.is_float else int(value))
            stmts.append(Stmt("constant", (), (literal, buffer.dtype)))
            stmts.append(Stmt("store", (number,), (buffer.name, self.at, "plain", False)))
        return Body(self.body.domain, Domain(), tuple(stmts))


def touches(stmt: Stmt) -> Iterator[tuple[str, bool]]:
    """The buffers that a statement and its region touch, and whether they are written."""
    if stmt.op in ("load", "store", "bucketize"):
        yield str(stmt.attr("buffer")), stmt.op == "store"
    for inner in stmt.region:
        yield from touches(inner)


def top_statements(body: Body) -> list[TopStatement]:
    """The statements of a body's top level."""
    rows = zip(_numbers_of(body), body.stmts, statement_loops(body), strict=True)
    return [TopStatement(n, s, v) for n, s, v in rows]


def _numbers_of(body: Body) -> list[int]:
    """For each statement of the top level, its number, or the next one if it has none."""
    numbers, counter = [], 0
    for at in body.walk():
        if not at.depth:
            numbers.append(counter)
        counter += at.number is not None
    return numbers
