"""Members of a fused kernel as one body, where their loops allow it.

    point   for i in 64, j in 32        t[32*i + j] = f(x[32*i + j])
    total   for i in 64 reduce j in 32  y[i] = sum of t[32*i + j]
    ->      for i in 64 reduce j in 32  v = f(x[32*i + j]);  y[i] = sum of v

A member joins the body before it if the loops agree (its own, or split into iteration and reduction
loops as above) and what both touch, one of them writing, is touched at the same index at the same
point. What was stored is then used as a value, and a buffer that nobody outside needs is not
stored at all. A member that cannot join begins the next body of the same kernel.

Nothing here knows the target language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.core.verdict import YES, Verdict, no
from treadle.index import Domain, Expr, Facts, IndexMap, Kind, Symbol, substitute
from treadle.ir.body import Body, Stmt, number_of, value_symbol
from treadle.ir.ops import OPS
from treadle.ir.program import Loop, Program
from treadle.ir.types import DType
from treadle.ir.typing import infer_types


@dataclass(frozen=True)
class Part:
    """One body of a kernel and the operations it stands for."""

    names: tuple[str, ...]
    body: Body


@dataclass(frozen=True)
class Merged:
    """The bodies of a kernel, the buffers that became values, and why members stand apart."""

    parts: tuple[Part, ...]
    dropped: frozenset[str]
    apart: tuple[Verdict, ...]


def merge_members(program: Program, loops: Sequence[Loop], internal: frozenset[str]) -> Merged:
    """Join the loops of a fused kernel into as few bodies as their order allows.

    `internal` are storages nothing outside the kernel needs.
    """
    parts: list[_Joined] = []
    apart: list[Verdict] = []
    for op in loops:
        if parts:
            verdict = parts[-1].join(op)
            if verdict:
                continue
            apart.append(verdict)
        parts.append(_Joined(program, op))
    loaded = {program.storage_of(n) for p in parts for n in _loaded(p.stmts)}
    dropped = frozenset(s for s in internal - loaded if any(p.stores_plainly(s) for p in parts))
    found = tuple([Part(tuple(p.names), p.body_without(dropped)) for p in parts])
    return Merged(tuple([p for p in found if p.body.stmts]), dropped, tuple(apart))


def _loaded(stmts: Sequence[Stmt]) -> list[str]:
    """Buffers that are read, or combined with what is there."""
    found = []
    for s in stmts:
        if s.op in ("load", "bucketize") or (s.op == "store" and s.attrs[2] != "plain"):
            found.append(str(s.attrs[0]))
        found.extend(_loaded(s.region))
    return found


# ---------------------------------------------------------------------------------- joining


class _Joined:
    """A body that grows by the statements of further members."""

    def __init__(self, program: Program, op: Loop) -> None:
        self.program = program
        self.names: list[str] = []
        self.domain, self.reduce = op.body.domain, op.body.reduce
        self.stmts: list[Stmt] = []
        self._count = 0
        self._stored: dict[tuple[str, Expr], int] = {}
        self._seen: dict[tuple[str, Expr], int] = {}
        self._append(op, {})

    def join(self, op: Loop) -> Verdict:
        """Append a member if that keeps its meaning."""
        shape = self._common_shape(op.body)
        if shape is None:
            return no("GEN001", left=self._shape(), right=_shape(op.body.domain, op.body.reduce))
        domain, reduce = shape
        rename = dict(zip(op.body.space.vars, (domain + reduce).vars, strict=False))
        verdict = self._touch_alike(op.body, rename, domain, reduce)
        if verdict:
            self.domain, self.reduce = domain, reduce
            self._append(op, rename)
        return verdict

    def _shape(self) -> str:
        return _shape(self.domain, self.reduce)

    def _common_shape(self, body: Body) -> tuple[Domain, Domain] | None:
        """The loops of both, with this body's names; None if they do not agree."""
        mine, others = self.domain, body.domain
        same_points = mine.extents == others.extents
        if same_points and self.reduce.extents == body.reduce.extents:
            return mine, self.reduce
        if not len(self.reduce) and len(body.reduce):
            cut = len(others)
            if mine.extents == others.extents + body.reduce.extents and self._splits(
                self.stmts, mine, cut
            ):
                loops = list(mine.items())
                return Domain(loops[:cut]), Domain(loops[cut:])
            fresh = [(v, n) for v, n in body.reduce.items() if v not in mine.vars]
            if same_points and len(fresh) == len(body.reduce):
                return mine, Domain(fresh)
        if len(self.reduce) and not len(body.reduce):
            if same_points:
                return mine, self.reduce
            whole = mine.extents + self.reduce.extents
            if others.extents == whole and self._splits(body.stmts, others, len(mine)):
                return mine, self.reduce
        return None

    @staticmethod
    def _splits(stmts: Sequence[Stmt], domain: Domain, cut: int) -> bool:
        """Whether loops after `cut` may become reduction loops: each point still happens once."""
        facts = Facts()
        if not all(facts.interval(n).positive for n in domain.extents[cut:]):
            return False
        return all(s.op != "store" or s.attrs[2] == "plain" for s in stmts)

    def _touch_alike(
        self, body: Body, rename: Mapping[Symbol, Symbol], domain: Domain, reduce: Domain
    ) -> Verdict:
        """Whether every storage both touch, one of them writing, is touched point by point."""
        mine = _accesses(self.stmts, {}, self.program)
        others = _accesses(body.stmts, rename, self.program)
        space = domain + reduce if len(reduce) else domain
        for a in mine:
            for b in others:
                if a.storage != b.storage or not (a.mode or b.mode):
                    continue
                if a.index is None or a.index is not b.index or a.dtype is not b.dtype:
                    return no("GEN002", buffer=a.storage, left=str(a.index), right=str(b.index))
                if a.mode not in ("", "plain") or b.mode not in ("", "plain"):
                    return no("GEN002", buffer=a.storage, left=a.mode, right=b.mode)
                if not _once(a.index, space, domain):
                    return no("GEN002", buffer=a.storage, index=str(a.index))
        return YES

    # -- appending -------------------------------------------------------------------------
    def _append(self, op: Loop, rename: Mapping[Symbol, Symbol]) -> None:
        types = infer_types(op.body, self.program.by_name)
        copy = _Copy(self, rename, types)
        self.names.append(op.name)
        for stmt in op.body.stmts:
            copy.take(stmt, self.stmts, top=True)

    def emit(self, stmt: Stmt, into: list[Stmt]) -> int:
        """Append a statement; gives the number of its value."""
        number = self._count
        self._count += OPS[stmt.op].produces
        into.append(stmt)
        return number

    def known(self, buffer: str, index: Expr) -> int | None:
        """The value that a load would find: stored or loaded before, not changed since."""
        found = self._stored.get((buffer, index))
        return self._seen.get((buffer, index)) if found is None else found

    def note_store(self, buffer: str, index: Expr, number: int, mode: str) -> None:
        """Forget what a store may have changed, and remember what it wrote."""
        root = self.program.storage_of(buffer)
        for table in (self._stored, self._seen):
            for key in [k for k in table if self.program.storage_of(k[0]) == root]:
                del table[key]
        if mode == "plain" and not any(s.kind is Kind.INDIRECT for s in index.free):
            self._stored[buffer, index] = number

    def note_load(self, buffer: str, index: Expr, number: int) -> None:
        """Remember what a load found."""
        self._seen[buffer, index] = number

    def stores_plainly(self, storage: str) -> bool:
        """Whether the body stores into a storage."""
        return any(
            s.op == "store" and self.program.storage_of(str(s.attrs[0])) == storage
            for s in self.stmts
        )

    def body_without(self, dropped: frozenset[str]) -> Body:
        """The body, less its stores into buffers that nobody reads."""
        kept = [
            s
            for s in self.stmts
            if s.op != "store" or self.program.storage_of(str(s.attrs[0])) not in dropped
        ]
        return Body(self.domain, self.reduce, tuple(kept) if _acts(kept) else ())


