"""Models over sequences of tokens: encoders, decoders, experts, a step with a cache."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from own_models_parts import Attention, Block, Feed, Made, RMSNorm, loss_of, model, wide


class Bert(nn.Module):
    """An encoder with padding, norms last; predicts what was masked."""

    def __init__(self, words: int, most: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.drop = nn.Dropout(0.0)
        self.attentions = nn.ModuleList([Attention(width, heads) for _ in range(layers)])
        self.feeds = nn.ModuleList([Feed(width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        self.transform, self.last = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(
        self, ids: torch.Tensor, kinds: torch.Tensor, real: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(places) + self.kinds(kinds)
        x = self.drop(self.norm(x))
        mask = (1.0 - real[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for k, (attend, feed) in enumerate(zip(self.attentions, self.feeds, strict=True)):
            x = self.norms[2 * k](x + self.drop(attend(x, mask=mask)))
            x = self.norms[2 * k + 1](x + self.drop(feed(x)))
        x = self.last(F.gelu(self.transform(x)))
        return loss_of(F.linear(x, self.words.weight, self.bias), labels, ignore_index=-100)


@model
def bert(gpu: bool) -> Made:
    b, t, words, width, heads, layers = (
        (32, 256, 30522, 768, 12, 6) if gpu else (4, 64, 1024, 128, 4, 2)
    )
    ids = torch.randint(0, words, (b, t))
    lengths = torch.randint(t // 2, t + 1, (b, 1))
    real = torch.arange(t) < lengths
    labels = torch.where((torch.rand(b, t) < 0.15) & real, ids, -100)
    kinds = (torch.arange(t) >= lengths // 2).long()
    return Made(Bert(words, t, width, heads, layers), (ids, kinds, real, labels))


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Pairs of neighbours turned as complex numbers."""
    pairs = torch.view_as_complex(wide(x).unflatten(-1, (-1, 2)).contiguous())
    turns = torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class GptLayer(nn.Module):
    """Fewer heads of keys than of queries, positions by complex turns, a gate."""

    def __init__(self, width: int, heads: int, keys: int) -> None:
        super().__init__()
        self.sizes = (heads * (width // heads), *[keys * (width // heads)] * 2)
        self.one = width // heads
        self.before, self.between = RMSNorm(width), RMSNorm(width)
        self.qkv = nn.Linear(width, sum(self.sizes), bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 6 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(x)).split(self.sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, self.one)) for part in parts)
        q, k = turned(q, angles), turned(k, angles)
        found = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        x = x + self.out(found.transpose(1, 2).flatten(2))
        gate, value = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Gpt(nn.Module):
    """A decoder whose last product is its table of words."""

    def __init__(self, words: int, width: int, heads: int, keys: int, layers: int) -> None:
        super().__init__()
        self.words, self.one = nn.Embedding(words, width), width // heads
        nn.init.normal_(self.words.weight, std=width**-0.5)
        self.layers = nn.ModuleList([GptLayer(width, heads, keys) for _ in range(layers)])
        self.norm = RMSNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        kind = wide(x).dtype
        steps = torch.arange(0, self.one, 2, device=ids.device, dtype=kind) / self.one
        places = torch.arange(ids.shape[1], device=ids.device, dtype=kind)
        angles = places[:, None] * 10000.0**-steps
        for layer in self.layers:
            x = layer(x, angles)
        scores = F.linear(self.norm(x), self.words.weight)
        return loss_of(scores[:, :-1], ids[:, 1:])


@model
def gpt(gpu: bool) -> Made:
    b, t, words, width, heads, keys, layers = (
        (4, 1024, 16384, 1024, 16, 4, 4) if gpu else (2, 64, 512, 128, 4, 2, 2)
    )
    return Made(Gpt(words, width, heads, keys, layers), (torch.randint(0, words, (b, t)),))


