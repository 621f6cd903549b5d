"""Schedules written by hand: what the rules forbid is a finding, not taken at its word."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.codegen.lower import lower
from treadle.core.errors import SpecError
from treadle.ir.text import parse_program
from treadle.kernel.allowed_steps import kernel_violations
from treadle.lab.cli import main

FAST = "numerics blocked 512, functions 6 ulp, as result, contract, reassociate\n"


def text(body: str, loops: str, steps: str, numerics: str = FAST) -> str:
    return f"""treadle 1
program p
inputs x, k
outputs y
{numerics}
buffer x : f32[64, 64] on cpu
buffer k : i64[64] on cpu
buffer y : f32[64, 64] on cpu

launch a on cpu loop {{
  nest a_nest on cpu {loops} runs (a) schedule ({steps}) {{
{body}
  }}
}}
"""


COPY = "    %0 = load x[64*i + j]\n    store y[64*i + j] = %0"
SORT = """    %0 = load x[64*i + r]
    %1 = sort %0
    store y[64*i + r] = %1"""
CHECKED = """    %0 = load k[j]
    %1 = indirect %0 size 64 check
    %2 = load x[64*i + %1]
    store y[64*i + j] = %2"""
MEETING = """    %0 = load x[64*i + j]
    store y[i] = %0 mode atomic_add"""
CENTRED = """    %0 = load x[64*i + r]
    %1 = reduce sum %0
    %2 = sub %0, %1
    store y[64*i + r] = %2"""
PAIR = "for i in 64, j in 64"
ROW = "for i in 64 reduce r in 64"


@pytest.mark.parametrize(
    ("body", "loops", "steps", "numerics"),
    [
        (COPY, PAIR, "order i j, bind j to vector", FAST),
        (COPY, PAIR, "split i by 16, order i i' j, bind i to grid, bind i' to tile", FAST),
        (CENTRED, ROW, "keep %0, order i r, bind r to vector", FAST),
        (CENTRED, ROW, "keep %0", ""),
    ],
    ids=["vectors", "tiles", "rows", "kept"],
)
def test_what_is_allowed_passes(body: str, loops: str, steps: str, numerics: str) -> None:
    program = parse_program(text(body, loops, steps, numerics))
    assert list(kernel_violations(program)) == []
    lower(program)


@pytest.mark.parametrize(
    ("body", "loops", "steps", "numerics", "reason"),
    [
        (COPY, PAIR, "order i j, bind j to vector", "", "sums must be exact"),
        (CHECKED, PAIR, "order i j, bind j to vector", FAST, "indirect may stop it"),
        (MEETING, PAIR, "order i j, bind j to vector", FAST, "several points of j meet in 'y'"),
    ],
    ids=["exact", "checked", "meeting"],
)
def test_what_is_not_allowed_is_a_finding(
    body: str, loops: str, steps: str, numerics: str, reason: str
) -> None:
    program = parse_program(text(body, loops, steps, numerics))
    (found,) = kernel_violations(program)
    assert found.code == "KER007"
    assert reason in str(found)
    with pytest.raises(SpecError, match="KER007"):
        lower(program)


def test_a_sort_is_not_shared_out_in_tiles() -> None:
    steps = "order i r, bind i to grid, bind r to tile"
    (found,) = kernel_violations(parse_program(text(SORT, ROW, steps)))
    assert "sort goes one by one" in str(found)


def test_a_tile_of_what_is_written_is_refused() -> None:
    body = "    %0 = load x[64*i + j]\n    store x[64*i + j] = %0\n    store y[64*i + j] = %0"
    steps = "split i by 16, split j by 16, order i j i' j', stage %0, bind j' to vector"
    (found,) = kernel_violations(parse_program(text(body, PAIR, steps)))
    assert "a tile of 'x' would miss what is stored" in str(found)


def test_a_tile_of_what_is_read_back_is_refused() -> None:
    body = "    %0 = load x[64*i + j]\n    %1 = neg %0\n    store x[64*i + j] = %1"
    steps = "split j by 16, order i j j', stage %1, bind j' to vector"
    (found,) = kernel_violations(parse_program(text(body, PAIR, steps)))
    assert "what a tile of 'x' holds is touched before it is stored" in str(found)


def test_a_tile_of_what_nothing_else_touches_is_allowed() -> None:
    body = "    %0 = load x[64*i + j]\n    %1 = neg %0\n    store y[64*i + j] = %1"
    steps = "split j by 16, order i j j', stage %0, stage %1, bind j' to vector"
    assert not kernel_violations(parse_program(text(body, PAIR, steps)))


def test_commands_report_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.txt"
    path.write_text(text(CHECKED, PAIR, "order i j, bind j to vector"))
    assert main(["kernels", str(path)]) == 1
    assert "KER007" in "".join(capsys.readouterr())
