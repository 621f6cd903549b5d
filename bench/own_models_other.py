"""Models that walk step by step, over graphs and tables, or with whole numbers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from own_models_images import embedded
from own_models_parts import Block, Made, loss_of, model, wide


class Selective(nn.Module):
    """A state space whose steps depend on the data; walked one by one, or by sums of logarithms."""

    def __init__(self, width: int, states: int, in_sums: bool) -> None:
        super().__init__()
        inner, self.states, self.in_sums = 2 * width, states, in_sums
        self.norm, self.inward = nn.LayerNorm(width), nn.Linear(width, 2 * inner, bias=False)
        self.near = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.steps = nn.Linear(inner, inner + 2 * states)
        self.decay = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(inner, 1))
        self.skip, self.out = nn.Parameter(torch.ones(inner)), nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t = x.shape[1]
        u, gate = self.inward(self.norm(x)).chunk(2, -1)
        u = F.silu(self.near(u.transpose(1, 2))[..., :t].transpose(1, 2))
        sizes = [u.shape[-1], self.states, self.states]
        d, b, c = wide(self.steps(u)).split(sizes, -1)
        d, v = F.softplus(d) * 0.1, wide(u)
        fade = d[..., None] * -torch.exp(wide(self.decay))
        more = (d * v)[..., None] * b[:, :, None]
        walk = self._in_sums if self.in_sums else self._one_by_one
        y = walk(fade, more, c) + v * wide(self.skip)
        return x + self.out(y.to(x.dtype) * F.silu(gate))

    def _one_by_one(self, fade: torch.Tensor, more: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        state, found = torch.zeros_like(more[:, 0]), []
        kept = fade.exp()
        for k in range(fade.shape[1]):
            state = kept[:, k] * state + more[:, k]
            found.append((state * c[:, k, None]).sum(-1))
        return torch.stack(found, 1)

    def _in_sums(self, fade: torch.Tensor, more: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        past = fade.cumsum(1).clamp(min=-30)
        state = past.exp() * torch.cumsum(more * torch.exp(-past), 1)
        return (state * c[:, :, None]).sum(-1)


class Walked(nn.Module):
    """Layers one after the other, and the mean square of what they give."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return wide(self.layers(x)).square().mean()


@model
def mamba_steps(gpu: bool) -> Made:
    b, width, states = (16, 1024, 16) if gpu else (2, 64, 8)
    return Made(Walked(Selective(width, states, False)), (torch.randn(b, 64, width),))


@model
def mamba_sums(gpu: bool) -> Made:
    b, t, width, states = (8, 256, 1024, 16) if gpu else (2, 64, 64, 8)
    layers = [Selective(width, states, True) for _ in range(2)]
    return Made(Walked(*layers), (torch.randn(b, t, width),))


class Recurrent(nn.Module):
    """Cells over 32 steps, then classes from the last."""

    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(width, 10)
        self.width, self.pairs = width, isinstance(cell, nn.LSTMCell)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[1], self.width, device=x.device, dtype=x.dtype)
        c = torch.zeros_like(h)
        for k in range(x.shape[0]):
            if self.pairs:
                h, c = self.cell(x[k], (h, c))
            else:
                h = self.cell(x[k], h)
        return loss_of(self.head(h), y)


@model
def gru(gpu: bool) -> Made:
    b, width = (256, 1024) if gpu else (8, 64)
    args = torch.randn(32, b, width), torch.randint(0, 10, (b,))
    return Made(Recurrent(nn.GRUCell(width, width), width), args)


@model
def lstm(gpu: bool) -> Made:
    b, width = (256, 1024) if gpu else (8, 64)
    args = torch.randn(32, b, width), torch.randint(0, 10, (b,))
    return Made(Recurrent(nn.LSTMCell(width, width), width), args)


