"""Sharing launches: who may, who may not, and what it may cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Foreach, Program
from treadle.ir.spec import verify
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.schedule.passes.combine_launches import combine_launches
from treadle.schedule.policy import POLICIES
from treadle.testing.costs import MACHINES


def combined(program: Program, policy: str = "balanced") -> tuple[Program, list[str]]:
    journal = Journal()
    new = combine_launches(program, Ctx(Options(policy=policy), MACHINES, journal))
    return verify(new), [e["code"] for e in journal.events("verdict")]


def kernels(count: int, size: int = 16) -> Program:
    b = ProgramBuilder("p")
    for n in range(count):
        x, y = b.input(f"x{n}", "f32", [size]), b.output(f"y{n}", "f32", [size])
        with b.loop(f"op{n}", [size]) as k:
            k.store(y, k.vars, k.load(x, *k.vars) + float(n))
    return b.build()


def test_independent_kernels_share_a_launch() -> None:
    new, codes = combined(kernels(5))
    (op,) = new.ops
    assert isinstance(op, Foreach)
    assert len(op.members) == 5
    assert codes == ["COM000"] * 4


def test_a_launch_has_at_most_as_many_kernels_as_the_policy_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = replace(POLICIES["balanced"], combine=2)
    monkeypatch.setitem(POLICIES, "balanced", few)
    assert [len(op.leaves) for op in combined(kernels(5))[0].ops] == [2, 2, 1]


def test_large_kernels_keep_their_launch() -> None:
    program = kernels(2, size=1 << 24)
    assert combined(program)[0] is program


def test_the_memory_policy_shares_no_launch() -> None:
    program = kernels(3)
    assert combined(program, "memory")[0] is program


def test_kernels_that_write_one_storage_do_not_share_a_launch() -> None:
    b = ProgramBuilder("p")
    y = b.output("y", "f32", [32])
    for n in range(2):
        x = b.input(f"x{n}", "f32", [16])
        with b.loop(f"half{n}", [16]) as k:
            k.store_at(y, k.vars[0] + 16 * n, k.load(x, *k.vars))
    program = b.build()
    new, codes = combined(program)
    assert new is program
    assert codes == ["COM001"]


def functions_of(rows: int) -> Program:
    """Two kernels that read little and compute as many functions as there are rows, 4096 each."""
    b = ProgramBuilder("p")
    for n in range(2):
        x, w = b.input(f"x{n}", "f32", [4096]), b.input(f"w{n}", "f32", [rows])
        y = b.output(f"y{n}", "f32", [rows])
        with b.loop(f"op{n}", [rows], reduce=[4096]) as k:
            i, r = k.vars
            k.store(y, (i,), k.sum(k.exp(k.load(x, r) * k.load(w, i))))
    return b.build()


def codes_of(program: Program, **options: object) -> list[str]:
    asked = Options.make(**options)
    journal = Journal()
    combine_launches(program, Ctx(asked, cost_model(program, asked), journal))
    return [e["code"] for e in journal.events("verdict")]


def test_arithmetic_counts_as_time() -> None:
    assert codes_of(functions_of(2)) == ["COM000"]
    assert codes_of(functions_of(256)) == ["COM002", "COM002"]


def test_a_calibration_file_says_what_a_launch_is_worth(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    for launch, codes in ((5e6, ["COM000"]), (500, ["COM002", "COM002"])):
        figures = {"cpu": {"launch_ns": launch}}
        path.write_text(json.dumps({"treadle_calibration": 1, "devices": figures}))
        assert codes_of(functions_of(256), cost_file=str(path)) == codes


def test_the_times_compared_are_told() -> None:
    program, journal = functions_of(256), Journal()
    combine_launches(program, Ctx(Options(), cost_model(program, Options()), journal))
    facts = next(iter(journal.events("verdict")))["facts"]
    assert facts["launch_ns"] < facts["share"] * facts["kernel_ns"]


def test_why_shows_what_a_launch_was_weighed_against(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text(show_program(functions_of(256)))
    assert main(["why", str(path), "op0", "op1"]) == 0
    assert "COM002 kernel_ns=" in capsys.readouterr().out
