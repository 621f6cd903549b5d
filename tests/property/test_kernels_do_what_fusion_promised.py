"""Kernels of random programs: one nest for what was fused, no byte moved that was not counted.

Promised, and checked here on random programs:

    one nest    what the scheduler fused is one nest: nothing counted as internal lies in memory
    no less     a kernel is never said to move less than it touches, byte by byte
    as said     the peak of the kernels is at or below that of the groups
    meaning     the C code of the kernels computes what the program says (see test_c_programs)
"""

from __future__ import annotations

from collections import Counter

from how_many import examples, until
from hypothesis import given, settings
from small_operations import LOOP_MOVES
from small_programs import size_choices, small_programs
from touched_bytes import touched

from treadle.analysis.accounting import OURS, figures
from treadle.analysis.cost import Roofline, work_of
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import boundary
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.index import Expr, Kind
from treadle.ir.program import Kernel, Nest, Program
from treadle.schedule.passes import KERNELS, SCHEDULING
from treadle.schedule.pipeline import run_pipeline


def built(program: Program) -> tuple[Program, Program]:
    ctx = Ctx(Options(check=2), Roofline(program), Journal())
    scheduled = run_pipeline(program, ctx, SCHEDULING)
    return scheduled, run_pipeline(scheduled, ctx, KERNELS)


def from_data(nest: Nest) -> bool:
    indices = [e for at in nest.body.walk() for e in at.stmt.attrs if isinstance(e, Expr)]
    return any(s.kind is Kind.INDIRECT for e in indices for s in e.free)


def test_what_was_fused_is_one_nest_and_nothing_internal_is_stored() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=examples(80))
    @given(small_programs(moves=LOOP_MOVES))
    def every_program(program: Program) -> None:
        _, after = built(program)
        for op in after.ops:
            if isinstance(op, Kernel) and op.shape in ("loop", "fused"):
                seen[op.shape] += 1
                keeps_nothing_inside(after, op)

    assert until(lambda: seen["loop"] > 20 and seen["fused"] > 5, every_program), seen


def keeps_nothing_inside(after: Program, op: Kernel) -> None:
    deps, edge = dependences(after), after.derive(boundary)
    assert len(op.members) == 1, [m.runs for m in op.members if isinstance(m, Nest)]
    (nest,) = op.members
    assert isinstance(nest, Nest)
    own = deps.position[nest.name]
    for storage, users in deps.users.items():
        if users == (own,) and storage not in edge.inputs | edge.outputs:
            # Only what is added to, or read back through another view, may stay.
            modes = {m for n, _, m, _ in nest.body.stores() if after.storage_of(n) == storage}
            loaded = {after.storage_of(n) for n, _, _ in nest.body.loads()}
            assert modes - {"plain"} or storage in loaded, (storage, nest.name)


@settings(max_examples=examples(80))
@given(small_programs())
def test_no_kernel_moves_more_than_is_counted(program: Program) -> None:
    scheduled, after = built(program)
    assert figures(after, OURS).peak_bytes <= figures(scheduled, OURS).peak_bytes
    if program.sizes:
        return  # counted for the likely sizes
    for op in after.ops:
        if not isinstance(op, Kernel) or op.shape == "template":
            continue
        for nest in op.members:
            (sizes,) = size_choices(after) or [{}]
            if from_data(nest):
                continue  # what data decide may be anywhere: counted once for each point
            found, counted = touched(after, nest, sizes), work_of(after, nest)
            assert len(found.reads) <= counted.bytes_read, nest.name
            assert len(found.writes) <= counted.bytes_written, nest.name
