"""The shared workloads through the backend on the CPU: right, and where the time goes.

  python bench/torch_workloads.py [--save] [--only mlp_train,...] [--reps 30] [--peer]

For each workload, one thread: the largest relative error of any output or gradient against eager
(with --peer TorchInductor's beside it), milliseconds against eager's, seconds of the first call
with an empty cache; then, measured in another process with clocks inside,
compile   seconds in torch (Dynamo, AOTAutograd), lowering, scheduling, writing C, compiling C,
          planning memory (the planner compiles itself once for a cache)
ms        of a run in kernels, in calls of torch, and on the host between them; the three slowest
A graph that was not compiled (TOR001) counts as an error. `ok` says that nothing failed and that no
error is above the limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import HERE, SHARED, parser, report

LIMIT = 1e-4
"""The largest relative error that counts as right in f32."""
PATIENCE_S = 400


def environment(folder: str) -> dict[str, str]:
    """A process that starts with an empty cache and takes our warnings for errors."""
    paths = [str(HERE.parent / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "PYTHONWARNINGS": "error:TOR00",
        "TREADLE_CACHE_DIR": folder,
    }


def cells(workload: str, backends: str, reps: int) -> dict[str, dict[str, Any]]:
    """What the shared bench says of one workload, by backend."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        words = ["--device", "cpu", "--backends", backends, "--only", workload, "--reps", str(reps)]
        words += ["--module", "treadle.torch", "--out", str(out), "--timeout", str(PATIENCE_S)]
        script = str(SHARED / "bench" / "run.py")
        subprocess.run(
            [sys.executable, script, *words],
            env=environment(folder), check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return {row["backend"]: row for row in json.loads(out.read_text())}


def phases(workload: str) -> dict[str, Any]:
    """Where the time goes, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(HERE / "torch_phases.py"), workload],
            env=environment(folder), capture_output=True, text=True, check=False,
        )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("PHASES "):
            found: dict[str, Any] = json.loads(line.removeprefix("PHASES "))
            return found
    return {"error": done.stderr[-400:]}


def row(workload: str, peer: bool, reps: int) -> dict[str, Any]:
    """One workload, measured."""
    found = cells(workload, "treadle,inductor" if peer else "treadle", reps)
    ours = found["treadle"]
    if "error" in ours:
        return {"workload": workload, "ok": False, "error": ours["error"]}
    inside = phases(workload)
    result = {
        "workload": workload,
        "ok": ours["rel_err"] <= LIMIT and "error" not in inside,
        "rel_err": float(f"{ours['rel_err']:.2g}"),
        "ms": round(ours["ms"], 3),
        "eager_ms": round(ours["ms"] * ours["speedup"], 3),
        "speedup": round(ours["speedup"], 3),
        "compile_s": round(ours["compile_s"], 2),
        "compile_cpu_s": round(ours["compile_cpu_s"], 2),
        "inside": inside,
    }
    if peer:
        wanted = ("rel_err", "speedup", "compile_s", "compile_cpu_s", "error")
        theirs = {k: v for k, v in found["inductor"].items() if k in wanted}
        result["inductor"] = {k: float(f"{v:.3g}") for k, v in theirs.items() if k != "error"}
        if "error" in theirs:
            result["inductor"]["error"] = theirs["error"]
    return result


def names() -> list[str]:
    """All workloads, in the shared bench's order."""
    sys.path.insert(0, str(SHARED / "bench"))
    import workloads

    return list(workloads.REG)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="workloads, separated by commas")
    arguments.add_argument("--reps", type=int, default=30, help="runs that are timed")
    arguments.add_argument("--peer", action="store_true", help="measure TorchInductor as well")
    args = arguments.parse_args()
    if not (SHARED / "bench" / "run.py").exists():
        print("the shared workloads are not here (../shared/bench)", file=sys.stderr)
        return 0
    rows = []
    for workload in args.only.split(",") if args.only else names():
        rows.append(row(workload, args.peer, args.reps))
        print(rows[-1], file=sys.stderr, flush=True)
    ok = all(r["ok"] for r in rows)
    report("torch_workloads", {"ok": ok, "limit": LIMIT, "workloads": rows}, args.save)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
