"""Nests that are taken apart keep what others need of them, on random programs.

A nest may become rows and totals, chunks that are put together, or sums of their own. Level 2 of
the checks asks who made what each operation reads: a part must be known by the nest's name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from eventful_programs import eventful_programs
from how_many import examples, until
from hypothesis import given, settings
from test_every_pass_fires import within_bounds

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.numerics import TORCH
from treadle.ir.program import Program
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.policies import ANY_SIZE, FreeLaunches

# Reductions that split-reductions has cut are too short to be shared out.
UNCUT = replace(ANY_SIZE, split="never")
WAYS = {"c": ("total",), "triton": ("total", "part", "sum")}
"""What the buffers between the parts are called: rows and totals, chunks, sums of their own."""


@pytest.mark.parametrize("code", WAYS)
def test_what_a_nest_made_is_still_made_by_a_part_of_that_name(code: str) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=examples(60))
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        stated = replace(program, numerics=TORCH)
        ctx = Ctx(
            Options(check=2, code=code), FreeLaunches(Roofline(stated)), Journal(), policy=UNCUT
        )
        after = run_pipeline(stated, ctx, PIPELINE)
        within_bounds(stated, after)
        new = {b.name for b in after.buffers} - {b.name for b in stated.buffers}
        seen.update({way for way in WAYS[code] for name in new if f"_nest_{way}" in name})

    assert until(lambda: all(seen[way] for way in WAYS[code]), every_program), seen
