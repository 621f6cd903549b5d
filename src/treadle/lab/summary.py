"""What an engineer wants to know first about a program, as plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from treadle.analysis.access import accesses
from treadle.analysis.accounting import OURS, figures
from treadle.analysis.deps import DepKind, dependences
from treadle.index import hint
from treadle.ir.program import Program
from treadle.ir.types import BufferKind


@dataclass(frozen=True)
class Summary:
    """Counts and figures of one program."""

    name: str
    ops: int
    kernels: int
    kinds: dict[str, int]
    buffers: int
    bytes_moved: int
    peak_bytes: int
    peak_at: str | None
    peak_lower_bound: int
    mutations: int
    views: int
    indirect_accesses: int
    dependences: dict[str, int]
    largest: list[tuple[str, int]]
    assumed_sizes: dict[str, int]
    """What run-time sizes were counted as: their hints, else the least they can be."""
    numerics: str
    """How far from exact results generated code may be."""

    def to_json(self) -> dict[str, object]:
        """The summary with the keys all commands share."""
        return dict(self.__dict__)


def summarise(program: Program) -> Summary:
    """The figures of `program`."""
    counted, deps = figures(program, OURS), dependences(program)
    touches = [a for row in program.derive(accesses).values() for a in row]
    sized = [b for b in program.buffers if b.kind is BufferKind.TENSOR and b.view_of is None]
    largest = sorted(sized, key=lambda b: (-b.storage_bytes, b.name))[:5]
    versions = Counter(storage for _, storage in deps.writes_version)
    inputs = {program.storage_of(n) for n in program.inputs}
    return Summary(
        name=program.name,
        ops=counted.ops,
        kernels=counted.kernels,
        kinds=dict(Counter(type(op).__name__ for op in program.ops)),
        buffers=len(program.buffers),
        bytes_moved=counted.bytes_moved,
        peak_bytes=counted.peak_bytes,
        peak_at=counted.peak_at,
        peak_lower_bound=counted.peak_lower_bound,
        mutations=sum(n if s in inputs else n - 1 for s, n in versions.items()),
        views=sum(b.view_of is not None for b in program.buffers),
        indirect_accesses=sum(a.is_indirect for a in touches),
        dependences={k.name: sum(d.kind is k for d in deps.deps) for k in DepKind},
        largest=[(b.name, b.storage_bytes) for b in largest],
        assumed_sizes={s.name: hint(s) for s in program.sizes},
        numerics=str(program.numerics),
    )
