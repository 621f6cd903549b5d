"""Products of matrices in tiles stay within the bound of their numerics, however they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from how_many import examples, until
from hypothesis import given, settings
from product_programs import products
from test_scheduled_c import compared

from treadle.ir.interp.compare import random_inputs
from treadle.ir.loop_schedule import Binding, plan_loops
from treadle.ir.products import product_of
from treadle.ir.program import Loop, Nest, Program

EXAMPLES = examples(40)


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def shape_of(built: Program) -> str:
    """How the product of a program is walked."""
    (nest,) = (leaf for leaf in built.leaves if isinstance(leaf, Nest))
    plan = plan_loops(nest.body, nest.schedule)
    product = product_of(nest.body)
    if product is None or not any(a.binding is Binding.UNROLL for a in plan.axes):
        return "loops"
    if not plan.staged:
        return "direct"
    return "across" if product.first.number in plan.staged else "panels"


def test_products_stay_within_their_bound_in_every_shape() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(products())
    def run(program: Program) -> None:
        built, wrong = compared(program, {}, random_inputs(program), fuses=True, optimise=2)
        assert wrong == []
        seen[shape_of(built)] += 1

    shapes = {"direct", "across", "panels"}
    assert until(lambda: shapes <= set(seen), run), f"shapes that were tried: {seen}"


@settings(max_examples=EXAMPLES)
@given(products(most=9))
def test_a_product_is_recognised_whatever_follows(program: Program) -> None:
    (loop,) = (leaf for leaf in program.leaves if isinstance(leaf, Loop))
    found = product_of(loop.body)
    assert found is not None
    assert found.first.stmt.buffer == "x"
    assert found.second.stmt.buffer == "w"
    assert (found.rows.name, found.columns.name) == ("i", "j")
