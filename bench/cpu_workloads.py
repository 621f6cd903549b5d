"""The shared workloads on the CPU against the peer: speed, compile time, errors.

  python bench/cpu_workloads.py [--save] [--only mlp_train,...] [--reps 50] [--threads 1]

Every cell is a process of its own with empty caches (the shared bench), eager interleaved in it:
`speedup` is eager's median over the backend's, `over_peer` the ratio of ours to the peer's, which
a busy machine disturbs least. Means are geometric.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import HERE, SHARED, parser, report

BACKENDS = ("aot_eager", "inductor", "treadle")
PATIENCE_S = 400


def cells(workload: str, reps: int, threads: int) -> dict[str, dict[str, Any]]:
    """What the shared bench says of one workload, by backend."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        words = ["--device", "cpu", "--backends", ",".join(BACKENDS), "--only", workload]
        words += ["--reps", str(reps), "--threads", str(threads), "--module", "treadle.torch"]
        words += ["--out", str(out), "--timeout", str(PATIENCE_S)]
        paths = [str(HERE.parent / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        surroundings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "TREADLE_CACHE_DIR": folder,
        }
        script = str(SHARED / "bench" / "run.py")
        subprocess.run(
            [sys.executable, script, *words],
            env=surroundings, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return {row["backend"]: row for row in json.loads(out.read_text())}


def row_of(workload: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One workload: what each backend gave, and ours over the peer's."""
    wanted = ("speedup", "ms", "compile_cpu_s", "rel_err", "error")
    rows = {b: {k: _short(r[k]) for k in wanted if k in r} for b, r in found.items()}
    row: dict[str, Any] = {"workload": workload, **rows}
    ours, peer = found.get("treadle", {}), found.get("inductor", {})
    if "speedup" in ours and "speedup" in peer:
        row["over_peer"] = round(ours["speedup"] / peer["speedup"], 2)
        row["compile_of_peer"] = round(ours["compile_cpu_s"] / peer["compile_cpu_s"], 3)
    return row


def _short(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def mean(rows: list[dict[str, Any]], key: str) -> float | None:
    """The geometric mean of a ratio."""
    values = [row[key] for row in rows if key in row]
    return round(math.exp(sum(map(math.log, values)) / len(values)), 3) if values else None


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", default="")
    made.add_argument("--reps", type=int, default=50)
    made.add_argument("--threads", type=int, default=1)
    asked = made.parse_args()
    sys.path.insert(0, str(SHARED / "bench"))
    import workloads

    rows = []
    for name in asked.only.split(",") if asked.only else workloads.REG:
        rows.append(row_of(name, cells(name, asked.reps, asked.threads)))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    data = {
        "threads": asked.threads,
        "note": "a machine shared with other work: compare ratios, not milliseconds",
        "over_peer": mean(rows, "over_peer"),
        "compile_of_peer": mean(rows, "compile_of_peer"),
        "rows": rows,
    }
    report("cpu_workloads" if asked.threads == 1 else "cpu_workloads_threads", data, asked.save)


if __name__ == "__main__":
    main()
