"""Scheduled C on random arithmetic: within the bound that its program's numerics give.

`HYPOTHESIS_PROFILE=explore` runs thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from float_programs import float_inputs, float_programs
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.numerics import EXACT, TORCH, Numerics
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.runtime import compile_program
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.differential import out_of_bounds

EXAMPLES = examples(30)
ALL = 1.0  # a chain of decisions may well leave nothing certain


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.mark.parametrize(
    "numerics",
    [EXACT, TORCH, replace(TORCH, block=8), Numerics("f32", reassociation=True)],
    ids=str,
)
@settings(max_examples=EXAMPLES)
@given(float_programs(), st.integers(0, 99))
def test_kernels_are_within_the_bound(numerics: Numerics, program: Program, seed: int) -> None:
    stated = replace(program, numerics=numerics)
    ctx = Ctx(Options(check=0), Roofline(stated), Journal(enabled=False))
    kernels = run_pipeline(stated, ctx, PIPELINE)
    assert kernels.numerics == numerics
    compiled = compile_program(kernels, optimise=2)
    assert compiled.is_compiled
    found = out_of_bounds(compiled, float_inputs(program, seed), undecidable=ALL)
    assert not found, "\n".join([*found, show_program(kernels)])
