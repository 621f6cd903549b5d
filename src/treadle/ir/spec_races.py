"""Rules about points that run in parallel: what differs between them, and stores that collide."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from treadle.index import (
    Domain,
    Expr,
    Facts,
    IndexMap,
    Kind,
    Mod,
    Symbol,
    coefficient,
    const,
    substitute,
)
from treadle.index.apart import ByteSpan, never_meet
from treadle.ir.body import COMBINING, Body, Stmt, number_of
from treadle.ir.ops import OPS
from treadle.ir.program import Program
from treadle.ir.spec_facts import facts_of
from treadle.ir.types import row_major_strides

# ----------------------------------------------------------------------------------- levels


def varying(body: Body) -> list[frozenset[Symbol]]:
    """For each value, the reduction loops along which it may differ."""
    result: list[frozenset[Symbol]] = []
    several = frozenset(v for v, n in body.reduce.items() if n.value != 1)
    _vary_in(body.stmts, result, several, frozenset())
    return result


def _vary_in(
    stmts: tuple[Stmt, ...],
    result: list[frozenset[Symbol]],
    loops: frozenset[Symbol],
    under: frozenset[Symbol],
) -> frozenset[Symbol]:
    """Extend `result` by the values of a block; the loops along which what it yields differs."""
    yielded: frozenset[Symbol] = frozenset()
    for stmt in stmts:
        differs = under.union(*[result[a] for a in stmt.args])
        for e in stmt.attrs:
            if isinstance(e, Expr):
                differs |= _loops_of(e, result, loops)
        number = len(result)
        if OPS[stmt.op].produces:
            result.append(differs)
        if stmt.region:
            inside = _vary_in(stmt.region, result, loops, differs)
            result[number] = result[number] | inside
        if stmt.op == "reduce_part":
            over = stmt.attr("over")
            assert isinstance(over, Expr)
            result[number] = result[number] - over.free
        elif stmt.op in COMBINING:
            result[number] = loops if stmt.op != "reduce" else frozenset()
        if stmt.op == "yield":
            yielded = differs
    return yielded


def _loops_of(
    e: Expr, result: list[frozenset[Symbol]], loops: frozenset[Symbol]
) -> frozenset[Symbol]:
    """The reduction loops along which an index differs, by itself or by data."""
    data = [result[number_of(s)] for s in e.free if s.kind is Kind.INDIRECT]
    return (e.free & loops).union(*data)


def reductions_have_loops(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR013: reduce, scan and sort need reduction loops, and an element where one is asked for."""
    combining = [at for at in body.walk() if at.stmt.op in COMBINING]
    if combining and not len(body.reduce):
        first = combining[0]
        yield "IR013", f"%{first.number}: {first.stmt.op} without reduction loops"
    if any(n.value == 0 for n in body.domain.extents):
        return
    for at in combining if any(n.value == 0 for n in body.reduce.extents) else ():
        if at.stmt.op not in ("reduce", "reduce_part"):
            continue
        if (kind := at.stmt.attr("kind")) in ("argmax", "argmin"):
            yield "IR013", f"%{at.number}: {kind} over no elements has no answer"


