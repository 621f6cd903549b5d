"""Orders for a low peak, on random programs, against all orders there are."""

from __future__ import annotations

from itertools import permutations
from random import Random

from focused_programs import crowds, relays
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import small_programs, ungrouped

from treadle.analysis.accounting import PEER, figures
from treadle.analysis.certificate import certify
from treadle.analysis.liveness import Liveness
from treadle.analysis.lives import Storage
from treadle.analysis.timeline import Timeline
from treadle.core.options import Options
from treadle.ir.program import Grouped, Program
from treadle.ir.spec import violations
from treadle.schedule.ordering.bound import lower_bound
from treadle.schedule.ordering.construct import CONSTRUCTIONS
from treadle.schedule.ordering.measure import curve_of, measured, peak_of, recounted
from treadle.schedule.ordering.search import find_order
from treadle.schedule.ordering.steps import Steps, steps_of

COUNTED = Options(accounting="inductor")


@settings(max_examples=examples(80))
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


@settings(max_examples=examples(80))
@given(st.one_of(relays(), small_programs(max_ops=7)))
def test_the_bound_holds_for_all_orders_when_blocks_are_handed_over(program: Program) -> None:
    program = ungrouped(program)
    steps = steps_of(program, Options())
    if not 0 < len(steps) <= 5:
        return
    bound = lower_bound(steps)
    for order in permutations(range(len(steps))):
        if steps.is_valid(list(order)):
            moved = program.with_ops(tuple(program.ops[k] for k in order))
            peak = Liveness(moved).peak().bytes
            assert bound <= peak <= peak_of(steps, list(order))


@settings(max_examples=examples(80))
@given(st.one_of(relays(), small_programs(max_ops=12)), st.randoms(use_true_random=False))
def test_counting_a_part_again_gives_what_counting_all_gives(
    program: Program, random: Random
) -> None:
    program = ungrouped(program)
    steps = steps_of(program, Options(accounting=random.choice(("ours", "inductor"))))
    order = list(range(len(steps)))
    if not order:
        return
    for _ in range(8):
        now = measured(steps, order)
        low = random.randrange(len(order))
        high = random.randrange(low, len(order)) + 1
        part = order[low:high]
        random.shuffle(part)
        changed = [*order[:low], *part, *order[high:]]
        if not steps.is_valid(changed):
            continue
        whole = curve_of(steps, changed)
        assert recounted(steps, now, low, part, max(whole)) == whole[low:high]
        assert (whole[:low], whole[high:]) == (now.curve[:low], now.curve[high:])
        assert recounted(steps, now, low, part, max(whole[low:high]) - 1) is None
        order = changed


def bytes_by_the_engine(steps: Steps, order: list[int]) -> list[int]:
    """What the liveness engine counts for the same steps, storages and hand-overs."""
    held = [Storage(h.name, h.bytes, h.producer, h.users, h.ends) for h in steps.held]
    timeline = Timeline(order, held)
    timeline.hand_over_all([(held[out].name, held[inp].name, None) for out, inp in steps.gives])
    assert timeline.order() == [(step,) for step in order]
    return [at.during for at in timeline.curve()]


@settings(max_examples=examples(150))
@given(
    st.one_of(relays(), crowds(), small_programs(max_ops=12, groups=True)),
    st.sampled_from(("ours", "inductor", "dump")),
    st.data(),
)
def test_every_order_is_counted_as_the_engine_counts_it(
    program: Program, accounting: str, data: st.DataObject
) -> None:
    steps = steps_of(program, Options(accounting=accounting))
    left, order = set(range(len(steps))), list[int]()
    while left:
        ready = sorted(k for k in left if left.isdisjoint(steps.before[k]))
        order.append(data.draw(st.sampled_from(ready)))
        left.remove(order[-1])
    assert curve_of(steps, order) == bytes_by_the_engine(steps, order)


@settings(max_examples=examples(80))
@given(small_programs(groups=True))
def test_a_found_order_is_valid_counted_right_and_never_worse(program: Program) -> None:
    for options in (COUNTED, Options()):
        found = find_order(program, options, seconds=None, tries=60)
        moved = program.with_ops(tuple(program.ops[k] for k in found.order))
        assert violations(moved) == []
        assert certify(program, moved) == []
        assert found.bound <= found.peak <= found.given_peak
    counted = figures(program, PEER).peak_bytes
    given_peak = find_order(program, COUNTED, tries=0).given_peak
    assert counted <= given_peak
    # Neighbours that are kept together are moved as one, and counted as if all lived at once.
    assert counted == given_peak or any(isinstance(op, Grouped) for op in program.ops)
