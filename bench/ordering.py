"""Orders for a low peak, and memory plans of whole programs.

  python bench/ordering.py [--save] [--sizes 1000,3000,10000] [--tries 600]

seed_001   the order search on the large dump, as its maker counts (no block handed over) and as it
           can run (in place): peak given, peak found, the bound no order is below, seconds, tries
orders     synthetic programs (see graph_scale.py) with their operations shuffled: the peaks of the
           order built, of the shuffled one and of the best found, against the bound; seconds
plans      the same programs in the order built: seconds for the problem and for the plan, the gap
           to the lower bound; `growth` is seconds per operation at the largest over the smallest
"""

from __future__ import annotations

import random
import time
from typing import Any

from common import parser, report, seed_file
from graph_scale import FAMILIES
from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import dependences
from treadle.analysis.liveness import LivenessPolicy
from treadle.core.garbage import paused_collection
from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump
from treadle.ir.program import Program
from treadle.memory.from_program import PlanOptions, problem_of
from treadle.memory.plan_program import plan_problem
from treadle.schedule.ordering.search import FoundOrder, find_order

REAL = LivenessPolicy(include_inputs=False)


def shuffled(program: Program, seed: int = 0) -> Program:
    """The same operations in a random legal order."""
    rng = random.Random(seed)
    deps = dependences(program)
    waiting = [0] * len(program.ops)
    after: list[list[int]] = [[] for _ in program.ops]
    for a, b in deps.edges:
        after[a].append(b)
        waiting[b] += 1
    ready = [k for k, n in enumerate(waiting) if not n]
    order = []
    while ready:
        at = rng.randrange(len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        step = ready.pop()
        order.append(step)
        for n in after[step]:
            waiting[n] -= 1
            if not waiting[n]:
                ready.append(n)
    return program.with_ops(tuple([program.ops[k] for k in order]))


def figures(found: FoundOrder) -> dict[str, Any]:
    return {
        "given": found.given_peak,
        "found": found.peak,
        "bound": found.bound,
        "gap": round((found.peak - found.bound) / max(1, found.bound), 5),
        "method": found.method,
        "seconds": round(found.seconds, 2),
    }


def seed_001() -> dict[str, Any] | None:
    path = seed_file("001")
    if path is None:
        return None
    program = import_program(read_dump(str(path))).program
    options = Options()
    counted = {"as_counted_by_its_maker": ACCOUNTINGS["dump"].policy, "as_it_can_run": REAL}
    return {
        name: {
            f"{tries}_tries": figures(
                find_order(program, options, seconds=None, tries=tries, policy=policy)
            )
            for tries in (360, 3000, 12000)
        }
        for name, policy in counted.items()
    }


def order_row(program: Program, tries: int) -> dict[str, Any]:
    built = find_order(program, Options(), seconds=None, tries=0, policy=REAL).given_peak
    found = find_order(shuffled(program), Options(), seconds=None, tries=tries, policy=REAL)
    return {"built": built, **figures(found)}


def plan_row(program: Program) -> dict[str, Any]:
    start = time.process_time()
    of = problem_of(program, policy=REAL, options=PlanOptions(outputs_in_arena=True))
    middle = time.process_time()
    planned = plan_problem(of, steps=20_000)
    return {
        "blocks": len(of.problem.blocks),
        "problem_seconds": round(middle - start, 3),
        "plan_seconds": round(time.process_time() - middle, 3),
        "height": planned.arena_bytes,
        "gap": round(planned.solution.gap, 6),
        "method": planned.solution.method,
    }


def growth(rows: dict[int, dict[str, Any]]) -> float:
    each = {
        n: (row["problem_seconds"] + row["plan_seconds"]) / n for n, row in sorted(rows.items())
    }
    first, *_, last = each.values()
    return round(last / max(first, 1e-9), 2)


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--sizes", default="1000,3000,10000")
    p.add_argument("--tries", type=int, default=600)
    args = p.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    data: dict[str, Any] = {"seed_001": seed_001(), "orders": {}, "plans": {}}
    for name, make in FAMILIES.items():
        orders, plans = {}, {}
        for n in sizes:
            with paused_collection():
                program = make(n)
            orders[n] = order_row(program, args.tries)
            plans[n] = plan_row(program)
            print(name, n, orders[n], plans[n], flush=True)
        data["orders"][name] = orders
        data["plans"][name] = {**plans, "growth": growth(plans)}
    report("ordering", data, args.save)


if __name__ == "__main__":
    main()