def parts_are_positions(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR013: what a part is combined over is the position in some of the inner loops."""
    for at in body.walk():
        over = at.stmt.attr("over") if at.stmt.op == "reduce_part" else None
        if not isinstance(over, Expr):
            continue
        inner = [(v, n) for v, n in body.reduce.items() if v in over.free]
        position: Expr = const(0)
        for (v, _), stride in zip(inner, row_major_strides([n for _, n in inner]), strict=True):
            position = position + v * stride
        is_known = all(n.value is not None for _, n in inner)
        if len(inner) != len(over.free & frozenset(body.space.vars)) or not inner:
            yield "IR013", f"%{at.number}: over {over} is no position in the inner loops"
        elif is_known and over != position:
            yield "IR013", f"%{at.number}: over {over} is not the position in its loops, {position}"


def loops_have_reductions(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR013: reduction loops need something that combines over them; inner loops do not."""
    kinds = {at.stmt.op for at in body.walk()}
    if len(body.reduce) and kinds.isdisjoint(COMBINING):
        yield "IR013", "reduction loops, but nothing combines over them"
    if "reduce_part" in kinds:
        yield "IR013", "reduce_part stands only in a nest of a kernel"


# ------------------------------------------------------------------------------------ races


class _RacingAccess(NamedTuple):
    """One access: its index in elements of `width` bytes, None for the whole buffer."""

    storage: str
    at: Expr | None
    width: int
    mode: str
    """The mode of a store; empty for a load."""


def stores_cannot_race(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR014: a plain store goes to another element at each point; no store meets other accesses."""
    varies = varying(body)
    reduce_vars = frozenset(body.reduce.vars)
    touches = list(dict.fromkeys(_touches(body, program)))
    facts = facts_of(body)
    for name, index, mode, at in body.stores():
        if mode == "plain":
            along = _loops_of(index, varies, reduce_vars)
            inner = Domain([(v, n) for v, n in body.reduce.items() if v in along])
            yield from _repeats(name, index, body.domain + inner, facts)
            if varies[at.stmt.args[0]] - along:
                yield (
                    "IR014",
                    (
                        f"store {name}[{index}] writes %{at.stmt.args[0]}, which differs along the "
                        "reduction loops, to one element"
                    ),
                )
        mine = _RacingAccess(program.storage_of(name), index, _width(program, name), mode)
        others = [t for t in touches if _collide(mine, t, facts, body)]
        if others:
            where = "as a whole" if others[0].at is None else f"at {others[0].at}"
            yield (
                "IR014",
                (f"{name} is stored at {index} and touched {where} in the same body"),
            )


def _width(program: Program, name: str) -> int:
    return program.by_name[name].dtype.itemsize


def _touches(body: Body, program: Program) -> Iterator[_RacingAccess]:
    """Every access of the body."""
    for at in body.walk():
        stmt = at.stmt
        if stmt.op not in ("load", "store", "bucketize"):
            continue
        name = stmt.buffer
        index = stmt.address if stmt.op != "bucketize" else None
        mode = stmt.mode if stmt.op == "store" else ""
        yield _RacingAccess(program.storage_of(name), index, _width(program, name), mode)


def _collide(store: _RacingAccess, other: _RacingAccess, facts: Facts, body: Body) -> bool:
    """Whether two points may touch one element through a store and another access."""
    if store.storage != other.storage:
        return False
    same = store.at is other.at and store.width == other.width
    if store.mode == other.mode and (same or store.mode != "plain"):
        return False  # the same store, or atomic stores of one kind, which take turns
    if same:
        # At one point it is a sequence; but two points may find the same index in data.
        assert store.at is not None, "a store has an index"
        if store.mode != "plain" and not other.mode:
            # What is added up must not be looked at while other points still add to it.
            used = [(v, n) for v, n in body.space.items() if v in store.at.free or n.value != 1]
            return not IndexMap(Domain(used), (store.at,)).is_injective()
        return any(s.kind is Kind.INDIRECT for s in store.at.free)
    if store.at is None or other.at is None:
        return True
    return not never_meet(
        ByteSpan(store.at, store.width, facts), ByteSpan(other.at, other.width, facts)
    )


# ---------------------------------------------------------------------------------- repeats


def _repeats(name: str, index: Expr, domain: Domain, facts: Facts) -> Iterator[tuple[str, str]]:
    """Stores that are sure to hit an element twice; what cannot be told is let pass."""
    if any(s.kind is Kind.INDIRECT for s in index.free):
        return  # a scatter: which of equal indices wins is documented, not an error
    if any(n.value == 0 for n in domain.extents):
        return
    simple = facts.simplify(index)
    for v, n in domain.items():
        if n.value != 1 and v not in simple.free:
            message = f"store {name}[{index}] hits the same element at every step of loop {v}"
            yield "IR014", message
            return
    found = _repeat_along(simple, domain) or _repeat_across(simple, domain)
    if found is not None:
        yield "IR014", f"store {name}[{index}] hits the same element at {found}"


def _repeat_along(index: Expr, domain: Domain) -> str | None:
    """Two places of one loop with the same index, such as 0 and 1 of i in i // 2."""
    remainders = _remainders(index)
    for v, extent in domain.items():
        n = extent.value
        if n is None or n < 2 or coefficient(index, v) is not None:
            continue
        pairs = [(0, 1), (n - 2, n - 1), *[(0, d) for d in remainders if d < n]]
        for a, b in pairs:
            if _at_value(index, v, a) is _at_value(index, v, b):
                return f"{v} = {a} and {v} = {b}"
    return None


def _at_value(index: Expr, v: Symbol, value: int) -> Expr:
    return substitute(index, {v: value})


def _remainders(index: Expr) -> list[int]:
    found: dict[int, None] = {}
    stack = [index]
    while stack:
        e = stack.pop()
        if isinstance(e, Mod) and e.den.value is not None and e.den.value > 0:
            found[e.den.value] = None
        stack.extend(e.children)
    return list(found)


def _repeat_across(index: Expr, domain: Domain) -> str | None:
    """Two loops whose strides have a common multiple within reach, such as i + j."""
    known: list[tuple[Symbol, int, int]] = []
    for v, n in domain.items():
        stride = coefficient(index, v)
        if stride is not None and stride.value and n.value is not None:
            known.append((v, stride.value, n.value))
    for k, (v, a, count) in enumerate(known):
        for w, b, other_count in known[k + 1 :]:
            x, y = abs(b) // gcd(a, b), abs(a) // gcd(a, b)
            if x < count and y < other_count:
                same_way = (a > 0) == (b > 0)
                ends = (0, y) if same_way else (y, 0)
                return f"{v} = {x}, {w} = {ends[0]} and {v} = 0, {w} = {ends[1]}"
    return None


RACE_RULES = (reductions_have_loops, parts_are_positions, stores_cannot_race)
LOOP_RULES = (loops_have_reductions,)
"""Of loops that are no nest of a kernel."""