class DecodeLayer(nn.Module):
    """A layer for one new token, whose keys and values it writes into its cache."""

    def __init__(self, b: int, most: int, width: int, heads: int, keys: int) -> None:
        super().__init__()
        self.heads, self.keys, self.one = heads, keys, width // heads
        self.before, self.between = RMSNorm(width), RMSNorm(width)
        self.qkv = nn.Linear(width, width + 2 * keys * self.one, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 6 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)
        self.k: torch.Tensor
        self.v: torch.Tensor
        self.register_buffer("k", torch.randn(b, keys, most, self.one))
        self.register_buffer("v", torch.randn(b, keys, most, self.one))

    def forward(
        self, x: torch.Tensor, at: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        both = self.keys * self.one
        q, k, v = self.qkv(self.before(x)).split([x.shape[-1], both, both], -1)
        q, k, v = (part.unflatten(-1, (-1, self.one)).transpose(1, 2) for part in (q, k, v))
        cos, sin = turn
        q, k = (
            z * cos + torch.cat((-z.chunk(2, -1)[1], z.chunk(2, -1)[0]), -1) * sin for z in (q, k)
        )
        self.k.index_copy_(2, at, k)
        self.v.index_copy_(2, at, v)
        seen = torch.arange(self.k.shape[2], device=x.device) <= at
        keys, values = (z.repeat_interleave(self.heads // self.keys, 1) for z in (self.k, self.v))
        found = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[None, None, None])
        x = x + self.out(found.transpose(1, 2).flatten(2))
        gate, value = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Decode(nn.Module):
    """One step of a decoder with a cache: the next token's scores."""

    def __init__(
        self, b: int, words: int, most: int, width: int, heads: int, keys: int, layers: int
    ) -> None:
        super().__init__()
        self.words, self.one = nn.Embedding(words, width), width // heads
        self.layers = nn.ModuleList(
            [DecodeLayer(b, most, width, heads, keys) for _ in range(layers)]
        )
        self.norm, self.head = RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        kind = wide(x).dtype
        steps = torch.arange(0, self.one, 2, device=ids.device, dtype=kind) / self.one
        angles = (at[:, None].to(kind) * 10000.0**-steps).repeat(1, 2)
        turn = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, at, turn)
        return self.head(self.norm(x[:, -1]))


@model
def gpt_decode(gpu: bool) -> Made:
    b, words, most, width, heads, keys, layers = (
        (16, 32000, 2048, 2048, 16, 4, 16) if gpu else (2, 512, 256, 256, 8, 2, 4)
    )
    args = torch.randint(0, words, (b, 1)), torch.tensor([most // 2 + 3])
    return Made(Decode(b, words, most, width, heads, keys, layers), args, trains=False)


class Distances(nn.Module):
    """A bias for each head that depends on how far apart two places are, in rough steps."""

    def __init__(self, heads: int, both_ways: bool, steps: int = 32, far: int = 128) -> None:
        super().__init__()
        self.table, self.both_ways = nn.Embedding(steps, heads), both_ways
        self.steps, self.far = steps, far

    def forward(self, t: int) -> torch.Tensor:
        places = torch.arange(t, device=self.table.weight.device)
        apart, steps = places[None] - places[:, None], self.steps
        if self.both_ways:
            steps //= 2
            side, apart = (apart > 0).long() * steps, apart.abs()
        else:
            side, apart = torch.zeros_like(apart), (-apart).clamp(min=0)
        near = steps // 2
        rough = torch.log(apart.float() / near) / math.log(self.far / near) * (steps - near)
        large = (near + rough.clamp(min=0).long()).clamp(max=steps - 1)
        found = self.table(side + torch.where(apart < near, apart, large))
        if not self.both_ways:
            later = torch.ones(t, t, dtype=torch.bool, device=places.device).triu(1)
            found = found.masked_fill(later[:, :, None], torch.finfo(found.dtype).min)
        return found.permute(2, 0, 1)[None]


class Gated(nn.Module):
    """A feed-forward layer with a gelu's tanh form as its gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class T5(nn.Module):
    """Encoder and decoder with biases by distance and scores that are not scaled."""

    def __init__(self, words: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.near, self.past = Distances(heads, True), Distances(heads, False)
        attend = [Attention(width, heads, scale=1.0) for _ in range(3 * layers)]
        for one in attend:
            nn.init.normal_(one.q.weight, std=1 / width)
        self.attend = nn.ModuleList(attend)
        self.feed = nn.ModuleList([Gated(width) for _ in range(2 * layers)])
        self.norms = nn.ModuleList([RMSNorm(width) for _ in range(5 * layers + 2)])
        self.count = layers

    def forward(self, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        norms, attend, feed = iter(self.norms), iter(self.attend), iter(self.feed)
        x, near, past = self.words(ids), self.near(ids.shape[1]), self.past(wanted.shape[1])
        for _ in range(self.count):
            x = x + next(attend)(next(norms)(x), mask=near)
            x = x + next(feed)(next(norms)(x))
        x = next(norms)(x)
        y = self.words(F.pad(wanted[:, :-1], (1, 0)))
        for _ in range(self.count):
            y = y + next(attend)(next(norms)(y), mask=past)
            y = y + next(attend)(next(norms)(y), memory=x)
            y = y + next(feed)(next(norms)(y))
        scores = F.linear(next(norms)(y) * y.shape[-1] ** -0.5, self.words.weight)
        return loss_of(scores, wanted)


@model
def t5(gpu: bool) -> Made:
    b, t, u, words, width, heads, layers = (
        (16, 512, 256, 32128, 512, 8, 4) if gpu else (2, 64, 48, 512, 128, 4, 1)
    )
    args = torch.randint(0, words, (b, t)), torch.randint(0, words, (b, u))
    return Made(T5(words, width, heads, layers), args)


class Experts(nn.Module):
    """Each token asks two experts; all are computed, and weighed."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)
        self.experts = experts

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chances = F.linear(wide(x), wide(self.router.weight)).softmax(-1)
        best, which = chances.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(chances).scatter(-1, which, best)
        gate, value = torch.einsum("nd,edf->enf", x, self.up).chunk(2, -1)
        each = torch.einsum("enf,efd->end", F.silu(gate) * value, self.down)
        taken = F.one_hot(which, self.experts).to(chances.dtype).sum(1).mean(0)
        balance = self.experts * (taken * chances.mean(0)).sum()
        return torch.einsum("ne,end->nd", weights.to(x.dtype), each), balance


class Mixture(nn.Module):
    """Experts, then a layer of attention, and a loss with their balance."""

    def __init__(self, words: int, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.words, self.experts = nn.Embedding(words, width), Experts(width, experts)
        self.block, self.head = Block(width, heads), nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        found, balance = self.experts(x.flatten(0, 1))
        x = self.block(x + found.view_as(x), causal=True)
        return loss_of(self.head(x)[:, :-1], ids[:, 1:]) + 0.01 * balance


@model
def experts(gpu: bool) -> Made:
    b, t, words, width, heads, count = (
        (8, 512, 16384, 1024, 16, 8) if gpu else (2, 64, 256, 96, 4, 4)
    )
    return Made(Mixture(words, width, heads, count), (torch.randint(0, words, (b, t)),))


class Smoothed(nn.Module):
    """A small language model whose labels are smoothed."""

    def __init__(self, words: int, most: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(most, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places
        for block in self.blocks:
            x = block(x, causal=True)
        return loss_of(self.head(self.norm(x))[:, :-1], ids[:, 1:], label_smoothing=0.1)


@model
def smoothed_labels(gpu: bool) -> Made:
    b, t, words, width, heads, layers = (
        (8, 512, 32000, 768, 12, 4) if gpu else (2, 64, 1000, 128, 4, 2)
    )
    return Made(Smoothed(words, t, width, heads, layers), (torch.randint(0, words, (b, t)),))


class AdamW(nn.Module):
    """The optimizer's step on the model before, all tensors at once."""

    def __init__(self, of: nn.Module) -> None:
        super().__init__()
        self.of = of
        self.optimizer = torch.optim.AdamW(of.parameters(), lr=1e-3, foreach=True)

    def forward(self, *gradients: torch.Tensor) -> list[torch.Tensor]:
        for p, g in zip(self.of.parameters(), gradients, strict=True):
            p.grad = g
        self.optimizer.step()
        return [p.detach() for p in self.of.parameters()]


@model
def adamw(gpu: bool) -> Made:
    language = smoothed_labels(gpu).module
    gradients = tuple(torch.randn_like(p) for p in language.parameters())
    return Made(AdamW(language), gradients, trains=False)
