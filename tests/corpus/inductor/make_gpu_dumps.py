"""Make the fixtures gpu_*.txt: forms that only GPU compiles show. Needs a GPU.

    python tests/corpus/inductor/make_gpu_dumps.py FOLDER

Each is the last dump after fusion of a small function: a cumulative sum, a sort, `bucketize`,
a combined kernel, a matrix product with `max_autotune` and something before it, and rows of padded
data whose loops are merged and split again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch._inductor.config as inductor_config
from make_dumps import recording


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, device="cuda")


def scan(x, y):
    return torch.cumsum(x + y, 1)


def sort(x):
    return torch.sort(x, dim=1)


def bucketize(x, edges):
    return torch.bucketize(x, edges)


def combined(a, b, c):
    return a.sin(), b.cos(), c.relu()


def template(x, y):
    return x.relu() @ y


def loops_split_again(x):
    padded = torch.nn.functional.pad(x.relu(), (0, 2, 1, 2), mode="reflect")
    return padded.reshape(2, 9, 3).var(-1), padded.exp(), padded.exp()


CASES = {
    "loops_split_again": (loops_split_again, lambda: (zeros(1, 1, 6, 4),), {}),
    "scan": (scan, lambda: (zeros(8, 64), zeros(64)), {}),
    "sort": (sort, lambda: (zeros(8, 64),), {}),
    "bucketize": (bucketize, lambda: (zeros(64), zeros(9)), {}),
    "combined": (
        combined,
        lambda: (zeros(64), zeros(128), zeros(32)),
        {"combo_kernels": True, "benchmark_combo_kernel": False},
    ),
    "template": (
        template,
        lambda: (zeros(256, 256), zeros(256, 256)),
        {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"},
    ),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (function, arguments, options) in CASES.items():
        torch._dynamo.reset()
        with recording() as recorder, inductor_config.patch(options):
            inductor_config.force_disable_caches = True
            torch.compile(function)(*arguments())
        after = [m for m in recorder.messages if m.startswith("AFTER FUSION\n")]
        (folder / f"gpu_{name}.txt").write_text(after[-1].removeprefix("AFTER FUSION\n"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
