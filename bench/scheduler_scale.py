"""What scheduling costs per operation, how that grows, and the same programs through the peer.

  python bench/scheduler_scale.py [--save] [--sizes 1000,10000,100000] [--families chain,...]
                                  [--peer 500,2000] [--checks]

For each family (those of graph_scale.py) and size: CPU microseconds per operation of the whole
pass list and of each pass, kernels before and after. `--checks` leaves the verifier on, as users
have it. `--peer` also runs torch functions of the same structure through TorchInductor's scheduler
(the constructor of its Scheduler, nothing before and after it), with every operation kept a node of
its own, and gives the ratio to ours at about as many nodes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from common import parser, report
from graph_scale import FAMILIES, build
from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.garbage import paused_collection
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline


def schedule(program: Program, check: int) -> tuple[Program, dict[str, float], float]:
    """The scheduled program, seconds by pass, and all CPU seconds."""
    options = Options(check=check)
    ctx = Ctx(options, cost_model(program, options), Journal())
    gc.collect()
    start = time.process_time()
    with paused_collection():
        scheduled = run_pipeline(program, ctx, PIPELINE)
    whole = time.process_time() - start
    passes: dict[str, float] = {}
    for event in ctx.journal.events("pass"):
        passes[event["name"]] = passes.get(event["name"], 0.0) + event["seconds"]
    return scheduled, passes, whole


def measure(make: Callable[[int], Program], n: int, check: int) -> dict[str, Any]:
    """The least of several runs, because the others were disturbed."""
    best: dict[str, Any] | None = None
    for _ in range(3 if n <= 10_000 else 1):
        program = build(make, n)
        scheduled, passes, whole = schedule(program, check)
        count = len(program.leaves)
        row = {
            "us_per_op": round(whole / count * 1e6, 1),
            "kernels_before": len(program.ops),
            "kernels_after": len(scheduled.ops),
            "passes": {k: round(v / count * 1e6, 1) for k, v in passes.items()},
        }
        if best is None or row["us_per_op"] < best["us_per_op"]:
            best = row
    assert best is not None
    return best


# -------------------------------------------------------------------------------------- the peer


def chain_of(n: int) -> Callable[..., Any]:
    """The chain with side branches, as a torch function of about n operations."""

    def function(x: Any) -> Any:
        last, count = x, 0
        while count < n:
            side = last
            for _ in range(8):
                last = last * 0.5
            last = (last + side * 0.5 + x) * 0.5
            count += 10
        return last

    return function


def wide_of(n: int) -> Callable[..., Any]:
    """Independent updates of many tensors from one shared input."""

    def function(g: Any, *params: Any) -> list[Any]:
        found = []
        for p in params:
            step = (p + g) * 0.5
            found.append(p + step * 0.5)
        return found

    return function


def peer_seconds(family: str, n: int) -> dict[str, float]:
    """CPU seconds of the peer's scheduler for about n nodes, and how many nodes it saw."""
    import torch
    import torch._inductor.graph as lowering
    import torch._inductor.ir as ir
    import torch._inductor.scheduler as peer

    class StopHereError(Exception):
        pass

    seen: dict[str, float] = {}
    start_of = peer.Scheduler.__init__
    run_node = lowering.GraphLowering.run_node

    def realised(self: Any, node: Any) -> Any:
        result = run_node(self, node)
        if isinstance(result, ir.TensorBox):
            result.realize()
        return result

    def timed(self: Any, nodes: Any, *rest: Any, **more: Any) -> None:
        start = time.process_time()
        start_of(self, nodes, *rest, **more)
        seen["seconds"] = time.process_time() - start
        seen["nodes"] = len(nodes)
        raise StopHereError

    peer.Scheduler.__init__ = timed  # type: ignore[method-assign]
    lowering.GraphLowering.run_node = realised  # type: ignore[method-assign]
    try:
        torch._dynamo.reset()
        shape = (64, 128)
        if family == "chain":
            function, args = chain_of(n), [torch.randn(shape)]
        else:
            function, args = wide_of(n), [torch.randn(shape) for _ in range(n // 4 + 1)]
        try:
            torch.compile(function, fullgraph=True)(*args)
        except Exception as e:  # dynamo wraps what a backend raises
            if "seconds" not in seen:
                raise e
    finally:
        peer.Scheduler.__init__ = start_of  # type: ignore[method-assign]
        lowering.GraphLowering.run_node = run_node  # type: ignore[method-assign]
    return seen


def against_peer(sizes: list[int]) -> dict[str, Any]:
    """Both schedulers on chains and wide programs of about the same number of nodes."""
    rows: dict[str, Any] = {}
    for family in ("chain", "wide"):
        for n in sizes:
            theirs = peer_seconds(family, n)
            nodes = int(theirs["nodes"])
            program = build(FAMILIES[family], nodes)
            ours = min(schedule(program, 1)[2] for _ in range(2))
            rows[f"{family} {nodes}"] = {
                "peer_seconds": round(theirs["seconds"], 2),
                "our_seconds_with_checks": round(ours, 3),
                "ratio": round(theirs["seconds"] / ours, 1),
            }
            print(family, nodes, rows[f"{family} {nodes}"], flush=True)
    return rows


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--sizes", default="1000,10000,100000")
    p.add_argument("--families", default=",".join(FAMILIES))
    p.add_argument("--peer", default="", help="sizes to run through the peer as well")
    p.add_argument("--checks", action="store_true", help="leave the verifier on")
    args = p.parse_args()
    sizes = [int(s) for s in args.sizes.split(",") if s]
    data: dict[str, Any] = {"unit": "CPU microseconds per operation", "checks": args.checks}
    for name in args.families.split(",") if sizes else ():
        rows = {n: measure(FAMILIES[name], n, int(args.checks)) for n in sizes}
        first, last = (rows[n]["us_per_op"] for n in (sizes[0], sizes[-1]))
        data[name] = {**{str(n): row for n, row in rows.items()}, "growth": round(last / first, 2)}
        print(
            name, {n: row["us_per_op"] for n, row in rows.items()}, data[name]["growth"], flush=True
        )
    if args.peer:
        data["peer"] = against_peer([int(s) for s in args.peer.split(",")])
    report("scheduler_scale", data, args.save)


if __name__ == "__main__":
    main()
