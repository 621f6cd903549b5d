"""Times of generated kernels on the GPU at hand, beside the times the cost model predicts.

    PYTHONPATH=src python bench/gpu_kernels.py DUMP [DUMP ...] [--top 12] [--json FILE]
    PYTHONPATH=src python bench/gpu_kernels.py --workloads workloads.py [--only a,b] [--json FILE]

Every kernel is launched by itself on memory of its own, many times in one recording, so that the
host does not count. `GB/s` is what the kernel must move (as the scheduler counts it) over the time
it takes. Files are Inductor dumps or programs; a module of workloads has them in `REG`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from treadle.analysis.cost import cost_model, work_of
from treadle.codegen.host import HostProgram
from treadle.codegen.lower import lower
from treadle.core.options import Options
from treadle.index import evaluate
from treadle.ir.text import show_program
from treadle.lab.compiling import scheduled_file
from treadle.runtime.hosts.torch_gpu import gpu_of
from treadle.runtime.hosts.torch_tensors import TORCH_TYPES
from treadle.runtime.plan_launches import sizes_of
from treadle.runtime.triton_kernels import TritonKernels

LAUNCHES, ROUNDS = 20, 7
WITHIN = 0.15


@dataclass
class Row:
    """One kernel: what it must move, how long that takes, how long it was predicted to take."""

    program: str
    kernel: str
    launches: int
    megabytes: float
    predicted_us: float
    measured_us: float

    @property
    def off(self) -> float:
        """How far the prediction is off, as a share of the time."""
        return abs(self.predicted_us - self.measured_us) / self.measured_us


def rows_of(name: str, host: HostProgram, kernels: TritonKernels, target: str) -> Iterator[Row]:
    """Every kernel of a program, measured."""
    program = host.program
    values = sizes_of(program)
    numbers = [values[s] for s in program.sizes]
    model = cost_model(program, Options(target=target))
    number = {plan.name: k for k, plan in enumerate(host.kernels)}
    for op in program.ops:
        if op.name not in host.launches:
            continue
        k = number[host.launches[op.name]]
        held: dict[str, Any] = {}
        for storage in {s for one in kernels.unit.kernels[k] for s in one.storages}:
            buffer = program.by_name[storage]
            count = max(int(evaluate(buffer.storage_numel, values)), 1)
            element = TORCH_TYPES[buffer.dtype]
            raw = torch.rand(count, device="cuda") if element.is_floating_point else None
            made = torch.zeros(count, dtype=element, device="cuda") if raw is None else raw
            held[storage] = made.to(element)
        addresses = [held[s].data_ptr() if s in held else 0 for s in kernels.storages]
        launch = kernels.bind(k, k + 1, numbers)
        work = work_of(program, op)
        yield Row(
            name,
            op.name,
            len(kernels.unit.kernels[k]),
            round(work.bytes / 1e6, 3),
            round(model.op_ns(op) / 1e3, 2),
            round(measured(lambda launch=launch, at=addresses: launch(at)), 2),
        )


def measured(work: Any) -> float:
    """Microseconds of one launch: the median of recordings of many."""
    work()
    torch.cuda.synchronize()
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            work()
    times = []
    for _ in range(ROUNDS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / LAUNCHES)
    return statistics.median(times[1:])


def of_files(files: Sequence[str], target: str) -> Iterator[Row]:
    """The kernels of dumps and programs."""
    for file in files:
        built, options = scheduled_file(file, "triton", None)
        host = lower(built)
        kernels = TritonKernels(host, options, gpu_of({"cuda:0"}))
        kernels.compile_ahead()
        yield from rows_of(file.rpartition("/")[2][:12], host, kernels, target)


def of_workloads(path: str, only: Sequence[str], target: str, programs: str) -> Iterator[Row]:
    """The kernels of a module's workloads, forward and backward, as `torch.compile` makes them.

    Their programs are left in the folder `programs`, if one is named.
    """
    import treadle.torch  # noqa: F401
    from treadle.frontends.torch.capture import compile as capture

    spec = importlib.util.spec_from_file_location("workloads", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: list[Any] = []
    own = capture._build

    def build(*args: Any) -> Any:
        made.append(own(*args))
        return made[-1]

    capture._build = build
    for name, workload in module.REG.items():
        if only and name not in only:
            continue
        made.clear()
        torch._dynamo.reset()
        torch.manual_seed(0)
        function, args = workload("cuda", torch.bfloat16, "gpu")
        step = getattr(function, "_step", None)
        compiled = torch.compile(function, backend="treadle")
        step(compiled, *args) if step else compiled(*args)
        for one in made:
            done = one.runner.compiled
            if programs:
                with open(f"{programs}/{name}_{one.name}.txt", "w", encoding="utf-8") as f:
                    f.write(show_program(done.host.program))
            yield from rows_of(f"{name} {one.name}", done.host, done.kernels, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--workloads")
    parser.add_argument("--only", default="")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--programs", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    rows = list(of_files(args.files, args.target))
    if args.workloads:
        only = [n for n in args.only.split(",") if n]
        rows += of_workloads(args.workloads, only, args.target, args.programs)
    print(f"{'program':22} {'kernel':34} {'MB':>9} {'GB/s':>6} {'predicted':>9} {'measured':>9}")
    for r in sorted(rows, key=lambda r: -r.measured_us)[: args.top]:
        rate = r.megabytes / r.measured_us * 1e3
        print(
            f"{r.program:22.22} {r.kernel:34.34} {r.megabytes:9.1f} {rate:6.0f}"
            f" {r.predicted_us:9.1f} {r.measured_us:9.1f}"
        )
    close = sum(r.off <= WITHIN for r in rows)
    spent = sum(r.measured_us for r in rows if r.off <= WITHIN) / sum(r.measured_us for r in rows)
    print(
        f"{len(rows)} kernels, {close} predicted within {WITHIN:.0%}"
        f" ({close / len(rows):.0%} of the kernels, {spent:.0%} of the time)"
    )
    if args.json:
        data = {
            "bench": "gpu_kernels",
            "command": "python " + " ".join(sys.argv),
            "device": torch.cuda.get_device_name(),
            "rows": [asdict(r) for r in rows],
        }
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(data, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
