"""Mixed kernels: reductions of rows and columns over the same data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.analysis.cost import bytes_moved, cost_model
from treadle.analysis.devices import DEVICES
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import Numerics
from treadle.ir.program import Kernel, MixOrder, Nest, Program
from treadle.ir.spec import verify
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.schedule.passes import KERNELS
from treadle.schedule.passes.mix_orders import mix_orders
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES


def mixed(program: Program) -> tuple[Program, list[str]]:
    journal = Journal()
    new = mix_orders(program, Ctx(Options(), MACHINES, journal))
    return verify(new), [e["code"] for e in journal.events("verdict")]


def rows_and_columns(
    rows: int | None,
    columns: int,
    kind: str = "sum",
    spread: bool = False,
    chained: bool = False,
    on: str = "cuda:0",
) -> Program:
    """Both sums of a matrix; of `rows` rows, or of as many as there are when it runs."""
    b = ProgramBuilder("p", on)
    rows = b.size("n", hint=8192) if rows is None else rows
    shape = [rows, columns]
    strides = [shape[1] * 2, 2] if spread else None  # only every second element
    x = b.input("x", "f32", shape, strides=strides) if strides else b.input("x", "f32", shape)
    s, t = b.output("s", "f32", [rows]), b.output("t", "f32" if kind == "sum" else "i64", [columns])
    with b.loop("by_rows", [rows], reduce=[columns]) as k:
        i, j = k.vars
        k.store(s, (i,), k.sum(k.load(x, i, j)))
    with b.loop("by_columns", [columns], reduce=[rows]) as k:
        j, i = k.vars
        v = k.load(x, i, j)
        if chained:
            v = v - k.load(s, i)
        k.store(t, (j,), k.reduce_by(kind, v))
    return b.build()


def columns_then_rows(rows: int, columns: int) -> Program:
    """Rows are summed up less what columns come to."""
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [rows, columns])
    s, t = b.output("s", "f32", [rows]), b.output("t", "f32", [columns])
    with b.loop("by_columns", [columns], reduce=[rows]) as k:
        j, i = k.vars
        k.store(t, (j,), k.sum(k.load(x, i, j)))
    with b.loop("by_rows", [rows], reduce=[columns]) as k:
        i, j = k.vars
        k.store(s, (i,), k.sum(k.load(x, i, j) - k.load(t, j)))
    return b.build()


def test_columns_may_need_what_rows_come_to() -> None:
    new, codes = mixed(rows_and_columns(8192, 1024, chained=True))
    (op,) = new.ops
    assert isinstance(op, MixOrder)
    assert codes == ["MIX000"]


def test_rows_and_columns_are_read_once() -> None:
    program = rows_and_columns(8192, 1024)
    new, codes = mixed(program)
    (op,) = new.ops
    assert isinstance(op, MixOrder)
    assert codes == ["MIX000"]
    assert bytes_moved(program) - bytes_moved(new) == 8192 * 1024 * 4


def test_rows_that_nothing_divides_are_shared_out_all_the_same() -> None:
    """7 of 8191 rows are left over by 264 chunks of 31."""
    program = rows_and_columns(8191, 1024)
    program = replace(program, numerics=Numerics("blocked", reassociation=True))
    ctx = Ctx(Options(), MACHINES, Journal())
    (kernel,) = verify(run_pipeline(run_pipeline(program, ctx), ctx, KERNELS)).ops
    assert isinstance(kernel, Kernel)
    walks = [m.body.domain.extents for m in kernel.members if isinstance(m, Nest)][1:3]
    assert [[n.value for n in extents] for extents in walks] == [[264, 31], [7, 1]]


@pytest.mark.parametrize(
    "program, code",
    [
        (rows_and_columns(8192, 1024, spread=True), "MIX001"),
        (rows_and_columns(8192, 1024, "argmax"), "MIX002"),
        (rows_and_columns(4095, 2047), "MIX003"),
        (rows_and_columns(8192, 600), "MIX003"),
        (rows_and_columns(65536, 16385), "MIX003"),
        (columns_then_rows(8192, 1024), "MIX004"),
        (rows_and_columns(None, 1024), "MIX005"),
    ],
)
def test_what_stays_apart(program: Program, code: str) -> None:
    new, codes = mixed(program)
    assert new is program
    assert codes == [code]


def test_a_tall_kernel_just_large_enough_is_mixed() -> None:
    assert mixed(rows_and_columns(8192, 640))[1] == ["MIX000"]
    assert mixed(rows_and_columns(65536, 16384))[1] == ["MIX000"]


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize("rows, columns", [(4096, 2048), (8192, 1024), (16384, 640), (512, 16384)])
def test_what_is_mixed_is_predicted_to_be_faster(rows: int, columns: int, device: str) -> None:
    asked, journal = Options.make(target=device), Journal()
    program = rows_and_columns(rows, columns, on="cpu" if device == "cpu" else "cuda:0")
    mix_orders(program, Ctx(asked, cost_model(program, asked), journal))
    (event,) = journal.events("verdict")
    if event["code"] == "MIX000":
        assert event["facts"]["together_ns"] < event["facts"]["apart_ns"]
    assert (event["code"] == "MIX000") == (device == "cpu" or rows >= 2 * columns)


def test_why_says_both_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.txt"
    file.write_text(show_program(rows_and_columns(8192, 1024)))
    assert main(["why", str(file), "by_rows", "by_columns", "--json"]) == 0
    text = capsys.readouterr().out
    assert "apart_ns" in text
    assert "together_ns" in text
