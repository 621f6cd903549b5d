"""A nest that needs its own sums again, taken apart where they are known.

    m[i] = sum over r of x[r, i];  y[r, i] = x[r, i] - m[i]       one walker for each i, twice
    ->   m[i] = sum over r of x[r, i]                             can be shared out (`cooperate`)
         y[r, i] = x[r, i] - m[i]                                 every point by itself

Where there are few results a device with many cores would wait for a few of them. What is read
twice costs less than that; with many results the nest stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from treadle.index import Domain
from treadle.ir.body import Body, Stmt, operands_of
from treadle.ir.ops import OPS
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import infer_types
from treadle.kernel.renest import Renested, TopStatement, top_statements, touches

ONE_BY_ONE = ("reduce_part", "scan", "sort", "assert", "inline_asm")


class _Sides(NamedTuple):
    """Numbers of the first reductions, of the values they give, and of all that needs them."""

    first: set[int]
    given: set[int]
    late: set[int]


def fission(nest: Nest, program: Program, name: Callable[[], str]) -> Renested | None:
    """The nest up to its first reductions, and the rest of it; None if there is no such rest."""
    body = nest.body
    if not len(body.reduce) or any(at.stmt.op in ONE_BY_ONE for at in body.walk()):
        return None
    return _Fission(nest, program, name).bodies()


class _Fission:
    """One nest on its way apart."""

    def __init__(self, nest: Nest, program: Program, name: Callable[[], str]) -> None:
        self.nest, self.body, self.name = nest, nest.body, name
        self.types = infer_types(nest.body, program.by_name)
        self.storage_of = program.storage_of
        self.tops = top_statements(nest.body)
        self.made = {t.number: t for t in self.tops if OPS[t.stmt.op].produces}
        self.layout = Layout.contiguous(nest.body.domain.extents)
        self.at = self.layout.index(nest.body.domain.vars)
        self.buffers: dict[int, Buffer] = {}

    def bodies(self) -> Renested | None:
        """The nests, if something that varies needs a sum."""
        sides = self._sides()
        acting = [t for t in self.tops if not OPS[t.stmt.op].produces]
        behind = [t for t in acting if self._is_late(t, sides)]
        again = {n for n in sides.late - sides.first if self.made[n].stmt.op == "reduce"}
        if not again and not any(t.varies for t in behind):
            return None
        before = [t for t in acting if t not in behind]
        if not self._apart(before, behind, sides):
            return None
        for number in sorted(sides.given):
            kind = self.types[number]
            assert isinstance(kind, DType), "what is handed on is a single value"
            self.buffers[number] = Buffer(self.name(), kind, self.layout, self.nest.device)
        bodies = [self._first(before, sides)]
        if again:
            bodies.append(self._rest(behind, sides, self.body.domain, self.body.reduce))
        else:
            once = [t for t in behind if not t.varies]
            many = [t for t in behind if t.varies]
            if once:
                bodies.append(self._rest(once, sides, self.body.domain, Domain()))
            groups = [
                [t for t in many if t.varies == v] for v in dict.fromkeys(t.varies for t in many)
            ]
            if not self._meet_nowhere(groups, sides):
                return None
            for alike in groups:
                rows = [(v, n) for v, n in self.body.reduce.items() if v in alike[0].varies]
                along = self.body.domain + Domain(rows)
                bodies.append(self._rest(alike, sides, along, Domain()))
        pure = [replace(b, stmts=pruned(b.stmts)) for b in bodies]
        return Renested(tuple(pure), tuple(self.buffers.values()))

    def _sides(self) -> _Sides:
        first: set[int] = set()
        given: set[int] = set()
        late: set[int] = set()
        for number, top in sorted(self.made.items()):
            waits = operands_of(top.stmt) & late
            if top.stmt.op == "reduce" and not waits:
                first.add(number)
                late.add(number)
                if isinstance(self.types[number], DType):
                    given.add(number)
            elif waits:
                late.add(number)
                if top.stmt.op == "get" and top.stmt.args[0] in first:
                    given.add(number)
        return _Sides(first, given, late)

    def _is_late(self, top: TopStatement, sides: _Sides) -> bool:
        return bool(operands_of(top.stmt) & sides.late)

    def _apart(self, before: list[TopStatement], behind: list[TopStatement], sides: _Sides) -> bool:
        """Whether no storage that one part writes is touched by the other."""
        reads = [self.made[n] for n in sides.first]
        one = self._touched([*before, *reads], sides)
        two = self._touched(behind, sides)
        shared = set(one) & set(two)
        return not any(one[s] or two[s] for s in shared)

    def _meet_nowhere(self, groups: list[list[TopStatement]], sides: _Sides) -> bool:
        """Whether nests along different loops share no storage that one of them writes."""
        seen: dict[str, bool] = {}
        for group in groups:
            touched = self._touched(group, sides)
            if any(s in seen and (seen[s] or writes) for s, writes in touched.items()):
                return False
            for s, writes in touched.items():
                seen[s] = seen.get(s, False) or writes
        return True

    def _touched(self, tops: list[TopStatement], sides: _Sides) -> dict[str, bool]:
        """Storages touched by statements and what they use up to the sums: whether written."""
        found: dict[str, bool] = {}
        pending, seen = list(tops), set[int]()
        while pending:
            top = pending.pop()
            for buffer, stores in touches(top.stmt):
                storage = self.storage_of(buffer)
                found[storage] = found.get(storage, False) or stores
            for number in operands_of(top.stmt) & set(self.made):
                if number not in seen and number not in sides.given:
                    seen.add(number)
                    pending.append(self.made[number])
        return found

    def _first(self, before: list[TopStatement], sides: _Sides) -> Body:
        """What needs no sum, and the first sums themselves."""
        writer = Rewriter()
        source = BodySource(writer)
        for top in before:
            self._copy(source, top)
        for number, buffer in self.buffers.items():
            self._copy(source, self.made[number])
            value = source.numbers[number]
            writer.emit(Stmt("store", (value,), (buffer.name, self.at, "plain", False)))
        return Body(self.body.domain, self.body.reduce, writer.stmts)

    def _rest(
        self, acting: list[TopStatement], sides: _Sides, domain: Domain, reduce: Domain
    ) -> Body:
        """What needs sums, which it loads."""
        writer = Rewriter()
        source = BodySource(writer)
        for number, buffer in self.buffers.items():
            source.numbers[number] = writer.emit(Stmt("load", (), (buffer.name, self.at, False)))
        for top in acting:
            self._copy(source, top)
        return Body(domain, reduce, writer.stmts)

    def _copy(self, source: BodySource, top: TopStatement) -> None:
        """Copy a statement, and before it what it uses."""
        number = top.number if OPS[top.stmt.op].produces else None
        if number is not None and number in source.numbers:
            return
        for used in sorted(operands_of(top.stmt) & set(self.made)):
            self._copy(source, self.made[used])
        source.take((top.stmt,), number)
