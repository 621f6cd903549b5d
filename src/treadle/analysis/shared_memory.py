"""Which parameters of a kernel may lie in the same memory: those written over others in place.

The planner gives two storages the same bytes at the same time only where liveness says that one
is written over the other (`live_table(program).reuses`); so nothing else need be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from treadle.analysis.live_table import live_table
from treadle.core.errors import Violation
from treadle.ir.kernel_parameters import shown_parameters
from treadle.ir.parameters import KernelParameter, ParameterAccess
from treadle.ir.program import Kernel, Operation, Program, walk_operations


def parameters_of(program: Program, members: Sequence[Operation]) -> tuple[KernelParameter, ...]:
    """The parameters of a kernel of these members, with who may be written over whom."""
    shown = shown_parameters(program, members)
    givers = program.derive(_givers)
    read = {p.storage for p in shown if not p.is_written}
    return tuple(
        [
            replace(p, over=giver)
            if p.access is ParameterAccess.WRITE
            and (giver := givers.get(p.storage)) is not None
            and giver in read
            else p
            for p in shown
        ]
    )


def unstated_sharing(program: Program) -> Iterator[Violation]:
    """KER008: a storage that may be written over another is said to be."""
    kernels = [op for op in walk_operations(program.ops) if isinstance(op, Kernel)]
    for op in kernels:
        if not op.parameters:
            continue
        said = {p.storage: p.over for p in op.parameters}
        for p in parameters_of(program, op.members):
            if p.over is not None and said.get(p.storage) != p.over:
                message = f"parameter {p.storage} may be written over {p.over}: it does not say so"
                yield Violation("KER008", message, op.name)


def _givers(program: Program) -> Mapping[str, str]:
    return {out: inp for inp, out in live_table(program).reuses.items()}
