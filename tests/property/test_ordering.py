"""Orders for a low peak, on random programs, against all orders there are."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from small_programs import small_programs, ungrouped

from treadle.analysis.accounting import PEER, figures
from treadle.analysis.certificate import certify
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.ir.spec import violations
from treadle.schedule.ordering.bound import lower_bound
from treadle.schedule.ordering.construct import CONSTRUCTIONS
from treadle.schedule.ordering.measure import peak_of
from treadle.schedule.ordering.search import find_order
from treadle.schedule.ordering.steps import steps_of

COUNTED = Options(accounting="inductor")


@settings(max_examples=150)
@given(small_programs(max_ops=7))
def test_bounds_and_orders_agree_with_all_orders(program: Program) -> None:
    program = ungrouped(program)
    steps = steps_of(program, COUNTED)
    if len(steps) > 6:
        return
    peaks = [peak_of(steps, list(o)) for o in permutations(range(len(steps)))
             if steps.is_valid(list(o))]  # fmt: skip
    best = min(peaks, default=0)
    assert lower_bound(steps) <= best
    for build in CONSTRUCTIONS.values():
        order = build(steps)
        assert steps.is_valid(order)
        assert peak_of(steps, order) >= best


@settings(max_examples=150)
@given(small_programs(groups=True))
def test_a_found_order_is_valid_counted_right_and_never_worse(program: Program) -> None:
    for options in (COUNTED, Options()):
        found = find_order(program, options, seconds=None, tries=60)
        moved = program.with_ops(tuple(program.ops[k] for k in found.order))
        assert violations(moved) == []
        assert certify(program, moved) == []
        assert found.bound <= found.peak <= found.given_peak
    assert figures(program, PEER).peak_bytes == find_order(program, COUNTED, tries=0).given_peak
