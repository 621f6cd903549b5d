"""The shared workloads on the CPU against the peer: speed and errors.

  python bench/cpu_workloads.py [--save] [--only mlp_train,...] [--rounds 60] [--threads 1]

A process for each workload holds eager, the peer and ours. In every round each compiled form runs
after a run in eager mode, so that all find the caches as cold; the order changes from round to
round. On one thread CPU time counts, which neighbours on the machine disturb least, else wall time.
ms           the median; best_ms the least
over_eager   the median over rounds of eager's time over ours; over_peer likewise of the peer's
error        the largest relative L2 error of any output or gradient against eager
Means are geometric. How long compiling takes, torch_workloads.py says.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import types
from statistics import median
from typing import Any

from common import HERE, SHARED, parser, report

FORMS = ("inductor", "treadle")
WARM = 5


def measure(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """One workload, in this process."""
    import torch

    sys.path.insert(0, str(SHARED / "bench"))
    import workloads

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    function, args = workloads.REG[name]("cpu", torch.float32, "cpu")
    step = getattr(function, "_step", None)

    def run(f: Any) -> Any:
        return step(f, *args) if step else f(*args)

    def results(f: Any) -> list[Any]:
        flat = [t.detach() for t in torch.utils._pytree.tree_leaves(run(f))]
        return flat + [p.grad.detach() for p in getattr(function, "_params", ())]

    expected, row = results(function), {}
    forms = {"eager": function}
    for form in FORMS:
        forms[form] = torch.compile(_copy(function, form), backend=form)
        found = results(forms[form])
        errors = [
            ((a - b).norm() / (b.norm() + 1e-6)).item()
            for a, b in zip(found, expected, strict=True)
        ]
        row[form] = {"error": _short(max(errors))}
    times = _rounds(run, forms, rounds, time.thread_time if threads == 1 else time.perf_counter)
    for form, seconds in times.items():
        about = row.setdefault(form, {})
        about["ms"] = round(median(seconds) * 1e3, 4)
        about["best_ms"] = round(min(seconds) * 1e3, 4)
    pairs = {"over_eager": "eager", "over_peer": "inductor"}
    ratios = {
        key: round(median([b / a for a, b in zip(times["treadle"], times[of], strict=True)]), 2)
        for key, of in pairs.items()
    }
    return {"workload": name, **ratios, **row}


def _rounds(run: Any, forms: dict[str, Any], rounds: int, clock: Any) -> dict[str, list[float]]:
    """Seconds of each form in each round, after as many rounds that do not count."""
    times: dict[str, list[float]] = {form: [] for form in forms}
    for k in range(WARM + rounds):
        order = list(forms) if k % 2 else list(reversed(forms))
        for form in order:
            run(forms["eager"])
            start = clock()
            run(forms[form])
            if k >= WARM:
                times[form].append(clock() - start)
    return times


def _copy(function: Any, form: str) -> Any:
    """The function with code of its own: what is compiled is remembered by the code."""
    code = function.__code__.replace(co_name=f"{function.__code__.co_name}_{form}")
    given = function.__defaults__, function.__closure__
    return types.FunctionType(code, function.__globals__, f"{function.__name__}_{form}", *given)


def _short(value: float) -> float:
    return float(f"{value:.2g}")


def in_a_process(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """One workload, in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(HERE.parent / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        surroundings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "TREADLE_CACHE_DIR": os.path.join(folder, "treadle"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "peer"),
        }
        words = [sys.executable, __file__, "--cell", name]
        words += ["--rounds", str(rounds), "--threads", str(threads)]
        done = subprocess.run(words, env=surroundings, capture_output=True, text=True)
    line = next((x for x in done.stdout.splitlines() if x.startswith("CELL ")), None)
    if line is None:
        return {"workload": name, "failed": done.stderr[-400:]}
    found: dict[str, Any] = json.loads(line.removeprefix("CELL "))
    return found


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return round(math.exp(sum(map(math.log, values)) / len(values)), 3)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", default="")
    made.add_argument("--rounds", type=int, default=60)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--cell", default="")
    asked = made.parse_args()
    if asked.cell:
        print("CELL " + json.dumps(measure(asked.cell, asked.rounds, asked.threads)), flush=True)
        return
    sys.path.insert(0, str(SHARED / "bench"))
    import workloads

    rows = []
    for name in asked.only.split(",") if asked.only else workloads.REG:
        rows.append(in_a_process(name, asked.rounds, asked.threads))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    whole = [row for row in rows if "over_peer" in row]
    data = {
        "threads": asked.threads,
        "note": "a machine shared with other work: compare ratios, not milliseconds",
        "over_peer": mean([row["over_peer"] for row in whole]),
        "over_eager": mean([row["over_eager"] for row in whole]),
        "rows": rows,
    }
    name = "cpu_workloads" if asked.threads == 1 else f"cpu_workloads_{asked.threads}_threads"
    report(name, data, asked.save)


if __name__ == "__main__":
    main()
