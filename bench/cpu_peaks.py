"""What a step of each shared workload, or of our own models, holds at most on the CPU, by backend.

  python bench/cpu_peaks.py [--save] [--only mlp_train,...] [--backends eager,inductor,treadle]
      [--models] [--forms forward,training] [--threads 1]

Each figure is from a process of its own with empty caches, after steps that warm up. Before the
step that is measured, results and gradients of the steps before it are gone; inputs and weights
are there. All figures are bytes above that, of one step with its results and gradients.
peak         the most that torch's CPU allocator has given out (its memory profiler), and what
             Treadle holds from step to step (`hosts/torch_c_blocks.py`), whether used or not.
             Arenas and results of hosts in C come from that allocator.
heap         the most from malloc, by anybody: torch's allocator, scratch rows of kernels,
             libraries, Python (`heap_counter.c`, another step), and what Treadle holds
resident     how far the resident set rises (VmHWM; another step, free memory given back before)
predicted    what Treadle said that its graphs hold besides inputs, the largest of them
held         what Treadle holds from step to step
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from common import HERE, SHARED, parser, report

BACKENDS = ("eager", "inductor", "treadle")
WARM = 5
Step = Callable[[], Any]


# ------------------------------------------------------------------------------------- what is run


def shared_workload(name: str, compiled: Callable[[Any], Any]) -> tuple[Step, list[Any]]:
    """A step of a shared workload, and what gets gradients in it."""
    import torch

    sys.path.insert(0, str(SHARED / "bench"))
    import workloads

    torch.manual_seed(0)
    function, args = workloads.REG[name]("cpu", torch.float32, "cpu")
    call, step = compiled(function), getattr(function, "_step", None)
    run = partial(step, call, *args) if step else partial(call, *args)
    return run, list(getattr(function, "_params", ()))


def own_model(name: str, form: str, compiled: Callable[[Any], Any]) -> tuple[Step, list[Any]]:
    """A step of a model of bench/own_models.py, and what gets gradients in it."""
    import torch

    import own_models
    import own_models_parts

    own_models.table()
    one = own_models_parts.made(name, "cpu", torch.float32, "cpu")
    return own_models.step_of(form, compiled(one.module), one), one.params


def compiler(backend: str, predicted: list[int]) -> Callable[[Any], Any]:
    """What compiles a function for the backend; what ours predicts of its graphs is noted."""
    import torch

    if backend == "eager":
        return lambda function: function
    if backend != "treadle":
        return lambda function: torch.compile(function, backend=backend)
    from treadle.core.options import Options
    from treadle.frontends.torch.backend import compile_with
    from treadle.frontends.torch.capture.compile import Settings
    from treadle.frontends.torch.demo.measure import predicted_peak

    settings = Settings(
        Options.from_env(), report=lambda built: predicted.append(predicted_peak(built))
    )
    return lambda function: torch.compile(function, backend=partial(compile_with, settings))


# --------------------------------------------------------------------------------- how it is seen


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """One backend at one workload, in this process."""
    import torch

    from treadle.frontends.torch.demo.measure import allocated_peak
    from treadle.runtime.hosts.torch_c_blocks import held_bytes

    torch.set_num_threads(asked.threads)
    name, _, form = asked.cell.partition(":")
    predicted: list[int] = []
    compiled = compiler(asked.backend, predicted)
    run, leaves = own_model(name, form, compiled) if form else shared_workload(name, compiled)

    def clean() -> None:
        for leaf in leaves:
            leaf.grad = None
        gc.collect()

    for _ in range(WARM):
        run()
        clean()
    held = held_bytes()
    row: dict[str, Any] = {"peak": held + allocated_peak(run)}
    clean()
    row["heap"] = held + _heap_peak(run)
    clean()
    row["resident"] = held + _resident_peak(run)
    return row | ({"predicted": max(predicted), "held": held} if predicted else {})


def _heap_peak(run: Step) -> int:
    """The most bytes from malloc during a step above those before."""
    counter: Any = ctypes.CDLL(None)
    counter.heap_mark.restype = counter.heap_most.restype = ctypes.c_long
    before = int(counter.heap_mark())
    run()
    return int(counter.heap_most()) - before


def _resident_peak(run: Step) -> int:
    """The most bytes of resident memory during a step above those before."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":")) << 10


