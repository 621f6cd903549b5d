"""Many single functions on a GPU beside the shared twelve: speed over eager and the peer, errors.

  PYTHONPATH=src python bench/gpu_cases.py [--save] [--only norm,decode] [--jobs 12] [--reps 30]

A case is a line of `gpu_cases.txt`, as in `other_workloads.py`. Processes that share out the cases
compile them first, so that caches are warm; then one process measures one after the other.
us         the median between two events on the stream, host time included
gpu_us     kernels alone, by torch's profiler
peak_mib   above what was allocated before, in a step
`treadle_error` is the largest error against eager in f64, relative to the largest element.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from typing import Any

from common import HERE, parser, report
from cpu_workloads import mean
from other_workloads import Case, error, run

CASES = (HERE / "gpu_cases.txt").read_text("utf-8")
WARM = 5


def cases(only: str) -> list[tuple[str, str]]:
    """Lines and types of what is asked for."""
    found = []
    for line in CASES.strip().splitlines():
        name, kinds, *_ = (cell.strip() for cell in line.split("|"))
        if not only or any(part in name for part in only.split(",")):
            found += [(line, kind) for kind in kinds.split()]
    return found


def timed(step: Any, reps: int) -> dict[str, float]:
    """What one step takes: between events, in kernels, and in memory."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - base
    taken = []
    for _ in range(reps):
        first, last = torch.cuda.Event(True), torch.cuda.Event(True)
        first.record()
        step()
        last.record()
        torch.cuda.synchronize()
        taken.append(first.elapsed_time(last) * 1e3)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    kernels = [e for e in seen.events() if e.device_type.name == "CUDA"]
    return {
        "us": round(median(taken), 1),
        "gpu_us": round(sum(e.device_time for e in kernels), 1),
        "kernels": len(kernels),
        "peak_mib": round(peak / 2**20, 1),
    }


def measure(line: str, kind: str, forms: list[str], reps: int) -> dict[str, Any]:
    """One case by all forms; without repetitions it is only compiled."""
    import torch

    import treadle.torch  # noqa: F401 - makes the backend known

    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device("cuda"):
        case = Case(line, kind)
    row: dict[str, Any] = {"case": case.name, "type": kind}
    inputs, given = case.inputs(), list[Any]()
    eager = case.function("eager")
    found = run(eager, inputs, given)
    if reps:
        wide = case.inputs(wide=True)
        exact = run(eager, wide, [g.double() for g in given])
        row["eager_error"] = error(found, exact)
        del wide
        row["eager"] = timed(lambda: run(eager, inputs, given), reps)
    for form in forms:
        try:
            made = torch.compile(case.function(form), backend=form, dynamic=False)
            found = run(made, inputs, given)
            if reps:
                row[f"{form}_error"] = error(found, exact)
                row[form] = timed(lambda made=made: run(made, inputs, given), reps)
        except Exception as e:
            row[f"{form}_failed"] = f"{type(e).__name__}: {e}"[:300]
    for key, of in (("over_eager", "eager"), ("over_peer", "inductor")):
        if of in row and "treadle" in row:
            row[key] = round(row[of]["us"] / row["treadle"]["us"], 2)
            row[f"gpu_{key}"] = round(row[of]["gpu_us"] / row["treadle"]["gpu_us"], 2)
    return row


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", default="")
    made.add_argument("--jobs", type=int, default=12)
    made.add_argument("--reps", type=int, default=30)
    made.add_argument("--share", default="0/1")
    made.add_argument("--forms", default="inductor,treadle")
    asked = made.parse_args()
    forms = asked.forms.split(",")
    k, n = (int(x) for x in asked.share.split("/"))
    mine = cases(asked.only)[k::n]
    if asked.reps and asked.jobs > 1:
        line = [sys.executable, __file__, "--reps", "0", "--only", asked.only]
        line += ["--forms", asked.forms]
        others = [
            subprocess.Popen([*line, "--share", f"{j}/{asked.jobs}"]) for j in range(asked.jobs)
        ]
        for other in others:
            other.wait()
    rows = []
    for text, kind in mine:
        try:
            rows.append(measure(text, kind, forms, asked.reps))
        except Exception as e:
            failed = f"{type(e).__name__}: {e}"[:300]
            rows.append({"case": text.split("|")[0].strip(), "type": kind, "failed": failed})
        if asked.reps:
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if asked.reps:
        means = {}
        for key in ("over_eager", "over_peer", "gpu_over_eager", "gpu_over_peer"):
            found = [row[key] for row in rows if key in row]
            means[key] = mean(found) if found else None
        report("gpu_cases", {"device": "H200", **means, "rows": rows}, asked.save)


if __name__ == "__main__":
    main()
