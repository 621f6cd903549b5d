"""Whether a nest may be walked in another order, and a loop of it run on vectors; if not, why.

A loop runs on vectors if nothing stops in the middle of it, if what it combines can be combined in
any order, and if no point of it touches what another one writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.core.verdict import YES, Verdict, no
from treadle.index import Expr, Kind, Symbol, as_expr, coefficient
from treadle.ir.body import COMBINING, Body, Stmt, number_of
from treadle.ir.masks import MaskFacts
from treadle.ir.program import Nest, Program
from treadle.ir.spec_facts import storage_limit
from treadle.kernel.stages import POSITIONS, loops_of_steps, statement_loops, steps_of

ONE_BY_ONE = frozenset({"scan", "sort", "reduce_part"})
"""Statements for which there is only the exact, serial form."""
BESIDE = frozenset({"add", "mul", "max", "min"})
"""What scans combine that can run side by side, each along a loop of its own."""
STOPPING = frozenset({"assert", "inline_asm", "bucketize"})


@dataclass(frozen=True)
class BodyAccess:
    """A load or a store of a body."""

    number: int | None
    buffer: str
    storage: str
    index: Expr
    mode: str
    """Empty for a load."""
    depth: int

    @property
    def is_indirect(self) -> bool:
        """Whether data decide where it is."""
        return any(s.kind is Kind.INDIRECT for s in self.index.free)


def accesses_of(body: Body, program: Program) -> list[BodyAccess]:
    """All loads and stores of a body, those in regions included."""
    loads = [
        BodyAccess(at.number, name, program.storage_of(name), index, "", at.depth)
        for name, index, at in body.loads()
    ]
    stores = [
        BodyAccess(None, name, program.storage_of(name), index, mode, at.depth)
        for name, index, mode, at in body.stores()
    ]
    return loads + stores


def may_reorder(nest: Nest, accesses: list[BodyAccess]) -> Verdict:
    """KER007: whether the points of a nest may be visited in any order, sums made of parts."""
    return _may_reorder(nest, accesses, ONE_BY_ONE)


def may_scan_beside(nest: Nest, accesses: list[BodyAccess]) -> Verdict:
    """KER007: whether points may be visited in any order, except along the loops of scans.

    Of a body that scans, nothing else is combined.
    """
    if not has_scan(nest.body):
        return may_reorder(nest, accesses)
    for at in nest.body.walk():
        combines = str(at.stmt.attr("combine")) if at.stmt.op == "scan" else ""
        if at.stmt.op in COMBINING and (at.depth or combines not in BESIDE):
            return no("KER007", nest=nest.name, reason=f"{combines or at.stmt.op} goes one by one")
    return _may_reorder(nest, accesses, ONE_BY_ONE - {"scan"})


def has_scan(body: Body) -> bool:
    """Whether values of a body are combined from one point to the next."""
    return any(at.stmt.op == "scan" for at in body.walk())


def _may_reorder(nest: Nest, accesses: list[BodyAccess], serial: frozenset[str]) -> Verdict:
    # A position in nothing is an error, which the form that goes one by one reports.
    is_walked = nest.body.space.facts.less(as_expr(0), nest.body.reduce.numel)
    for at in nest.body.walk():
        kind = str(at.stmt.attr("kind")) if at.stmt.op == "reduce" else ""
        if at.stmt.op in serial or (kind in POSITIONS and not is_walked):
            return no("KER007", nest=nest.name, reason=f"{kind or at.stmt.op} goes one by one")
    stored: dict[str, list[BodyAccess]] = {}
    for a in accesses:
        if a.mode:
            stored.setdefault(a.storage, []).append(a)
    for storage, stores in stored.items():
        touching = [a for a in accesses if a.storage == storage]
        if len({a.index for a in touching}) > 1 and (
            len(touching) > len(stores) or any(a.is_indirect or a.mode != "plain" for a in stores)
        ):
            reason = f"'{storage}' is touched in several ways"
            return no("KER007", nest=nest.name, reason=reason)
    return YES


def may_be_vector(nest: Nest, program: Program, axis: Symbol) -> Verdict:
    """KER007: whether vectors can carry out a loop, once the order of points does not matter."""
    body = nest.body
    inside = axis in body.reduce.vars
    if inside and has_scan(body):
        return no("KER007", nest=nest.name, reason="scan goes one by one")
    along = statement_loops(body)
    before = _checked_before(body, axis)
    facts = MaskFacts(body)

    def decided_inside(index: Expr) -> bool:
        decided = {number_of(s) for s in index.free if s.kind is Kind.INDIRECT}
        return not decided.issubset(before.values())

    for position, (stmt, varies) in enumerate(zip(body.stmts, along, strict=True)):
        if (inside and not varies) or position in before:
            continue
        for one, masks in with_regions(stmt):
            if one.op in STOPPING or facts.may_stop(one):
                return no("KER007", nest=nest.name, reason=f"{one.op} may stop it")
            if one.op in ("load", "store"):
                buffer = program.by_name[str(one.attr("buffer"))]
                index = one.attr("index")
                if isinstance(index, Expr) and not facts.within(
                    index, storage_limit(buffer, program), masks
                ):
                    reason = f"an index of '{buffer.name}' is checked"
                    return no("KER007", nest=nest.name, reason=reason)
                if one.op == "store" and one.attr("mode") != "plain" and isinstance(index, Expr):
                    step = coefficient(index, axis)
                    if step is None or not step.value or decided_inside(index):
                        reason = f"several points of {axis.name} meet in '{buffer.name}'"
                        return no("KER007", nest=nest.name, reason=reason)
    return YES


def may_be_threads(body: Body, accesses: list[BodyAccess], axis: Symbol) -> bool:
    """Whether no two points of a loop touch what one of them adds to in memory.

    What is stored plainly no two points of a nest store.
    """
    adding = [a for a in accesses if a.mode not in ("", "plain")]
    for a in adding:
        step = coefficient(a.index, axis)
        if (
            a.is_indirect
            or step is None
            or any(b is not a and b.storage == a.storage for b in accesses)
        ):
            return False
        if not body.space.facts.within(a.index - step * axis, step):
            return False
    return True


def _checked_before(body: Body, axis: Symbol) -> dict[int, int]:
    """Indices that data decide and that are checked before the loop is entered: where, and %n.

    They do not differ along it, nor wait for a reduction, and there is a point to check them for.
    """
    extent = dict(body.space.items())[axis]
    if not body.space.facts.less(as_expr(0), extent):
        return {}
    steps = steps_of(body)
    late: set[int] = set()
    found: dict[int, int] = {}
    for step, along in zip(steps, loops_of_steps(steps), strict=True):
        if step.op in COMBINING or not late.isdisjoint(step.uses):
            late.add(step.position)
        elif step.op == "indirect" and axis not in along:
            found[step.position] = step.number
    return found


def with_regions(stmt: Stmt, masks: tuple[int, ...] = ()) -> Iterator[tuple[Stmt, tuple[int, ...]]]:
    """The statement and those inside it, each with the masks under which it happens."""
    yield stmt, masks
    if stmt.op == "masked":
        masks = (*masks, stmt.args[0])
    for inner in stmt.region:
        yield from with_regions(inner, masks)
