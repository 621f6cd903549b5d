"""The model of `treadle demo`: a small decoder as language models have it today, and its loss.

Tokens are embedded; each layer adds attention (normalised by the root mean square, rotary
positions, several query heads to one head of keys and values) and a gated feed-forward part; the
head that scores the next token shares the weights of the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ROTARY_BASE = 10_000.0
EPSILON = 1e-6


@dataclass(frozen=True)
class ModelSizes:
    """How large the model is, and what it is fed with."""

    words: int = 512
    width: int = 128
    inner: int = 344
    layers: int = 2
    heads: int = 4
    shared_heads: int = 2
    """Heads of keys and values; each serves `heads / shared_heads` query heads."""
    batch: int = 2
    tokens: int = 64

    def describe(self) -> str:
        """The sizes in one line."""
        return (
            f"{self.layers} layers of width {self.width}, {self.heads} heads on"
            f" {self.shared_heads}, {self.words} words; {self.batch} x {self.tokens} tokens"
        )


class RootMeanSquare(nn.Module):
    """Scales each row to a root mean square of one, then by a learned weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        """The rows of x, scaled."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self.weight


def rotary_angles(tokens: int, width: int) -> tuple[Any, Any]:
    """Cosine and sine of the angle by which each pair of a head turns at each position."""
    speeds = ROTARY_BASE ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(tokens).float(), speeds)
    return angles.cos(), angles.sin()


def rotate(x: Any, cosine: Any, sine: Any) -> Any:
    """Each pair (first half, second half) of a head turned by the angle of its position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Attention(nn.Module):
    """Causal attention; several query heads share one head of keys and values."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.sizes, self.each = sizes, sizes.width // sizes.heads
        self.norm = RootMeanSquare(sizes.width)
        self.queries = nn.Linear(sizes.width, sizes.width, bias=False)
        self.keys = nn.Linear(sizes.width, sizes.shared_heads * self.each, bias=False)
        self.values = nn.Linear(sizes.width, sizes.shared_heads * self.each, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: Any, cosine: Any, sine: Any) -> Any:
        """What every token takes from itself and those before it."""
        h = self.norm(x)
        repeat = self.sizes.heads // self.sizes.shared_heads
        queries = rotate(self._heads(self.queries(h)), cosine, sine)
        keys = rotate(self._heads(self.keys(h)), cosine, sine).repeat_interleave(repeat, dim=1)
        values = self._heads(self.values(h)).repeat_interleave(repeat, dim=1)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, x: Any) -> Any:
        return x.unflatten(-1, (-1, self.each)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two projections, one gating the other, and one back."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.norm = RootMeanSquare(sizes.width)
        self.gate = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.up = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, x: Any) -> Any:
        """The gated projections of the normalised rows."""
        h = self.norm(x)
        return self.down(functional.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """Scores of the next token at every position."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.words, sizes.width)
        pairs = [(Attention(sizes), FeedForward(sizes)) for _ in range(sizes.layers)]
        self.layers = nn.ModuleList([nn.ModuleList(pair) for pair in pairs])
        self.norm = RootMeanSquare(sizes.width)
        nn.init.normal_(self.embedding.weight, std=sizes.width**-0.5)

    def forward(self, ids: Any) -> Any:
        """Scores for each of the words, at every position of every row of `ids`."""
        cosine, sine = rotary_angles(ids.shape[1], self.sizes.width // self.sizes.heads)
        x = self.embedding(ids)
        for layer in self.layers:
            attention, feed_forward = list(layer.children())
            x = x + attention(x, cosine, sine)
            x = x + feed_forward(x)
        return functional.linear(self.norm(x), self.embedding.weight)


def next_token_loss(scores: Any, ids: Any) -> Any:
    """How badly each position foresees the token after it."""
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
