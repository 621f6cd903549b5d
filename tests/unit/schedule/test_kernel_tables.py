"""Names of kernels, and the table of what begins, dies and is written in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.analysis.accounting import DUMP
from treadle.analysis.liveness import Liveness
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Fused, Program
from treadle.ir.spec import verify
from treadle.ir.types import Buffer
from treadle.schedule.last_uses import LastUseRow, last_uses
from treadle.schedule.naming import kernel_names
from treadle.schedule.passes.name_kernels import name_kernels
from treadle.testing.costs import MACHINES

SEEDS = sorted((Path(__file__).parents[3].parent / "shared" / "seeds").glob("003_*"))


def pointwise(b: ProgramBuilder, name: str, source: Buffer, op: str) -> Buffer:
    out = b.buffer(f"{name}_out", "f32", [8])
    with b.loop(name, [8]) as k:
        k.store(out, k.vars, k.op(op, k.load(source, *k.vars)))
    return out


def row(program: Program, op: str) -> LastUseRow:
    return next(r for r in last_uses(program) if r.op == op)


def test_the_table_says_what_begins_and_dies_and_what_is_written_in_place() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8])
    t = pointwise(b, "one", x, "exp")
    b.returns(pointwise(b, "two", t, "sin"))
    program = b.build()
    assert row(program, "one") == LastUseRow("one", begins=["one_out"])  # the caller keeps x
    two = LastUseRow("two", ["two_out"], ["one_out"], {"two_out": "one_out"})
    assert row(program, "two") == two


def test_a_donated_input_dies_and_an_output_does_not() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8], donated=True)
    b.returns(pointwise(b, "one", x, "exp"))
    assert row(b.build(), "one") == LastUseRow("one", ["one_out"], ["x"], {"one_out": "x"})


def test_what_lives_inside_a_kernel_is_in_no_row() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8])
    with b.group(name="both"):
        b.returns(pointwise(b, "two", pointwise(b, "one", x, "exp"), "sin"))
    (only,) = last_uses(b.build())
    assert only == LastUseRow("both", begins=["two_out"])


@pytest.mark.skipif(not SEEDS, reason="the seeds are not beside the repository")
def test_a_real_dump_is_written_in_place_where_its_maker_did() -> None:
    program = import_program(read_dump(str(SEEDS[0]))).program
    rows = {r.op: r for r in last_uses(program)}
    assert rows["op2"].in_place == {"buf2": "buf1"}
    assert last_uses(program, DUMP.policy) != last_uses(program)


def test_the_table_accounts_for_every_byte_of_the_curve() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8])
    t = pointwise(b, "one", x, "exp")
    u = pointwise(b, "two", x, "sin")
    b.extern("aten.clone", [t], [b.output("y", "f32", [8])], name="three")
    b.extern("aten.clone", [u], [b.output("z", "f32", [8])], name="four")
    program = b.build()
    size = {s.storage: s.bytes for s in Liveness(program).ranges()}
    live = size["x"]
    for found, (op, during, after) in zip(
        last_uses(program), Liveness(program).curve(), strict=True
    ):
        assert found.op == op
        live += sum(size[s] for s in found.begins if s not in found.in_place)
        assert live == during
        gone = set(found.dies) - set(found.in_place.values())
        live -= sum(size[s] for s in gone)
        assert live == after


# ------------------------------------------------------------------------------------- names


def test_calls_come_before_reductions_and_reductions_before_arithmetic() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8, 8])
    t, y = b.buffer("t", "f32", [8, 8]), b.output("y", "f32", [8])
    with b.group(name="long"):
        b.template("aten.mm.default", [x, x], [t], name="product")
        with b.loop("rest", [8], reduce=[8]) as k:
            k.store(y, (k.vars[0],), k.sum(k.exp(k.load(t, *k.vars) + 1.0)))
    assert kernel_names(b.build()) == {"long": "mm_sum_exp_0"}


def test_a_kernel_without_arithmetic_is_a_copy() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [8]), b.output("y", "f32", [8])
    with b.group(name="g"), b.loop("c", [8]) as k:
        k.store(y, k.vars, k.load(x, *k.vars))
    assert kernel_names(b.build()) == {"g": "copy_0"}


def test_names_are_unique_and_a_second_run_changes_nothing() -> None:
    b = ProgramBuilder("p")
    t = b.input("x", "f32", [8])
    for n in range(4):
        with b.group(name=f"g{n}"):
            t = pointwise(b, f"exp_{2 * n}", t, "exp")
    b.returns(t)
    ctx = Ctx(Options(), MACHINES, Journal())
    program = verify(name_kernels(b.build(), ctx))
    names = [op.name for op in program.ops]
    assert all(isinstance(op, Fused) for op in program.ops)
    assert names == ["exp_1", "exp_3", "exp_5", "exp_7"]
    assert name_kernels(program, ctx) is program
