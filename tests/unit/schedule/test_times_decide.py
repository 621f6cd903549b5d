"""Predicted times of whole kernels decide: bytes, work, launches, in the figures of the target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.analysis.cost import cost_model
from treadle.analysis.devices import DEVICES
from treadle.analysis.kernel_time import kernel_ns
from treadle.codegen.lower import lower
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Fused, Nest, walk_operations
from treadle.ir.text import parse_program
from treadle.lab.cli import main
from treadle.schedule.passes.schedule_loops import schedule_loops
from treadle.schedule.pipeline import run_pipeline

H100 = DEVICES["h100"]


def program(functions: int) -> str:
    """Rows of functions of x, then a sum of each of four rows: few points for a GPU."""
    chain = "\n".join(f"  %{k + 1} = exp %{k}" for k in range(functions))
    return f"""treadle 1
program p
inputs x
outputs y

buffer x : f32[4, 262144] on cuda:0
buffer t : f32[4, 262144] on cuda:0
buffer y : f32[4] on cuda:0

loop point on cuda:0 for i in 4, j in 262144 {{
  %0 = load x[262144*i + j]
{chain}
  store t[262144*i + j] = %{functions}
}}

loop total on cuda:0 for i in 4 reduce j in 262144 {{
  %0 = load t[262144*i + j]
  %1 = reduce sum %0
  store y[i] = %1
}}
"""


def fused(functions: int, **options: object) -> bool:
    asked = Options.make(policy="memory", **options)  # which splits no reductions
    given = parse_program(program(functions))
    ctx = Ctx(asked, cost_model(given, asked), Journal())
    return any(isinstance(op, Fused) for op in run_pipeline(given, ctx).ops)


def test_little_work_is_fused_into_few_points_and_much_work_is_not() -> None:
    assert fused(1)
    assert not fused(120)


def test_a_calibration_file_takes_effect(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    figures = {"h100": {"vector_gflops": 1e9}}
    path.write_text(json.dumps({"treadle_calibration": 1, "devices": figures}))
    assert fused(120, cost_file=str(path))
    figures = {"h100": {"launch_ns": 0, "gigabytes_per_second": 1}}
    path.write_text(json.dumps({"treadle_calibration": 1, "devices": figures}))
    assert fused(120, cost_file=str(path)), "where memory is slow, all that counts is bytes"


IN_ANY_ORDER = "numerics blocked 512, functions 8 ulp, as result, contract, reassociate\n\nbuffer x"


def test_much_work_is_fused_into_few_points_whose_steps_programs_share_out() -> None:
    given = parse_program(program(120).replace("\nbuffer x", IN_ANY_ORDER, 1))
    asked = Options.make(policy="memory")
    ctx = Ctx(asked, cost_model(given, asked), Journal())
    assert any(isinstance(op, Fused) for op in run_pipeline(given, ctx).ops)


def test_elements_that_need_the_total_should_not_count_on_shared_steps() -> None:
    text = program(120).replace("\nbuffer x", IN_ANY_ORDER, 1).replace("outputs y", "outputs z")
    text = text.replace("buffer y", "buffer z : f32[4, 262144] on cuda:0\nbuffer y", 1)
    text += """
loop scaled on cuda:0 for i in 4, j in 262144 {
  %0 = load x[262144*i + j]
  %1 = load y[i]
  %2 = truediv %0, %1
  store z[262144*i + j] = %2
}
"""
    given = parse_program(text)
    asked = Options.make(policy="memory")
    ctx = Ctx(asked, cost_model(given, asked), Journal())
    found = [op for op in run_pipeline(given, ctx).ops if isinstance(op, Fused)]
    assert [[m.name for m in op.members] for op in found] == [["point", "total"]]


def test_the_time_of_a_kernel() -> None:
    moved = 3350 * 1000  # a microsecond of bandwidth
    assert kernel_ns(H100, moved, 0.0, 10**6) == 1000 + H100.launch_ns
    assert kernel_ns(H100, moved, 0.0, 66) == 2000 + H100.launch_ns
    work = H100.vector_gflops * 3000
    assert kernel_ns(H100, moved, work, 10**6) == 3000 + H100.launch_ns


def test_why_shows_the_times_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.txt"
    path.write_text(program(120))
    assert main(["why", str(path), "point", "total", "--policy", "memory"]) == 0
    text = capsys.readouterr().out
    assert "is_faster: no FUS014 points=4 cores=132 apart_ns=" in text
    path.write_text(program(1))
    assert main(["why", str(path), "point", "total", "--policy", "memory"]) == 0
    text = capsys.readouterr().out
    assert "is_faster: yes apart_ns=" in text
    decided = text.split("decided about the kernels they were in, in order:")[1]
    assert "yes FUS000" in decided
    assert "together_ns=" in decided


ROWS_THEN_A_TOTAL = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 8 ulp, as result, contract, reassociate

buffer x : f32[131072, 32] on cuda:0
buffer m : f32[131072] on cuda:0
buffer y : f32[] on cuda:0

loop rows on cuda:0 for i in 131072 reduce r in 32 {
  %0 = load x[32*i + r]
  %1 = reduce max %0
  store m[i] = %1
}
loop total on cuda:0 reduce i in 131072 {
  %0 = load m[i]
  %1 = reduce sum %0
  store y[0] = %1
}
"""


def test_rows_should_not_add_to_one_total_but_leave_a_number_each() -> None:
    # Rows that add to one place wait for each other: 2 ns each on an H200.
    given = parse_program(ROWS_THEN_A_TOTAL)
    asked = Options()
    ctx = Ctx(asked, cost_model(given, asked), Journal())
    found = run_pipeline(given, ctx)
    (fused,) = found.ops
    assert isinstance(fused, Fused)
    whole = schedule_loops(lower(found).program, ctx)
    stores = [
        x for op in walk_operations(whole.ops) if isinstance(op, Nest) for x in op.body.stores()
    ]
    assert {mode for _, _, mode, _ in stores} == {"plain"}
    (part,) = [b for b in whole.buffers if b.name.endswith("_total")]
    assert part.storage_numel.value == 131072
