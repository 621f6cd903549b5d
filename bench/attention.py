"""Attention over short sequences on one core: kernels of ours, the library's, and eager mode.

  python bench/attention.py [--save] [--sizes 2x4x64x64x32,...]

Sizes are batch x heads x queries x keys x width. Microseconds of a compiled function that does only
this, forward without gradients and a whole training step, the least of many runs, CPU time;
`library` is the same with the option `products` at `library`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import treadle.torch  # noqa: F401 - makes the backend known
from common import parser, report

SIZES = (
    "1x4x16x16x32,4x4x32x32x16,2x4x64x64x32,1x8x64x64x80,1x8x8x128x64,1x8x128x128x64,2x8x128x128x64"
)
RUNS = 60


def best_us(f: Callable[[], Any]) -> float:
    """The least microseconds of a call."""
    for _ in range(5):
        f()
    found = float("inf")
    for _ in range(RUNS):
        start = time.thread_time()
        f()
        found = min(found, time.thread_time() - start)
    return round(found * 1e6, 1)


def measure(size: str, is_causal: bool) -> dict[str, Any]:
    """One size, all forms."""
    batch, heads, queries, keys, width = map(int, size.split("x"))
    given = [
        torch.randn(batch, n, heads, width).transpose(1, 2).requires_grad_()
        for n in (queries, keys, keys)
    ]
    slope = torch.randn(batch, queries, heads, width).transpose(1, 2)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    forms: dict[str, Callable[..., Any]] = {"eager": attend}
    for name, products in (("library", "library"), ("ours", "auto")):
        torch._dynamo.reset()
        options = {"products": products}
        forms[name] = torch.compile(attend, backend="treadle", dynamic=False, options=options)
        with torch.no_grad():
            best_us(lambda name=name: forms[name](*given))

    def step(f: Callable[..., Any]) -> None:
        for x in given:
            x.grad = None
        f(*given).backward(slope)

    row: dict[str, Any] = {"size": size, "causal": is_causal}
    for name, f in forms.items():
        torch._dynamo.reset()
        with torch.no_grad():
            row[f"{name}_forward_us"] = best_us(lambda f=f: f(*given))
        row[f"{name}_step_us"] = best_us(lambda f=f: step(f))
    return row


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--sizes", default=SIZES)
    asked = made.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for size in asked.sizes.split(","):
        queries, keys = size.split("x")[2:4]
        for is_causal in (True, False) if queries == keys else (False,):
            rows.append(measure(size, is_causal))
            print(rows[-1], flush=True)
    report("attention", {"torch": torch.__version__, "rows": rows}, asked.save)


if __name__ == "__main__":
    main()
