"""Members of a kernel as one body: statements in order over common loops, values handed over.

    point   for i in 64, j in 32        t[32*i + j] = f(x[32*i + j])
    total   for i in 64 reduce j in 32  y[i] = sum of t[32*i + j]
    ->      for i in 64 inner j in 32   v = f(x[32*i + j]);  y[i] = sum of v

What one member stored at a point the next uses as a value there, a load that was made is not made
again, and a buffer that nobody outside needs is not stored at all. Members can be joined if what
two of them touch, one of them writing, is touched by both at the same point, or provably nowhere
in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from treadle.core.verdict import YES, Verdict, no
from treadle.index import Domain, Expr, Facts, IndexMap, IntLike, Kind, Symbol
from treadle.index.apart import ByteSpan, never_meet
from treadle.ir.body import Body, Stmt
from treadle.ir.ops import OPS
from treadle.ir.pattern import NAMES_A_BUFFER
from treadle.ir.program import Loop, Program
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.ir.spec_facts import facts_of, storage_limit
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, infer_types
from treadle.kernel.common_loops import CommonLoops, common_loops
from treadle.kernel.stages import statement_loops


def join(program: Program, loops: Sequence[Loop]) -> Body | Verdict:
    """The loops as one body, or why they cannot be (KER001, KER002)."""
    common = common_loops([op.body for op in loops])
    if isinstance(common, Verdict):
        return common
    joined = Joined(program, common)
    for op, values, part in zip(loops, common.values, common.parts, strict=True):
        verdict = joined.add(op, values, part)
        if not verdict:
            return verdict
    return joined.body()


def without_stores(body: Body, gone: Callable[[str], bool]) -> Body:
    """The body, less its stores into buffers for which `gone` holds, and what only they used."""
    kept = [s for s in body.stmts if s.op != "store" or not gone(s.buffer)]
    return Body(body.domain, body.reduce, pruned(tuple(kept)))


@lru_cache(maxsize=65536)
def place_key(space: Domain, index: Expr) -> IndexMap:
    """Equal for two indices over the same loops exactly if they are provably equal at each point.

    The normal form knows the loops it is about, so that a broadcast is not mistaken for a walk.
    """
    form = IndexMap(space, (index,)).sequence_form()
    return _interned(form)


@lru_cache(maxsize=65536)
def _interned(m: IndexMap) -> IndexMap:
    return m


@dataclass(frozen=True)
class _Access:
    """One access of a body under construction."""

    storage: str
    dtype: DType
    index: Expr | None
    """None for an address that data decide."""
    mode: str
    """The mode of a store; empty for a load."""
    member: str
    own: ByteSpan | None
    """The bytes as the member itself names them; None if it cannot tell."""


class Joined:
    """A body that grows by the statements of further members."""

    def __init__(self, program: Program, common: CommonLoops) -> None:
        self.program, self.common = program, common
        self.space = common.domain + common.inner
        self.facts: Facts = self.space.facts
        self.writer = Rewriter()
        self._known: dict[tuple[str, DType, IndexMap], tuple[int, Expr, bool]] = {}
        self._touched: dict[str, list[_Access]] = {}

    def add(self, op: Loop, values: Mapping[Symbol, IntLike], part: Expr | None = None) -> Verdict:
        """Append a member if that keeps its meaning; a refusal leaves the body of no use.

        `part` is the place among its steps of a member that reduces over some inner loops only.
        """
        copy = _Copy(self, op, part)
        BodySource(self.writer, values, instead=copy.instead).take(op.body.stmts)
        for access in copy.accesses:
            verdict = self._agrees(access)
            if not verdict:
                return verdict
        verdict = self._shows_inside(copy.doubtful)
        if not verdict:
            return verdict
        for access in copy.accesses:
            self._touched.setdefault(access.storage, []).append(access)
        return self._happens_as_often(op, values)

    def body(self) -> Body:
        """What was joined."""
        return Body(self.common.domain, self.common.inner, self.writer.stmts)

    # -- agreement -------------------------------------------------------------------------
    def _shows_inside(self, doubtful: Sequence[tuple[Expr, Expr]]) -> Verdict:
        """KER001: what is provably inside in terms of a member's own loops still is."""
        facts = facts_of(self.body()) if doubtful else self.facts
        for index, limit in doubtful:
            if not facts.within(index, limit):
                reason = "common loops do not show that an index is inside"
                return no("KER001", reason=reason, index=str(index))
        return YES

    def _agrees(self, b: _Access) -> Verdict:
        """KER002: what members share, one of them writing, they touch at the same point."""
        if self.space.numel.value == 1:
            return YES  # with one point for all, the order of the statements is the order
        for a in self._touched.get(b.storage, ()):
            if not (a.mode or b.mode) or a.mode == b.mode != "plain":
                continue  # both read, or take turns
            if a.index is None or b.index is None:
                if a.own is not None and b.own is not None and never_meet(a.own, b.own):
                    continue  # data decide where, but within bounds
                return no("KER002", buffer=a.storage, left=a.member, right=b.member)
            if {a.mode, b.mode} - {"", "plain"}:
                return no("KER002", buffer=a.storage, left=a.mode, right=b.mode)
            if a.dtype is b.dtype and self._same_place(a.index, b.index):
                if self._visited_once(a.index):
                    continue
                return no("KER002", buffer=a.storage, index=str(a.index))
            one = ByteSpan(a.index, a.dtype.itemsize, self.facts)
            other = ByteSpan(b.index, b.dtype.itemsize, self.facts)
            if not never_meet(one, other):
                return no("KER002", buffer=a.storage, left=str(a.index), right=str(b.index))
        return YES

    def _same_place(self, a: Expr, b: Expr) -> bool:
        return a is b or place_key(self.space, a) is place_key(self.space, b)

    def _visited_once(self, index: Expr) -> bool:
        """Whether an index names another element at each independent point.

        Inner loops it does not use stay within one point: there the value is the same.
        """
        domain = self.common.domain
        if any(v not in index.free for v, n in domain.items() if n.value != 1):
            return False
        kept = Domain([(v, n) for v, n in self.space.items() if v in index.free])
        # The normal form shows it where run-time sizes hide it.
        return IndexMap.of(kept, index).is_injective() or place_key(kept, index).is_injective()

    def _happens_as_often(self, op: Loop, values: Mapping[Symbol, IntLike]) -> Verdict:
        """KER002: what adds to memory does so at each of its points, also along inner loops.

        A statement happens once along inner loops it does not vary over, however many turns its
        own loops had there.
        """
        modes = {mode for _, _, mode, _ in op.body.stores()} - {"plain"}
        used = {s for e in values.values() if isinstance(e, Expr) for s in e.free}
        inner = used & set(self.common.inner.vars)
        if not modes or not inner:
            return YES
        loops = statement_loops(self.body())
        for stmt, along in zip(self.writer.stmts, loops, strict=True):
            if stmt.op == "store" and stmt.mode in modes and not inner <= along:
                return no("KER002", buffer=stmt.buffer, mode=stmt.mode)
        return YES

    # -- what is known ----------------------------------------------------------------------
    def _key(self, buffer: str, index: Expr) -> tuple[str, DType, IndexMap]:
        element = self.program.by_name[buffer].dtype
        return self.program.storage_of(buffer), element, place_key(self.space, index)

    def known(self, buffer: str, index: Expr) -> int | None:
        """The value that a load would find: stored or loaded before, not changed since."""
        if _from_data(index):
            return None
        found = self._known.get(self._key(buffer, index))
        return None if found is None else found[0]

    def note_store(self, buffer: str, index: Expr, number: int, mode: str) -> None:
        """Forget what a store may have changed, and remember what it wrote."""
        storage = self.program.storage_of(buffer)
        element = self.program.by_name[buffer].dtype
        mine = None if _from_data(index) else ByteSpan(index, element.itemsize, self.facts)
        for key in [k for k in self._known if k[0] == storage]:
            other = ByteSpan(self._known[key][1], key[1].itemsize, self.facts)
            if mine is None or not never_meet(mine, other):
                del self._known[key]
        if mode == "plain" and mine is not None:
            self._known[self._key(buffer, index)] = number, index, True

    def note_load(self, buffer: str, index: Expr, number: int) -> None:
        """Remember what a load found."""
        if not _from_data(index):
            self._known[self._key(buffer, index)] = number, index, False


