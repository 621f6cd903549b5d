"""Models that the tests of packages pack."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A small block of a transformer: norms, attention in so many words, linear layers."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.RMSNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any) -> Any:
        """The block."""
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in parts)
        seen = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        y = x + self.out((seen @ v).transpose(1, 2).reshape(x.shape))
        return y + self.down(nn.functional.gelu(self.up(self.after(y))))


class Cache(nn.Module):
    """Keeps what it saw, as attention keeps keys, and counts its calls."""

    kept: Any
    calls: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(8, 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, at: Any) -> Any:
        """The cache with x in some rows, and how often that was done."""
        self.kept.index_copy_(0, at, x)
        self.calls.add_(1)
        return self.kept.sum(0) * self.calls


class Normed(nn.Module):
    """Batch norm while it learns: it changes what it knows of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Any) -> Any:
        """Normed by this batch."""
        return self.norm(x)


def many(x: Any, y: Any) -> Any:
    """Results of many kinds: arranged, shared, seen through views, constant."""
    z = torch.softmax(x * y, -1)
    return {"z": z, "both": [z.t(), x[1:]], "n": None, "k": 3, "sum": (z.sum(0),)}


def even(x: Any, y: Any) -> Any:
    """Takes an even number of rows only."""
    if x.shape[0] % 2 == 0:
        return x.reshape(x.shape[0] // 2, 2, -1).sum(1) + y.sum()
    raise ValueError("an odd number of rows")
