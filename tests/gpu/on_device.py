"""What the tests check in Triton's interpreter, on a real device; `make test-gpu` runs it.

    PYTHONPATH=src python tests/gpu/on_device.py [--jobs 12] [--fuzz 2000] [--samples 1] [--json F]

Torch's operator database (forward and gradients, f32 and bf16), random functions of torch, and
graphs that go through every kind of kernel. Each is shared out among processes; what fails is
printed with its reason, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1] / "differential"


@dataclass(frozen=True)
class Job:
    """One process: what it checks, and its command line."""

    what: str
    command: tuple[str, ...]


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    """The processes that together are the run."""
    n = args.jobs
    for dtype in args.dtypes.split(","):
        for k in range(n):
            share = ("--device", "cuda", "--share", f"{k}/{n}", "--samples", str(args.samples))
            runner = (str(HERE / "opinfo_runner.py"), "--dtype", dtype, *share)
            yield Job(f"operators {dtype}", runner)
    each = -(-args.fuzz // n)
    for k in range(n if args.fuzz else 0):
        given = ("--cases", str(each), "--seed", str(args.seed + k * each), "--device", "cuda")
        yield Job("fuzz", (str(HERE / "torch_fuzzer.py"), *given))
    flex = (str(HERE / "flex_cases.py"), "--device", "cuda", "--large", "--fuzz", "100")
    for k in range(4):
        yield Job("flex_attention", (*flex, "--share", f"{k}/4"))
    yield Job(
        "graphs",
        (
            *(
                str(HERE / "triton_cases.py"),
                "--graphs",
                "--large-graphs",
                "--mixed",
                "--operators",
            ),
            *("--functions", str(1 << 24), "--device", "cuda"),
        ),
    )


def run(jobs: Sequence[Job], at_once: int, seconds: float) -> list[tuple[Job, int, str]]:
    """Every job with its exit status and what it printed; what runs too long is stopped."""
    folders = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": folders, "OMP_NUM_THREADS": "1"}
    waiting, running, done = list(jobs), [], []
    end = time.monotonic() + seconds
    while waiting or running:
        while waiting and len(running) < at_once and time.monotonic() < end:
            job = waiting.pop(0)
            line = [sys.executable, *job.command]
            how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            running.append((job, subprocess.Popen(line, env=env, **how)))  # type: ignore[call-overload]
        if time.monotonic() > end:
            done += [(job, -1, "not started: out of time") for job in waiting]
            waiting = []
        for pair in list(running):
            job, process = pair
            try:
                text, _ = process.communicate(timeout=0.2)
            except subprocess.TimeoutExpired:
                if time.monotonic() < end:
                    continue
                process.kill()
                text, _ = process.communicate()
            running.remove(pair)
            done.append((job, process.returncode, text))
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--fuzz", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--json")
    args = parser.parse_args()
    began = time.monotonic()
    done = run(list(jobs_of(args)), args.jobs, args.seconds)
    totals: dict[str, Counter[str]] = {}
    for job, status, text in done:
        count = totals.setdefault(job.what, Counter())
        last = text.strip().splitlines()[-1:] or [""]
        found = re.findall(r"'(\w+)': (\d+)", last[0]) if job.what.startswith("operators") else []
        if ran := re.search(r"(\d+) cases from seed \d+, (\d+) failures", text):
            found = [("cases", ran[1]), ("fail", ran[2])]
        count.update({name: int(n) for name, n in found})
        count["processes failed"] += status != 0
        if status != 0:
            print(f"== {job.what}: exit {status}: {' '.join(job.command[1:])}")
            print("\n".join([x[:600] for x in text.strip().splitlines()[-40:]]))
    for what, count in totals.items():
        print(f"{what:20} {dict(count)}")
    print(f"{time.monotonic() - began:.0f} s")
    if args.json:
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({what: dict(count) for what, count in totals.items()}, f, indent=1)
    return 1 if any(status != 0 for _, status, _ in done) else 0


if __name__ == "__main__":
    sys.exit(main())
