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
    substitute,
)
from treadle.index.apart import Span, never_meet
from treadle.ir.body import Body, Stmt, number_of
from treadle.ir.ops import OPS
from treadle.ir.program import Program
from treadle.ir.spec_facts import facts_of

COMBINING = frozenset({"reduce", "scan", "sort"})

# ----------------------------------------------------------------------------------- levels


def varying(body: Body) -> list[bool]:
    """For each value, whether it may differ between points of the reduction loops."""
    result: list[bool] = []
    several = {v for v, n in body.reduce.items() if n.value != 1}
    _vary_in(body.stmts, result, several, False)
    return result


def _vary_in(
    stmts: tuple[Stmt, ...], result: list[bool], reduce_vars: set[Symbol], under: bool
) -> bool:
    """Extend `result` by the values of a block; whether what the block yields may differ."""
    yielded = False
    for stmt in stmts:
        differs = under or any(result[a] for a in stmt.args)
        for e in stmt.attrs:
            if isinstance(e, Expr):
                data = [s for s in e.free if s.kind is Kind.INDIRECT]
                differs = differs or bool(e.free & reduce_vars)
                differs = differs or any(result[number_of(s)] for s in data)
        number = len(result)
        if OPS[stmt.op].produces:
            result.append(differs)
        if stmt.region and _vary_in(stmt.region, result, reduce_vars, differs):
            result[number] = True
        if stmt.op in COMBINING:
            result[number] = bool(reduce_vars) and stmt.op != "reduce"
        if stmt.op == "yield":
            yielded = differs
    return yielded


def reductions_have_loops(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR013: reduce, scan and sort need reduction loops, and reduction loops need one of them."""
    combining = [at for at in body.walk() if at.stmt.op in COMBINING]
    if combining and not len(body.reduce):
        first = combining[0]
        yield "IR013", f"%{first.number}: {first.stmt.op} without reduction loops"
    if len(body.reduce) and not combining:
        yield "IR013", "reduction loops, but nothing combines over them"
    if any(n.value == 0 for n in body.domain.extents):
        return
    for at in combining if any(n.value == 0 for n in body.reduce.extents) else ():
        if at.stmt.attrs[0] in ("argmax", "argmin") and at.stmt.op == "reduce":
            yield "IR013", f"%{at.number}: {at.stmt.attrs[0]} over no elements has no answer"


# ------------------------------------------------------------------------------------ races


class _Touch(NamedTuple):
    """One access: its index in elements of `width` bytes, None for the whole buffer."""

    storage: str
    at: Expr | None
    width: int
    mode: str
    """The mode of a store; empty for a load."""


def stores_cannot_race(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR014: a plain store goes to another element at each point; no store meets other accesses."""
    varies = varying(body)
    reduce_vars = set(body.reduce.vars)
    touches = list(dict.fromkeys(_touches(body, program)))
    facts = facts_of(body)
    for name, index, mode, at in body.stores():
        if mode == "plain":
            at_reduced = bool(index.free & reduce_vars)
            yield from _repeats(name, index, body.space if at_reduced else body.domain, facts)
            if not at_reduced and varies[at.stmt.args[0]]:
                yield (
                    "IR014",
                    (
                        f"store {name}[{index}] writes %{at.stmt.args[0]}, which differs along the "
                        "reduction loops, to one element"
                    ),
                )
        mine = _Touch(program.storage_of(name), index, _width(program, name), mode)
        others = [t for t in touches if _collide(mine, t, facts, body)]
        if others:
            where = "as a whole" if others[0].at is None else f"at {others[0].at}"
            yield (
                "IR014",
                (f"{name} is stored at {index} and touched {where} in the same body"),
            )


def _width(program: Program, name: str) -> int:
    return program.by_name[name].dtype.itemsize


def _touches(body: Body, program: Program) -> Iterator[_Touch]:
    """Every access of the body."""
    for at in body.walk():
        stmt = at.stmt
        if stmt.op not in ("load", "store", "bucketize"):
            continue
        name = str(stmt.attrs[0])
        index = stmt.attrs[1] if stmt.op != "bucketize" else None
        assert index is None or isinstance(index, Expr)
        mode = str(stmt.attrs[2]) if stmt.op == "store" else ""
        yield _Touch(program.storage_of(name), index, _width(program, name), mode)


def _collide(store: _Touch, other: _Touch, facts: Facts, body: Body) -> bool:
    """Whether two points may touch one element through a store and another access."""
    if store.storage != other.storage:
        return False
    same = store.at is other.at and store.width == other.width
    if store.mode == other.mode and (same or store.mode != "plain"):
        return False  # the same store, or atomic stores of one kind, which take turns
    if same:
        # At one point it is a sequence; but two points may find the same index in data.
        assert store.at is not None
        if store.mode != "plain" and not other.mode:
            # What is added up must not be looked at while other points still add to it.
            used = [(v, n) for v, n in body.space.items() if v in store.at.free or n.value != 1]
            return not IndexMap(Domain(used), (store.at,)).is_injective()
        return any(s.kind is Kind.INDIRECT for s in store.at.free)
    if store.at is None or other.at is None:
        return True
    return not never_meet(Span(store.at, store.width, facts), Span(other.at, other.width, facts))


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


RACE_RULES = (reductions_have_loops, stores_cannot_race)
