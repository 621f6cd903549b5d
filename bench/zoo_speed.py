"""The models of tests/models/model_zoo.py: forward and training speed against eager and the peer.

  python bench/zoo_speed.py [--save] [--only llama,bert] [--backends inductor,treadle] [--resume]
                            [--rounds 20]

A process with empty caches for each model holds eager and the compiled forms. Rounds of eager and
of a form take turns, the order changes each time; a round is a few runs, of which the first
does not count: these models take a millisecond, and half of that is finding their code in the
processor's caches when another form has just run. CPU time of one thread counts, which neighbours
on the machine disturb least.
ms           the median; first_s the first call
over_eager   the median over rounds of eager's time over the form's
noise        the same of eager against itself: a form within it of 1 is as fast as eager
--resume keeps the rows of models that were saved before, for the backends that they have.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from common import HERE, RESULTS, parser, report

NAME = "zoo_speed"
WARM = 5
RUNS = 4
"""Runs of a round; the first does not count."""
JOBS = ("forward", "training")
MOST_SECONDS = 240
sys.path.insert(0, str(HERE.parent / "tests" / "models"))


def measure(name: str, backends: list[str], rounds: int) -> dict[str, Any]:
    """One model, in this process."""
    import torch
    from model_zoo import example

    import treadle.torch  # noqa: F401 - makes the backend known

    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    found: dict[str, Any] = {"model": name}
    for job in JOBS:
        torch.manual_seed(0)
        one = example(name)
        eager = step_of(job, one.model, one)
        forms: dict[str, Callable[[], Any]] = {"eager": eager}
        rows: dict[str, Any] = {}
        for backend in backends:
            torch._dynamo.reset()
            compiled = torch.compile(one.model, backend=backend)
            forms[backend] = step_of(job, compiled, one)
            start = time.perf_counter()
            forms[backend]()
            rows[backend] = {"first_s": round(time.perf_counter() - start, 2)}
            for _ in range(WARM):
                forms[backend]()
            # Other forms must not share what Dynamo keeps with the model's code.
            rows[backend] |= timed(eager, forms.pop(backend), rounds)
        rows["eager"] = timed(eager, eager, rounds)
        found[job] = rows
    return found


def step_of(job: str, call: Any, one: Any) -> Callable[[], Any]:
    """One forward pass without gradients, or one training step."""
    import torch

    model = one.model

    def forward() -> Any:
        with torch.no_grad():
            return call(**one.inputs)

    def training() -> Any:
        model.zero_grad(set_to_none=True)
        call(**one.inputs, **one.labels)["loss"].backward()

    model.train(job == "training")
    return forward if job == "forward" else training


def timed(
    eager: Callable[[], Any],
    form: Callable[[], Any],
    rounds: int,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, Any]:
    """Milliseconds of the form, and how much faster it is than eager."""
    times: dict[str, list[float]] = {"eager": [], "form": []}
    for k in range(rounds):
        runs = [("eager", eager), ("form", form)]
        for key, run in runs if k % 2 else reversed(runs):
            run()
            start = clock()
            for _ in range(RUNS - 1):
                run()
            times[key].append((clock() - start) / (RUNS - 1))
    ratios = [a / b for a, b in zip(times["eager"], times["form"], strict=True)]
    return {
        "ms": round(median(times["form"]) * 1e3, 3),
        "over_eager": round(median(ratios), 3),
    }


def in_a_process(name: str, backends: list[str], rounds: int) -> dict[str, Any]:
    """One model, in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(HERE.parent / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        surroundings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "TREADLE_CACHE_DIR": os.path.join(folder, "treadle"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "peer"),
        }
        words = [sys.executable, __file__, "--cell", name, "--rounds", str(rounds)]
        words += ["--backends", ",".join(backends)]
        limit = MOST_SECONDS * len(backends)
        try:
            done = subprocess.run(
                words, env=surroundings, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"model": name, "failed": f"longer than {limit} s"}
    line = next((x for x in done.stdout.splitlines() if x.startswith("CELL ")), None)
    if line is None:
        return {"model": name, "failed": done.stderr[-400:]}
    found: dict[str, Any] = json.loads(line.removeprefix("CELL "))
    return found


def saved_rows() -> dict[str, dict[str, Any]]:
    """What was saved before, by model."""
    path = RESULTS / f"{NAME}.json"
    rows = json.loads(path.read_text())["models"] if path.exists() else []
    return {row["model"]: row for row in rows if "failed" not in row}


def saved_runs() -> list[str]:
    """The arguments of the runs that made the rows saved before."""
    path = RESULTS / f"{NAME}.json"
    found: list[str] = json.loads(path.read_text()).get("runs", []) if path.exists() else []
    return found


def joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A row with the backends of both; what is measured now counts."""
    if "failed" in now:
        return before or now
    return {"model": now["model"], **{job: before.get(job, {}) | now[job] for job in JOBS}}


def mean(values: list[float]) -> float | None:
    """The geometric mean."""
    return round(math.exp(sum(map(math.log, values)) / len(values)), 3) if values else None


def summary(rows: list[dict[str, Any]], backends: list[str]) -> dict[str, Any]:
    """Means and the slowest models of every backend and job."""
    found: dict[str, Any] = {}
    for job in JOBS:
        for backend in backends:
            speeds = {
                row["model"]: row[job][backend]["over_eager"]
                for row in rows
                if backend in row.get(job, {})
            }
            worst = sorted(speeds, key=lambda name: speeds[name])[:3]
            found[f"{backend}, {job}"] = {
                "models": len(speeds),
                "over_eager": mean(list(speeds.values())),
                "slowest": {name: speeds[name] for name in worst},
            }
    return found


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", default="", help="models, separated by commas")
    made.add_argument("--backends", default="treadle", help="separated by commas")
    made.add_argument("--resume", action="store_true", help="keep what was saved")
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--cell", default="")
    asked = made.parse_args()
    backends = asked.backends.split(",")
    if asked.cell:
        row = measure(asked.cell, backends, asked.rounds)
        print("CELL " + json.dumps(row), flush=True)
        return
    from model_zoo import MODELS

    before = saved_rows() if asked.resume or asked.only else {}
    asked.commands = saved_runs() if before else []
    keep = partial(_keep, before, asked)
    for name in asked.only.split(",") if asked.only else MODELS:
        done = set(before.get(name, {}).get("training", {}))
        missing = [b for b in backends if b not in done or not asked.resume]
        if missing:
            row = in_a_process(name, missing, asked.rounds)
            before[name] = joined(before.get(name, {}), row)
            print(json.dumps(before[name]), file=sys.stderr, flush=True)
            keep(quiet=True)
    keep(quiet=False)


def _keep(before: dict[str, dict[str, Any]], asked: Any, quiet: bool) -> None:
    """Write what there is: a run that is stopped goes on from there with --resume."""
    from contextlib import redirect_stdout

    rows = [before[name] for name in sorted(before)]
    known = sorted({b for row in rows for b in row.get("forward", {})} - {"eager"})
    said = [*asked.commands, " ".join(sys.argv[1:])]
    data = {
        "runs": list(dict.fromkeys(said)),
        "note": "a machine shared with other work: compare ratios, not milliseconds",
        "rounds": asked.rounds,
        "means": summary(rows, known),
        "models": rows,
    }
    if quiet and not asked.save:
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere if quiet else sys.stdout):
        report(NAME, data, asked.save)


if __name__ == "__main__":
    main()
