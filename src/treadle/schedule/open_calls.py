"""Calls that take pointwise work into their kernel: in which order operands and result are touched.

    template product (a, b) writes (c)       c: every element once, in the order of its layout
    loop     act     y[i] = relu(c[i])       may follow each element of c: an epilogue

Operands are read as a whole: which element is needed when is the call's own business.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.analysis.access import Access
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import boundary
from treadle.index import Domain, IndexMap
from treadle.ir.effects import effects
from treadle.ir.program import Call, Operation, Program, Template, UserKernel
from treadle.ir.types import BufferKind
from treadle.kernel.space import Space
from treadle.schedule.touches import Touch


def opens(op: Operation, program: Program) -> bool:
    """Whether a call can take loops in: it fills one fresh buffer and does nothing else."""
    if not isinstance(op, Template | UserKernel) or op.has_side_effects:
        return False
    if isinstance(op, Template) and not (op.has_epilogue_slot or op.prologue_slots):
        return False
    of = effects(op)
    if of.mutates or len(of.writes) != 1:
        return False
    out = program.by_name[of.writes[0]]
    fresh = out.view_of is None and out.kind is BufferKind.TENSOR
    if not fresh or out.name in program.derive(boundary).inputs or not out.layout.sizes:
        return False
    deps = dependences(program)
    return deps.users[out.name][0] == deps.position[op.name]


def result_space(op: Operation, program: Program) -> Space:
    """One point per element of the result."""
    return Space((program.by_name[effects(op).writes[0]].numel,))


def call_touches(op: Operation, program: Program) -> Iterator[Touch]:
    """The operands as a whole, the result element by element."""
    assert isinstance(op, Call)
    of = effects(op)
    for name in of.reads:
        if program.by_name[name].kind is BufferKind.TENSOR:
            yield Touch.of_call(Access(op.name, name, program.storage_of(name), False), program)
    out = program.by_name[of.writes[0]]
    at = Domain.fresh(out.layout.sizes)
    result = IndexMap.of(at, out.layout.index(at.vars))
    width = out.dtype.itemsize
    yield Touch.of_call(Access(op.name, out.name, out.name, True, map=result, width=width), program)
