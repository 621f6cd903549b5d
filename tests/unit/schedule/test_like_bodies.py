"""What is alike is written once, and means the same as if it were written anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import TORCH
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Kernel, Loop, Nest, Program
from treadle.kernel import like_bodies, like_choices
from treadle.schedule import repeating
from treadle.schedule.passes import PIPELINE
from treadle.schedule.passes.recompute import recompute
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.policies import ANY_SIZE, FreeLaunches


def layers(count: int, rows: int = 6, columns: int = 4, other: int | None = None) -> Program:
    """Gradients of as many rows and columns of the same shape, the last perhaps of another."""
    b = ProgramBuilder("p")
    for n in range(count):
        wide = other if other is not None and n == count - 1 else columns
        x = b.input(f"x{n}", "f32", [rows, wide])
        s, t = b.output(f"s{n}", "f32", [rows]), b.output(f"t{n}", "f32", [wide])
        with b.loop(f"by_rows{n}", [rows], reduce=[wide]) as k:
            i, j = k.vars
            k.store(s, (i,), k.sum(k.load(x, i, j)))
        with b.loop(f"by_columns{n}", [wide], reduce=[rows]) as k:
            j, i = k.vars
            k.store(t, (j,), k.sum(k.load(x, i, j) * k.load(s, i)))
    return b.build()


def scheduled(program: Program) -> Program:
    """After all passes, each compared with the interpreter."""
    cost = FreeLaunches(Roofline(program))
    policy = replace(ANY_SIZE, combine=1)
    return run_pipeline(program, Ctx(Options(check=3), cost, Journal(), policy=policy), PIPELINE)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mixed kernels that were written anew."""
    found: list[str] = []
    write = like_bodies.mixed_nests

    def counted(program: Any, sides: Any, name: Any) -> Any:
        found.append(sides[0].name)
        return write(program, sides, name)

    monkeypatch.setattr(like_bodies, "mixed_nests", counted)
    return found


def test_like_mixed_kernels_are_written_once(written: list[str]) -> None:
    scheduled(layers(1))
    few = len(written)
    written.clear()
    program = scheduled(layers(7))
    assert 0 < len(written) == few
    shapes = [op.shape for op in program.ops if isinstance(op, Kernel)]
    assert shapes == ["mixed"] * 7


def test_another_shape_is_written_for_itself(written: list[str]) -> None:
    scheduled(layers(3))
    alike = len(written)
    written.clear()
    scheduled(layers(3, other=5))
    assert len(written) == 2 * alike


def test_each_has_partial_sums_of_its_own() -> None:
    program = scheduled(layers(4))
    owners: dict[str, str] = {}
    for op in program.ops:
        assert isinstance(op, Kernel)
        for nest in op.members:
            assert isinstance(nest, Nest)
            for name, _, _, _ in nest.body.stores():
                assert owners.setdefault(name, op.name) == op.name
    sums = [b.name for b in program.buffers if b.name.endswith("columns")]
    assert len(sums) == len(set(sums)) == 4


def test_like_nests_are_given_their_steps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    choose = like_choices.choose_steps

    def counted(nest: Nest, program: Program) -> Any:
        asked.append(nest.name)
        return choose(nest, program)

    monkeypatch.setattr(like_choices, "choose_steps", counted)
    stated = replace(layers(1), numerics=TORCH)
    scheduled(stated)
    alone = len(asked)
    asked.clear()
    program = scheduled(replace(layers(5), numerics=TORCH))
    assert len(asked) == alone > 0
    found = [m.schedule for op in program.ops for m in op.leaves if isinstance(m, Nest)]
    assert len(found) == 5 * alone
    assert all(found[k] == found[k % alone] != () for k in range(len(found)))


def chains(count: int) -> Program:
    """`count` times: z = a number * 0.5, everywhere, read by two."""
    b = ProgramBuilder("p")
    for n in range(count):
        x = b.input(f"x{n}", "f32", [])
        z = b.buffer(f"z{n}", "f32", [8])
        with b.loop(f"half{n}", [8]) as k:
            k.store(z, k.vars, k.load(x) * 0.5)
        for m in range(2):
            y = b.output(f"y{n}{m}", "f32", [8])
            with b.loop(f"use{n}{m}", [8]) as k:
                k.store(y, k.vars, k.load(z, *k.vars) + float(m))
    return b.build()


def test_like_readers_are_rewritten_once_and_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    write = repeating.inlined

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        return write(*args)

    monkeypatch.setattr(repeating, "inlined", counted)
    program = chains(9)
    found = recompute(program, Ctx(Options(), Roofline(program), Journal()))
    assert count == 2, "one for each of the two readers"
    single = chains(1)
    alone = recompute(single, Ctx(Options(), Roofline(single), Journal()))
    for n in range(9):
        for m in range(2):
            op, wanted = found.op_by_name[f"use{n}{m}"], alone.op_by_name[f"use0{m}"]
            assert isinstance(op, Loop)
            assert isinstance(wanted, Loop)
            assert pattern_of(op).pattern is pattern_of(wanted).pattern
            assert pattern_of(op).buffers == (f"x{n}", f"y{n}{m}")
            # What was noted on the operation is what its body says.
            assert pattern_of(replace(op)) == pattern_of(op)
