"""Sharing launches: who may, who may not, and what it may cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Foreach, Program
from treadle.ir.spec import verify
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
