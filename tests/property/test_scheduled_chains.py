"""Random programs of several wide operations stay within their bound, fused and scheduled.

In memory of their own, and in the tightest that liveness allows, where what is made takes over the
place of what was read last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from how_many import until
from hypothesis import given, settings
from test_c_programs import EXAMPLES, shared_places
from test_scheduled_c import scheduled
from wide_chains import wide_chains

from treadle.ir.interp.compare import random_inputs
from treadle.ir.numerics import TORCH
from treadle.ir.program import Nest, Program
from treadle.ir.text import parse_program, show_program
from treadle.runtime import Place, compile_program
from treadle.testing.error_bound import derive_bounds, outside


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def stay_within(program: Program, built: Program, count: int, shares: bool) -> None:
    named = {s.name: count for s in program.sizes}
    inputs = random_inputs(program, sizes=named)
    bounds = derive_bounds(replace(program, numerics=TORCH), inputs, sizes=named)
    places: dict[str, Place] | None = shared_places(built) if shares else None
    compiled = compile_program(built, plan=places)
    assert compiled.is_compiled
    result = compiled.run(inputs, sizes=named)
    kept = [name for name in program.inputs if not shares or name not in program.donated]
    got = {name: result.read(name) for name in (*program.outputs, *kept)}
    found = outside(bounds, got, undecidable=1.0)
    assert not found, "\n".join([*map(str, found), str(places), show_program(built)])


def test_chains_stay_within() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(wide_chains())
    def every_program(program: Program) -> None:
        built = scheduled(program, fuses=True)
        assert parse_program(show_program(built)) == built
        for count in (48, 0, 5) if program.sizes else (0,):
            stay_within(program, built, count, shares=False)
        stay_within(program, built, 48, shares=True)
        for leaf in built.leaves:
            if isinstance(leaf, Nest):
                seen.update({str(s).split()[0] for s in leaf.schedule})
                seen["together"] += len(leaf.runs) > 1

    rare = ("split", "together")
    assert until(lambda: min(seen[word] for word in rare) > 0, every_program), seen
    assert seen["bind"] > EXAMPLES / 2, seen
