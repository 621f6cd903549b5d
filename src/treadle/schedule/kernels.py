"""Kernels in the making: one per leaf at first, merged two by two, each with what it touches.

A kernel knows its space, its members, and for every storage the distinct ways in which it is
touched. Merging two is linear in what the smaller one touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.analysis.access import Access, accesses, loop_accesses
from treadle.analysis.kernel_time import work_of_loop
from treadle.index import Domain, Expr, hint
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.masks import MaskFacts
from treadle.ir.pattern import pattern_of
from treadle.ir.products import is_product
from treadle.ir.program import Loop, Operation, Program
from treadle.ir.reduced import reduced_once
from treadle.kernel.choose_gpu import BUSY_PROGRAMS, COLUMNS
from treadle.kernel.common_loops import can_be_a_part
from treadle.kernel.cooperate import shares_out
from treadle.kernel.space import ONE, Space, quotient, space_of
from treadle.kernel.stages import statement_loops
from treadle.kernel.vector_rules import STOPPING
from treadle.schedule.open_calls import call_touches, opens, result_space
from treadle.schedule.touches import Touch, outer_access_map


class KernelDraft:
    """What one launch does; `fixed` kernels are never fused with others."""

    __slots__ = (
        "_moved", "call", "combines", "device", "fixed", "kept", "leaves", "members", "multiplies",
        "name", "repeats", "scans", "shared", "space", "statements", "stops", "touches", "uses",
        "work",
    )  # fmt: skip

    def __init__(
        self, position: int, op: Operation, program: Program, known: Iterable[Access] | None = None
    ) -> None:
        self.name = position
        self.members = [position]
        self.leaves = 1
        self.device = op.device
        self.call: int | None = None
        """The member that is a template or a user's kernel, if one is."""
        self.space = Space((ONE,))
        self.touches: dict[str, list[Touch]] = {}
        self.uses: dict[str, int] = {}
        """How many members touch a storage."""
        self.scans = False
        self.shared = self.kept = frozenset[Expr]()
        """Points of reductions whose steps programs of a GPU share out, and of the others."""
        self.multiplies = False
        """Whether a member multiplies matrices, in tiles that only fit loops like its own."""
        self.stops = False
        """Whether a member may stop at a point, or adds to what is in memory: no tile does."""
        self.combines: tuple[Expr, Expr] | None = None
        """Points and steps in all of what needs whole rows: scans, sorts, moments."""
        self.repeats: Expr | None = None
        """Points of a member that adds the same value to the same place at several of them."""
        self.statements = 0
        self.work = 0.0
        """Arithmetic of its members, over all their points."""
        self._moved: int | None = None
        self.fixed = not isinstance(op, Loop)
        if isinstance(op, Loop):
            self.space = space_of(op)
            self.statements = len(op.body.stmts)
            self.work = work_of_loop(op)
            self.stops = pattern_of(op).pattern.derive(_stops_or_adds)
            if pattern_of(op).pattern.derive(_adds_again):
                self.repeats = op.body.domain.numel
            if len(op.body.reduce):
                points = frozenset({op.body.domain.numel})
                if is_shared_out(op, program):
                    self.shared = points
                else:
                    self.kept = points
                if not can_be_a_part(op.body):
                    self.combines = op.body.domain.numel, op.body.space.numel
                self.scans = any(at.stmt.op in ("scan", "sort") for at in op.body.walk())
                self.multiplies = pattern_of(op).pattern.derive(is_product)
            for access in program.derive(accesses)[op.name] if known is None else known:
                self.touches.setdefault(access.storage, []).append(Touch(access, op, program))
            self.uses = dict.fromkeys(self.touches, 1)
        else:
            of = effects(op)
            self.uses = {program.storage_of(n): 1 for n in of.touched}
            if opens(op, program):
                self.fixed, self.call = False, position
                self.space = result_space(op, program)
                for touch in call_touches(op, program):
                    self.touches.setdefault(touch.storage, []).append(touch)

    def writes(self, storage: str) -> bool:
        """Whether a member stores to it."""
        return any(t.is_write for t in self.touches.get(storage, ()))

    @property
    def moved_bytes(self) -> int:
        """Bytes that it reads and writes, each storage once each way."""
        if self._moved is None:
            total = 0
            for touches in self.touches.values():
                read = written = 0
                for t in touches:
                    if t.is_write:
                        written = max(written, t.bytes)
                    else:
                        read = max(read, t.bytes)
                total += read + written
            self._moved = total
        return self._moved

    def absorb(self, other: KernelDraft, space: Space) -> None:
        """Take over the members of another kernel."""
        self.space = space
        self.members = sorted([*self.members, *other.members])
        self.leaves += other.leaves
        self.scans = self.scans or other.scans
        self.shared, self.kept = self.shared | other.shared, self.kept | other.kept
        self.multiplies = self.multiplies or other.multiplies
        self.stops = self.stops or other.stops
        self.combines = other.combines if self.combines is None else self.combines
        self.call = other.call if self.call is None else self.call
        self.statements += other.statements
        self.work += other.work
        self.repeats = other.repeats if self.repeats is None else self.repeats
        self._moved = None
        for storage, theirs in other.touches.items():
            mine = self.touches.get(storage)
            if mine is None:
                self.touches[storage] = theirs
                continue
            known = {_meaning(t) for t in mine}
            mine.extend(t for t in theirs if _meaning(t) not in known)
        for storage, count in other.uses.items():
            self.uses[storage] = self.uses.get(storage, 0) + count


