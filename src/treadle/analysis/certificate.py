"""The dependence certificate: a scheduled program keeps every dependence of the one it came from.

Independent of how the schedule was found: it compares two programs by the names of their leaf
operations, looks at the dependences of the first and at nothing but positions in the second.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.analysis.deps import dependences
from treadle.core.errors import Violation
from treadle.ir.effects import effects
from treadle.ir.program import Program


def certify(before: Program, after: Program) -> list[Violation]:
    """What `after` breaks of `before`; empty if every dependence is kept."""
    place = {op.name: k for k, op in enumerate(after.leaves)}
    return [*_order_kept(before, place), *_values_kept(before, place)]


def _order_kept(before: Program, place: dict[str, int]) -> Iterator[Violation]:
    """CERT001: of two dependent operations that are both there, the source still comes first."""
    deps = dependences(before)
    for d in deps.deps:
        source, target = deps.names[d.source], deps.names[d.target]
        if source in place and target in place and place[source] > place[target]:
            yield Violation("CERT001", f"it stands before {source}; {d.reason}", target)


def _values_kept(before: Program, place: dict[str, int]) -> Iterator[Violation]:
    """CERT002: nothing that is gone made a value that is still needed."""
    deps = dependences(before)
    for d in deps.deps:
        source, target = deps.names[d.source], deps.names[d.target]
        if source not in place and target in place and d.carries:
            yield Violation("CERT002", f"{source} is gone, yet {d.reason}", target)
    outputs = {before.storage_of(n) for n in (*before.outputs, *before.inputs)}
    for op in before.leaves:
        if op.name in place:
            continue
        of = effects(op)
        for name in (*of.writes, *of.mutates):
            if before.storage_of(name) in outputs:
                message = f"it is gone, yet {name} is seen by the caller"
                yield Violation("CERT002", message, op.name)