def _acts(stmts: Sequence[Stmt]) -> bool:
    return any(s.op in ("store", "assert") or _acts(s.region) for s in stmts)


class _Copy:
    """Carries the statements of one member over, with new numbers and loops."""

    def __init__(self, to: _Joined, rename: Mapping[Symbol, Symbol], types: Sequence[object]):
        self.to, self.types = to, types
        self.rename: dict[Symbol, Symbol] = dict(rename)
        self.numbers: dict[int, int] = {}
        self._old = 0

    def take(self, stmt: Stmt, into: list[Stmt], top: bool) -> None:
        """Append one statement, or find that its value is known already."""
        old = self._old
        self._old += OPS[stmt.op].produces
        attrs = tuple(self._attr(a) for a in stmt.attrs)
        args = tuple(self.numbers[a] for a in stmt.args)
        if stmt.op == "load":
            self._load(stmt, attrs, old, into, top)
        elif stmt.op == "store":
            self._store(stmt, attrs, args[0], into)
        elif stmt.region:
            self._region(stmt, attrs, args, old, into)
        else:
            number = self.to.emit(Stmt(stmt.op, args, attrs), into)
            if OPS[stmt.op].produces:
                self._number(old, number)

    def _number(self, old: int, new: int) -> None:
        self.numbers[old] = new
        self.rename[value_symbol(old)] = value_symbol(new)

    def _attr(self, attr: object) -> object:
        if not isinstance(attr, Expr):
            return attr
        stale = [s for s in attr.free if s.kind is Kind.INDIRECT and s not in self.rename]
        assert not stale, f"%{number_of(stale[0])} is not defined"
        return substitute(attr, self.rename)

    def _load(
        self, stmt: Stmt, attrs: tuple[object, ...], old: int, into: list[Stmt], top: bool
    ) -> None:
        buffer, index = str(attrs[0]), attrs[1]
        assert isinstance(index, Expr)
        number = self.to.known(buffer, index)
        if number is None:
            number = self.to.emit(Stmt("load", (), attrs), into)
            if top:  # what a region loads is seen inside it only
                self.to.note_load(buffer, index, number)
        self._number(old, number)

    def _store(self, stmt: Stmt, attrs: tuple[object, ...], value: int, into: list[Stmt]) -> None:
        buffer, index, mode = str(attrs[0]), attrs[1], str(attrs[2])
        assert isinstance(index, Expr)
        element = self.to.program.by_name[buffer].dtype
        if mode == "plain" and self.types[stmt.args[0]] is not element:
            value = self.to.emit(Stmt("cast", (value,), (element,)), into)
        self.to.emit(Stmt("store", (value,), attrs), into)
        self.to.note_store(buffer, index, value, mode)

    def _region(
        self,
        stmt: Stmt,
        attrs: tuple[object, ...],
        args: tuple[int, ...],
        old: int,
        into: list[Stmt],
    ) -> None:
        inner: list[Stmt] = []
        place = len(into)
        number = self.to.emit(Stmt(stmt.op, args, attrs), into)
        self._number(old, number)
        for one in stmt.region:
            self.take(one, inner, top=False)
        into[place] = Stmt(stmt.op, args, attrs, tuple(inner))


