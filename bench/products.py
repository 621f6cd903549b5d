"""Matrix products on one core: kernels of ours and the library's, in GFLOP/s.

  python bench/products.py [--save] [--sizes 8x1024x256,...]

Each product `m x n x k` in three layouts: x @ w, x @ w.T as layers have it, x.T @ w as gradients of
weights do. A compiled function of the product alone is called; what a call of a compiled function
that computes next to nothing takes is subtracted. The least of many runs, CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from common import parser, report

SIZES = (
    "1x1024x1024,1x4096x1024,4x1024x1024,8x256x64,8x1024x256,16x1024x256,32x1536x256,32x256x768,"
    "32x4096x1024,64x256x256,128x384x128,128x256x2048,256x256x64,1024x32x16,1024x64x64,400x400x400"
)
RUNS = 120


def best_us(f: Callable[[], Any]) -> float:
    """The least microseconds of a call."""
    for _ in range(5):
        f()
    found = float("inf")
    for _ in range(RUNS):
        start = time.thread_time()
        f()
        f()
        found = min(found, (time.thread_time() - start) / 2)
    return found * 1e6


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Treadle compiles it, for these sizes alone."""
    import torch

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(function, backend="treadle", dynamic=False)
    return made


def measure(m: int, n: int, k: int) -> dict[str, Any]:
    """One product in all layouts."""
    import torch

    x, w = torch.randn(m, k), torch.randn(k, n)
    layouts = {
        "x @ w": (lambda x, w: x @ w, x, w),
        "x @ w.T": (lambda x, w: x @ w.t(), x, w.t().contiguous()),
        "x.T @ w": (lambda x, w: x.t() @ w, x.t().contiguous(), w),
    }
    row: dict[str, Any] = {"size": f"{m}x{n}x{k}"}
    small = compiled(lambda x, w: x[:1, :1] + w[0, 0])
    idle = best_us(lambda: small(x, w))
    for name, (function, *given) in layouts.items():
        fast = compiled(function)
        ours = max(best_us(lambda fast=fast, given=given: fast(*given)) - idle, 0.1)
        theirs = best_us(lambda function=function, given=given: function(*given))
        work = 2e-3 * m * n * k
        row[name] = {"ours": round(work / ours, 1), "library": round(work / theirs, 1)}
    return row


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--sizes", default=SIZES)
    asked = made.parse_args()
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for size in asked.sizes.split(","):
        m, n, k = map(int, size.split("x"))
        rows.append(measure(m, n, k))
        print(rows[-1], file=sys.stderr, flush=True)
    report("products", {"threads": 1, "unit": "GFLOP/s", "rows": rows}, asked.save)


if __name__ == "__main__":
    main()
