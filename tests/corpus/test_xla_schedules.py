"""What `treadle schedule` says about XLA dumps counts what really runs, before and after alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.analysis.accounting import OURS, PEER, figures
from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.options import Options
from treadle.frontends.xla_dump import read_dump
from treadle.frontends.xla_dump.import_program import import_program
from treadle.frontends.xla_dump.schedule import schedule_of
from treadle.ir.effects import runs
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program
from treadle.schedule.pipeline import run_pipeline

HERE = Path(__file__).parent / "xla"
SHARED = Path(__file__).parents[2].parent / "shared"
GPU = sorted(HERE.glob("gpu/*-buffer-assignment.txt"))
ALL = [
    *GPU,
    *HERE.glob("*.2026-04-buffer-assignment.txt"),
    *sorted(SHARED.glob("seeds/002_*.txt")),
    *sorted(SHARED.glob("dumps/xla/*/*-buffer-assignment.txt")),
]
DO_NOTHING = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "call", "while",
    "conditional", "async-done", "copy-done", "fusion-done",
}  # fmt: skip


def scheduled(program: Program) -> Program:
    options = Options()
    return run_pipeline(program, Ctx(options, cost_model(program, options), journal_for(options)))


@pytest.mark.parametrize("path", ALL, ids=lambda p: f"{p.parent.name}-{p.name[:24]}")
def test_nothing_is_gained_by_leaving_out_what_does_not_run(path: Path) -> None:
    dump = read_dump(str(path))
    if dump.live is None:
        pytest.skip("a form without live ranges")
    program = import_program(dump)
    after = scheduled(program)
    for accounting in (OURS, PEER):
        one, other = figures(program, accounting), figures(after, accounting)
        assert (one.ops, one.kernels, one.bytes_moved) == (
            other.ops,
            other.kernels,
            other.bytes_moved,
        )
    assert figures(after, OURS).peak_bytes <= figures(program, OURS).peak_bytes
    names = {op.name for op in program.leaves}
    assert {op.name for op in after.leaves} == names, "XLA leaves nothing dead in a schedule"


@pytest.mark.parametrize("path", GPU, ids=lambda p: p.name[:24])
def test_what_only_names_values_is_no_kernel(path: Path) -> None:
    program = import_program(read_dump(str(path)))
    targets = {op.target for op in program.leaves if runs(op)}  # type: ignore[attr-defined]
    assert not targets & DO_NOTHING
    assert {"fusion"} <= targets
    idle = {op.target for op in program.leaves if not runs(op)}  # type: ignore[attr-defined]
    assert not idle & {"fusion", "copy", "custom-call", "sort", "dot"}


def test_asynchronous_fusions_count_once() -> None:
    path = next(p for p in GPU if p.name.startswith("scan_rnn"))
    program = import_program(read_dump(str(path)))
    started = {op.name for op in program.leaves if op.name.startswith("fusion-start")}
    assert len(started) == 2
    kernels = {op.name for op in program.leaves if runs(op)}
    assert not started & kernels
    wrapped = {"loop_dynamic_slice_fusion.1", "loop_dynamic_update_slice_fusion.1"}
    assert wrapped <= kernels


def test_the_seed_has_the_kernels_that_run() -> None:
    seeds = sorted(SHARED.glob("seeds/002_*.txt"))
    if not seeds:
        pytest.skip("seed 002 is not beside the repository")
    found = figures(import_program(read_dump(str(seeds[0]))), OURS)
    assert (found.ops, found.kernels, found.bytes_moved) == (47, 47, 1_548_243_804)


LOOPS = [p for p in GPU if p.name.startswith(("scan_", "while_", "decode_loop", "conditional"))]


@pytest.mark.parametrize("path", LOOPS, ids=lambda p: p.name[:24])
def test_nothing_moves_into_or_out_of_a_loop_or_a_branch(path: Path) -> None:
    dump = read_dump(str(path))
    schedule = schedule_of(dump)
    assert schedule is not None
    assert schedule.borders
    program = import_program(dump)
    assert parse_program(show_program(program)) == program
    order = [op.name for op in scheduled(program).leaves]
    place = {name: sum(schedule.time[name] >= b for b in schedule.borders) for name in order}
    assert [place[name] for name in order] == sorted(place.values())
