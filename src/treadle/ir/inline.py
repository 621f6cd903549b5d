"""Putting the computation of one loop in place of loads of its result in another.

    producer   t[i] = x[i] * 2              for i in 64
    consumer   y[j] = t[63 - j] + 1         for j in 64
    inlined    y[j] = x[63 - j] * 2 + 1

Statements are numbered anew, regions included; the value is converted to the element type of the
buffer it would have been stored to, so that nothing changes but who computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from treadle.index import Expr, IndexMap, IntLike, Kind, Symbol, substitute
from treadle.ir.body import Body, Stmt, number_of, value_symbol
from treadle.ir.ops import OPS
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import infer_types

Expand = Callable[["Copier", Stmt], int | None]


class Copier:
    """Copies statements block by block with new numbers; `expand` may replace a load."""

    def __init__(self, start: int = 0) -> None:
        self.counter = start
        self.blocks: list[list[Stmt]] = [[]]

    def emit(self, stmt: Stmt) -> int:
        """Append a statement; gives the number of its value."""
        number = self.counter
        self.counter += OPS[stmt.op].produces
        self.blocks[-1].append(stmt)
        return number

    def copy(
        self,
        stmts: tuple[Stmt, ...],
        names: dict[int, int],
        seen: list[int],
        loops: Mapping[Symbol, IntLike],
        expand: Expand | None = None,
        skip: Callable[[Stmt], bool] | None = None,
    ) -> None:
        """Append copies of `stmts`; `names` maps old numbers to new, `seen` counts the old ones."""
        for stmt in stmts:
            old = seen[0]
            seen[0] += OPS[stmt.op].produces
            if skip is not None and skip(stmt):
                continue
            fresh = stmt._replace(
                args=tuple([names[a] for a in stmt.args]),
                attrs=tuple([_renamed(a, names, loops) for a in stmt.attrs]),
                region=(),
            )
            instead = expand(self, fresh) if expand is not None else None
            if instead is not None:
                names[old] = instead
                continue
            if not stmt.region:
                names[old] = self.emit(fresh)
                continue
            names[old] = self.counter
            self.counter += OPS[stmt.op].produces
            self.blocks.append([])
            self.copy(stmt.region, names, seen, loops, expand, skip)
            self.blocks[-2].append(fresh._replace(region=tuple(self.blocks.pop())))


def _renamed(attr: object, names: Mapping[int, int], loops: Mapping[Symbol, IntLike]) -> object:
    if not isinstance(attr, Expr):
        return attr
    values: dict[Symbol, IntLike] = dict(loops)
    for s in attr.free:
        if s.kind is Kind.INDIRECT:
            values[s] = value_symbol(names[number_of(s)])
    return substitute(attr, values) if values else attr


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
    facts = body.space.facts

    def expand(copier: Copier, stmt: Stmt) -> int | None:
        if stmt.op != "load" or stmt.buffer != buffer.name:
            return None
        loops: dict[Symbol, IntLike] = {}
        if inverse is not None:
            values: dict[Symbol, IntLike] = {inverse.domain.vars[0]: stmt.address}
            points = [facts.simplify(substitute(r, values)) for r in inverse.results]
            loops = dict(zip(producer.domain.vars, points, strict=True))
        names: dict[int, int] = {}
        copier.copy(producer.stmts, names, [0], loops, skip=lambda s: s.op == "store")
        found = names[store.args[0]]
        if made is not buffer.dtype:
            assert isinstance(made, DType)
            found = copier.emit(Stmt("cast", (found,), (buffer.dtype,)))
        return found

    copier = Copier()
    copier.copy(body.stmts, {}, [0], {}, expand)
    return replace(body, stmts=tuple(copier.blocks[0]))


def _uses_loops(body: Body) -> bool:
    """Whether what is stored depends on the loops at all."""
    own = set(body.domain.vars)
    return any(
        isinstance(a, Expr) and not a.free.isdisjoint(own)
        for at in body.walk()
        if at.stmt.op != "store"
        for a in at.stmt.attrs
    )
