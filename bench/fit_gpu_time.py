"""Fits the figures of `analysis/gpu_time.py` to kernels that were measured.

  python bench/gpu_kernels.py --workloads FILE --programs DIR --json kernels.json    (on a GPU)
  python bench/fit_gpu_time.py DIR kernels.json [--seconds 60] [--device h200] [--held-out 0.0]

A random search: one or two figures at a time are moved by some percent, and what is no worse is
kept. Good is a kernel predicted within 15 %, then a small error (of its logarithm, at most 1 for
each kernel). `--held-out` keeps a share of the kernels back and says how well they are predicted.
Prints the figures as they stand in the module, those found, and the kernels that are off by most;
nothing is written: what to take over is a decision.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treadle.analysis import gpu_time
from treadle.analysis.cost import work_of
from treadle.analysis.devices import DEVICES, Device
from treadle.ir.program import Kernel, Nest
from treadle.ir.text import parse_program

FIGURES = (
    "START", "MEMORY_SHARE", "CACHE_SHARE", "CACHE_ROOM", "ISSUED", "RUNNING", "TURN_NS",
    "DEPENDENT_NS", "MOST_DEPENDENT", "REDUCTION_NS", "AGAIN",
)  # fmt: skip
WITHIN, STEP, WORST = 1.15, 0.15, 20


class Measured(NamedTuple):
    """One kernel: whose it is, what it took, and what it consists of."""

    program: str
    kernel: str
    us: float
    is_foreach: bool
    nests: Sequence[tuple[Nest, float]]

    def error(self, device: Device) -> float:
        """The logarithm of predicted over measured time."""
        ns = gpu_time.scheduled_ns(self.nests, device, self.is_foreach)
        return math.log(ns / 1e3 / self.us)


def measured(folder: Path, rows: Sequence[dict[str, Any]]) -> list[Measured]:
    """Every kernel of the programs that was measured; library calls are not kernels."""
    times = {(row["program"], row["kernel"]): row["measured_us"] for row in rows}
    found = []
    for file in sorted(folder.glob("*.txt")):
        name, _, kind = file.stem.rpartition("_")
        program = parse_program(file.read_text("utf-8"))
        for op in program.ops:
            us = times.get((f"{name} {kind}", op.name))
            if us is None or not isinstance(op, Kernel):
                continue
            nests = [(n, work_of(program, n).bytes) for n in op.members if isinstance(n, Nest)]
            found.append(Measured(f"{name} {kind}", op.name, us, op.shape == "foreach", nests))
    return found


def share_within(kernels: Sequence[Measured], device: Device) -> float:
    errors = [abs(one.error(device)) for one in kernels]
    return sum(e <= math.log(WITHIN) for e in errors) / len(errors) if errors else math.nan


def goodness(kernels: Sequence[Measured], device: Device) -> float:
    errors = [min(abs(one.error(device)), 1.0) for one in kernels]
    return share_within(kernels, device) - 0.1 * sum(errors) / len(errors)


def figures() -> dict[str, float]:
    return {name: round(getattr(gpu_time, name), 4) for name in FIGURES}


def search(kernels: Sequence[Measured], device: Device, seconds: float, chance: Any) -> None:
    """Move the module's figures to better ones."""
    best, end = goodness(kernels, device), time.monotonic() + seconds
    while time.monotonic() < end:
        names = chance.sample(FIGURES, chance.choice((1, 1, 2)))
        before = {name: getattr(gpu_time, name) for name in names}
        for name, value in before.items():
            setattr(gpu_time, name, value * math.exp(chance.gauss(0, STEP)))
        found = goodness(kernels, device)
        if found >= best:
            best = found
            continue
        for name, value in before.items():
            setattr(gpu_time, name, value)


def main() -> None:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("programs", type=Path)
    made.add_argument("kernels", type=Path)
    made.add_argument("--seconds", type=float, default=60)
    made.add_argument("--device", default="h200", choices=sorted(DEVICES))
    made.add_argument("--held-out", type=float, default=0.0)
    made.add_argument("--seed", type=int, default=0)
    asked = made.parse_args()
    device, chance = DEVICES[asked.device], random.Random(asked.seed)
    kernels = measured(asked.programs, json.loads(asked.kernels.read_text("utf-8"))["rows"])
    if not kernels:
        made.error(f"no kernel of {asked.programs} is among those measured in {asked.kernels}")
    chance.shuffle(kernels)
    kept = round(len(kernels) * asked.held_out)
    held_out, fitted = kernels[:kept], kernels[kept:]
    print(f"{len(kernels)} kernels, {share_within(kernels, device):.3f} within 15 %:", figures())
    search(fitted, device, asked.seconds, chance)
    print(f"fitted to {len(fitted)}, {share_within(fitted, device):.3f} within 15 %:", figures())
    if held_out:
        print(f"held out {len(held_out)}, {share_within(held_out, device):.3f} within 15 %")
    for one in sorted(kernels, key=lambda one: -abs(one.error(device)))[:WORST]:
        off = math.exp(one.error(device))
        print(f"  {off:6.2f} of {one.us:8.1f} us  {one.program}: {one.kernel}")


if __name__ == "__main__":
    main()
