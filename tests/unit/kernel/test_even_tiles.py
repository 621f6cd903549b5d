"""Tiles on a GPU leave few lanes without work: smaller ones where a loop's end says so."""

from __future__ import annotations

import pytest

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.loop_schedule import Split
from treadle.ir.program import Kernel, Nest
from treadle.ir.text import parse_program
from treadle.schedule.passes.schedule_loops import schedule_loops

HEAD = """treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

"""
PLACES = (
    HEAD
    + """
buffer x : f32[512, {n}, 64] on cuda:0
buffer y : f32[512, {n}, 64] on cuda:0

launch k on cuda:0 loop {{
  nest n on cuda:0 for i in 512, j in {n}, k in 64 runs (n) {{
    %0 = load x[{n}*64*i + 64*((j + 1) // 2) + k]
    store y[{n}*64*i + 64*j + k] = %0
  }}
}}
"""
)
POINTS = (
    HEAD
    + """
buffer x : f32[4096, {n}] on cuda:0
buffer y : f32[4096, {n}] on cuda:0

launch k on cuda:0 loop {{
  nest n on cuda:0 for i in 4096, j in {n} runs (n) {{
    %0 = load x[{n}*((i + 1) // 2) + j]
    store y[{n}*i + j] = %0
  }}
}}
"""
)
COLUMNS = (
    HEAD
    + """
buffer x : f32[{n}, 65536] on cuda:0
buffer y : f32[65536] on cuda:0

launch k on cuda:0 loop {{
  nest n on cuda:0 for i in 65536 reduce r in {n} runs (n) {{
    %0 = load x[i + 65536*r]
    %1 = reduce sum %0
    store y[i] = %1
  }}
}}
"""
)


def tiles(text: str) -> dict[str, int]:
    """The sizes of the first nest's tiles by loop."""
    program = parse_program(text)
    made = schedule_loops(program, Ctx(Options(check=2), Roofline(program), Journal()))
    kernel = next(op for op in made.ops if isinstance(op, Kernel))
    nest = kernel.members[0]
    assert isinstance(nest, Nest)
    return {s.axis: s.size for s in nest.schedule if isinstance(s, Split)}


@pytest.mark.parametrize(
    ("n", "others"), [(64, {"j": 16}), (56, {"i": 2, "j": 8}), (57, {"i": 4, "j": 4})]
)
def test_a_loop_beside_the_one_along_memory_is_cut_evenly(n: int, others: dict[str, int]) -> None:
    assert tiles(PLACES.format(n=n)) == {**others, "k": 64}


@pytest.mark.parametrize(
    ("n", "tile"), [(1024, {"j": 1024}), (768, {"i": 2, "j": 256}), (197, {"i": 2, "j": 256})]
)
def test_the_loop_along_memory_is_cut_evenly(n: int, tile: dict[str, int]) -> None:
    found = tiles(POINTS.format(n=n))
    assert found["j"] == tile["j"]
    assert set(found) == set(tile)


@pytest.mark.parametrize(("n", "rows"), [(64, 32), (112, 16), (100, 16), (20, 32)])
def test_rows_below_columns_are_cut_evenly(n: int, rows: int) -> None:
    assert tiles(COLUMNS.format(n=n))["r"] == rows
