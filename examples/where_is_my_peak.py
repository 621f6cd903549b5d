"""Ask for the memory of a call before it runs: how much, at which operator, held by what.

python examples/where_is_my_peak.py
"""

from __future__ import annotations

import torch

import treadle


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v


def main() -> None:
    q, k, v = (torch.randn(4, 256, 64) for _ in range(3))
    memory = treadle.plan(attend, q, k, v)
    graph = memory.graphs[0]
    print(f"{graph.peak_bytes:,} bytes at once, at {graph.peak_at}")
    print(f"no plan of this order is below {graph.lower_bound:,}")
    for piece in graph.breakdown[:4]:
        print(f"  {piece.bytes:>9,}  {piece.kind:<12} {piece.operator or ''} {piece.source or ''}")
    limit = 8 << 20
    print("it fits in 8 MiB" if graph.peak_bytes <= limit else "it does not fit in 8 MiB")


if __name__ == "__main__":
    main()
