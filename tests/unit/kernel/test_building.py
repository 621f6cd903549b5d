"""Kernels hold what fusion promised: bytes, refusals, names, and errors that name their cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from treadle.analysis.cost import work_of
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import TreadleError
from treadle.core.options import Options
from treadle.core.verdict import Verdict
from treadle.ir.body import Body
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp.compare import differing_results
from treadle.ir.numerics import TORCH
from treadle.ir.program import Fused, Grouped, Kernel, Loop, MixOrder, Nest, Program
from treadle.ir.reduced import reduced_once
from treadle.ir.spec import Stage, verify, violations
from treadle.ir.text import parse_program
from treadle.ir.types import Buffer, DType, Layout
from treadle.kernel.build import with_kernels
from treadle.kernel.common_loops import common_loops
from treadle.kernel.joining import join
from treadle.kernel.mixing import with_buffers
from treadle.runtime import compile_program
from treadle.schedule.passes import KERNELS
from treadle.schedule.passes.fuse import fuse
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES


def told(program: Program) -> tuple[Program, list[Verdict]]:
    found: list[Verdict] = []
    built = with_kernels(program, lambda question, names, verdict: found.append(verdict))
    assert violations(built, Stage.KERNELS) == []
    return built, found


def softmax_after_scale(b: ProgramBuilder) -> None:
    x, t = b.input("x", "f32", [8, 16]), b.buffer("t", "f32", [8, 16])
    top, y = b.buffer("top", "f32", [8]), b.output("y", "f32", [8, 16])
    with b.group(Fused, "g"):
        with b.loop("scale", [8, 16]) as k:
            k.store(t, k.vars, k.load(x, *k.vars) * 0.5)
        with b.loop("most", [8], reduce=[16]) as k:
            k.store(top, k.vars[0], k.max(k.load(t, *k.vars)))
        with b.loop("apart", [8, 16]) as k:
            i, j = k.vars
            k.store(y, (i, j), k.load(t, i, j) - k.load(top, i))


def test_a_built_kernel_moves_what_the_group_was_said_to_move() -> None:
    b = ProgramBuilder("p")
    softmax_after_scale(b)
    program = verify(b.build())
    built, verdicts = told(program)
    assert [v.code for v in verdicts] == ["KER000"]
    (kernel,) = built.ops
    assert isinstance(kernel, Kernel)
    assert work_of(built, kernel).bytes == work_of(program, program.ops[0]).bytes == 2 * 512


def test_members_that_cannot_be_one_nest_say_why_and_cost_what_they_move() -> None:
    b = ProgramBuilder("p")
    x, t, y = b.input("x", "f32", [24]), b.buffer("t", "f32", [24]), b.output("y", "f32", [24])
    with b.group(Fused, "g"):
        with b.loop("first", [24]) as k:
            k.store(t, k.vars, k.exp(k.load(x, *k.vars)))
        with b.loop("second", [24]) as k:
            k.store(y, k.vars, k.load(t, 23 - k.vars[0]))
    built, verdicts = told(verify(b.build()))
    assert [v.code for v in verdicts if not v] == ["KER002"]
    (kernel,) = built.ops
    assert [m.runs for m in kernel.leaves if isinstance(m, Nest)] == [("first",), ("second",)]
    assert work_of(built, kernel).bytes == 4 * 24 * 4  # t is stored and loaded


@pytest.mark.parametrize(
    "extents, reason",
    [(((24,), (32,)), "do not divide"), (((0,), (8,)), "never run")],
)
def test_loops_without_a_common_form_are_told_apart(
    extents: tuple[tuple[int, ...], ...], reason: str
) -> None:
    b = ProgramBuilder("p")
    for n, sizes in enumerate(extents):
        y = b.output(f"y{n}", "f32", sizes)
        with b.loop(f"fill{n}", sizes) as k:
            k.store(y, k.vars, 1.0)
    loops = [op for op in b.build().ops if isinstance(op, Loop)]
    found = common_loops([op.body for op in loops])
    assert isinstance(found, Verdict)
    assert found.code == "KER001"
    assert reason in str(found.facts["reason"])


def test_variances_of_blocks_stay_out_of_a_kernel_of_rows() -> None:
    b = ProgramBuilder("p")
    x, s = b.input("x", "f32", [8, 16]), b.output("s", "f32", [8])
    v = b.output("v", "f32", [32])
    with b.loop("rows", [8], reduce=[16]) as k:
        k.store(s, k.vars[0], k.sum(k.load(x, *k.vars)))
    with b.loop("blocks", [32], reduce=[4]) as k:
        i, r = k.vars
        k.store(v, i, k.welford(k.load(x, i // 4, 4 * (i % 4) + r))[1])
    options = Options(explain=True)
    ctx = Ctx(options, MACHINES, journal_for(options))
    assert len(fuse(b.build(), ctx).ops) == 2
    assert [e["code"] for e in ctx.journal.events("verdict")] == ["FUS015"]


def test_rows_and_columns_that_cannot_share_a_walk_say_why() -> None:
    b = ProgramBuilder("p")
    x, s, t = b.input("x", "f32", [8, 16]), b.output("s", "f32", [8]), b.output("t", "i64", [16])
    with b.group(MixOrder, "g"):
        with b.loop("rows", [8], reduce=[16]) as k:
            k.store(s, k.vars[0], k.sum(k.load(x, *k.vars)))
        with b.loop("columns", [16], reduce=[8]) as k:
            j, i = k.vars
            k.store(t, j, k.argmax(k.load(x, i, j)))
    built, verdicts = told(verify(b.build()))
    assert [v.code for v in verdicts] == ["KER005"]
    assert len(built.leaves) == 2


def mixed_sides(rows: int, columns: int, again: bool = False) -> Program:
    """Sums of rows and of columns in one kernel; `again`: columns sum their sums once more."""
    b = ProgramBuilder("p")
    x, s = b.input("x", "f32", [rows, columns]), b.output("s", "f32", [rows])
    t, u = b.output("t", "f32", [columns]), b.output("u", "f32", [columns])
    outer = [columns] if columns > 1 else []
    with b.group(MixOrder, "g"):
        with b.loop("rows", [rows], reduce=[columns]) as k:
            k.store(s, k.vars[0], k.sum(k.load(x, *k.vars)))
        with b.group(Fused, "columns"):
            with b.loop("first", outer, reduce=[rows]) as k:
                j = k.domain.vars[0] if outer else 0
                k.store(t, j, k.sum(k.load(x, k.reduce.vars[0], j)))
            with b.loop("second", outer, reduce=[rows]) as k:
                j = k.domain.vars[0] if outer else 0
                value = k.load(t, j) if again else k.load(x, k.reduce.vars[0], j)
                k.store(u, j, k.sum(value))
    return verify(b.build())


@pytest.mark.parametrize("rows, columns", [(8, 16), (8, 1), (1, 1)])
def test_rows_and_columns_share_a_walk_also_where_there_is_one_column(
    rows: int, columns: int
) -> None:
    program = mixed_sides(rows, columns)
    built, _ = told(program)
    assert differing_results(program, built) == []


def test_columns_that_sum_their_sums_do_not_share_the_walk() -> None:
    # The second sum needs the first one finished, which partial results are not.
    program = mixed_sides(8, 16, again=True)
    built, verdicts = told(program)
    assert "KER005" in [v.code for v in verdicts]
    assert differing_results(program, built) == []
    (columns,) = [op for op in program.ops if isinstance(op, MixOrder)]
    joined = join(program, [leaf for leaf in columns.members[1].leaves if isinstance(leaf, Loop)])
    assert isinstance(joined, Body)
    assert not reduced_once(joined)


def test_more_buffers_leave_what_a_program_states_as_it_is() -> None:
    program = replace(mixed_sides(8, 16), numerics=TORCH, donated=("x",))
    extra = Buffer("extra", DType.F64, Layout.contiguous([4]), "cpu")
    found = with_buffers(program, [extra])
    assert found.buffers == (*program.buffers, extra)
    assert replace(found, buffers=program.buffers) == program
    assert found.numerics == TORCH


def test_what_followed_a_member_follows_its_kernel() -> None:
    b = ProgramBuilder("p")
    softmax_after_scale(b)
    z = b.output("z", "f32", [4])
    with b.group(Grouped, "near"), b.loop("later", [4], after=["most"]) as k:
        k.store(z, k.vars, 1.0)
    built, _ = told(verify(b.build()))
    near = built.op_by_name["near"]
    assert isinstance(near, Grouped)
    assert near.members[0].after == ("g",)


def test_a_scan_that_a_dump_does_not_explain_cannot_be_written() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    with b.loop("running", [], reduce=[4]) as k:
        k.store(y, k.vars, k.scan("unknown", k.load(x, *k.vars)))
    with pytest.raises(TreadleError) as caught:
        compile_program(b.build())
    assert caught.value.code == "GEN003"


def kernel_of(nest: Nest, **changes: object) -> Kernel:
    return Kernel(**{"name": "k", "members": (nest,), "shape": "loop", **changes})  # type: ignore[arg-type]


def test_a_kernel_that_is_none_is_found() -> None:
    b = ProgramBuilder("p")
    y = b.output("y", "f32", [4])
    with b.loop("fill", [4]) as k:
        k.store(y, k.vars, 1.0)
    program = b.build()
    (fill,) = program.ops
    assert isinstance(fill, Loop)
    nest = Nest(name="nest", body=fill.body, runs=("fill",))
    sound = program.with_ops((kernel_of(nest),))
    assert violations(sound, Stage.KERNELS) == []
    broken = [
        (nest,),
        (kernel_of(nest, shape="template"),),
        (kernel_of(Nest(name="nest", body=fill.body, runs=())),),
        (kernel_of(Nest(name="nest", body=fill.body, runs=("a", "a"))),),
        (kernel_of(nest, members=(fill,)),),
        (Grouped(name="g", members=(nest,)),),
    ]
    for ops in broken:
        found = violations(program.with_ops(ops), Stage.GROUPED)
        assert {v.code for v in found} == {"KER003"}, ops
    assert {v.code for v in violations(program, Stage.KERNELS)} == {"KER004"}


def test_building_is_checked_like_any_pass() -> None:
    b = ProgramBuilder("p")
    softmax_after_scale(b)
    program = verify(b.build())
    options = Options(check=3)
    ctx = Ctx(options, MACHINES, journal_for(options))
    built = run_pipeline(program, ctx, KERNELS)
    assert [e["name"] for e in ctx.journal.events("pass")] == [
        "build-kernels",
        "merge-loops",
        "schedule-loops",
        "state-parameters",
    ]
    assert with_kernels(built) is built


TURNED = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

size a in 2.. hint 40
size b in 2.. hint 4
size c in 2.. hint 3

buffer x : f64[a, b, c] stride (1, a, a*b) on cpu
buffer s : f64[] on cpu
buffer y : f64[a, b, c] stride (1, a, a*b) on cpu

fused g on cpu {
  loop total on cpu reduce r0 in a, r1 in b, r2 in c {
    %0 = load x[r0 + r1*a + r2*a*b]
    %1 = reduce sum %0
    store s[0] = %1
  }
  loop share on cpu for i0 in c, i1 in b, i2 in a {
    %0 = load x[i2 + i0*a*b + i1*a]
    %1 = load s[0]
    %2 = truediv %0, %1
    store y[i2 + i0*a*b + i1*a] = %2
  }
}
"""


def test_members_are_apart_where_run_time_sizes_hide_what_is_inside() -> None:
    program = verify(parse_program(TURNED))
    built, verdicts = told(program)
    assert [v.code for v in verdicts] == ["KER001"]
    assert "inside" in str(verdicts[0])
    x = np.arange(1.0, 25.0).reshape(4, 3, 2).transpose(2, 1, 0)
    sizes = {"a": 2, "b": 3, "c": 4}
    found = compile_program(built).run({"x": x}, sizes=sizes).read("y")
    np.testing.assert_allclose(found, x / x.sum(), rtol=1e-15)
