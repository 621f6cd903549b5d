"""Kernels for a GPU compute what they should, as far as Triton's interpreter can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from treadle.core.context import Ctx
from treadle.core.errors import TreadleError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program
from treadle.runtime.triton_kernels import write_triton
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
SCRIPT = Path(__file__).with_name("triton_cases.py")


CANDIDATES = SCRIPT.with_name("triton_candidates.py")


def interpreted(tmp_path: Path, *arguments: str, script: Path = SCRIPT) -> str:
    """What a script says in a process where Triton interprets."""
    own = {"TRITON_INTERPRET": "1", "TREADLE_CODE": "triton", "TREADLE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout


def counts(said: str) -> dict[str, int]:
    """How many of each kind were compared."""
    return {kind: int(count) for kind, count in (line.split() for line in said.splitlines())}


# Two kinds in one process: to get Triton ready to interpret takes as long as either.


@pytest.mark.torch
def test_functions_graphs_scans_and_operators_without_a_form_give_eagers_results(
    tmp_path: Path,
) -> None:
    found = counts(interpreted(tmp_path, "--operators", "--graphs", "--functions", "5000"))
    assert found["functions"] >= 10
    assert found["operators"] >= 25
    assert found["tables"] >= 10
    assert found["graphs"] >= 8


@pytest.mark.torch
@pytest.mark.exhaustive
def test_large_graphs_and_functions_at_many_points_give_eagers_results(tmp_path: Path) -> None:
    found = counts(interpreted(tmp_path, "--large-graphs", "--functions", "40000"))
    assert found["large"] >= 2
    assert found["functions"] >= 10


@pytest.mark.torch
def test_random_programs_and_rows_and_columns_in_one_walk_stay_within_their_bounds(
    tmp_path: Path,
) -> None:
    found = counts(interpreted(tmp_path, "--programs", "8", "--seed", "7", "--mixed"))
    assert found["programs"] >= 5
    assert found["adding"] == 3
    assert found["mixed"] >= 4


@pytest.mark.torch
@pytest.mark.exhaustive
def test_rows_and_columns_in_one_walk_give_eagers_results_in_other_shapes(tmp_path: Path) -> None:
    assert counts(interpreted(tmp_path, "--more-mixed"))["mixed"] >= 4


@pytest.mark.torch
@pytest.mark.exhaustive
def test_long_rows_are_walked_once_for_their_softmax_and_their_spread(tmp_path: Path) -> None:
    assert interpreted(tmp_path, "--long-rows").split()[1] == "6"


def test_every_schedule_that_a_device_may_pick_stays_within_the_bounds(tmp_path: Path) -> None:
    found = counts(interpreted(tmp_path, "--programs", "3", "--seed", "5", script=CANDIDATES))
    assert found.pop("programs") >= 1
    assert len(found) == 8
    assert all(count >= 1 for count in found.values())


@pytest.mark.torch
@pytest.mark.exhaustive
def test_graphs_for_which_another_schedule_wins_give_eagers_results(tmp_path: Path) -> None:
    found = counts(interpreted(tmp_path, "--graphs", "--no-nests", script=CANDIDATES))
    assert found["graphs"] >= 4


@pytest.mark.exhaustive
def test_every_schedule_of_more_programs_stays_within_the_bounds(tmp_path: Path) -> None:
    said = interpreted(tmp_path, "--programs", "40", "--seed", "11", script=CANDIDATES)
    assert counts(said)["programs"] >= 40


SORTED = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[64, 512] on cuda:0
buffer y : f32[64, 512] on cuda:0

loop n on cuda:0 for i in 64 reduce r in 512 {
  %0 = load x[512*i + r]
  %1 = sort %0 stable
  store y[512*i + r] = %1
}
"""


def test_what_has_no_form_is_named() -> None:
    from treadle.codegen.lower import lower

    program = parse_program(SORTED)
    built = run_pipeline(program, Ctx(Options(), MACHINES, Journal()), KERNELS)
    with pytest.raises(TreadleError) as caught:
        write_triton(lower(built))
    assert caught.value.code == "GEN004"
    assert "(sort goes one by one) has no form in Triton" in caught.value.message


TWICE = """treadle 1
program p
inputs x, y
outputs a, b, c

buffer x : f32[4096] on cuda:0
buffer y : f32[4096] on cuda:0
buffer a : f32[4096] on cuda:0
buffer b : f32[4096] on cuda:0
buffer c : f32[4096] on cuda:0

loop first on cuda:0 for i in 4096 {
  %0 = load x[i]
  %1 = exp %0
  store a[i] = %1
}

loop second on cuda:0 for i in 4096 {
  %0 = load y[i]
  %1 = exp %0
  store b[i] = %1
}

loop third on cuda:0 for i in 4096 {
  %0 = load y[i]
  %1 = log %0
  store c[i] = %1
}
"""


def test_kernels_that_differ_in_memory_only_are_one_function() -> None:
    from treadle.codegen.lower import lower
    from treadle.ir.numerics import TORCH

    program = replace(parse_program(TWICE), numerics=TORCH)
    built = run_pipeline(program, Ctx(Options(), MACHINES, Journal()), KERNELS)
    unit = write_triton(lower(built))
    names = [one.name for several in unit.kernels for one in several]
    assert names[0] == names[1] != names[2]
    assert unit.text.count("@triton.jit\ndef k") == 2
