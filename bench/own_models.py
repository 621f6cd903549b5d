"""Whole models of our own in plain torch, on the CPU or a GPU: speed and errors beside eager.

  PYTHONPATH=src python bench/own_models.py [--device cpu|cuda] [--dtype f32|bf16|f16]
      [--only vit,gpt] [--backends treadle,inductor] [--threads 1] [--rounds 12] [--jobs 12]
      [--forms forward,training] [--limit 300] [--save]

The models are in own_models_text.py, own_models_images.py and own_models_other.py; each is run
forward without gradients, and in a step of training with the gradients of all parameters. A row is
printed as soon as it is measured. A process measures one model after the other; if one ends it, or
takes longer than --limit seconds, its row says so and another process goes on with the next.
ms          on the CPU of one thread its time (more threads: wall time), in turns with eager;
            on a GPU between two events, host time included
speed       eager's ms over the form's
gpu_ms      kernels alone, by torch's profiler; kernels counts them
peak_mib    on a GPU, the most that a step holds above what was there before
compile_s   the first call; on the CPU with empty caches, on a GPU (--jobs) with warm ones
error       the largest against eager in f64, relative to the largest element of each tensor
eager_error eager's own
times_eager the most that a tensor's error is of eager's, which counts as no less than two
            roundings of the type: above 3 is suspicious
graphs      that torch captured; warnings are those of the first call
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from common import HERE, parser, report
from cpu_workloads import mean
from zoo_speed import timed as in_turns

KINDS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
FORMS = ("forward", "training")
SMALL = 1e-3
COLUMNS = ("ms", "speed", "gpu_ms", "kernels", "peak_mib", "compile_s", "graphs")
ERRORS = ("error", "eager_error", "times_eager")


def table() -> dict[str, Any]:
    """All models by name."""
    import own_models_images
    import own_models_other
    import own_models_text  # noqa: F401 - entering itself into the table
    from own_models_parts import MODELS

    del own_models_images, own_models_other
    return MODELS


def step_of(form: str, call: Any, one: Any) -> Callable[[], list[Any]]:
    """A function that runs once and returns what came out, gradients too."""
    import torch

    params = one.params

    def forward() -> list[Any]:
        with torch.no_grad():
            return [t.detach() for t in torch.utils._pytree.tree_leaves(call(*one.args))]

    def training() -> list[Any]:
        for p in params:
            p.grad = None
        loss = call(*one.args)
        loss.backward()
        return [loss.detach(), *[p.grad for p in params]]

    one.module.train(form == "training")
    return forward if form == "forward" else training


def errors(found: list[Any], own: list[Any], exact: list[Any]) -> dict[str, Any]:
    """How far results are from exact ones, alone and beside eager's own."""
    import torch

    kinds = [t.dtype for t in own if t.is_floating_point()]
    least = 2 * max((torch.finfo(kind).eps for kind in kinds), default=1e-7)
    ours, eagers = relative(found, exact), relative(own, exact)
    return {
        "error": float(f"{max(ours):.2g}"),
        "eager_error": float(f"{max(eagers):.2g}"),
        "times_eager": round(max(a / max(b, least) for a, b in zip(ours, eagers, strict=True)), 1),
    }


def relative(found: list[Any], exact: list[Any]) -> list[float]:
    """The largest error of each tensor, relative to its largest element.

    What is exactly zero but for rounding (the gradient of a bias before a norm) is taken relative
    to a small part of the largest tensor.
    """
    sizes = [float(t.double().abs().max()) if t.numel() else 0.0 for t in exact]
    small = SMALL * max(sizes)
    pairs = zip(found, exact, sizes, strict=True)
    return [
        float((a.double() - b.double()).abs().max()) / max(size, small, 1e-30) if size else 0.0
        for a, b, size in pairs
    ]


def compiled_step(
    form: str, backend: str, one: Any, counted: Any
) -> tuple[Callable[[], list[Any]], list[Any], dict[str, Any]]:
    """The step, what its first run gave, and how that went."""
    import torch

    torch._dynamo.reset()
    counted.clear()
    step = step_of(form, torch.compile(one.module, backend=backend), one)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        start = time.perf_counter()
        found = [t.clone() for t in step()]
        _synchronize(found)
        taken = time.perf_counter() - start
    said = {str(w.message)[:300]: None for w in heard}
    row = {"compile_s": round(taken, 2), "graphs": counted["stats"]["unique_graphs"]}
    return step, found, row | ({"warnings": list(said)} if said else {})


