"""The memory planner: MiniMalloc's hard instances, and how cost grows with the number of blocks.

instances  CPU seconds to a validated plan at the capacity, beside the figures measured for
           MiniMalloc itself (C++) and for CP-SAT (a limit of 60 CPU seconds, 120 for A and B;
           null: no answer), and the height of XLA's rule over the capacity
synthetic  programs of three shapes: CPU seconds for reading the problem (line), for one greedy
           order, for validating, for the planner as a whole; gap to the lower bound;
           `growth` is seconds per block at the largest size over those at the smallest
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from common import SHARED, parser, report
from treadle.core.options import Options
from treadle.memory.csvio import parse_csv
from treadle.memory.engine import engine_for
from treadle.memory.greedy import XLA_RULES, attempts, order_of
from treadle.memory.line import line_of, plan_of
from treadle.memory.portfolio import solve
from treadle.memory.problem import Block, Problem
from treadle.memory.validate import validated

CAPACITY = 1_048_576
# (CPU seconds of MiniMalloc, CPU seconds of CP-SAT) on a machine like this one.
PEERS: dict[str, tuple[float, float | None]] = {
    "A": (7.67, None), "B": (5.56, 2.2), "C": (0.98, None), "D": (4.03, None), "E": (5.86, 46.4),
    "F": (9.34, 4.5), "G": (1.77, 21.3), "H": (2.77, 2.3), "I": (5.63, None), "J": (1.47, None),
    "K": (0.93, 0.5),
}  # fmt: skip


def chain(n: int) -> Problem:
    """Short lives, one after the other."""
    rng = random.Random(1)
    lives = (1, 1, 1, 2, 3, 8)
    return Problem(
        tuple(
            Block(f"b{i}", i, i + 1 + rng.choice(lives), rng.randint(1, 64) * 512, 64)
            for i in range(n)
        )
    )


def transformer(n: int) -> Problem:
    """Activations kept from the forward to the backward half, temporaries in both."""
    rng = random.Random(2)
    layers = max(1, n // 40)
    end = 40 * layers
    blocks = []
    for t in range(20 * layers):
        size = rng.choice((1, 4, 16)) * 65536
        if t % 4 == 0:
            blocks.append(Block(f"kept{t}", t, end - t, size, 64))
        else:
            extra = rng.choice((0, 128))
            blocks.append(Block(f"ahead{t}", t, t + rng.randint(2, 4), size + extra, 64))
        back = rng.choice((1, 4, 16)) * 65536
        blocks.append(Block(f"back{t}", end - t, end - t + rng.randint(2, 4), back, 64))
    return Problem(tuple(blocks))


def scattered(n: int) -> Problem:
    """Random births, mostly short lives, some long, any size."""
    rng = random.Random(3)
    blocks = []
    for i in range(n):
        start = rng.randrange(n)
        life = 1 + int(rng.expovariate(1 / 50))
        blocks.append(Block(f"b{i}", start, start + life, rng.randint(1, 1 << 20), 64))
    return Problem(tuple(blocks))


SHAPES: dict[str, Callable[[int], Problem]] = {
    "chain": chain,
    "transformer": transformer,
    "scattered": scattered,
}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def instance(letter: str) -> dict[str, Any] | None:
    path = SHARED / "dumps" / "minimalloc" / f"{letter}.{CAPACITY}.csv"
    if not path.exists():
        return None
    problem = replace(parse_csv(path.read_text(), path.name).problem, capacity=CAPACITY)
    line = line_of(problem)
    xla = attempts(line, engine_for(line, Options()), XLA_RULES, ("best",))
    solution, seconds = timed(lambda: solve(problem, steps=1 << 40, seconds=120))
    assert solution.verdict, solution.verdict
    assert solution.plan is not None
    validated(problem, solution.plan)
    minimalloc, cp_sat = PEERS[letter]
    return {
        "blocks": len(problem.blocks),
        "seconds": round(seconds, 2),
        "method": solution.method,
        "height": solution.height,
        "lower_bound": solution.lower_bound,
        "xla_rule_over_capacity": round(min(one.height for one in xla) / CAPACITY, 4),
        "minimalloc_seconds": minimalloc,
        "cp_sat_seconds": cp_sat,
    }


def scale(make: Callable[[int], Problem], n: int, budget: float) -> dict[str, Any]:
    problem = make(n)
    line, reading = timed(lambda: line_of(problem))
    engine = engine_for(line, Options())
    offsets, placing = timed(lambda: engine.fit(order_of(line, "spatial"), best=True))
    _, validating = timed(lambda: validated(problem, plan_of(line, offsets)))
    solution, planning = timed(lambda: solve(problem, seconds=budget))
    return {
        "blocks": len(problem.blocks),
        "line": round(reading, 3),
        "one_order": round(placing, 3),
        "validate": round(validating, 3),
        "planner": round(planning, 2),
        "gap": round(solution.gap, 5),
        "method": solution.method,
    }


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--sizes", default="1000,10000,100000")
    p.add_argument("--budget", type=float, default=10.0, help="seconds for the planner")
    args = p.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    found = {letter: row for letter in PEERS if (row := instance(letter))}
    data: dict[str, Any] = {
        "unit": "CPU seconds",
        "capacity": CAPACITY,
        "instances": found,
        "instances_seconds": round(sum(row["seconds"] for row in found.values()), 2),
        "minimalloc_seconds": round(sum(one for one, _ in PEERS.values()), 2),
        "planner_budget": args.budget,
        "synthetic": {},
    }
    for name, make in SHAPES.items():
        rows = {n: scale(make, n, args.budget) for n in sizes}
        first, last = rows[sizes[0]], rows[sizes[-1]]
        ratio = last["blocks"] / first["blocks"]
        growth = {
            k: round(last[k] / max(first[k], 0.001) / ratio, 2)
            for k in ("line", "one_order", "validate")
        }
        data["synthetic"][name] = {**{str(n): row for n, row in rows.items()}, "growth": growth}
        print(name, data["synthetic"][name], flush=True)
    report("memory_planner", data, args.save)


if __name__ == "__main__":
    main()