# ---------------------------------------------------------------------------------- accesses


@dataclass(frozen=True)
class _Access:
    storage: str
    index: Expr | None
    dtype: DType
    mode: str
    """The mode of a store; empty for a load."""


def _accesses(
    stmts: Sequence[Stmt], rename: Mapping[Symbol, Symbol], program: Program
) -> list[_Access]:
    found: dict[_Access, None] = {}
    for s in stmts:
        if s.op in ("load", "store", "bucketize"):
            name, index = str(s.attrs[0]), s.attrs[1]
            assert isinstance(index, Expr)
            data = s.op == "bucketize" or any(v.kind is Kind.INDIRECT for v in index.free)
            mode = str(s.attrs[2]) if s.op == "store" else ""
            at = None if data else substitute(index, rename)
            dtype = program.by_name[name].dtype
            found[_Access(program.storage_of(name), at, dtype, mode)] = None
        found.update(dict.fromkeys(_accesses(s.region, rename, program)))
    return list(found)


def _once(index: Expr, space: Domain, domain: Domain) -> bool:
    """Whether an index names another element at each point of the loops it uses.

    It must use every iteration loop: else two points of those share the element.
    """
    if any(v not in index.free for v, n in domain.items() if n.value != 1):
        return False
    kept = Domain([(v, n) for v, n in space.items() if v in index.free])
    return IndexMap.of(kept, index).is_injective()


def _shape(domain: Domain, reduce: Domain) -> str:
    points = ", ".join(map(str, domain.extents))
    return f"({points})" + (
        f" reduce ({', '.join(map(str, reduce.extents))})" if len(reduce) else ""
    )
