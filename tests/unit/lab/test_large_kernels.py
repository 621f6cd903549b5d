"""Kernels with hundreds of members and storages: looked at in a moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from treadle.analysis import inplace
from treadle.analysis.inplace import in_place_pairs
from treadle.core import verdict
from treadle.frontends.inductor_dump import export_program, print_dump
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Foreach, Fused, Program
from treadle.ir.spec import verify
from treadle.lab.cli import main

MEMBERS = 96
SECONDS = 2.0


def optimizer_step(in_one_launch: bool, shapes: int = 7) -> Program:
    """Three operations for each of 96 parameters, in one foreach group or in one fused kernel."""
    b = ProgramBuilder("step")
    for n in range(MEMBERS):
        shape = [64, 32 + n % shapes]
        p, g = b.input(f"p{n}", "f32", shape), b.input(f"g{n}", "f32", shape)
        m = b.input(f"m{n}", "f32", shape, donated=True)
        t = b.buffer(f"t{n}", "f32", shape)
        q, r = b.output(f"q{n}", "f32", shape), b.output(f"r{n}", "f32", shape)
        with b.loop(f"a{n}", shape) as k:
            at = k.vars
            k.store(t, at, k.load(m, *at) * 0.9 + k.load(g, *at))
        with b.loop(f"b{n}", shape) as k:
            at = k.vars
            k.store(q, at, k.load(p, *at) - k.load(t, *at) * 0.1)
        with b.loop(f"c{n}", shape) as k:
            at = k.vars
            k.store(r, at, k.load(t, *at) * 2.0)
    program = b.build()
    ops = {op.name: op for op in program.ops}
    each = [
        Fused(name=f"f{n}", device="cpu", members=tuple(ops[f"{word}{n}"] for word in "abc"))
        for n in range(MEMBERS)
    ]
    if in_one_launch:
        return verify(program.with_ops((Foreach(name="all", device="cpu", members=tuple(each)),)))
    return verify(program.with_ops((Fused(name="all", device="cpu", members=program.ops),)))


@pytest.mark.parametrize("in_one_launch", [True, False])
@pytest.mark.parametrize("command", ["show", "plan"])
def test_a_kernel_of_288_operations_takes_under_two_seconds(
    in_one_launch: bool, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dump.txt"
    file.write_text(print_dump(export_program(optimizer_step(in_one_launch), "2.13").dump))
    start = time.process_time()
    assert main([command, str(file)]) == 0
    assert time.process_time() - start < SECONDS


def test_only_pairs_that_can_agree_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(*args: object) -> object:
        nonlocal asked
        asked += 1
        return verdict.check_rules(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(inplace, "check_rules", counted)
    pairs = in_place_pairs(optimizer_step(in_one_launch=True, shapes=1))
    assert {(pair.out, pair.inp) for pair in pairs} == {(f"t{n}", f"m{n}") for n in range(MEMBERS)}
    assert asked <= 4 * MEMBERS
