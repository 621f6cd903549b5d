"""How the cost per operation grows with the size of the program.

  python bench/graph_scale.py [--save] [--sizes 1000,10000,100000] [--families chain,...]

For each family and size, CPU microseconds per operation for

  build      the program through the builder
  verify     all rules
  deps       accesses and dependences
  live       the liveness engine, in-place pairs included, and its peak
  order      the incremental acyclicity structure
  query      10,000 questions "would merging these two close a cycle", near and far pairs mixed:
             microseconds per query
  merge      pairs of neighbours tried and merged where legal: microseconds per merge
  all_but_verify   build + deps + live + order + the 10,000 queries

`growth` is the figure at the largest size over that at the smallest. The cycle collector is paused
while programs are built, as it is inside the analyses.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Any

from common import parser, report
from treadle.analysis.deps import dependences
from treadle.analysis.liveness import Liveness
from treadle.analysis.order import MergeOrder
from treadle.core.garbage import paused_collection
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.ir.spec import violations
from treadle.ir.types import Buffer

QUERIES = 10_000
MERGE_TRIES_PER_OP = 0.5
ROWS, COLUMNS = 64, 128


class Weaver:
    """A builder that knows the few operations the families are made of."""

    def __init__(self, name: str) -> None:
        self.b = ProgramBuilder(name)
        self.count = 0

    def fresh(self) -> Buffer:
        return self.b.buffer(f"b{self.count}", "f32", [ROWS, COLUMNS])

    def combine(self, *sources: Buffer) -> Buffer:
        """A pointwise operation over one or more buffers."""
        target = self.fresh()
        with self.b.loop(f"op{self.count}", [ROWS, COLUMNS]) as k:
            i, j = k.vars
            total = k.load(sources[0], i, j)
            for s in sources[1:]:
                total = total + k.load(s, i, j)
            k.store(target, (i, j), total * 0.5)
        self.count += 1
        return target

    def normalise(self, source: Buffer) -> Buffer:
        """A reduction with what follows it, in one body."""
        target = self.fresh()
        with self.b.loop(f"op{self.count}", [ROWS], reduce=[COLUMNS]) as k:
            i, j = k.vars
            v = k.load(source, i, j)
            k.store(target, (i, j), v * k.rsqrt(k.sum(v * v)))
        self.count += 1
        return target

    def update(self, target: Buffer, source: Buffer) -> Buffer:
        """A change in place."""
        with self.b.loop(f"op{self.count}", [ROWS, COLUMNS]) as k:
            i, j = k.vars
            k.store(target, (i, j), k.load(target, i, j) + k.load(source, i, j))
        self.count += 1
        return target

    def multiply(self, left: Buffer, right: Buffer) -> Buffer:
        """A library call."""
        target = self.fresh()
        self.b.extern("aten.mm", [left, right], [target], name=f"op{self.count}")
        self.count += 1
        return target


def chain(n: int) -> Program:
    """A long chain with a side branch at every tenth operation."""
    w = Weaver("chain")
    x = last = w.b.input("x", "f32", [ROWS, COLUMNS])
    while w.count < n:
        side = last
        for _ in range(8):
            last = w.combine(last)
        last = w.combine(last, w.combine(side), x)
    w.b.returns(last)
    return w.b.build()


def wide(n: int) -> Program:
    """Independent updates of many parameters from one shared input, as optimisers do."""
    w = Weaver("wide")
    shared = w.b.input("g", "f32", [ROWS, COLUMNS])
    k = 0
    while w.count < n:
        p = w.b.input(f"p{k}", "f32", [ROWS, COLUMNS])
        step = w.combine(p, shared)
        w.update(p, w.combine(step))
        k += 1
    return w.b.build()


def transformer(n: int) -> Program:
    """A residual stream through blocks with branches, calls, norms and a shared mask."""
    w = Weaver("transformer")
    x = w.b.input("x", "f32", [ROWS, COLUMNS])
    mask = w.b.input("mask", "f32", [ROWS, COLUMNS])
    while w.count < n:
        h = w.normalise(x)
        q, k, v = (w.multiply(h, mask) for _ in range(3))
        a = w.multiply(w.normalise(w.combine(w.multiply(q, k), mask)), v)
        x = w.combine(x, a)
        gate, up = w.combine(w.normalise(x)), w.combine(x)
        x = w.combine(x, w.combine(gate, up))
    w.b.returns(x)
    return w.b.build()


def lstm(n: int) -> Program:
    """An unrolled recurrence: a grid of layers and time steps, state changed in place."""
    w = Weaver("lstm")
    layers = 4
    state = [w.b.input(f"h{k}", "f32", [ROWS, COLUMNS]) for k in range(layers)]
    cell = [w.b.input(f"c{k}", "f32", [ROWS, COLUMNS]) for k in range(layers)]
    x = w.b.input("x", "f32", [ROWS, COLUMNS])
    while w.count < n:
        below = x
        for k in range(layers):
            gate = w.combine(below, state[k])
            w.update(cell[k], w.combine(gate))
            state[k] = below = w.combine(gate, cell[k])
    w.b.returns(*state)
    return w.b.build()


FAMILIES: dict[str, Callable[[int], Program]] = {
    "chain": chain,
    "wide": wide,
    "transformer": transformer,
    "lstm": lstm,
}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    gc.collect()
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def build(make: Callable[[int], Program], n: int) -> Program:
    with paused_collection():
        return make(n)


def ask(order: MergeOrder, n: int) -> int:
    """Near and far pairs in turn."""
    rng = random.Random(0)
    legal = 0
    for k in range(QUERIES):
        a = rng.randrange(n)
        b = rng.randrange(n) if k % 2 else min(n - 1, a + rng.randrange(1, 20))
        legal += a != b and not order.would_cycle(a, b)
    return legal


def merge_neighbours(order: MergeOrder, n: int) -> int:
    """What a fusion pass does: try pairs that are near each other, merge the legal ones."""
    rng = random.Random(1)
    merged = 0
    for _ in range(int(n * MERGE_TRIES_PER_OP)):
        a = rng.randrange(n)
        b = min(n - 1, a + rng.randrange(1, 8))
        if order.group_of(a) != order.group_of(b) and not order.would_cycle(a, b):
            order.merge(a, b)
            merged += 1
    return merged


def measure_once(make: Callable[[int], Program], n: int) -> dict[str, float]:
    """Seconds per operation for each phase, and per query."""
    program, building = timed(lambda: build(make, n))
    count = len(program.ops)
    bad, verifying = timed(lambda: violations(program))
    assert not bad, bad[0]
    deps, depending = timed(lambda: dependences(program))
    live, living = timed(lambda: Liveness(program))
    assert live.peak().bytes > 0
    order, ordering = timed(lambda: MergeOrder(count, deps.edges))
    legal, asking = timed(lambda: ask(order, count))
    merged, merging = timed(lambda: merge_neighbours(order, count))
    assert legal > 0
    assert merged > 0
    row = {"build": building, "verify": verifying, "deps": depending, "live": living}
    row["order"] = ordering
    # What is held below 1.3 times from 1,000 to 100,000 operations.
    row["all_but_verify"] = building + depending + living + ordering + asking
    return {
        **{k: v / count for k, v in row.items()},
        "query": asking / QUERIES,
        "merge": merging / merged,
    }


def measure(make: Callable[[int], Program], n: int) -> dict[str, float]:
    """Microseconds; the least of several runs, because the others were disturbed."""
    runs = [measure_once(make, n) for _ in range(5 if n <= 10_000 else 1)]
    return {k: round(min(r[k] for r in runs) * 1e6, 2) for k in runs[0]}


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--sizes", default="1000,10000,100000")
    p.add_argument("--families", default=",".join(FAMILIES))
    args = p.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    data: dict[str, Any] = {"unit": "CPU microseconds per operation (query, merge: each)"}
    for name in args.families.split(","):
        rows = {n: measure(FAMILIES[name], n) for n in sizes}
        first, last = rows[sizes[0]], rows[sizes[-1]]
        growth = {k: round(last[k] / first[k], 2) for k in first}
        data[name] = {**{str(n): row for n, row in rows.items()}, "growth": growth}
        print(name, data[name], flush=True)
    report("graph_scale", data, args.save)


if __name__ == "__main__":
    main()
