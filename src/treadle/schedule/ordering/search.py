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
from treadle.analysis.liveness import Liveness, Policy
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.schedule.ordering.bound import lower_bound
from treadle.schedule.ordering.construct import CONSTRUCTIONS
from treadle.schedule.ordering.improve import Budget, improved
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
    program: Program, options: Options, *, seconds: float | None = 2.0, tries: int | None = None
) -> FoundOrder:
    """The best order found within the budget; deterministic if the budget is in tries."""
    start = time.perf_counter()
    steps = steps_of(program, options)
    given = list(range(len(steps)))
    bound = lower_bound(steps)
    tried = {"given": peak_of(steps, given)}
    best = {"given": given}
    if tried["given"] > bound:
        for name, build in CONSTRUCTIONS.items():
            order = build(steps)
            best[name], tried[name] = order, peak_of(steps, order)
        _improve(steps, best, tried, bound, seconds, tries)
    policy = ACCOUNTINGS[options.accounting].policy
    if policy.in_place:
        tried = _with_hand_overs(program, policy, best)
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
    program: Program, policy: Policy, best: dict[str, list[int]]
) -> dict[str, int]:
    """The peaks with every block that an order lets be handed over in place.

    The search counts only those of equal size.
    """
    found = {}
    for name, order in best.items():
        moved = program.with_ops(tuple([program.ops[k] for k in order]))
        found[name] = Liveness(moved, policy).peak().bytes
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
        budget = Budget(share, None if tries is None else tries // len(starts))
        label = f"{name}, improved"
        best[label] = improved(steps, best[name], budget, bound)
        tried[label] = peak_of(steps, best[label])
        if tried[label] <= bound:
            return