class GraphNet(nn.Module):
    """Messages along edges, weighed by a softmax over those that arrive, added up at nodes."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.message = nn.ModuleList([nn.Linear(3 * width, width) for _ in range(layers)])
        self.weigh = nn.ModuleList([nn.Linear(width, 1) for _ in range(layers)])
        self.update = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, ends: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        x, (source, target) = nodes, ends
        for message, weigh, update in zip(self.message, self.weigh, self.update, strict=True):
            m = F.silu(message(torch.cat((x[source], x[target], edges), -1)))
            score = wide(weigh(m).squeeze(-1))
            most = torch.full_like(wide(x[:, 0]), -1e9)
            most = most.scatter_reduce(0, target, score.detach(), "amax")
            part = torch.exp(score - most[target])
            whole = torch.zeros_like(most).scatter_add(0, target, part)
            m = m * (part / (whole[target] + 1e-9)).to(m.dtype)[:, None]
            heard = torch.zeros_like(x).index_add(0, target, m)
            x = x + F.silu(update(torch.cat((x, heard), -1)))
        return loss_of(self.head(self.norm(x)), y)


@model
def graph_net(gpu: bool) -> Made:
    nodes, edges, width, layers = (65536, 262144, 128, 3) if gpu else (512, 2048, 32, 2)
    ends = torch.randint(0, nodes, (2, edges))
    args = (
        torch.randn(nodes, width),
        torch.randn(edges, width),
        ends,
        torch.randint(0, 10, (nodes,)),
    )
    return Made(GraphNet(width, layers), args)


class Dlrm(nn.Module):
    """Bags of a few tables and dense numbers; all pairs of them, and a chance."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            [nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)]
        )
        self.dense = nn.Sequential(
            nn.Linear(13, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.ReLU()
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 8 * width), nn.ReLU(), nn.Linear(8 * width, 4 * width),
            nn.ReLU(), nn.Linear(4 * width, 1),
        )  # fmt: skip
        self.rows: torch.Tensor
        self.columns: torch.Tensor
        rows_of, columns_of = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", rows_of)
        self.register_buffer("columns", columns_of)

    def forward(
        self, numbers: torch.Tensor, ids: torch.Tensor, clicked: torch.Tensor
    ) -> torch.Tensor:
        x = self.dense(numbers)
        all_of = [x, *[table(ids[k]) for k, table in enumerate(self.tables)]]
        stacked = torch.stack(all_of, 1)
        pairs = torch.bmm(stacked, stacked.mT)[:, self.rows, self.columns]
        chance = self.top(torch.cat((pairs, x), -1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(wide(chance), wide(clicked))


@model
def dlrm(gpu: bool) -> Made:
    b, tables, rows, width, bag = (16384, 16, 100000, 64, 8) if gpu else (128, 8, 1000, 16, 4)
    clicked = (torch.rand(b) < 0.2).float()
    args = torch.rand(b, 13), torch.randint(0, rows, (tables, b, bag)), clicked
    return Made(Dlrm(tables, rows, width), args)


class Denoiser(nn.Module):
    """Layers scaled and shifted by an embedded time; predicts the noise of a schedule."""

    def __init__(self, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.time = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.inward, self.outward = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.change = nn.ModuleList([nn.Linear(hidden, 3 * hidden) for _ in range(layers)])
        self.layers = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(layers)])

    def forward(self, x: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        at = wide(time)
        signal = torch.cos(at * 1.5707963)[:, None].to(x.dtype)
        spread = torch.sin(at * 1.5707963)[:, None].to(x.dtype)
        h = self.inward(signal * x + spread * noise)
        t = F.silu(self.time(embedded(at * 1000, self.hidden).to(x.dtype)))
        for change, layer in zip(self.change, self.layers, strict=True):
            shift, scale, gate = change(t).chunk(3, -1)
            inner = F.layer_norm(h, (self.hidden,)) * (1 + scale) + shift
            h = h + gate * F.silu(layer(inner))
        off = wide(self.outward(h)) - wide(noise)
        return (off.square().mean(-1) * torch.clamp(1 / (at + 0.1), max=5.0)).mean()


@model
def denoiser(gpu: bool) -> Made:
    b, width, hidden, layers = (8192, 256, 1024, 6) if gpu else (64, 32, 128, 4)
    args = torch.randn(b, width), torch.randn(b, width), torch.rand(b)
    return Made(Denoiser(width, hidden, layers), args)


class Towers(nn.Module):
    """Images and words in one space, where pairs are near: the loss goes both ways."""

    def __init__(self, words: int, t: int, patch: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches, self.words = nn.Conv2d(3, width, patch, patch), nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(t, width) * 0.02)
        self.seeing = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.reading = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.seen, self.read = (nn.Linear(width, width // 2, bias=False) for _ in range(2))
        self.sharp = nn.Parameter(torch.tensor(2.6593))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).mT
        for block in self.seeing:
            x = block(x)
        y = self.words(ids) + self.places
        for block in self.reading:
            y = block(y, causal=True)
        last = ids.argmax(-1)
        y = y[torch.arange(len(y), device=y.device), last]
        a = F.normalize(wide(self.seen(x.mean(1))), dim=-1)
        b = F.normalize(wide(self.read(y)), dim=-1)
        scores = wide(self.sharp).exp() * a @ b.t()
        right = torch.arange(len(scores), device=x.device)
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores.t(), right)) / 2


@model
def two_towers(gpu: bool) -> Made:
    b, side, patch, words, t, width, heads, layers = (
        (64, 224, 16, 32000, 77, 512, 8, 4) if gpu else (4, 32, 8, 500, 20, 96, 4, 2)
    )
    args = torch.randn(b, 3, side, side), torch.randint(0, words, (b, t))
    return Made(Towers(words, t, patch, width, heads, layers), args)


class Whole(nn.Module):
    """A product of whole numbers, rounded row by row, then one with weights that are whole."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        for name, sizes in (("up", (inner, width)), ("down", (width, inner))):
            self.register_buffer(name, torch.randint(-127, 128, sizes, dtype=torch.int8))
            self.register_buffer(f"{name}_scale", torch.rand(sizes[0]) * 1e-3 + 1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = wide(x).abs().amax(-1, keepdim=True) / 127
        rounded = torch.clamp(torch.round(wide(x) / scale), -128, 127).to(torch.int8)
        h = torch._int_mm(rounded, self.up.t()).to(scale.dtype) * scale
        h = F.gelu((h * wide(self.up_scale)).to(x.dtype))
        weight = self.down.to(x.dtype) * self.down_scale[:, None]
        return x + F.linear(h, weight)


@model
def whole_numbers(gpu: bool) -> Made:
    rows, width, inner, layers = (4096, 2048, 8192, 4) if gpu else (64, 128, 512, 2)
    stack = nn.Sequential(*[Whole(width, inner) for _ in range(layers)])
    return Made(stack, (torch.randn(rows, width),), trains=False)
