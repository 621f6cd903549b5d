"""What the body rules and the analyses know of a body: ranges of its symbols, limits of storage."""

from __future__ import annotations

from treadle.index import Expr, Facts, Symbol
from treadle.ir.body import Body, value_symbol
from treadle.ir.program import Program
from treadle.ir.types import Buffer


def facts_of(body: Body) -> Facts:
    """What is known inside the body: loop extents, and sizes of indirect values."""
    indirect: dict[Symbol, Expr] = {}
    for at in body.walk():
        if at.stmt.op == "indirect" and at.number is not None and at.stmt.attr("check"):
            size = at.stmt.attr("size")
            assert isinstance(size, Expr)
            indirect[value_symbol(at.number)] = size
    if not indirect:
        return body.space.facts  # shared between all bodies over the same loops
    return Facts({**dict(body.space.items()), **indirect})


def storage_limit(buffer: Buffer, program: Program) -> Expr:
    """How many elements of `buffer`'s type its storage holds."""
    root = program.by_name[program.storage_of(buffer.name)]
    if root is buffer or root.dtype.itemsize == buffer.dtype.itemsize:
        return root.storage_numel
    return (root.storage_numel * root.dtype.itemsize) // buffer.dtype.itemsize
