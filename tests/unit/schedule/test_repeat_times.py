"""Whether a value is kept or computed again is a comparison of times, in figures of the target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.analysis.cost import cost_model
from treadle.analysis.deps import dependences
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Loop, Program
from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import main
from treadle.schedule.between import Between
from treadle.schedule.passes.recompute import recompute
from treadle.schedule.policy import POLICIES
from treadle.schedule.repeat_times import RepeatClock, RepeatTimes
from treadle.schedule.repeating import Repeater

CHEAP_MEMORY = {"gigabytes_per_second": 1e6, "vector_gflops": 1, "launch_ns": 0}
CHEAP_ARITHMETIC = {"vector_gflops": 1e6}


def angles(size: int = 4096, heads: int = 4) -> Program:
    """Sines of `size` places, each asked for by several heads."""
    b = ProgramBuilder("p")
    x, t = b.input("x", "f32", [heads, size]), b.buffer("t", "f32", [size])
    with b.loop("angles", [size]) as k:
        k.store(t, k.vars, k.sin(k.index(k.vars[0])))
    y = b.output("y", "f32", [heads, size])
    with b.loop("turn", [heads, size]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(x, i, j) * k.load(t, j))
    return b.build()


def rows_and_columns(device: str = "cpu", size: int = 512) -> Program:
    """t = x * w, whose rows and columns are summed."""
    b = ProgramBuilder("p", device=device)
    x, w = b.input("x", "f32", [size, size]), b.input("w", "f32", [size])
    t = b.buffer("t", "f32", [size, size])
    with b.loop("scale", [size, size]) as k:
        i, j = k.vars
        k.store(t, (i, j), k.load(x, i, j) * k.load(w, j))
    rows, columns = b.output("r", "f32", [size]), b.output("c", "f32", [size])
    with b.loop("rows", [size], reduce=[size]) as k:
        i, j = k.vars
        k.store(rows, (i,), k.sum(k.load(t, i, j)))
    with b.loop("columns", [size], reduce=[size]) as k:
        j, i = k.vars
        k.store(columns, (j,), k.sum(k.load(t, i, j)))
    return b.build()


def decided(program: Program, **options: object) -> dict[str, tuple[str, RepeatTimes]]:
    """For each reader, what was decided and the two times."""
    asked = Options.make(**options)
    journal = Journal()
    recompute(program, Ctx(asked, cost_model(program, asked), journal))
    return {e["ops"][1]: (e["code"], RepeatTimes(**e["facts"])) for e in journal.events("verdict")}


def calibration(folder: Path, **figures: float) -> str:
    path = folder / "costs.json"
    path.write_text(json.dumps({"treadle_calibration": 1, "devices": {"cpu": figures}}))
    return str(path)


def test_a_calibration_file_makes_arithmetic_cheap(tmp_path: Path) -> None:
    code, times = decided(angles())["turn"]
    assert code == "RCP004"
    assert times.kept_ns < times.again_ns
    file = calibration(tmp_path, **CHEAP_ARITHMETIC)
    code, times = decided(angles(), cost_file=file)["turn"]
    assert code == "RCP000"
    assert times.kept_ns > times.again_ns


def test_a_calibration_file_makes_memory_cheap(tmp_path: Path) -> None:
    found = decided(rows_and_columns())
    assert [code for code, _ in found.values()] == ["RCP000", "RCP000"]
    file = calibration(tmp_path, **CHEAP_MEMORY)
    found = decided(rows_and_columns(), cost_file=file)
    assert [code for code, _ in found.values()] == ["RCP004", "RCP004"]
    for _, times in found.values():
        assert times.kept_ns < times.again_ns


def test_on_a_gpu_work_hides_behind_what_is_moved() -> None:
    on_cpu, on_gpu = (
        decided(rows_and_columns(device, 2048))["columns"][1] for device in ("cpu", "cuda:0")
    )
    assert on_cpu.again_ns < on_cpu.kept_ns
    # There what is not stored is all of the difference.
    assert on_gpu.kept_ns - on_gpu.again_ns == pytest.approx(2048 * 2048 * 4 / 3350, rel=0.01)


def clock(program: Program) -> tuple[RepeatClock, dict[str, Loop]]:
    cost = cost_model(program, Options())
    loops = {op.name: op for op in program.leaves if isinstance(op, Loop)}
    return RepeatClock(program, POLICIES["balanced"], cost, Repeater(program)), loops


def test_rows_join_the_producer_and_columns_do_not() -> None:
    times, ops = clock(rows_and_columns())
    joined, apart = times.split(ops["scale"], [ops["rows"], ops["columns"]])
    assert [op.name for op in joined] == ["rows"]
    assert [op.name for op in apart] == ["columns"]
    # Alone, columns are joined: what has points only is run in their order.
    joined, apart = times.split(ops["scale"], [ops["columns"]])
    assert [op.name for op in joined] == ["columns"]


def test_what_all_readers_can_join_gains_nothing() -> None:
    times, ops = clock(rows_and_columns())
    kept, again = times.again(ops["scale"], [ops["rows"]], [])
    assert kept == again


def test_a_value_of_a_row_is_made_once_for_its_elements() -> None:
    """A root for each row costs its readers a root for each row, not for each element."""
    b = ProgramBuilder("p")
    s, x = b.input("s", "f32", [64]), b.input("x", "f32", [64, 1024])
    root = b.buffer("root", "f32", [64])
    with b.loop("make", [64]) as k:
        k.store(root, k.vars, k.sin(k.load(s, *k.vars)))
    for n in range(2):
        y = b.output(f"y{n}", "f32", [64, 1024])
        with b.loop(f"use{n}", [64, 1024]) as k:
            i, j = k.vars
            k.store(y, (i, j), k.load(x, i, j) * k.load(root, i) + float(n))
    times, ops = clock(b.build())
    kept, again = times.of_one(ops["make"], ops["use0"])
    assert 0 <= again - kept <= 64 * 15 / 50 + 1


@pytest.mark.parametrize("by_call, joins", [(False, True), (True, False)])
def test_what_a_call_in_between_needs_cannot_be_in_one_kernel(by_call: bool, joins: bool) -> None:
    b = ProgramBuilder("p")
    x, u, m = b.input("x", "f32", [8]), b.buffer("u", "f32", [8]), b.buffer("m", "f32", [8])
    with b.loop("first", [8]) as k:
        k.store(u, k.vars, k.load(x, *k.vars) * 0.5)
    if by_call:
        b.extern("mylib.f", [u], [m], name="second")
    else:
        with b.loop("second", [8]) as k:
            k.store(m, k.vars, k.load(u, *k.vars) * 0.5)
    y = b.output("y", "f32", [8])
    with b.loop("third", [8]) as k:
        k.store(y, k.vars, k.load(u, *k.vars) + k.load(m, *k.vars))
    program = b.build()
    between = Between(program, dependences(program), 64)
    assert between.can_join({0}, 2) is joins
    assert not Between(program, dependences(program), 0).can_join({0}, 2), "too far to look"


def test_why_shows_both_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.txt"
    path.write_text(show_program(angles()))
    assert parse_program(path.read_text()) == angles()
    assert main(["why", str(path), "angles", "turn"]) == 0
    text = capsys.readouterr().out
    assert "no RCP004 kept_ns=" in text
    assert "again_ns=" in text
    path.write_text(show_program(rows_and_columns()))
    assert main(["why", str(path), "scale", "columns"]) == 0
    text = capsys.readouterr().out
    assert "scale (computed again where it is read)" in text
    assert "yes RCP000 kept_ns=" in text
