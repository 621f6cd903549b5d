"""Random attention: score and mask functions put together from parts, sizes at random.

Every function is a tree of operations that both torch and a kernel can compute; parts that change
scores do so at most by a factor of 2, so that bounds can say how far errors grow.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from flex_cases import Case

Function = Callable[..., Any]


class Parts:
    """Draws parts of functions; what it draws depends on the seed alone."""

    def __init__(self, seed: int, device: str) -> None:
        self.draw = random.Random(seed)
        self.numbers = torch.Generator().manual_seed(seed)
        self.device = device
        self.batch, self.kv_heads = self.draw.choice((1, 2)), self.draw.choice((1, 2))
        self.heads = self.kv_heads * self.draw.choice((1, 1, 3))
        self.queries, self.keys = self.draw.choice(((64, 64), (50, 70), (33, 96), (80, 17)))
        self.is_dynamic = self.draw.random() < 0.2

    def table(self, *sizes: int) -> Any:
        """Random numbers that a function captures."""
        made = torch.randn(*sizes, generator=self.numbers)
        if len(sizes) == 2 and self.draw.random() < 0.3:
            made = made.t().contiguous().t()
        return made.to(self.device)

    def condition(self, depth: int) -> Function:
        """A truth about a pair."""
        if depth > 0 and self.draw.random() < 0.6:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self.draw.choice([
                lambda i, h, q, k: a(i, h, q, k) & b(i, h, q, k),
                lambda i, h, q, k: a(i, h, q, k) | b(i, h, q, k),
                lambda i, h, q, k: a(i, h, q, k) ^ ~b(i, h, q, k),
            ])  # fmt: skip
        n = self.draw.choice((3, 8, 20))
        kinds = (torch.arange(max(self.queries, self.keys)) // 19).int().to(self.device)
        flags = (self.table(self.heads, self.keys) > -0.5).to(self.device)
        simple: list[Function] = [
            lambda b, h, q, k: q >= k,
            lambda b, h, q, k: (q - k).abs() <= n,
            lambda b, h, q, k: kinds[q] == kinds[k],
            lambda b, h, q, k: flags[h, k],
            lambda b, h, q, k: h * n + q > k,
        ]
        # Divisors that are open would have to be checked, which has no form.
        divided: list[Function] = [
            lambda b, h, q, k: q // n == k // n,
            lambda b, h, q, k: (q + 2 * k + b) % n != 1,
        ]
        return self.draw.choice(simple if self.is_dynamic else simple + divided)

    def change(self, depth: int) -> Function:
        """A score from a score."""
        if depth == 0:
            return lambda s, b, h, q, k: s
        f, c = self.change(depth - 1), self.draw.choice((0.25, 1.5, 2.0))
        per_head, per_place = self.table(self.heads), self.table(self.queries, self.keys)
        by_distance = self.table(self.queries + self.keys)
        side, g = self.condition(1), self.change(depth - 1)
        keys = self.keys
        return self.draw.choice([
            lambda s, b, h, q, k: f(s, b, h, q, k) * c,
            lambda s, b, h, q, k: torch.tanh(f(s, b, h, q, k) / c) * c,
            lambda s, b, h, q, k: f(s, b, h, q, k) + per_head[h] * (k - q) * 0.03,
            lambda s, b, h, q, k: f(s, b, h, q, k) + per_place[q, k],
            lambda s, b, h, q, k: f(s, b, h, q, k) - by_distance[q - k + keys].abs(),
            lambda s, b, h, q, k: torch.where(side(b, h, q, k), f(s, b, h, q, k), g(s, b, h, q, k)),
            lambda s, b, h, q, k: torch.sigmoid(f(s, b, h, q, k)) * 4 + b,
            lambda s, b, h, q, k: f(s, b, h, q, k) / (1 + (q - k).abs() * 0.05),
            lambda s, b, h, q, k: torch.where(side(b, h, q, k), f(s, b, h, q, k), -torch.inf),
            lambda s, b, h, q, k: torch.maximum(f(s, b, h, q, k), s * 0.5) - torch.exp(-s.abs()),
        ])  # fmt: skip


def random_case(seed: int, device: str) -> Case:
    """One attention."""
    p = Parts(seed, device)
    change = p.change(p.draw.choice((1, 2, 3))) if p.draw.random() < 0.8 else None
    counts = p.condition(p.draw.choice((0, 1, 2))) if p.draw.random() < 0.8 else None
    return Case(
        f"random {seed}",
        change=change,
        counts=counts,
        batch=p.batch,
        heads=p.heads,
        kv_heads=p.kv_heads,
        queries=p.queries,
        keys=p.keys,
        dim=p.draw.choice((8, 16, 20)),
        block=p.draw.choice((16, 32, 64)),
        per_head=True,  # masks may tell batches and heads apart
        gradients=p.draw.random() < 0.7,
        transposed=p.draw.random() < 0.3,
        dynamic=p.is_dynamic and change is None,  # Dynamo makes tensors of captured floats
        grows=16.0,
    )