# -------------------------------------------------------------------------------------- processes


def in_a_process(cell: str, backend: str, threads: int, counter: str) -> dict[str, Any]:
    """One backend at one workload, in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(HERE.parent / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        around = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "TREADLE_CACHE_DIR": os.path.join(folder, "treadle"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "peer"),
            "LD_PRELOAD": counter,
        }
        words = [sys.executable, __file__, "--cell", cell, "--backend", backend]
        words += ["--threads", str(threads)]
        done = subprocess.run(words, env=around, capture_output=True, text=True)
    line = next((x for x in done.stdout.splitlines() if x.startswith("CELL ")), None)
    if line is None:
        return {"failed": done.stderr[-400:]}
    found: dict[str, Any] = json.loads(line.removeprefix("CELL "))
    return found


def built_counter(folder: str) -> str:
    """The library that counts, compiled."""
    out = os.path.join(folder, "heap_counter.so")
    words = [os.environ.get("CC", "cc"), "-O2", "-fno-builtin", "-shared", "-fPIC", "-o", out]
    subprocess.run([*words, str(HERE / "heap_counter.c")], check=True)
    return out


def cells(asked: argparse.Namespace) -> Iterator[str]:
    """Names of workloads, or of models with the form in which they run."""
    wanted = asked.only.split(",") if asked.only else None
    if not asked.models:
        sys.path.insert(0, str(SHARED / "bench"))
        import workloads

        yield from wanted or workloads.REG
        return
    import own_models

    for name, build in own_models.table().items():
        if wanted is None or name in wanted:
            for form in asked.forms.split(","):
                if form == "forward" or build(False).trains:
                    yield f"{name}:{form}"


def line_of(row: dict[str, Any], backends: list[str]) -> str:
    """A row of the table: KiB by backend, of torch's allocator, from malloc, resident."""
    text = f"{row['workload']:<30}"
    for backend in backends:
        one = row[backend]
        keys = ("peak", "heap", "resident", "predicted", "held")
        figures = [f"{one[key] / 1024:>9.0f}" for key in keys if key in one]
        text += "  " + backend + (" ".join(figures) if figures else " FAILED")
    ours = row.get("treadle", {}).get("peak")
    for backend in backends:
        theirs = row[backend].get("peak")
        if backend != "treadle" and ours and theirs and ours > theirs:
            text += f"  ABOVE {backend} {ours / theirs:.2f}"
    return text


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--only", default="")
    made.add_argument("--backends", default=",".join(BACKENDS))
    made.add_argument("--models", action="store_true", help="our own models, not the workloads")
    made.add_argument("--forms", default="forward,training")
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--cell", default="", help="what this very process measures")
    made.add_argument("--backend", default="", help="and of which backend")
    return made.parse_args()


def main() -> None:
    asked = arguments()
    if asked.cell:
        os.environ.pop("LD_PRELOAD", None)  # Compilers need not be counted.
        print("CELL " + json.dumps(measure(asked)), flush=True)
        return
    backends, rows = asked.backends.split(","), []
    with tempfile.TemporaryDirectory() as folder:
        counter = built_counter(folder)
        for cell in cells(asked):
            row: dict[str, Any] = {"workload": cell}
            for backend in backends:
                row[backend] = in_a_process(cell, backend, asked.threads, counter)
            rows.append(row)
            print(line_of(row, backends), file=sys.stderr, flush=True)
    name = "cpu_peaks_models" if asked.models else "cpu_peaks"
    report(name, {"threads": asked.threads, "unit": "bytes", "rows": rows}, asked.save)


if __name__ == "__main__":
    main()