class _Copy:
    """What becomes of the statements of one member on their way into the joined body."""

    def __init__(self, to: Joined, op: Loop, part: Expr | None) -> None:
        self.to, self.name, self.part = to, op.name, part
        self.facts = facts_of(op.body)
        self.types = infer_types(op.body, to.program.by_name)
        self.accesses: list[_Access] = []
        self.doubtful: list[tuple[Expr, Expr]] = []
        """Indices of which loops alone do not say that they are inside, and of what."""
        # As the member writes them, in the order in which they come along.
        self._originals = iter([at.stmt for at in op.body.walk() if at.stmt.op in NAMES_A_BUFFER])

    def instead(self, writer: Rewriter, given: Stmt) -> int | None:
        """The number of a statement's value: one that is known, or that of the statement here."""
        if OPS[given.op].has_region or not (OPS[given.op].produces or given.op == "store"):
            return None
        simplify = self.to.facts.simplify
        attrs = [simplify(a) if isinstance(a, Expr) else a for a in given.attrs]
        stmt = Stmt(given.op, given.args, tuple(attrs))
        if stmt.op in NAMES_A_BUFFER:
            original = next(self._originals)
            self._note(stmt, original)
            if stmt.op == "load":
                return self._load(writer, stmt)
            if stmt.op == "store":
                return self._store(writer, stmt, self.types[original.args[0]])
        if stmt.op == "reduce" and self.part is not None:
            stmt = Stmt("reduce_part", stmt.args, (*stmt.attrs, self.part))
        return writer.emit(stmt)

    def _note(self, stmt: Stmt, original: Stmt) -> None:
        program, buffer = self.to.program, self.to.program.by_name[stmt.buffer]
        is_search = stmt.op == "bucketize"
        self.accesses.append(
            _Access(
                storage=program.storage_of(stmt.buffer),
                dtype=buffer.dtype,
                index=None if is_search or _from_data(stmt.address) else stmt.address,
                mode=stmt.mode if stmt.op == "store" else "",
                member=self.name,
                own=None
                if is_search
                else ByteSpan(original.address, buffer.dtype.itemsize, self.facts),
            )
        )

    def _load(self, writer: Rewriter, stmt: Stmt) -> int:
        number = self.to.known(stmt.buffer, stmt.address)
        if number is None:
            self._look_inside(writer, stmt)
            number = writer.emit(stmt)
            if not writer.is_in_region:  # what a region loads is seen inside it only
                self.to.note_load(stmt.buffer, stmt.address, number)
        return number

    def _store(self, writer: Rewriter, stmt: Stmt, found: ValueType) -> int:
        (value,) = stmt.args
        self._look_inside(writer, stmt)
        element = self.to.program.by_name[stmt.buffer].dtype
        if stmt.mode == "plain" and found is not element:
            value = writer.emit(Stmt("cast", (value,), (element,)))
        writer.emit(Stmt("store", (value,), stmt.attrs))
        self.to.note_store(stmt.buffer, stmt.address, value, stmt.mode)
        return value

    def _look_inside(self, writer: Rewriter, stmt: Stmt) -> None:
        """Note an index that was provably inside, if the common loops do not say so."""
        if writer.is_in_region or stmt.attr("unproven"):
            return
        limit = storage_limit(self.to.program.by_name[stmt.buffer], self.to.program)
        if not self.to.facts.within(stmt.address, limit):
            self.doubtful.append((stmt.address, limit))


def _from_data(index: Expr) -> bool:
    return any(s.kind is Kind.INDIRECT for s in index.free)
