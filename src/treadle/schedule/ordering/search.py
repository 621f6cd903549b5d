"""The order search: the given order is what to beat and is never made worse.

    found = find_order(program, options, seconds=2.0)
    found.order, found.peak, found.bound, found.method

Several constructions, then local search from the best of them and from the order given. The lower
bound says how far any order is from the best there could be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import carry_over
from treadle.analysis.liveness import Liveness, LivenessPolicy, program_peak
from treadle.core.options import Options
from treadle.ir.program import Grouped, Program
from treadle.schedule.ordering.bound import lower_bound
from treadle.schedule.ordering.construct import CONSTRUCTIONS
from treadle.schedule.ordering.improve import OrderingBudget, improved
from treadle.schedule.ordering.measure import peak_of
from treadle.schedule.ordering.steps import Steps, steps_of


@dataclass(frozen=True)
class FoundOrder:
    """An order of a program's operations, and how good it is."""

    order: list[int]
    peak: int
    given_peak: int
    bound: int
    method: str
    seconds: float
    tried: dict[str, int]
    """The peak of every order that was built."""


def find_order(
    program: Program,
    options: Options,
    *,
    seconds: float | None = 2.0,
    tries: int | None = None,
    policy: LivenessPolicy | None = None,
) -> FoundOrder:
    """The best order found within the budget; deterministic if the budget is in tries.

    Memory counts as the options' accounting says, or as `policy` does.
    """
    start = time.perf_counter()
    policy = policy or ACCOUNTINGS[options.accounting].policy
    steps = steps_of(program, options, policy)
    given = list(range(len(steps)))
    bound = lower_bound(steps)
    tried = {"given": peak_of(steps, given)}
    best = {"given": given}
    if tried["given"] > bound:
        for name, build in CONSTRUCTIONS.items():
            order = build(steps)
            best[name], tried[name] = order, peak_of(steps, order)
        if min(tried.values()) > bound:
            _improve(steps, best, tried, bound, seconds, tries)
    if policy.in_place:
        tried = {**tried, **_with_hand_overs(program, policy, best, tried)}
        if any(isinstance(op, Grouped) for op in program.ops):
            # Members of a Grouped are steps of their own: less may live at once than was counted.
            bound = min(bound, Liveness(program, policy).working_set_bound())
    name = min(tried, key=lambda n: (tried[n], list(tried).index(n)))
    return FoundOrder(
        order=best[name],
        peak=tried[name],
        given_peak=tried["given"],
        bound=bound,
        method=name,
        seconds=time.perf_counter() - start,
        tried=tried,
    )


def _with_hand_overs(
    program: Program, policy: LivenessPolicy, best: dict[str, list[int]], tried: dict[str, int]
) -> dict[str, int]:
    """The peaks of the given order and of the best other, every hand-over counted.

    The search counts only those of equal size, so never less than this; a whole analysis of each
    order would cost more than the search.
    """
    found = {"given": program_peak(program, policy)}
    others = [name for name in tried if name != "given"]
    if others:
        name = min(others, key=lambda n: (tried[n], others.index(n)))
        moved = program.with_ops(tuple([program.ops[k] for k in best[name]]))
        carry_over(program, moved)
        found[name] = program_peak(moved, policy)
    return found


def _improve(
    steps: Steps, best: dict[str, list[int]], tried: dict[str, int], bound: int,
    seconds: float | None, tries: int | None,
) -> None:  # fmt: skip
    starts = sorted(tried, key=lambda n: (tried[n], list(tried).index(n)))[:2]
    if "given" not in starts:
        starts.append("given")
    for name in starts:
        share = None if seconds is None else seconds / len(starts)
        budget = OrderingBudget(share, None if tries is None else tries // len(starts))
        label = f"{name}, improved"
        best[label] = improved(steps, best[name], budget, bound)
        tried[label] = peak_of(steps, best[label])
        if tried[label] <= bound:
            return
