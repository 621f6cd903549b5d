"""Programs of real models through both schedulers: kernels, bytes moved, peak, ours over theirs.

  python bench/model_schedules.py [--save] [--only llama,bert]

TorchInductor captures and schedules a training step of each model of tests/models; its code
generator is not run. Its program before fusion is scheduled here, and the figures are compared with
its own program after fusion. Bytes are those really moved; `as_peer` counts them in the peer's way.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from common import HERE, parser, report
from treadle.analysis.accounting import DUMP, PEER, Figures, figures
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump.import_program import import_program
from treadle.frontends.inductor_dump.record import RecordedGraph, record
from treadle.schedule.pipeline import run_pipeline

sys.path.insert(0, str(HERE.parent / "tests" / "models"))


class StopHereError(Exception):
    """Raised where the peer would begin to generate code."""


def recorded(name: str) -> list[RecordedGraph]:
    """The graphs of a training step, before and after the peer's fusion."""
    import torch
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.scheduler as peer
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from model_zoo import example
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    def stop(self: Any, *rest: Any, **more: Any) -> None:
        raise StopHereError

    def compiler(gm: Any, inputs: Any) -> Any:
        try:
            compile_fx.compile_fx_inner(gm, inputs)
        except Exception as e:  # torch wraps what is raised inside
            if StopHereError.__name__ not in repr(e):
                raise
        return make_boxed_func(gm.forward)

    backend = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
    )
    generate = peer.Scheduler.codegen
    peer.Scheduler.codegen = stop  # type: ignore[method-assign]
    try:
        torch._dynamo.reset()
        given = example(name)
        with record() as recording:
            found = torch.compile(given.model, backend=backend)(**given.inputs, **given.labels)
            found.loss.backward()
        return list(recording.graphs)
    finally:
        peer.Scheduler.codegen = generate  # type: ignore[method-assign]


def compared(graph: RecordedGraph) -> dict[str, Any]:
    """One graph: [ours, theirs] for each figure."""
    before, theirs = (import_program(dump).program for dump in (graph.pre, graph.post))
    options = Options(accounting="dump")
    start = time.process_time()
    ours = run_pipeline(before, Ctx(options, None, Journal(enabled=False)))  # type: ignore[arg-type]
    seconds = time.process_time() - start
    pair: tuple[Figures, Figures] = (figures(ours, DUMP), figures(theirs, DUMP))
    row = {
        "operations": len(before.leaves),
        "kernels": [f.kernels for f in pair],
        "bytes_moved": [f.bytes_moved for f in pair],
        "peak_bytes": [f.peak_bytes for f in pair],
        "as_peer": [figures(p, PEER).bytes_moved for p in (ours, theirs)],
        "cpu_s": round(seconds, 3),
    }
    row["worse"] = [k for k, v in row.items() if isinstance(v, list) and v[0] > v[1]]
    return row


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums of ours over sums of theirs, and in how many graphs nothing is worse."""
    found: dict[str, Any] = {"graphs": len(rows)}
    found["no_figure_worse"] = sum(not r["worse"] for r in rows)
    for figure in ("kernels", "bytes_moved", "peak_bytes", "as_peer"):
        ours, theirs = (sum(r[figure][k] for r in rows) for k in (0, 1))
        found[figure] = round(ours / theirs, 4)
    return found


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="models, separated by commas")
    args = arguments.parse_args()
    from model_zoo import MODELS

    logging.getLogger("transformers").setLevel(logging.ERROR)
    rows: dict[str, Any] = {}
    for name in args.only.split(",") if args.only else MODELS:
        for k, graph in enumerate(recorded(name)):
            rows[f"{name} {k}"] = compared(graph)
            print(name, k, rows[f"{name} {k}"], file=sys.stderr, flush=True)
    report("model_schedules", {"total": totals(list(rows.values())), "graphs": rows}, args.save)


if __name__ == "__main__":
    main()