def _synchronize(tensors: list[Any]) -> None:
    import torch

    if any(t.is_cuda for t in tensors):
        torch.cuda.synchronize()


def measured(step: Any, eager: Any, asked: Any) -> dict[str, Any]:
    """What a step takes in time, and on a GPU in kernels and memory."""
    if asked.device == "cpu":
        for _ in range(3):
            step()
        clock = time.thread_time if asked.threads == 1 else time.perf_counter
        row = in_turns(eager, step, asked.rounds, clock)
        return {"ms": row["ms"], "speed": row["over_eager"]}
    from gpu_cases import timed as on_device

    row = on_device(step, asked.rounds)
    return {
        "ms": round(row["us"] / 1e3, 3),
        "gpu_ms": round(row["gpu_us"] / 1e3, 3),
        "kernels": row["kernels"],
        "peak_mib": row["peak_mib"],
    }


def rows_of(name: str, asked: Any) -> Iterator[dict[str, Any]]:
    """One row for each form of running the model and each backend, eager first."""
    import torch

    import treadle.torch  # noqa: F401 - makes the backend known
    from own_models_parts import made

    kind = getattr(torch, KINDS[asked.dtype])
    scale = "gpu" if asked.device == "cuda" else "cpu"
    first = made(name, asked.device, kind, scale)
    for form in asked.forms.split(","):
        if form == "training" and not first.trains:
            continue
        about = {"model": name, "form": form}
        eager = _eager(form, first.copied(kind))
        own = [t.clone() for t in eager()]
        exact = own
        if asked.rounds:  # Processes that only compile would take much memory together.
            exact = [t.clone() for t in _eager(form, first.copied(torch.float64))()]
        base = measured(eager, eager, asked) if asked.rounds else {}
        yield {**about, "backend": "eager", **base, "error": errors(own, own, exact)["error"]}
        for backend in asked.backends.split(","):
            row = {**about, "backend": backend}
            try:
                row |= _compared(form, backend, first.copied(kind), (eager, own, exact), asked)
                if "gpu_ms" in row:
                    row["speed"] = round(base["ms"] / row["ms"], 3)
                    row["gpu_speed"] = round(base["gpu_ms"] / max(row["gpu_ms"], 1e-4), 3)
            except Exception as e:
                row["failed"] = f"{type(e).__name__}: {e}"[:600]
            yield row
        del exact, eager, own
        _free()


def _eager(form: str, one: Any) -> Callable[[], list[Any]]:
    return step_of(form, one.module, one)


def _compared(
    form: str, backend: str, one: Any, known: tuple[Any, ...], asked: Any
) -> dict[str, Any]:
    """One backend: compiled, checked, measured."""
    from torch._dynamo.utils import counters

    eager, own, exact = known
    _free()
    step, found, row = compiled_step(form, backend, one, counters)
    row |= errors(found, own, exact)
    del found
    return row | (measured(step, eager, asked) if asked.rounds else {})


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def in_this_process(asked: Any) -> None:
    """Measure what is asked for and print each row as JSON."""
    import torch

    torch.set_num_threads(asked.threads)
    table()
    for name in asked.cell.split(","):
        try:
            for row in rows_of(name, asked):
                print("CELL " + json.dumps(row), flush=True)
        except Exception as e:
            failed = f"{type(e).__name__}: {e}"[:600]
            print("CELL " + json.dumps({"model": name, "failed": failed}), flush=True)
            if "CUDA error" in failed:  # Nothing can be run in this process any more.
                break
        print("DONE " + name, flush=True)


def command(names: list[str], asked: Any, **instead: Any) -> list[str]:
    """The words that measure these models in another process."""
    words = [sys.executable, __file__, "--cell", ",".join(names)]
    for key in ("device", "dtype", "backends", "threads", "rounds", "forms"):
        words += [f"--{key}", str(instead.get(key, getattr(asked, key)))]
    return words


def in_processes(names: list[str], asked: Any, around: dict[str, str]) -> Iterator[dict[str, Any]]:
    """All rows, from as many processes as it takes."""
    left = list(names)
    while left:
        child = subprocess.Popen(
            command(left, asked), env=around, stdout=subprocess.PIPE, text=True
        )
        timer = threading.Timer(asked.limit, child.kill)
        timer.start()
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("CELL "):
                yield json.loads(line.removeprefix("CELL "))
            elif line.startswith("DONE "):
                left.pop(0)
                timer.cancel()
                timer = threading.Timer(asked.limit, child.kill)
                timer.start()
        code = child.wait()
        timer.cancel()
        if left:
            yield {"model": left.pop(0), "failed": f"the process ended with {code}"}


