"""Accesses whose address comes from data: when are two of them the same?

    op1   %0 = index i ; %1 = cast f32 %0 ; %2 = mul %1, 0.5 ; %3 = cast i64 %2 ; load x[%3]
    op2   the same computation, then load x[%3] among other things

Both load the same element at each point if the address is computed by the same statements from the
same loops and the same buffers. The computation is compared as a whole, statement by statement.
"""

from __future__ import annotations

from functools import lru_cache

from treadle.index import Expr, Kind, Symbol, loop, substitute
from treadle.index.expr import IntLike, indirect
from treadle.ir.body import Body, number_of
from treadle.ir.ops import OPS

LIMIT = 200
"""Longer bodies are not looked at."""


class ValueKey:
    """What a value of a body is; equal computations have the same object."""

    __slots__ = ()


@lru_cache(maxsize=65536)
def _value(op: str, attrs: tuple[object, ...], args: tuple[ValueKey | None, ...]) -> ValueKey:
    return ValueKey()


def data_key(body: Body, index: Expr) -> object | None:
    """A key that two data-dependent indices share exactly if they are computed alike."""
    if len(body.stmts) > LIMIT:
        return None
    keys = _values_of(body)
    symbols = sorted((s for s in index.free if s.kind is Kind.INDIRECT), key=number_of)
    made = tuple(keys[number_of(s)] for s in symbols)
    if any(k is None for k in made):
        return None
    values: dict[Symbol, IntLike] = {s: indirect(f"%{k}") for k, s in enumerate(symbols)}
    return _loops(body), _by_position(substitute(index, values), body), made


@lru_cache(maxsize=1024)
def _values_of(body: Body) -> tuple[ValueKey | None, ...]:
    """The key of each value; None where a region makes it hard to say."""
    loops = _loops(body)
    found: list[ValueKey | None] = []
    for at in body.walk():
        stmt = at.stmt
        if not OPS[stmt.op].produces:
            continue
        args = tuple(found[a] for a in stmt.args)
        if at.depth or stmt.region or any(a is None for a in args):
            found.append(None)
            continue
        attrs: list[object] = []
        known = True
        for a in stmt.attrs:
            if isinstance(a, Expr):
                data = [s for s in a.free if s.kind is Kind.INDIRECT]
                known = known and all(found[number_of(s)] is not None for s in data)
                attrs.extend(found[number_of(s)] for s in sorted(data, key=number_of))
                attrs.append(_by_position(a, body))
            else:
                attrs.append(a)
        found.append(_value(stmt.op, (loops, *attrs), args) if known else None)
    return tuple(found)


def _loops(body: Body) -> tuple[object, ...]:
    return (*body.domain.extents, "|", *body.reduce.extents)


def _by_position(e: Expr, body: Body) -> Expr:
    """The expression with loops called by their place and data by its order."""
    values: dict[Symbol, IntLike] = {v: loop(f"c{k}") for k, v in enumerate(body.space.vars)}
    data = sorted((s for s in e.free if s.kind is Kind.INDIRECT), key=number_of)
    values.update({s: indirect(f"%{k}") for k, s in enumerate(data)})
    return substitute(e, values)
