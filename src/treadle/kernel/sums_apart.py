"""A nest whose sums go over different loops, taken apart: a nest for the sums over the same ones.

    %2 = reduce_part sum %1 over r0         inner loops r0, r1
    %9 = reduce_part sum %8 over r1         of what was made with %2
    ->   for r1 reduce r0:  a[r1] = sum %1                        first nest
         for r0 reduce r1:  %9 = sum of what is made with a[r1]   and all that only needs %9
         ...                                                      stores along other loops

Programs of a GPU share out points of loops that nothing is summed over, so each nest has as many
as it can. What a later nest needs of an earlier one goes through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treadle.index import Domain, Expr, Symbol
from treadle.ir.body import Body, Stmt, operands_of
from treadle.ir.ops import OPS
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import infer_types
from treadle.kernel.renest import Renested, TopStatement, top_statements, touches
from treadle.kernel.stages import over_of

ONE_BY_ONE = ("scan", "sort", "assert", "inline_asm")


def sums_apart(nest: Nest, program: Program, name: Callable[[], str]) -> Renested | None:
    """The nests that do the work of one with partial sums; None if they would not be right."""
    ops = {at.stmt.op for at in nest.body.walk()}
    if "reduce_part" not in ops or ops & set(ONE_BY_ONE):
        return None
    return _Parting(nest, program, name).bodies()


@dataclass
class _Turn:
    """One of the nests: the loops it is summed over, its sums, and what it stores."""

    over: frozenset[Symbol]
    loops: frozenset[Symbol]
    """The inner loops whose points it keeps apart."""
    sums: set[int] = field(default_factory=set)
    stores: list[TopStatement] = field(default_factory=list)


@dataclass(frozen=True)
class _Handed:
    """A value in memory: where, and at which index of the loops it varies along."""

    buffer: Buffer
    at: Expr


class _Parting:
    """One nest on its way apart."""

    def __init__(self, nest: Nest, program: Program, name: Callable[[], str]) -> None:
        self.nest, self.body, self.name = nest, nest.body, name
        self.types = infer_types(nest.body, program.by_name)
        self.storage_of = program.storage_of
        self.tops = top_statements(nest.body)
        self.made = {t.number: t for t in self.tops if OPS[t.stmt.op].produces}
        self.sums = {n for n, t in self.made.items() if t.stmt.op in ("reduce", "reduce_part")}
        self.behind = self._sums_behind()
        self.handed: dict[int, _Handed] = {}

    def bodies(self) -> Renested | None:
        """The nests in order, if memory says the same in between as it did."""
        turns = self._turns()
        if not self._keeps_memory(turns):
            return None
        found: list[Body] = []
        for k, turn in enumerate(turns):
            body = self._body(turn, self._needed_later(turns[k + 1 :], turn))
            if body is None:
                return None
            found.append(body)
        buffers = tuple([one.buffer for one in self.handed.values()])
        return Renested(tuple(found), buffers)

    # -- who goes where ------------------------------------------------------------------------
    def _sums_behind(self) -> dict[int, set[int]]:
        """For each value and, by its place among statements, each store: the sums it needs."""
        found: dict[int, set[int]] = {}
        for number, top in sorted(self.made.items()):
            used = operands_of(top.stmt) & set(self.made)
            needs = set[int]().union(*[found[n] for n in used], used & self.sums)
            found[number] = needs
        return found

    def _needs(self, top: TopStatement) -> set[int]:
        used = operands_of(top.stmt) & set(self.made)
        return set[int]().union(*[self.behind[n] for n in used], used & self.sums)

    def _over(self, number: int) -> frozenset[Symbol]:
        stmt = self.made[number].stmt
        return over_of(stmt) if stmt.op == "reduce_part" else frozenset(self.body.reduce.vars)

    def _turns(self) -> list[_Turn]:
        left = sorted(self.sums)
        stores = [t for t in self.tops if not OPS[t.stmt.op].produces]
        turns: list[_Turn] = []
        done: set[int] = set()
        while left:
            first = next(n for n in left if self.behind[n] <= done)
            turn = _Turn(self._over(first), self.made[first].varies)
            for number in left:
                alike = (self._over(number), self.made[number].varies) == (turn.over, turn.loops)
                if alike and self.behind[number] <= done | turn.sums:
                    turn.sums.add(number)
            done |= turn.sums
            left = [n for n in left if n not in done]
            turn.stores = [t for t in stores if self._needs(t) <= done and self._fits(t, turn)]
            stores = [t for t in stores if t not in turn.stores]
            turns.append(turn)
        for loops in dict.fromkeys([t.varies for t in stores]):
            rest = [t for t in stores if t.varies == loops]
            turns.append(_Turn(frozenset(), loops, stores=rest))
        return turns

    def _fits(self, top: TopStatement, turn: _Turn) -> bool:
        """Whether a store happens as often in this nest as it should."""
        return turn.loops <= top.varies <= turn.loops | turn.over

    def _needed_later(self, later: Sequence[_Turn], turn: _Turn) -> list[int]:
        """The values of this nest's sums that others need."""
        needs: set[int] = set()
        for one in later:
            acting = [*one.stores, *[self.made[n] for n in one.sums]]
            needs |= set[int]().union(*[self._needs(t) for t in acting])
        return sorted(needs & turn.sums)

    # -- memory --------------------------------------------------------------------------------
    def _keeps_memory(self, turns: Sequence[_Turn]) -> bool:
        """Whether every load finds what it found, and the last store of a place stays the last."""
        seen: list[tuple[str, int, int, bool]] = []
        place = {id(t): k for k, t in enumerate(self.tops)}
        for k, turn in enumerate(turns):
            for top in self._carried_out(turn):
                for name, stores in touches(top.stmt):
                    seen.append((self.storage_of(name), k, place[id(top)], stores))
        for storage, nest, at, stores in seen:
            if not stores:
                continue
            for other, there, where, _ in seen:
                if other == storage and there != nest and (there < nest) != (where < at):
                    return False
        return True

    def _carried_out(self, turn: _Turn) -> list[TopStatement]:
        """The statements of a nest: its stores and sums, and what they use up to earlier sums."""
        pending = [*turn.stores, *[self.made[n] for n in sorted(turn.sums)]]
        found: dict[int, TopStatement] = {id(t): t for t in pending}
        while pending:
            for number in operands_of(pending.pop().stmt) & set(self.made):
                top = self.made[number]
                if id(top) not in found and (number not in self.sums or number in turn.sums):
                    found[id(top)] = top
                    pending.append(top)
        return list(found.values())

    # -- text ----------------------------------------------------------------------------------
    def _body(self, turn: _Turn, later: Sequence[int]) -> Body | None:
        inner = list(self.body.reduce.items())
        rows = Domain([(v, n) for v, n in inner if v in turn.loops])
        domain = self.body.domain + rows
        writer = Rewriter()
        source = BodySource(writer)
        for number, one in self.handed.items():
            if not self.made[number].varies <= turn.loops | turn.over:
                continue
            load = Stmt("load", (), (one.buffer.name, one.at, False))
            source.numbers[number] = writer.emit(load)
        for top in self.tops:
            if not self._is_of(top, turn, source):
                continue
            is_sum = OPS[top.stmt.op].produces and top.number in self.sums
            stmt = Stmt("reduce", top.stmt.args, top.stmt.attrs[:2]) if is_sum else top.stmt
            source.take((stmt,), top.number if OPS[stmt.op].produces else None)
        layout = Layout.contiguous(domain.extents)
        at = layout.index(domain.vars)
        for number in self._values(later):
            kind = self.types[number]
            if not isinstance(kind, DType):
                return None
            buffer = Buffer(self.name(), kind, layout, self.nest.device)
            self.handed[number] = _Handed(buffer, at)
            value = source.numbers[number]
            writer.emit(Stmt("store", (value,), (buffer.name, at, "plain", False)))
        over = Domain([(v, n) for v, n in inner if v in turn.over])
        return Body(domain, over, pruned(writer.stmts))

    def _is_of(self, top: TopStatement, turn: _Turn, source: BodySource) -> bool:
        """Whether a nest may have a statement: it has not, and what it needs is there."""
        if not OPS[top.stmt.op].produces:
            return top in turn.stores
        if top.number in source.numbers or (top.number in self.sums - turn.sums):
            return False
        if not top.varies <= turn.loops | turn.over:
            return False
        return operands_of(top.stmt) & set(self.made) <= set(source.numbers)

    def _values(self, sums: Sequence[int]) -> list[int]:
        """The single values that hand sums on: of several results each that is taken."""
        found = []
        for number in sums:
            if isinstance(self.types[number], DType):
                found.append(number)
                continue
            users = [n for n, t in self.made.items() if number in operands_of(t.stmt)]
            found += users if all(self.made[n].stmt.op == "get" for n in users) else [number]
        return found