def warmed(names: list[str], asked: Any, around: dict[str, str]) -> None:
    """Let several processes compile everything, so that caches have it."""
    parts = [names[k :: asked.jobs] for k in range(min(asked.jobs, len(names)))]
    running = [
        subprocess.Popen(
            command(part, asked, rounds=0), env=around,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for part in parts
    ]  # fmt: skip
    end = time.monotonic() + asked.limit
    for child in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(1.0, end - time.monotonic()))
        child.kill()


def line_of(row: dict[str, Any]) -> str:
    """A row as text: what it is, what it takes, how exact it is."""
    cells = [f"{row['model']:<16}{row.get('form', ''):<9}{row.get('backend', ''):<9}"]
    cells += [f"{row.get(key, ''):>9}" for key in (*COLUMNS, *ERRORS)]
    text = " ".join(cells)
    if row.get("times_eager", 0) > 3:
        text += "  WRONG?"
    if "failed" in row:
        text += f"  FAILED {row['failed'][:300]!r}"
    return text + "".join(f"\n    warning: {said!r}" for said in row.get("warnings", ()))


def head() -> str:
    """The names of the columns."""
    cells = [f"{'model':<16}{'form':<9}{'backend':<9}"]
    return " ".join([*cells, *[f"{key:>9}"[:11] for key in (*COLUMNS, *ERRORS)]])


def means(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means over eager and over the peer, and what is below 1 of either."""
    by = {(r["model"], r.get("form"), r.get("backend")): r for r in rows}
    found: dict[str, Any] = {}
    for form in FORMS:
        for key in ("speed", "gpu_speed"):
            ours = {r["model"]: r[key] for r in rows if _is(r, form, "treadle") and key in r}
            peers = {m: by.get((m, form, "inductor"), {}).get(key) for m in ours}
            over = {m: round(ours[m] / p, 2) for m, p in peers.items() if p}
            for name, values in (("over_eager", ours), ("over_peer", over)):
                if values:
                    below = {m: v for m, v in values.items() if v < 1}
                    found[f"{form} {key} {name}"] = {
                        "mean": mean(list(values.values())),
                        "below_1": dict(sorted(below.items(), key=lambda one: one[1])),
                    }
    return found


def _is(row: dict[str, Any], form: str, backend: str) -> bool:
    return row.get("form") == form and row.get("backend") == backend


def arguments() -> Any:
    made = parser(__doc__)
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", default="", help="f32 (on a CPU), bf16 (on a GPU) or f16")
    made.add_argument("--only", default="", help="models, or parts of their names")
    made.add_argument("--backends", default="treadle,inductor")
    made.add_argument("--forms", default=",".join(FORMS))
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--rounds", type=int, default=12, help="0: only compile, beside eager")
    made.add_argument("--jobs", type=int, default=0, help="processes that compile first")
    made.add_argument("--limit", type=float, default=300, help="seconds for a model")
    made.add_argument("--cell", default="", help="models that this very process measures")
    asked = made.parse_args()
    asked.dtype = asked.dtype or ("bf16" if asked.device == "cuda" else "f32")
    return asked


def main() -> None:
    asked = arguments()
    if asked.cell:
        in_this_process(asked)
        return
    wanted = asked.only.split(",") if asked.only else [""]
    names = [name for name in table() if any(part in name for part in wanted)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        around = surroundings(folder)
        if asked.jobs:
            warmed(names, asked, around)
        print(head(), flush=True)
        for row in in_processes(names, asked, around):
            rows.append(row)
            print(line_of(row), flush=True)
    data = {"threads": asked.threads, "means": means(rows), "rows": rows}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        report(f"own_models_{asked.device}_{asked.dtype}", data, asked.save)
    print("\n".join(["", head(), *map(line_of, rows), "", json.dumps(data["means"], indent=1)]))


def surroundings(folder: str) -> dict[str, str]:
    """A process that finds the source tree, and empty caches."""
    paths = [str(HERE.parent / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "TREADLE_CACHE_DIR": os.path.join(folder, "treadle"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "peer"),
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
    }


if __name__ == "__main__":
    main()
