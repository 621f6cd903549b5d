"""Packages of random programs are within the derived bound, at sizes they were not planned for too.

`HYPOTHESIS_PROFILE=explore` runs more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import inputs_for

import treadle
from treadle.index import hint
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.testing.error_bound import derive_bounds, outside
from treadle.testing.program_writer import MOVES, program_strategy

EXAMPLES = examples(4)
ALL = 1.0  # a chain of decisions may well leave nothing certain
KERNELS_ONLY = [move for move in MOVES if move != "product"]


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


@settings(max_examples=EXAMPLES)
@given(program_strategy(moves=KERNELS_ONLY, min_ops=3, max_ops=9), st.integers(0, 99))
def test_a_package_does_what_the_interpreter_says(program: Program, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "program.txt", Path(folder) / "made.treadle"
        file.write_text(show_program(program))
        assert main(["compile", str(file), "-o", str(made)]) == 0
        if not (made / "package.c").exists():
            return  # a size that no input shows, or an output that is a view
        package = treadle.load_package(made)
        for more in (0, 1, 3):
            sizes = {s: _near(hint(s) + more * s.divisor, s.lo, s.hi) for s in program.sizes}
            inputs = inputs_for(program, sizes, seed)
            bounds = derive_bounds(program, inputs, poisoned=True)
            changed = {name: array.copy() for name, array in inputs.items()}
            found = dict(zip(program.outputs, package(**changed), strict=True)) | changed
            wrong = outside(bounds, found, undecidable=ALL)
            assert not wrong, "\n".join([f"at {sizes}", *wrong, show_program(program)])


def _near(n: int, low: int | None, high: int | None) -> int:
    n = n if low is None else max(n, low)
    return n if high is None else min(n, high)