def is_shared_out(op: Loop, program: Program) -> bool:
    """Whether programs of a GPU share a reduction of few points out, in chunks of its steps.

    They do where sums may be added in any order, in f32.
    """
    numerics = program.numerics
    if op.device.partition(":")[0] != "cuda":
        return False
    if not numerics.reassociation or numerics.accumulation == "exact":
        return False
    return pattern_of(op).pattern.derive(_can_be_shared_out)


def _can_be_shared_out(body: Body) -> bool:
    return reduced_once(body, elementwise=True) and shares_out(body, COLUMNS, BUSY_PROGRAMS // 4)


def _stops_or_adds(body: Body) -> bool:
    """Whether points must come one by one: something may stop there, or adds to what is there."""
    if any(mode != "plain" for _, _, mode, _ in body.stores()):
        return True
    facts = MaskFacts(body)
    return any(at.stmt.op in STOPPING or facts.may_stop(at.stmt) for at in body.walk())


def _adds_again(body: Body) -> bool:
    """Whether a store adds what does not vary along some loop, as often as that has points.

    As an inner loop that would not be walked for it: a statement happens once along such loops.
    """
    if all(mode == "plain" for _, _, mode, _ in body.stores()):
        return False
    wanted = {v for v, n in body.domain.items() if n.value != 1}
    flat = Body(Domain(), body.domain, body.stmts)
    return any(
        stmt.op == "store" and stmt.mode != "plain" and not wanted <= along
        for stmt, along in zip(body.stmts, statement_loops(flat), strict=True)
    )


def _meaning(t: Touch) -> object:
    if t.access_map is None:
        return (t.is_write, t.mode, t.computed) if t.computed is not None else t
    return t.is_write, t.mode, t.level, t.access_map, t.access.width


def same_point(a: Touch, b: Touch) -> bool:
    """Whether two accesses of one kernel touch each address at the same point.

    Accesses of different levels do if the finer one stays on one address while the coarser level
    does, and the access maps over the coarser level are equal.
    """
    if a.is_indirect or b.is_indirect or a.access_map is None or b.access_map is None:
        return False
    if a.access.width != b.access.width:
        return False  # the same index of a narrower view is another place
    if a.level is b.level:
        return a.access_map is b.access_map
    coarse, fine = (a, b) if _is_coarser(a.level, b.level) else (b, a)
    assert fine.domain is not None, "what has an access map has a domain"
    assert fine.access.map is not None, "what has an access map is an access by index"
    if coarse.level.value == 0:
        return False  # it never happens
    inner = quotient(fine.level, coarse.level)
    return outer_access_map(fine.domain, fine.access.map.index, inner) is coarse.access_map


def _is_coarser(a: Expr, b: Expr) -> bool:
    if a.value is not None and b.value is not None:
        return a.value < b.value
    return hint(a) < hint(b)


def rebuilt(kernel: KernelDraft, ops: Sequence[Loop], program: Program) -> KernelDraft:
    """The kernel with other loops for its members, which touch the same in another order."""
    found: KernelDraft | None = None
    for position, op in zip(kernel.members, ops, strict=True):
        one = KernelDraft(position, op, program, loop_accesses(op, program))
        if found is None:
            found = one
        else:
            found.absorb(one, kernel.space)
    assert found is not None, "a group has members"
    found.name = kernel.name
    return found


def kernels_of(program: Program) -> list[KernelDraft]:
    """One kernel per leaf."""
    return [KernelDraft(k, op, program) for k, op in enumerate(program.leaves)]


def storages_shared(a: KernelDraft, b: KernelDraft) -> Sequence[str]:
    """Storages that both touch."""
    small, large = (a, b) if len(a.touches) <= len(b.touches) else (b, a)
    return [s for s in small.touches if s in large.touches]
