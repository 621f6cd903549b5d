"""Putting the computation of one loop in place of loads of its result in another.

    producer   t[i] = x[i] * 2              for i in 64
    consumer   y[j] = t[63 - j] + 1         for j in 64
    inlined    y[j] = x[63 - j] * 2 + 1

The value is converted to the element type of the
buffer it would have been stored to, so that nothing changes but who computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from treadle.index import Expr, Facts, IndexMap, IntLike, Kind, Symbol, substitute
from treadle.ir.body import Body, Stmt, number_of
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import infer_types


def inlined(
    body: Body, buffer: Buffer, producer: Body, buffers: Mapping[str, Buffer]
) -> Body | None:
    """`body` with every load of `buffer` replaced by what `producer` stores there.

    The producer must be pointwise with one plain store that covers the buffer. None if the address
    cannot be turned back into the producer's loops.
    """
    stores = [(at.stmt, at.stmt.address) for at in producer.walk() if at.stmt.op == "store"]
    (store, address), *others = stores
    if others or len(producer.reduce):
        return None
    uses_loops = _uses_loops(producer)
    path = IndexMap(producer.domain, (address,))
    inverse = path.invert([producer.domain.numel]) if uses_loops else None
    if uses_loops and inverse is None:
        return None
    types = infer_types(producer, buffers)
    made = types[store.args[0]]
    values = [s for s in producer.stmts if s.op != "store"]

    def expand(rewriter: Rewriter, stmt: Stmt) -> int | None:
        if stmt.op != "load" or stmt.buffer != buffer.name:
            return None
        loops: dict[Symbol, IntLike] = {}
        if inverse is not None:
            address_here: dict[Symbol, IntLike] = {inverse.domain.vars[0]: stmt.address}
            facts = _facts_at(body, rewriter, stmt.address)
            points = [facts.simplify(substitute(r, address_here)) for r in inverse.results]
            loops = dict(zip(producer.domain.vars, points, strict=True))
        source = BodySource(rewriter, loops)
        source.take(values)
        found = source.numbers[store.args[0]]
        if made is not buffer.dtype:
            assert isinstance(made, DType)
            found = rewriter.emit(Stmt("cast", (found,), (buffer.dtype,)))
        return found

    rewriter = Rewriter()
    BodySource(rewriter, instead=expand).take(body.stmts)
    return replace(body, stmts=rewriter.stmts)


def _facts_at(body: Body, rewriter: Rewriter, address: Expr) -> Facts:
    """What is known of an address in the new body: loops, and checked values it is made of."""
    limits: dict[Symbol, Expr] = {}
    for s in address.free:
        if s.kind is Kind.INDIRECT:
            stmt = rewriter.made[number_of(s)]
            size = stmt.attr("size") if stmt.op == "indirect" and stmt.attr("check") else None
            if isinstance(size, Expr):
                limits[s] = size
    return Facts({**dict(body.space.items()), **limits}) if limits else body.space.facts


def _uses_loops(body: Body) -> bool:
    """Whether what is stored depends on the loops at all."""
    own = set(body.domain.vars)
    return any(
        isinstance(a, Expr) and not a.free.isdisjoint(own)
        for at in body.walk()
        if at.stmt.op != "store"
        for a in at.stmt.attrs
    )
