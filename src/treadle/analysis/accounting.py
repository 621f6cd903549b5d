"""Two ways to count bytes: ours, and the peer's, so that figures from its dumps can be compared.

                        OURS                                PEER (TorchInductor's estimators)
    peak                inputs count, blocks are handed     inputs do not count, nothing is handed
                        over in place, what a collective    over, what a collective reads dies at
                        reads lives until the wait          once, gaps in strided tensors are free
    bytes of a kernel   what it touches                     at most 10^9 elements of each buffer
    bytes of a wait     none                                the buffer, read and written
    fresh memory        a call that fills it does not       counted as read
                        read it

Buffers that live only inside a fused kernel need no memory in either. Before and after a change are
always counted in the same way. A call marked `runs = false` only says who holds what and when (a
tuple, the parameter of a loop's body): it is no kernel and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.analysis.access import Access, accesses
from treadle.analysis.cost import internal_storages, parts_of_tuples, work_of
from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.analysis.waits import exposed_waits
from treadle.index import hint
from treadle.ir.effects import runs
from treadle.ir.program import (
    Foreach,
    Fused,
    Group,
    Grouped,
    Kernel,
    Loop,
    MixOrder,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Program,
    Wait,
)
from treadle.ir.types import BufferKind

PEER_CAP = 10**9
"""The peer's stand-in for the iteration count of anything that is not a single loop."""
LAUNCHLESS = (Wait, MultiOutput, Nop)


@dataclass(frozen=True)
class Accounting:
    """What is counted: a liveness policy and the bytes of one operation."""

    name: str
    policy: LivenessPolicy
    bytes_of: Callable[[Program, Operation], int]


@dataclass(frozen=True)
class Figures:
    """The numbers a schedule is judged by, and where the peak is."""

    ops: int
    kernels: int
    bytes_moved: int
    peak_bytes: int
    peak_at: str | None
    peak_lower_bound: int
    exposed_waits: int
    """Waits with no computation between them and their collective."""


def figures(program: Program, accounting: Accounting) -> Figures:
    """Kernels, bytes moved and peak of a program."""
    live = Liveness(program, accounting.policy)
    peak = live.peak()
    return Figures(
        ops=sum(runs(op) for op in program.leaves),
        kernels=sum(runs(op) and not isinstance(op, LAUNCHLESS) for op in program.ops),
        bytes_moved=sum(accounting.bytes_of(program, op) for op in program.ops if runs(op)),
        peak_bytes=peak.bytes,
        peak_at=peak.at,
        peak_lower_bound=live.working_set_bound(),
        exposed_waits=exposed_waits(program),
    )


def _our_bytes(program: Program, op: Operation) -> int:
    return work_of(program, op).bytes


def _peer_bytes(program: Program, op: Operation) -> int:
    """The peer's estimate: per buffer, accesses times iterations, at most all its elements."""
    if isinstance(op, Nop | MultiOutput):
        return 0
    if isinstance(op, Foreach | Grouped):
        return sum(_peer_bytes(program, m) for m in op.members)
    if isinstance(op, Kernel) and op.shape in ("loop", "foreach"):
        return sum(_peer_bytes(program, m) for m in op.members)
    # A nest that runs several loops was a group.
    is_loop = isinstance(op, Loop) and not (isinstance(op, Nest) and len(op.runs) > 1)
    points = op.body.space.numel_hint if is_loop and isinstance(op, Loop) else PEER_CAP
    inside = internal_storages(program, op) if isinstance(op, Group) else frozenset()
    known, parts = program.derive(accesses), program.derive(parts_of_tuples)
    made: set[str] = set()
    seen: dict[tuple[str, bool], list[Access]] = {}
    for leaf in op.leaves:
        if isinstance(leaf, Nop | MultiOutput):
            continue
        touched = program.storage_of(leaf.buffer) if isinstance(leaf, Wait) else None
        for a in known[leaf.name]:
            if a.storage in inside or (touched is not None and a.storage != touched):
                continue
            if a.storage in made and not a.is_write:
                continue
            ways = (False, True) if a.also_reads else (a.is_write,)
            for way in ways:
                seen.setdefault((a.buffer, way), []).append(a)
        if isinstance(op, Fused | MixOrder | Kernel):
            made.update(a.storage for a in known[leaf.name] if a.is_write and not a.also_reads)
    total = 0
    for (name, _), touches in seen.items():
        buffer = program.by_name[name]
        if buffer.kind is BufferKind.TOKEN:
            continue
        if buffer.kind is BufferKind.TUPLE:
            total += parts.get(name, 0)
            continue
        count = points * (len(touches) if is_loop else 1)
        total += min(count, hint(buffer.numel)) * buffer.dtype.itemsize
    return total


OURS = Accounting("ours", LivenessPolicy(), _our_bytes)
PEER = Accounting(
    "inductor",
    LivenessPolicy(
        include_inputs=False,
        in_place=False,
        count_gaps=False,
        hold_until_wait=False,
    ),
    _peer_bytes,
)
DUMP = Accounting("dump", PEER.policy, _our_bytes)
"""For programs from dumps: bytes as they are moved, but inputs, whose size a dump does not tell,
do not count for the peak."""
ACCOUNTINGS = {a.name: a for a in (OURS, PEER, DUMP)}
