"""What measuring schedules gains on the GPU at hand, and what it costs, workload by workload.

    PYTHONPATH=src python bench/gpu_tuning.py --workloads workloads.py [--only a,b] [--json FILE]
    PYTHONPATH=src python bench/gpu_tuning.py --workloads workloads.py --survey [--json FILE]

Each cell is a process of its own. `off` takes the model's word, `on` measures with an empty cache,
`again` is a second process that finds what `on` left. Compile seconds are those of the first step,
tuning seconds what of them went by in waiting for spare kernels and measuring, GPU milliseconds the
sum of all kernels of a step, and of the generated ones alone. A survey measures every schedule that
differs from the usual one, not just those the model finds close.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

MODES: Mapping[str, Mapping[str, str]] = {
    "off": {"TREADLE_AUTOTUNE": "0"},
    "on": {"TREADLE_AUTOTUNE": "1"},
    "again": {"TREADLE_AUTOTUNE": "1"},
}
LIMIT_S = 300
STEPS = 20
OURS = "k"
"""Generated kernels are called k, a number, and what they do."""


def workloads_of(path: str) -> Any:
    """The module of workloads, which has them in `REG`."""
    spec = importlib.util.spec_from_file_location("workloads", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def survey_all() -> None:
    """Let every schedule be measured, however long that takes."""
    from treadle.kernel import candidates_gpu
    from treadle.runtime.tuning import decide, questions, tuner

    every = questions.questions_of
    candidates_gpu.CLOSE = 8.0
    questions.MOST_QUESTIONS = 16
    tuner.WAIT_SHARE = 100.0
    tuner.questions_of = lambda program, model: every(program, model, 32)
    own = decide.decide
    tuner.decide = lambda trials, clock: own(trials, clock, 2e9)


def cell(path: str, name: str, is_survey: bool) -> dict[str, Any]:
    """One workload in this process: what its first step and its kernels take."""
    import torch

    import treadle.torch  # noqa: F401
    from treadle.frontends.torch.capture import compile as capture
    from treadle.runtime.triton_kernels import TritonKernels

    if is_survey:
        survey_all()
    made: list[Any] = []
    own = capture._build

    def build(*args: Any) -> Any:
        made.append(own(*args))
        return made[-1]

    capture._build = build
    spent = seconds_of(TritonKernels, "_tune")
    torch.manual_seed(0)
    function, args = workloads_of(path).REG[name]("cuda", torch.bfloat16, "gpu")
    step = getattr(function, "_step", None)
    compiled = torch.compile(function, backend="treadle")

    def run(f: Any) -> Any:
        return step(f, *args) if step else f(*args)

    run(function)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run(compiled)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    for _ in range(5):
        run(compiled)
    torch.cuda.synchronize()
    wall, (gpu, ours) = wall_ms(lambda: run(compiled)), gpu_ms(lambda: run(compiled))
    every = [one.runner.compiled.kernels for one in made]
    tuned = [v.to_dict() for one in every if isinstance(one, TritonKernels) for v in one.tuned]
    return {
        "compile_s": seconds,
        "tuning_s": sum(spent),
        "ms": wall,
        "gpu_ms": gpu,
        "own_gpu_ms": ours,
        "tuned": tuned,
    }


def seconds_of(owner: Any, name: str) -> list[float]:
    """A list that each call of a method adds its seconds to."""
    own, spent = getattr(owner, name), list[float]()

    def timed(*args: Any) -> Any:
        begin = time.perf_counter()
        try:
            return own(*args)
        finally:
            spent.append(time.perf_counter() - begin)

    setattr(owner, name, timed)
    return spent


def wall_ms(work: Any) -> float:
    """Milliseconds of a step, host and device, in the middle of many."""
    import torch

    found = []
    for _ in range(STEPS):
        first, last = torch.cuda.Event(True), torch.cuda.Event(True)
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last))
    return statistics.median(found)


def gpu_ms(work: Any) -> tuple[float, float]:
    """Milliseconds of all kernels of a step, and of generated ones; the least of several."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    found = []
    for _ in range(3):
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            work()
            torch.cuda.synchronize()
        events = [e for e in seen.events() if e.device_type.name == "CUDA"]
        every = sum(e.device_time for e in events) / 1e3
        own = [e for e in events if e.name[:1] == OURS and e.name[1:2].isdigit()]
        found.append((every, sum(e.device_time for e in own) / 1e3))
    return min(found)


def measured(args: argparse.Namespace, name: str, mode: str, cache: str) -> dict[str, Any]:
    """A cell in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "--workloads", args.workloads]
    command += ["--cell", name] + (["--survey"] if args.survey else [])
    own = {**MODES[mode], "TREADLE_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"workload": name, "mode": mode, "error": f"more than {LIMIT_S} s"}
    lines = [x for x in done.stdout.splitlines() if x.startswith("CELL ")]
    if not lines:
        return {"workload": name, "mode": mode, "error": done.stderr[-800:]}
    return {"workload": name, "mode": mode, **json.loads(lines[0][5:])}


def shown(rows: list[dict[str, Any]]) -> None:
    """Ratios of the model's word over what was measured, and of compile times."""
    by = {(r["workload"], r["mode"]): r for r in rows if "error" not in r}
    logs: dict[str, list[float]] = {"gpu_ms": [], "own_gpu_ms": [], "compile_s": []}
    for name in dict.fromkeys(r["workload"] for r in rows):
        off, on = by.get((name, "off")), by.get((name, "on"))
        if off is None or on is None:
            continue
        parts = []
        for what, found in logs.items():
            if on[what] > 0 and off[what] > 0:
                found.append(math.log(off[what] / on[what]))
                parts.append(f"{what} {off[what]:.4g} -> {on[what]:.4g}")
        parts.append(f"tuning_s {on['tuning_s']:.3f}")
        others = sum(v["ok"] and v["facts"]["chosen"] != v["facts"]["schedules"][0]
                     for v in on["tuned"])  # fmt: skip
        print(f"{name:20} {'; '.join(parts)}; {len(on['tuned'])} asked, {others} others won")
    for what, found in logs.items():
        if found:
            print(f"geometric mean of off over on, {what}: {math.exp(statistics.mean(found)):.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--survey", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--cell", default="")
    args = parser.parse_args()
    if args.cell:
        print("CELL " + json.dumps(cell(args.workloads, args.cell, args.survey)), flush=True)
        return 0
    names = [n for n in args.only.split(",") if n] or list(workloads_of(args.workloads).REG)
    rows: list[dict[str, Any]] = []
    for name in names:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            modes = ["on"] if args.survey else list(MODES)
            for mode in modes:
                row = measured(args, name, mode, one if mode == "off" else two)
                rows.append(row)
                brief = {k: v for k, v in row.items() if k != "tuned"}
                print(brief, flush=True)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                command = "python " + " ".join(sys.argv)
                json.dump({"bench": "gpu_tuning", "command": command, "rows": rows}, f, indent=1)
    shown(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
