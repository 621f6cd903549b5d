"""Which loads and stores of f16 go through tiles of floats.

    for i: y[i] = f(x[i])   x and y of f16
    stage x, stage y        blocks of x become floats, f sees floats alone, blocks of y become f16

Machines convert whole vectors; compilers know that of single elements only, and a call from the
middle of a loop sends all vectors to memory. Blocks stay in the first cache.
"""

from __future__ import annotations

from treadle.index import Symbol, coefficient, hint
from treadle.ir.body import Body
from treadle.ir.loop_schedule import LoopPlan
from treadle.ir.program import Program
from treadle.ir.types import DType
from treadle.kernel.vector_rules import BodyAccess

NARROW_BLOCK = 1024
"""Elements of a block: a few of them, as floats, fit into the first cache."""
ON_VECTORS = frozenset({DType.F16})
"""Types that loops on vectors convert only by calls."""
ALL_NARROW = frozenset({DType.F16, DType.BF16})
"""Types that loops which go one by one convert in several steps."""
SHORTEST_ROW = 32
"""Elements from which on a row of its own is worth the calls that convert it."""


def narrow_rows(
    body: Body,
    program: Program,
    accesses: list[BodyAccess],
    v: Symbol,
    types: frozenset[DType] = ON_VECTORS,
) -> list[int]:
    """The loads of such types along `v`, and the values that are stored so, to be staged."""
    if hint(dict(body.space.items())[v]) < SHORTEST_ROW:
        return []
    written = [a.storage for a in accesses if a.mode]
    touched = [a.storage for a in accesses]
    loads = [at.number for at in body.walk() if at.stmt.op == "load"]
    stores = [at.stmt for at in body.walk() if at.stmt.op == "store"]
    # To stage a value is about all stores of it.
    late = {s.args[0] for s in stores if touched.count(program.storage_of(s.buffer)) > 1}
    found = []
    for at in body.walk():
        stmt = at.stmt
        if at.depth or stmt.op not in ("load", "store"):
            continue
        storage = program.storage_of(stmt.buffer)
        along = coefficient(stmt.address, v)
        is_narrow = program.by_name[stmt.buffer].dtype in types
        if not is_narrow or along is None or along.value != 1:
            continue
        if stmt.op == "load" and storage not in written:
            found.append(at.number)
        elif stmt.op == "store" and stmt.mode == "plain" and stmt.args[0] not in late:
            # To stage a load is about its own row, which one number for all of `v` has not.
            found += [] if stmt.args[0] in (*found, *loads) else [stmt.args[0]]
    return [n for n in found if n is not None]


def read_back(body: Body, accesses: list[BodyAccess], plan: LoopPlan) -> str | None:
    """A buffer whose elements go through a tile to memory, and are touched beside that."""
    touched = [a.storage for a in accesses]
    loads = {at.number for at in body.walk() if at.stmt.op == "load"}
    stored = {a.buffer: a.storage for a in accesses if a.mode}
    for stmt in body.stmts:
        if stmt.op != "store" or stmt.args[0] not in plan.staged - loads:
            continue
        if stmt.mode != "plain" or touched.count(stored[stmt.buffer]) > 1:
            return stmt.buffer
    return None
